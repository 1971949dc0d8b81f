"""The part of a master's status about Kafka, for the wire."""

from __future__ import annotations

from typing import Any

from nyala.replica.rpc import pb

from .kafka_link import KafkaLink


def kafka_status(link: KafkaLink | None, now_us: int) -> dict[str, Any]:
    """The fields of MasterStatusReply about Kafka; `now_us`: the monotonic clock's time. Empty without a Kafka."""
    if link is None:
        return {}

    def ago(at_us: int | None) -> int | None:
        return None if at_us is None else max(0, now_us - at_us)

    return {
        "kafka_named": True,
        "kafka_bootstrap": link.bootstrap,
        "kafka_connected": link.connected,
        "kafka_dropped": link.dropped,
        "kafka": [
            pb.KafkaChannel(
                topic=c.topic,
                doing=c.doing,
                link=c.link,
                last_success_us_ago=ago(c.success_us),
                last_error=c.error,
                last_error_us_ago=ago(c.error_us),
                failures=c.failures,
            )
            for c in link.state.channels()
        ],
        "skipped": [
            pb.SkippedRecords(
                topic=s.topic,
                fault=s.fault,
                count=s.count,
                last_place=s.place,
                last_reason=s.reason,
                last_us_ago=ago(s.last_us),
            )
            for s in link.state.all_skipped()
        ],
    }
