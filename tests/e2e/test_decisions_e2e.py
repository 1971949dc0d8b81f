"""The decisions query on Kafka and Spark, with played servers that count what reaches them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from nyala.infra.bench.deciding import made_decisions, publish
from nyala.infra.bench.players import Players
from nyala.pipeline import DecisionsOptions, DecisionsProgress, DecisionsQuery
from nyala.pipeline.decision_tasks import BOUNDS
from nyala.replica.decision_executor import Unusable, read_record
from nyala.replica.types import Outcome, kafka_topics
from tests.harness.road import Road

pytestmark = pytest.mark.e2e
SERVERS = 3


@pytest.fixture
def players() -> Iterator[Players]:
    """Three servers that take every change."""
    with Players(SERVERS) as played:
        yield played


class Decisions:
    """One topic of decisions, and a checkpoint."""

    def __init__(self, road: Road, players: Players, name: str, count: int) -> None:
        self.road, self.prefix, self.count = road, f"{name}.", count
        self.checkpoint = road.folder / f"checkpoint-{name}"
        self._players = players
        made = made_decisions(count, players.addresses, road.client.catalog_term())
        publish(road.kafka, self.prefix, made)

    def run(self) -> list[DecisionsProgress]:
        """Carry out what is in the topic; returns what each micro-batch did."""
        told: list[DecisionsProgress] = []
        options = DecisionsOptions(
            masters=self.road.stack.masters, bootstrap=self.road.kafka, checkpoint=str(self.checkpoint),
            topic_prefix=self.prefix, available_now=True,
        )  # fmt: skip
        DecisionsQuery(self.road.spark, options, told.append).run()
        return told

    def forget_last_commit(self) -> None:
        """Leave what a driver leaves that dies before Spark's commit."""
        commits: Path = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink(missing_ok=True)

    def changes(self) -> dict[str, int]:
        """Return the changes that reached the servers since the last time: all, of different tablets, at a time."""
        self._players.tell(changes=True)
        found: dict[str, int] = self._players.hear_all("changes")
        return found

    def outcomes(self) -> Counter[tuple[str, str]]:
        """Return how many outcomes Kafka has of each tablet and result."""
        place = TopicPartition(self.prefix + kafka_topics.OUTCOMES, 0)
        consumer = KafkaConsumer(bootstrap_servers=self.road.kafka, enable_auto_commit=False)
        found: Counter[tuple[str, str]] = Counter()
        try:
            consumer.assign([place])
            consumer.seek_to_beginning()
            end = consumer.end_offsets([place])[place]
            while consumer.position(place) < end:
                for record in consumer.poll(timeout_ms=500).get(place, []):
                    outcome = read_record(Outcome, record.key, record.value)
                    assert not isinstance(outcome, Unusable)
                    found[outcome.tablet_id, outcome.result] += 1
        finally:
            consumer.close()
        return found


def test_decisions_reach_their_leaders_once_and_a_few_at_a_time(road: Road, players: Players) -> None:
    """Goal: each of many decisions is sent once, no server takes more at a time than its bound, each has one outcome,
    and what reaches the driver counts them. Method: 600 decisions for three played servers, which count; then the
    micro-batch runs again, as after a driver's death: all are sent again, and have a second outcome."""
    here = Decisions(road, players, "many", 600)
    told = here.run()
    made = here.changes()
    assert (made["changes"], made["tablets"]) == (600, 600)
    assert 1 < made["at_once_max"] <= BOUNDS.per_target_max
    assert [(each.results, each.skipped, each.examples) for each in told] == [({"DONE": 600}, 0, ())]
    once = here.outcomes()
    assert set(once.values()) == {1} and len(once) == 600
    here.forget_last_commit()
    assert [each.results for each in here.run()] == [{"DONE": 600}]
    assert here.changes()["changes"] == 600
    assert here.outcomes() == Counter(dict.fromkeys(once, 2))


@pytest.mark.parametrize("point", ["amid_decisions", "before_outcomes"])
def test_worker_killed_amid_decisions_loses_none(road: Road, players: Players, point: str) -> None:
    """Goal: a worker that dies amid its decisions, or before Kafka has their outcomes, loses no decision and does not
    end the query. Method: each crash point, in the first attempt of a task; every tablet has an outcome, and the
    servers got some decisions twice."""
    here = Decisions(road, players, point, 60)
    with road.workers_die_at(f"pipeline.{point}"):
        told = here.run()
    made = here.changes()
    assert [each.results for each in told] == [{"DONE": 60}]
    assert made["tablets"] == 60 < made["changes"] <= 120
    found = here.outcomes()
    assert len(found) == 60 and {result for _, result in found} == {"DONE"}
