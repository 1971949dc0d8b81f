"""`nyala decisions replay`: the configs to which the history arrives, what it lacks, and how they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from typer.testing import CliRunner

from nyala.infra.cli import replay
from nyala.infra.cli.app import app
from nyala.pipeline import decision_log
from nyala.replica.rpc import config_to_pb, pb
from nyala.replica.types import Code, EventKind, HistoryEvent, OpId, RaftConfig, Refused
from nyala.schemas import encode_record
from tests.unit.master.test_master_history import MEMBERS, World
from tests.unit.pipeline.test_decision_log import Kafka

HISTORY = TopicPartition("history", 0)


class Stage:
    """A topic, and the masters' catalog beside it; `away`: no master answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.kafka, self.away = World(), Kafka({("history", 0): []}, {}), False
        self.world.change({"t0", "t1", "t2"})
        self.world.settle()
        self.world.drop({"t2"})
        self.world.change({"t1"})
        self.world.settle()
        self.catalog = self.world.living()
        monkeypatch.setattr(decision_log, "KafkaConsumer", lambda **_: self.kafka)
        monkeypatch.setattr(decision_log, "check_reachable", lambda _: None)
        monkeypatch.setattr(replay, "client", self.client)
        monkeypatch.setattr(replay, "SETTLE_S", 0.0)

    @contextmanager
    def client(self, masters: str) -> Iterator[Any]:
        if self.away:
            raise Refused(Code.UNAVAILABLE, "nobody listens")
        yield SimpleNamespace(table_names=lambda: ["flights", "gone"], tablet_infos=self.tablet_infos)

    def tablet_infos(self, name: str) -> list[pb.TabletInfo]:
        if name == "gone":
            raise Refused(Code.NOT_FOUND, "dropped since it was listed")
        return [pb.TabletInfo(tablet_id=t, config=config_to_pb(config)) for t, config in self.catalog.items()]

    def hold(self, events: list[HistoryEvent]) -> None:
        """Let the topic hold these events."""
        self.kafka.logs[HISTORY] = [(event.tablet_id.encode(), encode_record(event)) for event in events]

    def run(self, *line: str) -> Any:
        return CliRunner().invoke(app, ["decisions", "replay", *line, "--kafka", "k:1"], env={"COLUMNS": "300"})

    def read(self, *line: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """The exit status, the tablets by id, and the result."""
        done = self.run("--json", *line)
        *tablets, result = map(json.loads, done.stdout.splitlines())
        return done.exit_code, {one["tablet_id"]: one for one in tablets}, result


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage(monkeypatch)
    made.hold(made.world.topic)
    return made


def test_history_that_equals_the_catalog_is_said_to(stage: Stage) -> None:
    """Goal: an operator sees that the history is whole and arrives at the catalog's configs. Method: changes and a drop
    of a masters' catalog, as a table and as JSON, with a table that is dropped while the catalog is read."""
    status, tablets, result = stage.read()
    assert (status, result["equal"], result["compared"], result["differences"]) == (0, True, True, 0)
    assert {t: one["config"]["opid"] for t, one in tablets.items()} == {
        t: str(config.opid) for t, config in stage.catalog.items()
    }
    assert tablets["t0"]["table"] == "flights" and tablets["t0"]["difference"] == ""
    assert (result["begins"], result["missing"], result["gaps"]) == ("1.1", 0, [])
    shown = stage.run()
    assert shown.exit_code == 0 and "the configs equal those in the masters' catalog" in shown.stdout
    assert "no change of a config is missing" in shown.stdout and shown.stdout.count("equal ") >= 2
    few = stage.run("--limit", "1")
    assert "1 of 2 tablets; --limit shows more" in few.stderr


def test_each_difference_is_named_and_the_status_is_2(stage: Stage) -> None:
    """Goal: a catalog that differs is found, tablet by tablet. Method: another config, a tablet that only the history
    has, and one that only the catalog has; then a catalog of which no tablet is in the history."""
    other = RaftConfig(OpId(7, 7), MEMBERS[:1], unsafe=True)
    stage.catalog = {"t1": other, "t9": other}
    status, tablets, result = stage.read("--limit", "3")
    found = {t: one["difference"] for t, one in tablets.items()}
    assert found == {"t0": "NOT_IN_CATALOG", "t1": "OTHER_CONFIG", "t9": "NOT_IN_HISTORY"}
    assert (status, result["equal"], result["differences"]) == (2, False, 3)
    assert tablets["t1"]["catalog"]["opid"] == "7.7" and tablets["t1"]["catalog"]["forced"]
    assert (tablets["t0"]["catalog"], tablets["t9"]["config"]) == (None, None)
    shown = stage.run()
    assert shown.exit_code == 2 and "differ from the masters' catalog: 3 tablets" in shown.stdout
    assert "no tablet in common" not in shown.stdout and "has 7.7 aaaaaaaa" in shown.stdout
    stage.catalog = {"t9": other}
    assert "no tablet in common: the history is of another cluster" in stage.run().stdout


def test_change_that_the_history_has_a_moment_later_is_no_difference(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a comparison during changes tells no difference that is none. Method: a catalog that is one change ahead
    at the first look; the masters append it, while another tablet changes that agreed before."""
    monkeypatch.setattr(replay, "SETTLE_S", 60.0)
    stage.world.change({"t0"})
    stage.catalog = stage.world.living()

    looks: list[float] = []

    def append(pause_s: float) -> None:
        looks.append(pause_s)
        assert len(looks) < 3, "the first look after the masters appended the change ends it"
        stage.world.settle()
        stage.hold(stage.world.topic)
        stage.world.change({"t1"})
        stage.catalog = stage.world.living()

    monkeypatch.setattr(replay.time, "sleep", append)
    status, _, result = stage.read()
    assert (status, result["equal"]) == (0, True)
    assert len(stage.kafka.logs[HISTORY]) == result["events"] == len(stage.world.topic)


def test_without_masters_nothing_is_compared(stage: Stage) -> None:
    """Goal: the replay works while the masters are away, and says that it compared nothing. Method: no master
    answers."""
    stage.away = True
    status, tablets, result = stage.read()
    assert (status, result["compared"], result["equal"], len(tablets)) == (0, False, False, 2)
    assert "nobody listens" in result["not_compared"]
    assert "nothing is compared, because no master answers" in stage.run().stdout


def test_configs_of_a_time_are_those_before_it(stage: Stage) -> None:
    """Goal: `--at` shows the configs of that time. Method: a change, a snapshot that is made over hours and has a later
    change, and that change; a time between, one before all, and one that is to come."""
    first, second = RaftConfig(OpId(1, 1), MEMBERS[:3]), RaftConfig(OpId(1, 2), MEMBERS[1:])
    hour = 3_600_000_000
    change = HistoryEvent(
        kind=EventKind.CONFIG, tablet_id="t", catalog_opid=OpId(1, 1), tablets=1, at_us=hour, config_opid=first.opid,
        members=first.members,
    )  # fmt: skip
    later = replace(
        change, catalog_opid=OpId(1, 3), after=OpId(1, 1), at_us=5 * hour, config_opid=second.opid,
        members=second.members,
    )  # fmt: skip
    began = HistoryEvent(
        kind=EventKind.SNAPSHOT_BEGAN, catalog_opid=OpId(1, 2), after=OpId(1, 1), at_us=2 * hour, snapshot_id="s"
    )
    part = replace(later, kind=EventKind.SNAPSHOT, catalog_opid=OpId(1, 2), at_us=2 * hour, snapshot_id="s")
    gap = HistoryEvent(kind=EventKind.GAP, at_us=4 * hour, reason="Kafka was away")
    stage.hold([change, began, part, gap, later])
    stage.kafka.written_ms = {2: 6 * 3_600_000}
    status, tablets, result = stage.read("--at", "1970-01-01T03:00:00Z")
    assert (status, tablets["t"]["config"]["opid"], result["events"]) == (0, "1.1", 2)
    assert "--at names a time" in result["not_compared"] and result["gaps"] == []
    status, tablets, result = stage.read("--at", "1970-01-01T05:00:00Z")
    assert tablets["t"]["config"]["opid"] == "1.2" and result["gaps"][0]["reason"] == "Kafka was away"
    assert "events were lost before 1970-01-01T04:00:00.000Z: Kafka was away" in stage.run().stdout
    early = stage.run("--at", "1970-01-01T00:30:00Z")
    assert isinstance(early.exception, Refused) and "is of 1970-01-01T01:00:00.000Z" in str(early.exception)
    future = stage.run("--at", "9000-01-01T00:00:00Z")
    assert future.exit_code == 2 and "is in the future" in future.stderr


def test_topic_without_a_history_is_an_error_that_says_why(stage: Stage) -> None:
    """Goal: a wrong prefix, an empty topic and a topic of other records are not an empty cluster. Method: each of
    them."""
    for records, said in (([], ""), ([(b"t0", b"row")], "records of history that cannot be read and are not shown: 1")):
        stage.kafka.logs[HISTORY] = records
        done = stage.run()
        assert isinstance(done.exception, Refused) and done.exception.code is Code.NOT_FOUND and not done.stdout
        assert "no event of a history" in str(done.exception) and said in done.stderr
    done = stage.run("--topic-prefix", "x.")
    assert isinstance(done.exception, Refused) and "there is no topic x.history" in done.stderr


def test_missing_events_are_told(stage: Stage) -> None:
    """Goal: what retention removed, and what is missing, is told. Method: a topic that begins in the middle of its
    only snapshot; then a whole one without one later change, beside a foreign record."""
    events = stage.world.topic
    began = next(at for at, event in enumerate(events) if event.kind is EventKind.SNAPSHOT_BEGAN)
    stage.kafka.first["history"] = began + 1
    cut = stage.run()
    assert "no snapshot in the topic is complete" in cut.stdout
    assert f"the first {began + 1} records of history are not shown" in cut.stderr
    stage.kafka.first["history"] = 0
    dropped = next(e for e in events if e.kind is EventKind.DROPPED)
    stage.hold([event for event in events if event is not dropped])
    stage.kafka.logs[HISTORY].append((b"t0", b"row"))
    lost = stage.run()
    assert f"1 entries are named and not there, such as {dropped.catalog_opid}" in lost.stdout
    assert "not shown: 1 (" in lost.stderr and lost.exit_code == 2


def test_progress_of_a_long_topic_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who replays a long topic sees how far it is. Method: a line is due at each page."""
    monkeypatch.setattr(replay, "PROGRESS_EVERY_S", -1.0)
    count = len(stage.world.topic)
    said = stage.run().stderr.splitlines()
    assert said[0] == f"read 1 of {count} records of the history" and f"read {count} of {count}" in said[count - 1]
