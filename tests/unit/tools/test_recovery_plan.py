"""The survivor from which a lost tablet goes on, what the plan reports as lost, and what it leaves alone: evidence in,
plan out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from nyala.replica.consensus_metadata import path_of
from nyala.replica.rows import SourceKey
from nyala.replica.rpc import pb
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import delete_replica, wal_folder
from nyala.replica.tools import (
    LeftAlone,
    RecoveryPlan,
    ReplicaEvidence,
    SourceMark,
    TabletPlan,
    Target,
    Why,
    block_bytes,
    chosen_tablets,
    make_plan,
    of_directory,
)
from nyala.replica.tools.plan_file import plan_json, plan_of_json
from nyala.replica.types import Address, DataState, Member, OpId, RaftConfig, Refused, generation_of, next_generation
from tests.harness.copies import TABLET, close_disks
from tests.harness.lost_majority import UUIDS, config, plan_for, seen, stopped_server
from tests.harness.sim_disk import SimDisk


@pytest.fixture(autouse=True)
def _disks() -> Iterator[None]:
    yield
    close_disks()


def planned(*evidence: ReplicaEvidence, **more: object) -> TabletPlan | LeftAlone:
    plan = make_plan({TABLET: evidence}, [TABLET], **more)  # type: ignore[arg-type]
    return (*plan.tablets, *plan.left_alone)[0]


def recovered(*evidence: ReplicaEvidence, **more: object) -> TabletPlan:
    found = planned(*evidence, **more)
    assert isinstance(found, TabletPlan), found
    return found


def left(*evidence: ReplicaEvidence, **more: object) -> LeftAlone:
    found = planned(*evidence, **more)
    assert isinstance(found, LeftAlone), found
    return found


def test_survivor_is_the_one_whose_last_entry_has_the_higher_term_not_the_longer_log() -> None:
    """CC-40. Goal: the survivor is the replica whose last entry has the highest term, because the end of a longer log
    of an older term was never committed. Method: two of five, in both orders; then one term and two lengths; the config
    stands right behind the survivor's log."""
    older, newer = seen("a", (2, 30), "abcde"), seen("b", (3, 20), "abcde")
    for both in ((older, newer), (newer, older)):
        plan = recovered(*both)
        assert (plan.survivor, plan.last) == (UUIDS["b"], OpId(3, 20))
        assert plan.config.opid == OpId(next_generation(3), 21)
    assert recovered(older, seen("c", (2, 31), "abcde")).survivor == UUIDS["c"]


def test_plan_says_which_entries_are_known_to_be_lost_and_since_when() -> None:
    """CC-41. Goal: the plan names the entries that are known to be lost. Method: beside the survivor a tombstone that
    kept a later OpId, a replica whose log cannot be read any more, and a survivor with a damaged end; nothing else
    known means none, not never."""
    survivor = seen("a", (2, 10), last_time=77)
    tombstone = seen("b", (2, 14), data_state=DataState.DELETED)
    plan = recovered(survivor, tombstone)
    assert (plan.entries_lost, plan.known, plan.time) == (4, OpId(2, 14), 78)
    assert plan.given_up == (UUIDS["b"], UUIDS["c"])
    broken = seen("c", (2, 12), problem="its log cannot be read")
    assert recovered(survivor, broken).entries_lost == 2
    assert recovered(seen("a", (2, 10), withheld=OpId(2, 13))).entries_lost == 3
    assert recovered(survivor).entries_lost == 0


def test_evidence_of_a_directory_names_what_tombstones_kept_and_what_cannot_be_read() -> None:
    """CC-41. Goal: everything left on a stopped server's disk is read, and nothing is changed by it. Method: a READY
    replica flushed half-way, a tombstone, damaged metadata, a missing block, a log with a hole."""

    def look(disk: SimDisk) -> ReplicaEvidence:
        (found,) = of_directory(disk, UUIDS["a"], "/data/a")
        return found

    whole = stopped_server("a", (1, 1, 2, 2), flush_at=2)
    names = {n: whole.read(f"{wal_folder(TABLET)}/{n}") for n in whole.listdir(wal_folder(TABLET))}
    read: list[tuple[str, int]] = []
    list(of_directory(whole, UUIDS["a"], "/data/a", progress=lambda *step: read.append(step)))
    assert sum(size for _, size in read) == block_bytes(whole, [TABLET]) > 0 and len(read) == 3
    found = look(whole)
    assert found.usable and (found.last, found.term, found.last_time) == (OpId(2, 4), 2, 4 << 12)
    assert {n: whole.read(f"{wal_folder(TABLET)}/{n}") for n in whole.listdir(wal_folder(TABLET))} == names
    deleted = stopped_server("a", (1, 3))
    delete_replica(deleted, Superblock.load(deleted, TABLET), OpId(3, 2), stop=lambda: None)
    assert (look(deleted).last, look(deleted).usable) == (OpId(3, 2), False)
    damaged = stopped_server("a")
    damaged.corrupt(path_of(TABLET), 40)
    assert "cannot be read" in look(damaged).problem and not look(damaged).usable
    blockless = stopped_server("a", flush_at=2)
    blockless.remove(f"data/{blockless.listdir('data')[0]}")
    assert "a block's file is missing" in look(blockless).problem
    holed = stopped_server("a", (1,) * 40)
    holed.corrupt(f"{wal_folder(TABLET)}/{holed.listdir(wal_folder(TABLET))[0]}", 2500)
    assert "log cannot be read" in look(holed).problem


def test_replica_with_a_damaged_block_is_no_survivor_and_no_part_of_a_majority() -> None:
    """CC-40, CC-41. Goal: a replica with a damaged block is neither a survivor nor part of a majority, because no
    server would open it. Method: the most up-to-date of three has one flipped byte in a block, the laggard is whole:
    the laggard is built upon, and what only the damaged log has is known to be lost; with the block whole the two are a
    majority."""
    ahead, laggard = stopped_server("a", (1, 1, 2, 2), flush_at=2), stopped_server("b", (1, 1, 2), flush_at=2)
    assert plan_for({"a": ahead, "b": laggard}).left_alone[0].why is Why.MAJORITY
    for block in Superblock.load(ahead, TABLET).blocks:
        ahead.corrupt(block.files[0][0], 40)
    (damaged,) = of_directory(ahead, UUIDS["a"], "/data/a")
    assert "a block cannot be read" in damaged.problem and not damaged.usable
    (plan,) = plan_for({"a": ahead, "b": laggard}).tablets
    assert (plan.survivor, plan.last, plan.known, plan.entries_lost) == (UUIDS["b"], OpId(2, 3), OpId(2, 4), 1)


def test_tablet_without_a_survivor_is_refused_with_what_is_left_of_it() -> None:
    """CC-39. Goal: a plan without a survivor is refused, with what is left of the tablet. Method: a tombstone, an
    unfinished copy, a failed replica, a witness; an unknown tablet."""
    witness = RaftConfig(OpId(1, 1), (Member(UUIDS["a"]), Member(UUIDS["d"], holds_data=False)))
    remains = [
        seen("b", (2, 14), data_state=DataState.DELETED),
        seen("c", (0, 0), data_state=DataState.COPYING),
        seen("a", (2, 9), problem="its log cannot be read: x"),
        seen("d", (2, 15), config=witness, witness=True),
    ]
    found = left(*remains, despite_majority=True)
    assert found.why is Why.NO_SURVIVOR
    for text in ("once had 2.14", "COPYING", "its log cannot be read", "a witness"):
        assert text in found.what
    assert left().why is Why.UNKNOWN


def test_witness_whose_rows_are_there_is_built_upon() -> None:
    """CC-39. Goal: a replica with rows on its disk can be the survivor, even if its config calls it a witness. Method:
    the only one left is called a witness by its config and has its rows by its disk: the plan goes on from it, as a
    whole member."""
    before = RaftConfig(OpId(1, 1), (Member(UUIDS["a"]), Member(UUIDS["d"], promote=True, holds_data=False)))
    found = recovered(seen("d", (2, 15), config=before))
    assert (found.survivor, found.last, found.config.members) == (UUIDS["d"], OpId(2, 15), (Member(UUIDS["d"]),))


def test_tablet_whose_majority_is_whole_is_left_alone_and_the_majority_named() -> None:
    """CC-38. Goal: a tablet with an undamaged majority is not recovered, because it only has to be started. Method: two
    of three at rest; one at rest and one running; a pending config of which a majority is there; the same, told to go
    on nevertheless."""
    running = seen("b", (2, 10), running=True, place="host-b:7050")
    for other in (seen("b", (1, 4)), running):
        found = left(seen("a", (2, 10)), other)
        assert found.why is Why.MAJORITY
        assert UUIDS["a"] in found.what and UUIDS["b"] in found.what
    pending = config("a", OpId(2, 9))
    assert left(seen("a", (2, 10), pending=pending)).why is Why.MAJORITY
    assert recovered(seen("a", (2, 10)), seen("b", (1, 4)), despite_majority=True).survivor == UUIDS["a"]


def test_survivor_that_runs_has_to_be_stopped_first() -> None:
    """CC-43. Goal: no running server's metadata is rewritten under it. Method: the best replica runs, a worse one is at
    rest: the plan names the server instead of taking the worse one."""
    found = left(seen("a", (2, 9), "abcde"), seen("b", (2, 10), "abcde", running=True, place="host-b:7050"))
    assert found.why is Why.RUNNING
    assert UUIDS["b"] in found.what and "host-b:7050" in found.what and "--root" in found.what


def test_new_config_names_survivor_and_targets_and_begins_above_every_term_that_was_seen() -> None:
    """CC-44. Goal: no term of an old member is used again, and a master's late decision stays refused. Method: a
    tombstone of a high term beside; one target that is new and one that remembers more than the survivor has."""
    before = RaftConfig(OpId(2, 3), config("abc").members, decision=(4, 5))
    best = seen("a", (2, 10), config=before)
    high = seen("b", (1, 1), data_state=DataState.DELETED, term=next_generation(9) + 7)
    new = Target(uuid=UUIDS["d"], addresses=(Address("host-d", 1),))
    plan = recovered(best, high, targets=[new])
    assert generation_of(plan.config.opid.term) == 2
    assert [m.uuid for m in plan.config.members] == [UUIDS["a"], UUIDS["d"]]
    assert all(m.votes for m in plan.config.members)
    assert (plan.config.decision, plan.config.unsafe) == ((4, 5), True)
    ahead = left(best, seen("d", (3, 1), data_state=DataState.DELETED), targets=[new])
    assert ahead.why is Why.TARGET and "3.1" in ahead.what


def test_target_that_may_have_promised_more_than_the_survivor_has_is_refused_before_anything_is_fenced() -> None:
    """CC-42. Goal: a plan is refused if its copy to a target could not be made. Method: a target whose config is ahead
    of its damaged log; one with damaged metadata; one whose log has a hole; one with no more than a missing block is
    copied to."""
    best, new = seen("a", (2, 10), "abcde"), Target(uuid=UUIDS["b"], addresses=(Address("host-b", 1),))
    ahead = left(best, seen("b", (1, 4), config=config("abcde", OpId(2, 11)), problem="x"), targets=[new])
    assert ahead.why is Why.TARGET and "2.11" in ahead.what
    metaless, holed, blockless = (stopped_server("b", (1,) * 40, flush_at=2) for _ in range(3))
    metaless.corrupt(path_of(TABLET), 40)
    holed.corrupt(f"{wal_folder(TABLET)}/{holed.listdir(wal_folder(TABLET))[0]}", 2500)
    blockless.remove(f"data/{blockless.listdir('data')[0]}")
    for disk, copied_to in ((metaless, False), (holed, False), (blockless, True)):
        plan = plan_for({"a": stopped_server("a", (1, 2) + (2,) * 40), "b": disk}, "b")
        if copied_to:
            assert [m.uuid for m in plan.tablets[0].config.members] == [UUIDS["a"], UUIDS["b"]]
        else:
            (refused,) = plan.left_alone
            assert refused.why is Why.TARGET and "cannot be read" in refused.what


def test_tablets_of_a_table_come_from_directories_and_from_the_catalog() -> None:
    """CC-39. Goal: a plan lists also tablets of which no files are left. Method: one that a directory has and one that
    only the catalog has, by table, by id and all; a table that nobody knows; what a lost one gives."""
    found, catalog = [seen("a", (2, 10)), seen("b", (2, 9), running=True)], {"things": [TABLET, "lost"], "other": ["x"]}
    assert chosen_tablets(found, catalog, tables=["things"]) == {TABLET, "lost"}
    assert chosen_tablets(found, {}, tables=["things"]) == {TABLET}
    assert chosen_tablets(found, catalog, tablets=["y"], tables=["other"]) == {"x", "y"}
    assert chosen_tablets(found, catalog) == {TABLET, "lost", "x"}
    three = ["abcd", "abce", "ab"]
    assert chosen_tablets(found, {"one": three}, tablets=three) == {*three}
    assert chosen_tablets(found, catalog, tablets=["lo"]) == {"lost"}, "its beginning is enough"
    with pytest.raises(Refused, match=r"several tablets begin so.*tablet=abc"):
        chosen_tablets(found, {"one": three}, tablets=["abc"])
    with pytest.raises(Refused, match="nosuch"):
        chosen_tablets(found, catalog, tables=["nosuch"])
    (lost,) = make_plan({TABLET: found}, ["lost"]).left_alone
    assert lost.why is Why.UNKNOWN


def test_members_of_which_nothing_was_seen_are_named() -> None:
    """CC-38. Goal: the plan names the members that it has not seen, because they may be alive. Method: of five members
    one is at rest, one runs with an older config, one is a tombstone; a pending config names one more; the names
    survive the plan's file."""
    plan = recovered(
        seen("a", (2, 10), "abcde", pending=config("abcdef", OpId(2, 9))),
        seen("b", (1, 4), "abcde", running=True),
        seen("c", (1, 1), "abcde", data_state=DataState.DELETED),
    )
    assert plan.unseen == tuple(UUIDS[n] for n in "def")
    assert plan_of_json(plan_json(RecoveryPlan(tablets=(plan,)))).tablets[0].unseen == plan.unseen


def position(done: int, *, start: int = 5, generation: int = 1, table_id: str = "t1", partition: int = 0) -> object:
    key = pb.SourceKey(cluster_id="k", topic_id="id", kafka_partition=partition)
    return pb.SourcePosition(
        table_id=table_id,
        source=key,
        generation=generation,
        start=start,
        done=done,
        topic="writes.things",
        table="things",
    )


def mark(at: int, generation: int = 1) -> SourceMark:
    return SourceMark(source=SourceKey("k", "id", 0), generation=generation, position=at)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [((mark(60),), 60), ((mark(100),), None), ((), 5), ((mark(90, generation=0),), 5), ((mark(2),), 5)],
)
def test_source_position_goes_back_to_what_the_survivor_has(marks: Sequence[SourceMark], expected: int | None) -> None:
    """CC-46. Goal: a source position is lowered to what the survivor has, so the ingest reads lost records again, and
    no others. Method: a survivor that is behind, even, without the source, of an earlier generation, or below the
    source's start; another table's source is left."""
    plan = make_plan(
        {TABLET: [seen("a", (2, 10), sources=tuple(marks))]},
        [TABLET],
        positions=[position(100), position(100, table_id="t2")],  # type: ignore[list-item]
    )
    assert [(lowering.done, lowering.to) for lowering in plan.lowerings] == (
        [] if expected is None else [(100, expected)]
    )


def test_fingerprint_names_the_decisions_and_the_plan_survives_its_file() -> None:
    """CC-38. Goal: the confirmed fingerprint covers the decisions of the plan. Method: the same evidence in another
    order; another survivor; a lowered source; to JSON and back."""
    first, second = seen("a", (2, 10), "abcde", sources=(mark(60),)), seen("b", (2, 9), "abcde")

    def plan(*evidence: ReplicaEvidence, done: int = 60) -> RecoveryPlan:
        return make_plan({TABLET: evidence}, [TABLET], positions=[position(done)])  # type: ignore[list-item]

    base = plan(first, second)
    assert base.fingerprint == plan(second, first).fingerprint
    others = [plan(first, seen("b", (2, 11), "abcde", sources=(mark(60),))), plan(first, second, done=61)]
    assert len({base.fingerprint, *(p.fingerprint for p in others)}) == 3
    again = plan_of_json(plan_json(others[1]))
    assert again.fingerprint == others[1].fingerprint and again.lowerings == others[1].lowerings
    assert [(t.config, t.last, t.time, t.survivor) for t in again.tablets] == [
        (t.config, t.last, t.time, t.survivor) for t in others[1].tablets
    ]
