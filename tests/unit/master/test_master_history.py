"""The history of configs: what masters append to Kafka, through losses and restarts, and what a replay of it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.pipeline import history
from nyala.pipeline.history import Replay, Replayed, fold
from nyala.replica.decision_executor import Unusable, read_record
from nyala.replica.master import Catalog
from nyala.replica.master.catalog import config_changes
from nyala.replica.master.catalog.records import TABLET, Tablet
from nyala.replica.master.decisions import history_writer
from nyala.replica.master.decisions.history_writer import SNAPSHOT_EVERY_US, HistoryWriter
from nyala.replica.types import (
    Action,
    Address,
    Decision,
    Entry,
    EventKind,
    HistoryEvent,
    Member,
    OpId,
    RaftConfig,
)
from nyala.schemas import encode_record
from tests.harness.catalogs import AppliedCatalog

MEMBERS = tuple(Member(n * 32, (Address("h", 7),)) for n in "abcd")
TABLETS = [f"t{n}" for n in range(4)]
RESTART, LEAD, FLUSH, TICK, ACKNOWLEDGE, DAY = "restart", "lead", "flush", "tick", "acknowledge", "day"


class World:
    """A masters' catalog with its log, a leading master's writer, and the topic. Kafka has a batch once it is
    acknowledged; until then it may be lost with its master."""

    def __init__(self) -> None:
        self.box = AppliedCatalog()
        self.log: list[Entry] = []
        self.term, self.mono_us, self.configs = 0, 0, 0
        self.topic: list[HistoryEvent] = []
        self.changed: dict[OpId, set[str]] = {}
        """By entry, the tablets whose config it changed."""
        self.lead()

    @property
    def catalog(self) -> Catalog:
        return self.box.catalog

    def lead(self) -> None:
        """Let another master lead. What waited for Kafka at the former one is lost."""
        self.term += 1
        self.writer, self.batch = HistoryWriter(lambda: self.catalog, f"m{self.term}"), []

    def restart(self) -> None:
        """Let a master lead that has just replayed its log."""
        self.box = AppliedCatalog(self.box.disk)
        flushed = self.catalog.flush_opid
        self.catalog.apply([entry for entry in self.log if entry.opid > flushed])
        self.box.index = len(self.log)
        self.lead()

    def commit(self, puts: dict[str, Tablet], deletes: tuple[str, ...] = ()) -> None:
        """Commit one entry of the catalog."""
        before = self.living()
        self.log.append(
            self.box.entry({TABLET + t: tablet for t, tablet in puts.items()}, [TABLET + t for t in deletes])
        )
        self.catalog.apply(self.log[-1:])
        after = self.living()
        if changed := {t for t in before.keys() | after.keys() if before.get(t) != after.get(t)}:
            self.changed[self.log[-1].opid] = changed

    def config(self, tablet_id: str) -> Tablet:
        """A record of the tablet, with a config as no one before it."""
        self.configs += 1
        config = RaftConfig(OpId(1, self.configs), MEMBERS[self.configs % 3 :], unsafe=self.configs % 5 == 0)
        known = self.catalog.get(TABLET, tablet_id) or Tablet(
            table_id="table", bucket=0, range_pos=0, members=MEMBERS[:3]
        )
        return replace(known, formed=True, config=config)

    def change(self, chosen: set[str]) -> None:
        """Change the configs of tablets that are not dropped."""
        records = {t: self.catalog.get(TABLET, t) for t in sorted(chosen)}
        self.commit({t: self.config(t) for t, known in records.items() if known is None or not known.dropped})

    def drop(self, chosen: set[str]) -> None:
        """Drop the tablets, or forget those that are dropped already."""
        records = {t: self.catalog.get(TABLET, t) for t in sorted(chosen)}
        gone = tuple(t for t, known in records.items() if known is not None and known.dropped)
        puts = {t: replace(known, dropped_us=1) for t, known in records.items() if known and not known.dropped}
        self.commit(puts, gone)

    def tick(self) -> bool:
        """One tick of the leading master; whether there was something to append."""
        self.mono_us += 1_000_000
        batch = self.writer.take(self.term, self.mono_us, self.mono_us)
        self.batch += batch
        return bool(batch)

    def acknowledge(self) -> None:
        """Let Kafka acknowledge what waits."""
        self.topic += self.batch
        for _ in self.batch:
            self.writer.acknowledged()
        self.batch = []

    def do(self, step: Any) -> None:
        match step:
            case ("change" | "drop" as name, chosen):
                getattr(self, name)(chosen)
            case "restart" | "lead" | "tick" | "acknowledge":
                getattr(self, step)()
            case "flush":
                self.catalog.flush()
            case "day":
                self.mono_us += SNAPSHOT_EVERY_US

    def settle(self) -> None:
        """Let Kafka take everything."""
        self.acknowledge()
        while self.tick():
            self.acknowledge()

    def living(self) -> dict[str, RaftConfig]:
        return {t: record.known_config for t, record in self.catalog.items(TABLET) if not record.dropped}


CHOSEN = st.sets(st.sampled_from(TABLETS), min_size=1)
STEPS = st.lists(
    st.tuples(st.sampled_from(["change", "change", "drop"]), CHOSEN)
    | st.sampled_from([RESTART, LEAD, FLUSH, TICK, TICK, ACKNOWLEDGE, ACKNOWLEDGE, DAY]),
    max_size=40,
)


def small(monkeypatch: pytest.MonkeyPatch, kept: int, batch: int) -> None:
    monkeypatch.setattr(config_changes, "KEPT_TABLETS_MAX", kept)
    monkeypatch.setattr(history_writer, "BATCH_MAX", batch)


@pytest.mark.deep
@given(STEPS, st.randoms(use_true_random=False), st.sampled_from([1, 3, 100]), st.sampled_from([2, 4, 100]))
def test_replay_has_the_configs_of_the_catalog_and_knows_what_is_missing(
    steps: list[Any], rng: Any, kept: int, batch: int
) -> None:
    """Goal: the history, shuffled and doubled, arrives at the configs of the masters' catalog, and says whether an
    event is missing: neither a gap untold, nor one told that is none. Method: changes, drops, elections, restarts,
    flushes and a Kafka that takes nothing for a while, in any order, with a master that keeps few changes or many;
    then all events from the oldest complete snapshot on, and all events."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        small(monkeypatch, kept, batch)
        world = World()
        for step in steps:
            world.do(step)
        world.settle()
    found = fold(world.topic)
    mixed = world.topic * 2
    rng.shuffle(mixed)
    assert fold(mixed) == found
    assert found.configs == world.living()
    assert found.begins is not None
    told: dict[OpId, set[str]] = {}
    for event in world.topic:
        if event.kind in (EventKind.CONFIG, EventKind.DROPPED):
            told.setdefault(event.catalog_opid, set()).add(event.tablet_id)
    lost = {opid for opid, tablets in world.changed.items() if opid > found.begins and told.get(opid) != tablets}
    assert set(found.missing) <= lost and bool(found.missing) is bool(lost)
    assert all(event.reason for event in world.topic if event.kind is EventKind.GAP)
    first = next(e.snapshot_id for e in world.topic if e.catalog_opid == found.begins and e.snapshot_id)
    began = next(at for at, event in enumerate(world.topic) if event.snapshot_id == first)
    later = fold(world.topic[began:])
    assert (later.configs, later.missing) == (found.configs, found.missing)


def kinds(events: list[HistoryEvent]) -> list[str]:
    return [event.kind.value for event in events]


def test_loss_is_told_and_a_snapshot_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: while Kafka is away a master keeps a bounded number of changes and decisions; it says that some are lost,
    and a snapshot follows. Method: more changes and decisions than are kept, during one batch that is not acknowledged;
    a reader without the snapshot knows that an entry is missing, one with it has all configs."""
    small(monkeypatch, kept=2, batch=100)
    monkeypatch.setattr(history_writer, "DECIDED_MAX", 1)
    world = World()
    world.change({"t0"})
    assert world.tick() and not world.tick(), "one batch waits at a time"
    for _ in range(4):
        world.change({"t0"})
    for version in (1, 2):
        decision = Decision(
            tablet_id="t0", table_id="table", catalog_term=1, version=version, action=Action.TRANSFER_LEADERSHIP,
            target_uuid="b" * 32, reason="evens leaders",
        )  # fmt: skip
        world.writer.decided(1, {"t0": decision}, 5)
    assert not world.tick()
    world.acknowledge()
    before = len(world.topic)
    world.settle()
    after = world.topic[before:]
    assert kinds(after) == [
        "GAP", "DECIDED", "CONFIG", "CONFIG", "SNAPSHOT_BEGAN", "SNAPSHOT", "SNAPSHOT_ENDED",
    ]  # fmt: skip
    assert after[0].reason == (
        "Kafka did not take events as fast as they came: 1 decisions could not be appended; changes of configs after "
        "1.1 and up to 1.3 could not be appended"
    )
    assert after[1].decision == decision
    assert fold(world.topic).missing == (OpId(1, 3),), "of the two that are lost, the later one is named by the next"
    assert fold(after) == Replayed(world.living(), OpId(1, 5), OpId(1, 5), ())


def test_drop_that_was_lost_is_known_from_the_next_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a dropped tablet does not live on in a replay because its drop was lost. Method: the tablet is dropped and
    forgotten while Kafka is away, and more changes follow than are kept; an incomplete snapshot proves nothing."""
    small(monkeypatch, kept=1, batch=100)
    world = World()
    world.change({"t0", "t1"})
    world.settle()
    world.drop({"t0"})
    world.drop({"t0"})
    world.change({"t1"})
    world.change({"t1"})
    world.settle()
    assert "t0" not in fold(world.topic).configs and set(world.living()) == {"t1"}
    cut = [event for event in world.topic if event.kind is not EventKind.SNAPSHOT_ENDED or event.tablets == 2]
    assert "t0" in fold(cut).configs, "absent from an incomplete snapshot"


def test_each_event_is_read_as_it_was_appended() -> None:
    """Goal: no event of a master is refused by the readers of its topic. Method: one of each kind."""
    world = World()
    decision = Decision(tablet_id="t0", table_id="", action=Action.TRANSFER_LEADERSHIP, target_uuid="b", version=1)
    world.writer.decided(1, {"t0": decision, "t1": None}, 5)
    world.change(set(TABLETS))
    world.settle()
    world.drop({"t1"})
    world.settle()
    events = [*world.topic, HistoryEvent(kind=EventKind.GAP, at_us=1, reason="lost")]
    assert {event.kind for event in events} == set(EventKind)
    for event in events:
        found = read_record(HistoryEvent, event.tablet_id.encode(), encode_record(event))
        assert not isinstance(found, Unusable) and found == event


@pytest.mark.parametrize("next_master", [World.lead, World.restart])
@pytest.mark.parametrize("flushed", [False, True])
def test_next_leader_appends_what_a_dead_one_did_not(next_master: Any, flushed: bool) -> None:
    """Goal: no change is lost with the leading master that was about to append it, and none is told to be. Method: a
    leader dies with a batch that Kafka has not acknowledged; another one leads, which applied the same entries, or has
    just replayed its log, or the part of it after a flush."""
    world = World()
    world.change({"t0", "t1"})
    world.settle()
    if flushed:
        world.catalog.flush()
    world.change({"t1"})
    assert world.tick()
    next_master(world)
    world.change({"t0"})
    world.settle()
    found = fold(world.topic)
    assert (found.configs, found.missing, found.begins) == (world.living(), (), OpId(1, 1))
    lost = [e for e in world.topic if e.catalog_opid != OpId(1, 2) or e.kind is not EventKind.CONFIG]
    assert fold(lost).missing == (OpId(1, 2),)


def test_half_an_entry_is_missing() -> None:
    """Goal: an entry that changed two tablets, of which one event is lost, is missing. Method: leave one out."""
    world = World()
    world.change({"t0", "t1"})
    world.settle()
    world.change({"t0", "t1"})
    world.settle()
    last = world.log[-1].opid
    cut = [event for event in world.topic if event.catalog_opid != last or event.tablet_id != "t1"]
    assert (fold(world.topic).missing, fold(cut).missing) == ((), (last,))


def test_first_entry_of_a_rebuilt_catalog_stands_for_what_is_missing() -> None:
    """Goal: a catalog that was rebuilt after all masters were lost continues the history, and does not hide that
    entries of the lost one may be missing. Method: events of a first catalog, then those of a later one, which begins
    in a higher term and knows no entry before its own."""
    world = World()
    world.change({"t0", "t1"})
    world.settle()
    later = HistoryEvent(
        kind=EventKind.CONFIG, tablet_id="t0", catalog_opid=OpId(1 << 41, 1), tablets=1, at_us=9,
        config_opid=OpId(2, 50), members=MEMBERS[:1],
    )  # fmt: skip
    found = fold([later, *world.topic])
    assert found.missing == (later.catalog_opid,) and found.configs == world.living() | {"t0": later.config}


def test_replay_of_a_long_history_keeps_a_bounded_part_and_has_the_same_configs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: memory is bounded, whatever the topic holds: a replay that forgets old entries and snapshots has the same
    configs, proves them from a later snapshot on, and tells no loss that is none. Method: changes over many days."""
    world = World()
    for number in range(30):
        world.change({TABLETS[number % 4]})
        world.do(DAY)
        world.settle()
    whole = fold(world.topic)
    assert (whole.begins, whole.missing) == (OpId(1, 1), ())
    for entries, snapshots in ((6, 1_000), (1_000, 8)):
        monkeypatch.setattr(history, "ENTRIES_MAX", entries)
        monkeypatch.setattr(history, "SNAPSHOTS_MAX", snapshots)
        replay = Replay()
        for event in world.topic:
            replay.add(event)
            assert len(replay._entries) <= entries and len(replay._snapshots) <= snapshots
        found = replay.result()
        assert (found.configs, found.missing) == (world.living(), ())
        assert found.begins is not None and found.begins > OpId(1, 20)
    cut = [event for event in world.topic if event.catalog_opid != OpId(1, 29) or event.kind is not EventKind.CONFIG]
    assert fold(cut).missing == (OpId(1, 29),)
