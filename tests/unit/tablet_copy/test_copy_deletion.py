"""Deletion at every crash point, by kill and by power loss; tombstones keep what was promised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.tablet import Superblock, block_names, sweep_orphans
from nyala.replica.tablet_copy import (
    delete_replica,
    last_of_unopened,
    list_quarantine,
    named_blocks,
    parse_superblock,
    purge_quarantine,
    settle_at_startup,
)
from nyala.replica.tablet_copy.deletion import fresh_quarantine
from nyala.replica.types import Code, DataState, InvariantViolation, OpId, Refused
from tests.harness.copies import (
    TABLET,
    TARGET_UUID,
    RestingReplica,
    Source,
    attempt,
    cmeta_bytes,
    copy_over,
    data_files,
    die,
    new_disk,
    start,
    superblock,
    wal_places,
)
from tests.harness.sim_disk import SimCrash, SimDisk


def replica_with_rows(disk: SimDisk, *, flush: bool = True) -> OpId:
    """A closed replica with a block, a log and a vote; returns the last OpId of its log."""
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([1, 2], "a")
    if flush:
        replica.tablet.flush()
    last = replica.write([2, 3], "b", term=4)
    replica.cmeta.save_hard_state(5, "c" * 32)
    replica.close()
    return last


@pytest.mark.a_third
@pytest.mark.parametrize("power_seed", [None, 1, 2, 3])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 6])
def test_deletion_cut_off_at_any_step_goes_one_way(step: int, power_seed: int | None) -> None:
    """Goal: rows TC-39, TC-40, TC-41, TC-42: a deletion that dies before step 4 did not happen, and later the next
    start completes it. Method: die after each step, restart: before step 4 the replica is READY with all rows, from it
    on it is DELETED, its WAL is in exactly one place and term, vote, last OpId are kept."""
    disk = new_disk()
    last = replica_with_rows(disk)
    promises = cmeta_bytes(disk)
    disk.arm(f"delete.{step}")
    with pytest.raises(SimCrash):
        delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)
    die(disk, power_seed)
    settled = start(disk)
    assert cmeta_bytes(disk) == promises
    if step < 4:
        assert settled.data_state is DataState.READY
        replica = RestingReplica(disk)
        assert replica.rows() == {1: "a", 2: "b", 3: "b"}
        replica.close()
        settled = delete_replica(disk, settled, last, stop=lambda: None)
    assert settled.data_state is DataState.DELETED
    assert settled.last_logged == last
    assert wal_places(disk) == [f"{settled.quarantine}/wal"]
    assert disk.read(f"{settled.quarantine}/cmeta") == promises
    assert settle_at_startup(disk, settled) == settled


@pytest.mark.parametrize("step", [5, 6])
def test_redo_of_a_deletion_that_dies_again_still_ends(step: int) -> None:
    """Goal: row TC-59: the redo may die too. Method: die at step 4, then again during the redo, then settle."""
    disk = new_disk()
    last = replica_with_rows(disk)
    disk.arm("delete.4")
    with pytest.raises(SimCrash):
        delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)
    disk.restart()
    disk.arm(f"delete.{step}")
    with pytest.raises(SimCrash):
        settle_at_startup(disk, Superblock.load(disk, TABLET))
    die(disk, 7)
    settled = start(disk)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, last)
    assert wal_places(disk) == [f"{settled.quarantine}/wal"]


def test_quarantine_rebuilds_every_row_offline() -> None:
    """Goal: row TC-38: the quarantine of a deleted replica has all its rows. Method: put the quarantined files back by
    hand and read the rows."""
    disk = new_disk()
    last = replica_with_rows(disk)
    tombstone = delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)
    kept = parse_superblock(disk.read(f"{tombstone.quarantine}/superblock"), "quarantine")
    assert kept.data_state is DataState.READY and kept.blocks
    other = new_disk()
    for path in block_names(kept):
        other.mkdir("data")
        other.poke(path, disk.read(path))
    other.mkdir(f"wals/{TABLET}")
    for name in disk.listdir(f"{tombstone.quarantine}/wal"):
        other.poke(f"wals/{TABLET}/{name}", disk.read(f"{tombstone.quarantine}/wal/{name}"))
    other.mkdir("tablet-meta")
    other.poke(f"tablet-meta/{TABLET}", disk.read(f"{tombstone.quarantine}/superblock"))
    replica = RestingReplica(other)
    assert replica.rows() == {1: "a", 2: "b", 3: "b"}
    replica.close()


def test_tombstone_deleted_again_keeps_its_last_opid() -> None:
    """Goal: row TC-61, last sentence; TC-59: what is finished is not written again. Method: delete a tombstone, telling
    a lower last OpId; restart five times."""
    disk = new_disk()
    last = replica_with_rows(disk)
    tombstone = delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)
    again = delete_replica(disk, tombstone, OpId(1, 1), stop=lambda: None)
    assert again.last_logged == last
    promises, written = cmeta_bytes(disk), disk.count("replace")
    for seed in range(5):
        die(disk, seed)
        assert start(disk) == tombstone
        assert cmeta_bytes(disk) == promises
    assert disk.count("replace") == written


@pytest.mark.parametrize("recorded", [True, False])
def test_log_that_comes_back_beside_a_tombstone_gets_a_place_of_its_own(recorded: bool) -> None:
    """TC-59. Goal: a log that appears beside a tombstone is moved into the quarantine beside the first one; the two are
    never mixed. Method: a tombstone's log is in its quarantine, which the superblock names or not, and the folder of
    the log is there once more, as after a restore; starts put it aside, and the superblock names where."""
    disk = new_disk()
    last = replica_with_rows(disk)
    tombstone = delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)
    for name in disk.listdir(f"{tombstone.quarantine}/wal"):
        disk.mkdir(f"wals/{TABLET}")
        disk.poke(f"wals/{TABLET}/{name}", disk.read(f"{tombstone.quarantine}/wal/{name}"))
    if not recorded:
        replace(tombstone, quarantine="").save(disk)
    settled = start(disk)
    assert settled == Superblock.load(disk, TABLET) == replace(tombstone, quarantine=settled.quarantine) != tombstone
    assert wal_places(disk) == [f"{tombstone.quarantine}/wal", f"{settled.quarantine}/wal"]
    assert start(disk) == settled


def test_deletion_of_an_unfinished_copy_refuses_another_last_opid() -> None:
    """Goal: row TC-61: the last OpId of an unfinished copy is the recorded one, never recomputed from its partial log.
    Method: COPYING with 5.90, told less."""
    disk = new_disk()
    copying = superblock(data_state=DataState.COPYING, last_logged=OpId(5, 90))
    copying.save(disk)
    with pytest.raises(InvariantViolation):
        delete_replica(disk, copying, OpId(5, 40), stop=lambda: None)
    assert settle_at_startup(disk, copying).last_logged == OpId(5, 90)


def test_unfinished_copy_of_a_tablet_that_never_was_here_ends_with_nothing_logged() -> None:
    """TC-61. Goal: a start ends every copy that a crash cut off. Method: COPYING, and no last OpId is recorded."""
    disk = new_disk()
    superblock(data_state=DataState.COPYING).save(disk)
    settled = start(disk)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, OpId(0, 0))


@pytest.mark.parametrize("state", [DataState.READY, DataState.COPYING, DataState.DELETED])
def test_deletion_stops_the_replica_before_it_touches_a_file(state: DataState) -> None:
    """TC-39. Goal: a deletion stops the replica before it touches a file. Method: what was written when the replica is
    told to stop, in each state that there can be; a replica that cannot be stopped is not deleted."""
    disk, written = new_disk(), []
    for each in {DataState.DELETED: [DataState.READY, state]}.get(state, [state]):
        record = superblock(data_state=each, last_logged=OpId(5, 90))
        record.save(disk)
    before = disk.files

    def refuses() -> None:
        written.append(disk.files != before)
        raise Refused(Code.ILLEGAL_STATE, "it does not stop")

    with pytest.raises(Refused, match="does not stop"):
        delete_replica(disk, record, OpId(5, 90), stop=refuses)
    assert written == [False] and disk.files == before


def test_start_sweeps_the_blocks_that_a_replica_has_replaced() -> None:
    """TC-64. Goal: a start removes the old blocks of a compaction that died before it removed them. Method: a file with
    an earlier number than the superblock's next one, and one with a later number; nothing of this tablet was lost."""
    disk = new_disk()
    superblock(next_block=5).save(disk)
    disk.poke(f"data/{TABLET}-000003.arrow", b"x")
    disk.poke(f"data/{TABLET}-000005.arrow", b"x")
    start(disk)
    assert data_files(disk) == []


def test_purge_removes_only_what_the_quarantine_alone_names() -> None:
    """Goal: rows TC-45 and TC-46. Method: delete, copy again, purge: the new copy's rows, the tombstone's promises and
    the other quarantine-less files stay; the old blocks are gone."""
    source_disk, disk = new_disk(), new_disk()
    source = RestingReplica(source_disk)
    source.write([7], "new", term=9)
    source.tablet.flush()
    last = replica_with_rows(disk)
    tombstone = delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)
    old_blocks = set(data_files(disk))
    copy_over(tombstone, attempt(disk, Source(source).copy_source)).run()
    assert old_blocks < set(data_files(disk)), "a copy never takes a quarantined block's name"
    assert sweep_orphans(disk, named_blocks(disk)) == []
    term = ConsensusMeta.load(disk, TABLET).term
    purge_quarantine(disk, TABLET)
    assert not old_blocks & set(data_files(disk))
    assert disk.listdir("quarantine") == []
    assert ConsensusMeta.load(disk, TABLET).term == term
    replica = RestingReplica(disk)
    assert replica.rows() == {7: "new"}
    for closing in (replica, source):
        closing.close()


def recopied_replica(disk: SimDisk, *, log_lost: bool) -> tuple[str, OpId]:
    """A closed replica with two blocks that came by a copy over a tombstone, and the quarantine of that tombstone; with
    `log_lost`, nothing was left of log and metadata when it was deleted, so that only its superblock is there."""
    last = replica_with_rows(disk)
    if log_lost:
        disk.remove_tree(f"wals/{TABLET}")
    quarantine = delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None).quarantine
    source = RestingReplica(new_disk())
    source.write([7], "new", term=9)
    source.tablet.flush()
    copy_over(Superblock.load(disk, TABLET), attempt(disk, Source(source).copy_source)).run()
    source.close()
    replica = RestingReplica(disk)
    last = replica.write([8], "more", term=9)
    replica.tablet.flush()
    replica.close()
    return quarantine, last


@pytest.mark.a_third
@pytest.mark.parametrize("log_lost", [False, True])
@pytest.mark.parametrize("ends", ["delete.2", "delete.3", "no room for the superblock", "no room for the tombstone"])
def test_deletion_that_did_not_happen_puts_nothing_aside(ends: str, log_lost: bool) -> None:
    """TC-46, TC-39. Goal: a deletion that died before its commit point leaves no quarantine. Method: a replica that was
    deleted and copied anew is deleted again, and that dies before its commit point or finds no room; the replica goes
    on and compacts, a power cut follows. Only the first deletion's quarantine is there, whole; the second one's would
    name blocks that are gone."""
    disk = new_disk()
    earlier, last = recopied_replica(disk, log_lost=log_lost)
    kept = list_quarantine(disk)
    if ends.startswith("delete"):
        disk.arm(ends)
        with pytest.raises(SimCrash):
            delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)
        die(disk, None)
        assert start(disk).data_state is DataState.READY
    else:
        disk.fail_on("replace", f"tablet-meta/{TABLET}" if "tombstone" in ends else "quarantine/*", "ENOSPC")
        with pytest.raises(Refused) as refused:
            delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)
        assert refused.value.code is Code.NO_SPACE
    assert [q.path for q in kept] == [earlier] and list_quarantine(disk) == kept
    replica = RestingReplica(disk)
    before = block_names(Superblock.load(disk, TABLET))
    for key in range(10, 18):
        replica.write([key], "z", term=9)
        replica.tablet.flush()
    while replica.tablet.compact():
        pass
    assert not before & {f"data/{n}" for n in data_files(disk)}, "compaction has removed what the deletion found"
    replica.close()
    die(disk, 5)
    start(disk)
    assert list_quarantine(disk) == kept
    assert all(disk.exists(path) for path in named_blocks(disk))


def test_quarantine_of_a_deletion_has_a_number_of_its_own() -> None:
    """Goal: each deletion's quarantine has a number of its own, so no two logs are mixed. Method: no quarantine;
    folders of other tablets and strangers; own ones, a gap."""
    disk = new_disk()
    for name in ("other-000009", f"{TABLET}-notes", f"{TABLET}x-000008"):
        disk.mkdir(f"quarantine/{name}")
    assert fresh_quarantine(disk, TABLET) == f"quarantine/{TABLET}-000001"
    for number in (2, 10):
        disk.mkdir(f"quarantine/{TABLET}-{number:06d}")
    assert fresh_quarantine(disk, TABLET) == f"quarantine/{TABLET}-000011"


def test_end_of_a_log_that_cannot_be_read_is_bounded_by_flush_and_config() -> None:
    """TC-36. Goal: the tombstone of an unreadable log keeps the highest certain OpId, and gives no vote. Method: with
    and without metadata; a flush below and above the committed config."""
    disk = new_disk()
    replica_with_rows(disk)
    cmeta = ConsensusMeta.load(disk, TABLET)
    config = cmeta.committed_config.opid
    for flushed in (OpId(0, 0), OpId(config.term, config.index + 1)):
        record = replace(Superblock.load(disk, TABLET), flush_opid=flushed)
        assert last_of_unopened(record, None) == (flushed, False)
        assert last_of_unopened(record, cmeta) == (max(flushed, config), False)
    assert cmeta.vote_floor_term == cmeta.term
