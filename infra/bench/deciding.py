"""Measures the decisions query: a topic full of decisions, one job, and played servers that take the changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from nyala.infra.local.jobs import Event
from nyala.pipeline import Topics
from nyala.pipeline.task_producer import TaskProducer
from nyala.replica.types import (
    Action,
    Address,
    ConfigEdit,
    Decision,
    EditKind,
    Member,
    OpId,
    Result,
    kafka_topics,
)
from nyala.schemas import encode_record

from .options import BenchmarkError
from .played_servers import tablet_id_of, uuid_of
from .players import Players
from .report import Figures
from .sides import timed_job
from .target import Target

SERVERS = 50


def made_decisions(count: int, addresses: Sequence[Address], term: int) -> Iterator[Decision]:
    """Yield decisions of distinct tablets: each adds a server to a tablet that the server before it leads."""
    for number in range(count):
        leader, joins = number % len(addresses), (number + 1) % len(addresses)
        member = Member(uuid_of(joins), (addresses[joins],), votes=False, promote=True)
        yield Decision(
            tablet_id=tablet_id_of(number), table_id="bench", catalog_term=term, version=1, action=Action.CHANGE_CONFIG,
            edits=(ConfigEdit(EditKind.ADD, member),), config_opid=OpId(1, 1), reason="bench",
            leader_uuid=uuid_of(leader), leader_address=str(addresses[leader]),
        )  # fmt: skip


def publish(bootstrap: str, topic_prefix: str, decisions: Iterator[Decision]) -> None:
    """Fill the topic; not timed."""
    name, topics = kafka_topics.DECISIONS, Topics(bootstrap)
    topics.ensure(topic_prefix + name, kafka_topics.PARTITIONS[name], configs=kafka_topics.settings_of(name))
    topics.close()
    producer = TaskProducer(bootstrap, topic_prefix + name)
    for decision in decisions:
        producer.send(decision.tablet_id.encode(), encode_record(decision))
    producer.flush()


def outcomes_held(bootstrap: str, topic_prefix: str) -> int:
    """The outcomes in Kafka."""
    topics = Topics(bootstrap)
    try:
        return topics.offsets(topic_prefix + kafka_topics.OUTCOMES, 1, latest=True)[0]
    finally:
        topics.close()


def decisions_round(target: Target, count: int, number: int, note: Callable[[str], None]) -> Figures:
    """One run of the job over a topic of `count` decisions. BenchmarkError if one of them was not done."""
    stack, prefix = target.own, f"bench{number}."
    results: Counter[str] = Counter()
    batch_s: list[float] = []

    def hear(event: Event) -> None:
        if event.get("event") == "decisions":
            results.update(event["results"])
            batch_s.append(event["duration_s"])

    with Players(SERVERS) as players:
        publish(stack.kafka_bootstrap, prefix, made_decisions(count, players.addresses, target.client.catalog_term()))
        note(f"{count:,} decisions are published")
        arguments = [
            "--masters", target.masters, "--kafka", stack.kafka_bootstrap, "--topic-prefix", prefix,
            "--checkpoint", str(stack.folder / f"checkpoint-decisions-{number}"), "--available-now",
        ]  # fmt: skip
        job, status, whole_s = timed_job("decisions", arguments, stack.folder, hear)
        players.tell(changes=True)
        made = players.hear_all("changes")
    held = outcomes_held(stack.kafka_bootstrap, prefix)
    if status or results != {Result.DONE: count} or held < count or made["tablets"] != count:
        told = " ".join(job.messages[-1:])
        raise BenchmarkError(f"of {count} decisions, job status {status}: {dict(results)}, {held} outcomes; {told}")
    return {
        "decisions_count": count,
        "decisions_servers": SERVERS,
        "decisions_at_once_max": made["at_once_max"],
        "decisions_batches_s": sum(batch_s),
        "decisions_batches_per_s": count / sum(batch_s),
        "decisions_s": whole_s,
    }
