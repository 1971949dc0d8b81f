"""Texts for operators about the masters' connection to Kafka, and its defects. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nyala.replica.rpc import pb

FINE = ("connected", "not leading")


def kafka_problems(status: pb.MasterStatusReply) -> Iterator[tuple[bool, str]]:
    """Yield (whether it is an error, text) for each defect of this master's connection to Kafka.

    An unreachable Kafka is an error of the leading master only, because the others publish nothing.
    """
    leads = status.replica.role == "LEADER"
    by_state: dict[tuple[str, str, str, str], list[str]] = {}
    for channel in status.kafka:
        if channel.link not in FINE:
            key = (channel.doing, channel.link, _since(channel), channel.last_error)
            by_state.setdefault(key, []).append(channel.topic)
    for (doing, link, since, error), topics in by_state.items():
        text = f"Kafka: {doing} {', '.join(topics)}: {link}, {since}" + (f"; last error: {error}" if error else "")
        if link == "dead":
            text += "; its thread ended by a defect: restart this master"
        yield leads or link == "dead", text
    if status.kafka_dropped:
        yield False, f"Kafka: {status.kafka_dropped} records were given up because too many waited to be published"
    for skipped in status.skipped:
        yield False, _skipped_text(skipped)


def _skipped_text(skipped: pb.SkippedRecords) -> str:
    return (
        f"Kafka: {skipped.count} records of {skipped.topic} were skipped ({skipped.fault}), the last one "
        f"{ago(skipped.last_us_ago)} at {skipped.last_place}: {skipped.last_reason}; only masters, executors and the "
        "rebalance job write there: find out who does, and take its right to write away"
    )


def letters_text(table: str, count: int) -> str:
    """Return the text for a table some of whose records did not become rows."""
    return (
        f"{count} records at most did not become rows and are in dead-letters.{table}, as long as nobody removes them: "
        f"`nyala dead-letter list {table}` says why of each; once that is mended, `nyala dead-letter replay {table}` "
        "publishes them again"
    )


def kafka_line(status: pb.MasterStatusReply) -> str:
    """Return the state of a master's connection to Kafka in one line; empty for a master without Kafka."""
    if not status.kafka_named:
        return ""
    bad = [text for _, text in kafka_problems(status)]
    return "; ".join(bad) if bad else "Kafka: connected" if status.kafka_connected else "Kafka: not connected"


def _since(channel: pb.KafkaChannel) -> str:
    if not channel.HasField("last_success_us_ago"):
        return f"no success yet, {channel.failures} failures"
    return f"last success {ago(channel.last_success_us_ago)}, {channel.failures} failures"


def ago(us: int) -> str:
    """Return a duration as text for operators."""
    seconds = us // 1_000_000
    if seconds < 120:
        return f"{seconds} s ago"
    return f"{seconds // 60} min ago" if seconds < 7200 else f"{seconds // 3600} h ago"
