"""The time of a Spark query in the masters' catalog: one for each query, for ever, of a bounded number."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.master.catalog.catalog import Catalog
from nyala.replica.master.catalog.read_times import agree, agreed_time
from nyala.replica.master.catalog.records import READ_FLOOR, READ_LOAD, READ_TIME, ReadFloor, ReadTime
from nyala.replica.master.group.rebuilt_catalog import catalog_entry
from nyala.replica.rpc import opid_to_pb, pb
from nyala.replica.types import Code, Entry, EntryKind, OpId, Refused, limits, next_generation
from tests.harness.catalogs import AppliedCatalog
from tests.harness.master_calls import SECOND_MASTER, MasterWorld
from tests.harness.sim_disk import SimDisk

APPLICATION, LOAD = "a" * 32, "b" * 32
KEPT, OF_HOST = 6, 4


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few times are kept."""
    monkeypatch.setattr(limits, "READ_TIMES_MAX", KEPT)
    monkeypatch.setattr(limits, "READ_TIMES_PER_HOST_MAX", OF_HOST)


def asked(query: int, time: int, load: str = LOAD, application: str = APPLICATION, host: str = "h") -> ReadTime:
    return ReadTime(application=application, load_id=load, query=query, time=time, host=host)


class Masters:
    """Three masters over one log: whichever leads has applied all of it, the others any part of it."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.boxes = [AppliedCatalog() for _ in range(3)]
        self.boxes[0].commit(({"later/x": {}}, [], "", None))
        self.log = [({"later/x": {}}, [], "", None)]
        self.leads(0)

    def leads(self, number: int) -> Catalog:
        """Master `number` leads from now on; returns its catalog."""
        self.leader = self.boxes[number]
        self.catch_up(number, len(self.log))
        return self.leader.catalog

    def catch_up(self, number: int, upto: int) -> None:
        """Let that master apply the log up to there."""
        box = self.boxes[number]
        for change in self.log[box.index : upto]:
            box.commit(change)

    def restart(self, number: int, *, flushed: bool) -> None:
        """Open that master's catalog again, from what it flushed, or from the log alone."""
        old = self.boxes[number]
        if flushed:
            old.catalog.flush()
        self.boxes[number] = AppliedCatalog(old.disk if flushed else SimDisk())
        if old is self.leader:
            self.leads(number)

    def agree(self, time: ReadTime, made: OpId) -> int:
        """Propose to the leader."""
        change = agree(self.leader.catalog, time, made)
        if change[0]:
            self.log.append(change)
        agreed: int = self.leader.commit(change)
        return agreed


@pytest.mark.deep
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32))
def test_query_never_has_two_times_whatever_is_forgotten_and_whoever_leads(seed: int) -> None:
    """IN-10. Goal: no two tasks of a query read at two times, and the reads of an application never go back. Method:
    random proposals of several applications, load()s and hosts over three masters, of which any leads, restarts from
    its flushed catalog or from the log, or answers from what it has applied so far. Each answer for a query is the
    first one, or a refusal, and that only if as many times came after it as are kept of a host. The catalog keeps a
    bounded number."""
    rng, masters = Random(seed), Masters()
    first: dict[tuple[str, int], int] = {}
    order: list[tuple[str, int]] = []
    loads: list[tuple[str, str, OpId]] = []
    query = 0
    for _ in range(120):
        step = rng.randrange(10)
        if step == 0 or not loads:
            name = f"{len(loads):032x}"
            loads.append((f"{rng.randrange(3):032x}", name, masters.leader.catalog.applied_opid))
        elif step == 1:
            masters.leads(rng.randrange(3))
        elif step == 2:
            masters.restart(rng.randrange(3), flushed=rng.random() < 0.5)
        elif step == 3:
            number = rng.randrange(3)
            masters.catch_up(number, rng.randint(masters.boxes[number].index, len(masters.log)))
        else:
            application, load, made = rng.choice(loads if rng.random() < 0.3 else loads[-3:])
            query += rng.random() < 0.5
            number = max(0, query - rng.choice((0, 0, 0, 1, 2, 9)))
            key, host = (load, number), rng.choice(("h1", "h1", "h2", "h3"))
            time = rng.randrange(1, 1000)
            for box in masters.boxes:
                known = box.catalog.read_times.of(load, number)
                assert known is None or known.time == first[key]
            try:
                found = agreed_time(masters.leader.catalog, load, made, number)
                assert found == (first[key] if found else 0)
                assert found or key not in first, "a forgotten query looks new"
                if rng.random() < 0.8:
                    before = masters.leader.catalog.read_times.owned("application", application).values()
                    floor = max((each.time for each in before), default=0)
                    agreed = masters.agree(asked(number, time, load, application, host), made)
                    if key not in first:
                        assert agreed == max(time, floor)
                        first[key] = agreed
                        order.append(key)
                    assert agreed == first[key]
            except Refused as error:
                assert error.code is Code.EXPIRED and "again" in str(error)
                assert key not in order[-OF_HOST:], "it is among the newest"
            catalog = masters.leader.catalog
            assert catalog.count(READ_TIME) <= KEPT
            assert {name for name, _ in catalog.items(READ_LOAD)} == {t.load_id for _, t in catalog.items(READ_TIME)}


def agreed_once(box: AppliedCatalog, time: ReadTime, made: OpId) -> int:
    agreed: int = box.commit(agree(box.catalog, time, made))
    return agreed


def begun() -> tuple[AppliedCatalog, OpId]:
    """A catalog, and the position of a load() made now."""
    box = AppliedCatalog()
    box.commit(({"later/x": {}}, [], "", None))
    return box, box.catalog.applied_opid


def test_first_proposal_is_the_time_and_a_thousand_tasks_cost_one_entry() -> None:
    """Goal: all tasks of a query get the first time, and cost the masters' log one entry. Method: a thousand proposals,
    each of another time; the catalog's position before and after. Other queries and load()s beside it."""
    box, made = begun()
    assert agreed_time(box.catalog, LOAD, made, 7) == 0
    assert {agreed_once(box, asked(7, 100 + n), made) for n in range(1000)} == {100}
    assert box.catalog.applied_opid.index == made.index + 1
    assert agreed_time(box.catalog, LOAD, made, 7) == 100 and agreed_time(box.catalog, LOAD, made, 8) == 0
    assert agreed_once(box, asked(7, 50, "c" * 32, "d" * 32), made) == 50, "another application"
    assert agreed_once(box, asked(8, 50), made) == 100, "no read of an application is older than one before"
    assert agreed_once(box, asked(8, 900, "e" * 32), made) == 900


def test_forgotten_query_is_refused_and_a_newer_one_of_its_load_goes_on() -> None:
    """Goal: a query whose time is forgotten never gets another one, and the load() goes on. Method: one load() with
    more queries than are kept for its host; each of them is asked for again, then a new one."""
    box, made = begun()
    for query in range(10):
        assert agreed_once(box, asked(query, 100 + query), made) == 100 + query
    for query in range(10):
        if query < 10 - OF_HOST:
            with pytest.raises(Refused, match=f"time of query {query}, .* run it again") as told:
                agreed_once(box, asked(query, 500), made)
            assert told.value.code is Code.EXPIRED
        else:
            assert agreed_once(box, asked(query, 500), made) == 100 + query
    assert agreed_once(box, asked(10, 500), made) == 500


def test_forgotten_load_is_refused_and_one_that_is_made_after_it_goes_on() -> None:
    """Goal: a load() all of whose times are forgotten never looks like a new one; neither does one that was made before
    it. A later one does. Method: load()s of one host until the first is forgotten; each is asked for again."""
    box, made = begun()
    positions = [made]
    for number in range(OF_HOST + 1):
        agreed_once(box, asked(1, 100, f"{number:032x}"), positions[-1])
        positions.append(box.catalog.applied_opid)
    assert box.catalog.get(READ_FLOOR) == ReadFloor(term=made.term, index=made.index)
    for load in ("0" * 32, LOAD):
        with pytest.raises(Refused, match=r"may have forgotten .* load\(\) the DataFrame again") as told:
            agreed_time(box.catalog, load, made, 1)
        assert told.value.code is Code.EXPIRED
    assert agreed_time(box.catalog, LOAD, positions[1], 1) == 0
    assert agreed_time(box.catalog, f"{1:032x}", positions[1], 1) == 100
    with pytest.raises(Refused, match="may have forgotten"):
        agreed_time(box.catalog, LOAD, OpId(positions[-1].term, positions[-1].index + 1), 1)
    with pytest.raises(Refused, match="at another position") as other:
        agreed_once(box, asked(2, 100, f"{1:032x}"), positions[2])
    assert other.value.code is Code.INVALID_ARGUMENT


def test_host_pushes_out_its_own_times_only_once_it_has_its_share() -> None:
    """IN-60. Goal: the callers of one host cannot push out the times of all others. Method: two times of one host, then
    far more of another one's, each of a load() and an application of its own."""
    box, made = begun()
    for query in (1, 2):
        agreed_once(box, asked(query, 100, host="other"), made)
    for number in range(50):
        position = box.catalog.applied_opid
        agreed_once(box, asked(1, 100, f"{number:032x}", f"{number:032x}"), position)
        assert box.catalog.count(READ_TIME) == min(number + 3, OF_HOST + 2)
    assert [agreed_time(box.catalog, LOAD, made, query) for query in (1, 2)] == [100, 100]
    for number in range(KEPT):
        agreed_once(box, asked(1, 100, f"{number:032d}", host=f"h{number}"), box.catalog.applied_opid)
    with pytest.raises(Refused, match="may have forgotten"):
        agreed_time(box.catalog, LOAD, made, 2)


def test_forged_entry_changes_no_time() -> None:
    """IN-50. Goal: a second time of a query in a forged entry is not used, and a time without its load() is forgotten
    as if any load() so far were its. Method: both, put into a catalog; then times until they are pushed out."""
    box, made = begun()
    agreed_once(box, asked(1, 100), made)
    box.commit(({READ_TIME + "f" * 16: asked(1, 200)}, [], "", None))
    box.commit(({READ_TIME + "0" * 16: asked(1, 300, "c" * 32)}, [], "", None))
    assert agreed_time(box.catalog, LOAD, made, 1) == 100
    box.commit(({}, [READ_TIME + "f" * 16], "", None))
    assert agreed_time(box.catalog, LOAD, made, 1) == 100
    before = box.catalog.applied_opid
    for number in range(OF_HOST):
        agreed_once(box, asked(1, 100, f"{number:032x}"), box.catalog.applied_opid)
    floor = box.catalog.get(READ_FLOOR)
    assert floor is not None and OpId(floor.term, floor.index) > before


def test_rebuilt_catalog_knows_no_load_of_the_lost_one() -> None:
    """Goal: after all masters were lost, a query that runs gets no second time. Method: a rebuilt catalog; load()s that
    were made at any position of the lost one, and one made now."""
    disk = SimDisk()
    entry = catalog_entry(disk, {}, 9 << 32, 1_700_000_000_000_000)
    box = AppliedCatalog()
    box.catalog.apply([entry])
    box.index = 1
    for made in (OpId(1, 1), OpId((9 << 32) - 1, 1 << 40)):
        with pytest.raises(Refused, match="may have forgotten"):
            agreed_time(box.catalog, LOAD, made, 1)
    assert agreed_time(box.catalog, LOAD, box.catalog.applied_opid, 1) == 0


def request(**fields: Any) -> pb.AgreeReadTimeRequest:
    return pb.AgreeReadTimeRequest(**{"application": APPLICATION, "load_id": LOAD, "query": 7} | fields)


def test_master_answers_what_is_committed_whether_it_leads_or_not() -> None:
    """Goal: a time that is committed never changes, so that any master may answer it; nothing else may a master answer
    that does not lead. Method: a leading master agrees on a time. Another one, which waits in vain for a majority, has
    applied the same change, and is asked for that query and for another one."""

    async def scenario() -> None:
        world, waits = MasterWorld(), MasterWorld(alone=False)
        await world.begin()
        await waits.begin()
        made = (await world.done("AgreeReadTime", pb.AgreeReadTimeRequest())).position
        assert made.index == world.group.catalog.applied_opid.index
        assert (await world.done("AgreeReadTime", request(made=made))).snapshot_time == 0
        agreed = await world.done("AgreeReadTime", request(made=made, snapshot_time=5))
        assert agreed.snapshot_time == 5
        change = {READ_TIME + "0" * 16: world.group.catalog.read_times.of(LOAD, 7)}
        applied = AppliedCatalog()
        applied.commit((change, [], "", None))
        waits.group.catalog = applied.catalog
        answer = await waits.call("MasterService", "AgreeReadTime", request())
        assert answer.snapshot_time == 5 and not answer.error.code
        for other in (request(query=8), request(query=8, snapshot_time=5), pb.AgreeReadTimeRequest()):
            assert (await waits.call("MasterService", "AgreeReadTime", other)).error.code == Code.NOT_LEADER
        named = await waits.call("MasterService", "AgreeReadTime", request(dest_uuid=SECOND_MASTER))
        assert named.error.code == Code.INVALID_NAME
        for fields in ({"load_id": "x"}, {"application": "x"}, {"application": ""}):
            other = request(**{"made": opid_to_pb(OpId(1, 1)), "query": 8} | fields)
            refused = await world.call("MasterService", "AgreeReadTime", other)
            assert refused.error.code == Code.INVALID_ARGUMENT and "32 hexadecimal" in refused.error.message
        await world.end()
        await waits.end()

    asyncio.run(scenario())


def test_times_survive_a_flush_in_their_order() -> None:
    """Goal: after a restart from the flushed catalog, the oldest time is forgotten first. Method: times of queries in
    falling order; flush, open; one more."""
    box, made = begun()
    for query in (9, 8, 7, 6):
        agreed_once(box, asked(query, 100), made)
    box.catalog.flush()
    again = AppliedCatalog(box.disk)
    agreed_once(again, asked(10, 100), made)
    assert again.catalog.read_times.of(LOAD, 9) is None
    assert all(again.catalog.read_times.of(LOAD, query) for query in (8, 7, 6, 10))
    load = again.catalog.get(READ_LOAD, LOAD)
    assert load is not None and load == replace(load, from_query=10)


@pytest.mark.parametrize("known", [False, True], ids=["load lost", "load kept"])
def test_load_of_before_a_forced_config_is_refused(known: bool) -> None:
    """Goal: a query has one time, also when the masters go on from one directory that lacks the newest entries. Method:
    the lost masters agreed on query 7; the one that goes on, in a later generation, knows the `load()` or does not. The
    time that it knows stays; query 7 is refused, and a `load()` that is made now is served."""
    lost, left = AppliedCatalog(), AppliedCatalog()
    for box in (lost, left):
        box.commit(({"later/x": {}}, [], "", None))
    made = left.catalog.applied_opid
    if known:
        for box in (lost, left):
            box.commit(agree(box.catalog, asked(6, 90), made))
    lost.commit(agree(lost.catalog, asked(7, 100), made))
    assert agreed_time(lost.catalog, LOAD, made, 7) == 100
    forced = OpId(next_generation(made.term), left.catalog.applied_opid.index + 1)
    left.catalog.apply([Entry(forced, EntryKind.NOOP, 1, 0, b"", b"", 0)])
    assert not known or agreed_time(left.catalog, LOAD, made, 6) == 90
    for refused in (agreed_time, lambda catalog, load, at, query: agree(catalog, asked(query, 200), at)):
        with pytest.raises(Refused, match=r"config was forced.*load\(\) the DataFrame again") as told:
            refused(left.catalog, LOAD, made, 7)
        assert told.value.code is Code.EXPIRED
    assert agree(left.catalog, asked(7, 200, load="c" * 32), left.catalog.applied_opid)[3] == 200
