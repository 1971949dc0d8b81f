"""Reads of one client never go back in time, whatever reads it mixes, over tablets whose replicas lag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from nyala.replica.client import NotApplied, ScanSpec, TableHandle
from nyala.replica.client.scans import Scans, tablets_to_ask
from nyala.replica.rows import Predicate
from nyala.replica.types import Code, Refused, hybrid_from_us
from tests.harness.history import History, NotLinearizable
from tests.harness.played_tablets import PlayedCalls, PlayedClient, PlayedTablets, table_of

SECOND_US = 1_000_000
FRESH = ScanSpec(staleness_us=600_000)
OLD = ScanSpec(staleness_us=5 * SECOND_US)


def count(client: PlayedClient, table: TableHandle, spec: ScanSpec) -> int:
    """How many writes to each tablet a count shows."""
    return client.scans.count_table(table, spec) // len(table.tablets)


def scan(client: PlayedClient, table: TableHandle, spec: ScanSpec) -> int:
    """The oldest value that a scan shows."""
    return min(v for part in client.scans.table(table, spec) for batch in part.batches for v in batch["v"].to_pylist())


READS = {
    "fresh": FRESH,
    "strong": ScanSpec(),
    "sliced": ScanSpec(staleness_us=600_000, slice_count=2),
}


@pytest.mark.parametrize("tablets", [1, 2, 5])
@pytest.mark.parametrize("first", READS)
@pytest.mark.parametrize("read", [count, scan])
def test_stale_read_after_a_fresher_read_is_not_older(
    read: Callable[[PlayedClient, TableHandle, ScanSpec], int], first: str, tablets: int
) -> None:
    """IN-10. Goal: after what one read has shown, a later stale read shows no less, in that table and in others.
    Method: another client writes, and writes again two seconds later; three quarters of a second after that a read is
    fresh, or strong, and shows both; the next may be five seconds old, and would be without a memory."""
    table, other = table_of("t", tablets), table_of("u", max(2, tablets))
    played = PlayedTablets(Random(tablets), [table, other])
    reader, writer = PlayedClient(played), PlayedClient(played)
    for tablet in (*table.tablets, *other.tablets):
        writer.write(tablet.tablet_id, 1)
    played.now_us += 20 * SECOND_US
    for tablet in (*table.tablets, *other.tablets):
        writer.write(tablet.tablet_id, 2)
    played.now_us += 1_200_000
    before = scan if "sliced" in first else count
    assert before(reader, table, READS[first]) == 2
    assert read(reader, table, OLD) == 2, "the same table"
    assert read(reader, other, OLD) == 2, "another table"
    assert read(PlayedClient(played), other, OLD) == 1, "a client that has seen nothing may see less"


def test_stale_read_after_a_read_of_a_chosen_time_is_not_older() -> None:
    """IN-10. Goal: a read with `at=` counts for later stale reads: they show at least what it showed. A read at an old
    time requires nothing. Method: two tablets, two writes each; a stale read after a snapshot before the second write
    may be old, after one behind it not; a snapshot before it is old even then."""
    table = table_of("t", 2)
    played = PlayedTablets(Random(1), [table])
    reader, writer = PlayedClient(played), PlayedClient(played)
    early = max(writer.write(tablet.tablet_id, 1) for tablet in table.tablets)
    played.now_us += 20 * SECOND_US
    late = max(writer.write(tablet.tablet_id, 2) for tablet in table.tablets)
    assert count(reader, table, ScanSpec(snapshot_time=early)) == 1
    assert count(reader, table, OLD) == 1
    assert count(reader, table, ScanSpec(snapshot_time=late)) == 2
    assert count(reader, table, OLD) == 2 and reader.time_seen >= late
    assert count(reader, table, ScanSpec(snapshot_time=early)) == 1


def test_part_that_was_handed_out_binds_before_the_scan_is_over() -> None:
    """IN-10. Goal: rows seen are seen, though their scan goes on. Method: of a strong scan of three tablets one part is
    taken; a stale read then holds what that time holds."""
    table = table_of("t", 3)
    played = PlayedTablets(Random(1), [table])
    reader, writer = PlayedClient(played), PlayedClient(played)
    for tablet in table.tablets:
        writer.write(tablet.tablet_id, 1)
    parts = reader.scans.table(table, ScanSpec())
    first = next(parts)
    assert reader.time_seen >= first.snapshot_time > 0
    assert count(reader, table, OLD) == 1
    assert len(list(parts)) == 2


class LeaderAway(PlayedCalls):
    """The second tablet's leader tells its time, and is away when it is to be read."""

    def at_leader(self, table_name, tablet_id, ask, *, deadline):  # type: ignore[no-untyped-def]
        if tablet_id == "t-1" and self.broken:
            raise NotApplied(Code.TIMED_OUT, "no leader")
        return super().at_leader(table_name, tablet_id, ask, deadline=deadline)

    broken = False


@pytest.mark.parametrize("read", [count, scan])
def test_strong_read_that_showed_nothing_leaves_a_stale_one_possible(
    read: Callable[[PlayedClient, TableHandle, ScanSpec], int],
) -> None:
    """Goal: a strong read that failed before it showed anything does not raise the time that later stale reads need.
    Method: the time is asked of all leaders, and the read at it fails at the second tablet: a count has shown nothing
    by then."""
    table = table_of("t", 2)
    played = PlayedTablets(Random(1), [table])
    reader, writer = PlayedClient(played), PlayedClient(played)
    reader.calls = LeaderAway(played)
    reader.scans = Scans(reader.calls)
    writer.write("t-0", 1)
    at = reader.snapshot_time(table)
    reader.calls.broken = True
    with pytest.raises(Refused, match="no leader"):
        read(reader, table, ScanSpec(snapshot_time=at))
    assert reader.time_seen == (0 if read is count else at), "a scan has handed out its first part"


def day(seed: int) -> History:
    """Two clients write and read two tables in every way there is, at one place; the history of it."""
    rng = Random(seed)
    tables = [table_of("t", rng.randint(1, 4)), table_of("u", rng.randint(1, 3))]
    played = PlayedTablets(rng, tables)
    clients = {name: PlayedClient(played) for name in ("a", "b")}
    history = History(lambda: played.now_us / 1e6)
    values = 0

    def passes() -> None:
        played.now_us += rng.randint(1, 400_000)
        for _ in range(rng.randrange(3)):
            played.replicate()

    for _ in range(120):
        passes()
        name, table = rng.choice(list(clients)), rng.choice(tables)
        client = clients[name]
        if rng.random() < 0.3:
            values += 1
            tablet = rng.choice(table.tablets)
            call = history.write(name, tablet.tablet_id, values)
            passes()
            client.write(tablet.tablet_id, values)
            passes()
            call.returned()
            continue
        staleness_us = rng.choice([0, 0, 600_000, 2 * SECOND_US, 30 * SECOND_US])
        ago_us = rng.choice([0, 0, 0, rng.randint(1, 10 * SECOND_US)]) if not staleness_us else 0
        at = hybrid_from_us(played.now_us - ago_us) if ago_us else 0
        how_old = float("inf") if at else staleness_us / 1e6
        calls = {t.tablet_id: history.read(name, t.tablet_id, how_old) for t in table.tablets}
        passes()
        spec = ScanSpec(staleness_us=staleness_us, snapshot_time=at)
        found: dict[str, int] = {}
        for part in client.scans.table(table, spec):
            found |= {k: v for b in part.batches for k, v in zip(*b.to_pydict().values(), strict=True)}
            if rng.random() < 0.5:
                passes()
        passes()
        for tablet_id, call in calls.items():
            call.returned(found.get(tablet_id))
    return history


@pytest.mark.deep
def test_histories_with_stale_reads_are_explained() -> None:
    """IN-10. Goal: a client's reads never go back in time, and stale ones are as fresh as they say. Method: many random
    days over lagging replicas with clocks apart; the history checker judges what two clients saw."""
    for seed in range(40):
        try:
            day(seed).verify()
        except NotLinearizable as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def told(seeds: int) -> str:
    """Return the checker's report on the first of these days that is wrong."""
    for seed in range(seeds):
        try:
            day(seed).verify()
        except NotLinearizable as error:
            return f"{type(error).__name__}: {error}"
    return ""


def test_stale_scan_needs_no_tablet_that_it_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-10. Goal: a tablet without a server fails no read of others. Method: of three tablets the first one has no
    server that answers; a sliced stale scan of a key of another one shows its row, and one of the first fails."""
    table = table_of("t", 3)
    played = PlayedTablets(Random(1), [table])
    reader, writer = PlayedClient(played), PlayedClient(played)
    for tablet in table.tablets:
        writer.write(tablet.tablet_id, 1)
    played.now_us += 20 * SECOND_US
    at_any = PlayedCalls.at_any

    def ask(self: PlayedCalls, table_name: str, tablet_id: str, *told: Any, **options: Any) -> Any:
        if tablet_id == table.tablets[0].tablet_id:
            raise Refused(Code.UNAVAILABLE, "no server of this tablet answers")
        return at_any(self, table_name, tablet_id, *told, **options)

    monkeypatch.setattr(PlayedCalls, "at_any", ask)
    seen = {}
    for key in "abcdefgh":
        spec = replace(OLD, predicates=(Predicate("k", "=", (key,)),), slice_count=2)
        [tablet] = tablets_to_ask(table, spec)
        try:
            seen[tablet.pos] = scan(reader, table, spec)
        except Refused as error:
            seen[tablet.pos] = error.code
    assert seen == {0: Code.UNAVAILABLE, 1: 1, 2: 1}


def test_history_tells_of_a_pinned_time_that_nobody_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-10. Goal: the checker watches stale reads. Method: a client that forgets the time of what it hands out."""
    monkeypatch.setattr(Scans, "_seen", lambda self, part: part)
    assert "may be" in told(20)


def test_history_tells_of_reads_that_are_older_than_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-10. Goal: the checker watches how old stale reads are. Method: the time of several tablets is three seconds
    older than it may be."""
    right = Scans.time_of_staleness
    older = lambda self, *told: right(self, *told) - hybrid_from_us(3 * SECOND_US)  # noqa: E731
    monkeypatch.setattr(Scans, "time_of_staleness", older)
    assert "no order explains" in told(20)
