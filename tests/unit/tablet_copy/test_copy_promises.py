"""What a deletion keeps for ever, how the superblock records it, and what a power loss can remove."""

from __future__ import annotations

import random

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.raft import VoteRequest
from nyala.replica.server.tablets.tombstone import vote_reply
from nyala.replica.tablet import Superblock, superblock_path, sweep_orphans
from nyala.replica.tablet_copy import (
    CopyProgress,
    delete_replica,
    last_of_unopened,
    lost_tablets,
    named_blocks,
    parse_superblock,
    purge_quarantine,
    settle_at_startup,
    spared_blocks,
    was_here,
    write_tombstone_for_lost,
)
from nyala.replica.types import DataState, DiskFailure, OpId, Refused
from tests.harness.copies import (
    CONFIG,
    SOURCE_UUID,
    TABLET,
    TARGET_UUID,
    RestingReplica,
    attempt,
    cmeta_bytes,
    copy_over,
    data_files,
    die,
    leading_source,
    new_disk,
    start,
    wal_places,
)
from tests.harness.sim_disk import SimCrash, SimDisk

VOTED = "c" * 32


def replica_that_voted(disk: SimDisk) -> OpId:
    """A closed replica in term 5 that voted for c; returns the last OpId of its log, 4.2."""
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([1], "a")
    replica.tablet.flush()
    last = replica.write([2], "b", term=4)
    replica.cmeta.save_hard_state(5, VOTED)
    replica.close()
    return last


def delete(disk: SimDisk, last: OpId) -> Superblock:
    return delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)


def test_deletion_keeps_term_vote_and_last_opid_over_restarts() -> None:
    """Goal: TC-13, TC-36: a tombstone's Raft state stays for ever, and bars stale leaders and candidates. Method:
    delete, restart five times: the metadata's bytes are the same; candidates of the term voted in, of an older term and
    with a shorter log are refused, the one voted for is told so again."""
    disk = new_disk()
    last = replica_that_voted(disk)
    promised = cmeta_bytes(disk)
    delete(disk, last)
    for _ in range(5):
        disk.restart()
        settled = settle_at_startup(disk, Superblock.load(disk, TABLET))
        assert settled.last_logged == last == OpId(4, 2) and cmeta_bytes(disk) == promised
    cmeta = ConsensusMeta.load(disk, TABLET)
    for term, log_end, candidate, granted in (
        (5, OpId(4, 9), "d" * 32, False),
        (4, OpId(4, 9), VOTED, False),
        (6, OpId(4, 1), "d" * 32, False),
        (5, OpId(4, 2), VOTED, True),
    ):
        request = VoteRequest(to_uuid=TARGET_UUID, from_uuid=candidate, term=term, last=log_end)
        assert vote_reply(request, uuid=TARGET_UUID, cmeta=cmeta, last=last).granted is granted


def test_copy_that_fails_leaves_a_tombstone_as_ignorant_as_it_was() -> None:
    """TC-36, TC-61. Goal: if only a lower bound of the acknowledged OpId is known, that holds until a copy is complete.
    Method: a replica whose log could not be read is deleted; a copy dies after its first step, and a start takes it
    back; then a whole copy, after which the end is known."""
    disk = new_disk()
    replica_that_voted(disk)
    cmeta = ConsensusMeta.load(disk, TABLET)
    bound = last_of_unopened(Superblock.load(disk, TABLET), cmeta)
    assert not bound.known and bound.opid < OpId(4, 2) and cmeta.vote_floor_term == 5
    deleted = delete_replica(disk, Superblock.load(disk, TABLET), bound.opid, lambda: None, known=bound.known)
    assert not deleted.last_logged_known
    source = leading_source()
    disk.arm("copy.2")
    with pytest.raises(SimCrash):
        copy_over(deleted, attempt(disk, source.copy_source)).run()
    disk.restart()
    settled = settle_at_startup(disk, Superblock.load(disk, TABLET))
    assert settled.data_state is DataState.DELETED and not settled.last_logged_known
    copy = copy_over(settled, attempt(disk, source.copy_source))
    copy.run()
    assert Superblock.load(disk, TABLET).last_logged_known
    assert copy.in_force == Superblock.load(disk, TABLET), "the server goes by this record"
    source.replica.close()


def test_superblock_of_a_tombstone_names_its_state_last_opid_and_quarantine() -> None:
    """TC-37. Goal: TC-37: the superblock of a tombstone has the state by which a start looks for the saved Raft state.
    Method: read it back: DELETED, the last OpId, a quarantine that exists and holds what was there; no block, no
    ledger."""
    disk = new_disk()
    last = replica_that_voted(disk)
    delete(disk, last)
    marked = Superblock.load(disk, TABLET)
    assert (marked.data_state, marked.last_logged) == (DataState.DELETED, last)
    assert marked.quarantine and disk.listdir(marked.quarantine) == ["cmeta", "superblock", "wal"]
    assert marked.blocks == () and marked.table_id == "t1"
    assert (marked.flush_opid, marked.flush_time) == (OpId(0, 0), 0)


def held(disk: SimDisk) -> list[str]:
    """Start a tablet that may have lost its superblock; returns the blocks that stay."""
    if Superblock.exists(disk, TABLET):
        start(disk)
    else:
        sweep_orphans(disk, named_blocks(disk) | spared_blocks(disk, disk.listdir("data")))
    return data_files(disk)


def refuses_votes(disk: SimDisk) -> bool:
    """Whether a tombstone is here that gives a candidate nothing, however long its log and its term are."""
    settled = Superblock.load(disk, TABLET)
    request = VoteRequest(to_uuid=TARGET_UUID, from_uuid=VOTED, term=9, last=OpId(8, 99))
    reply = vote_reply(
        request,
        uuid=TARGET_UUID,
        cmeta=ConsensusMeta.load(disk, TABLET),
        last=settled.last_logged or OpId(0, 0),
        last_known=settled.last_logged_known,
    )
    return settled.data_state is DataState.DELETED and not reply.granted


CELLS = ["delete.4", "delete.5", "delete.6", "copy.1", "copy.2", "copy.3", "copy.4", "cut"]


@pytest.mark.a_third
@pytest.mark.parametrize(
    ("cell", "metadata"),
    [*((c, "there") for c in CELLS), *((c, m) for c in ("copy.1", "cut") for m in ("gone", "damaged"))],
)
def test_copy_over_a_lost_superblock_that_does_not_end_leaves_a_tombstone_that_does_not_vote(
    cell: str, metadata: str
) -> None:
    """IN-21. Goal: after its superblock is lost, a replica's acknowledgements and votes still count. Method: remove the
    superblock of a replica that acknowledged 4.2 and voted in term 5. A source of an earlier term is refused. The copy
    dies, by kill and by power losses, at each step, or meets an error in COPY.3; each start leaves a tombstone that
    votes for nobody, and the old blocks. A whole copy then takes it all over, abstains where it may have voted, and
    ends their stay."""
    for seed in [None, 0, 1]:
        disk, source = new_disk(), leading_source()
        last = replica_that_voted(disk)
        disk.remove(superblock_path(TABLET))
        disk.sync_dir("tablet-meta")
        if metadata == "gone":
            disk.remove(path_of(TABLET))
            disk.sync_dir("consensus-meta")
        elif metadata == "damaged":
            disk.corrupt(path_of(TABLET), 30)
        else:
            source.replica.cmeta = ConsensusMeta.create(new_disk(), TABLET, SOURCE_UUID, CONFIG, 4)
            with pytest.raises(Refused, match="earlier term"):
                copy_over(None, attempt(disk, source.copy_source)).run()
            source.replica.cmeta.save_hard_state(6, SOURCE_UUID)
        assert was_here(disk, TABLET) and lost_tablets(disk) == [TABLET]
        old = held(disk)
        assert len(old) == 2
        if cell == "cut":
            disk.fail_on("pwrite", f"wals/{TABLET}/*", "EIO")
        else:
            disk.arm(cell)
        with pytest.raises((SimCrash, DiskFailure)):
            copy_over(None, attempt(disk, source.copy_source)).run()
        disk.disarm()
        if cell != "cut":
            die(disk, seed)
        for _ in range(2):
            assert held(disk) == old and (metadata != "there" or last.term < ConsensusMeta.load(disk, TABLET).term)
        if metadata == "there" or cell in ("copy.2", "copy.3", "copy.4", "cut"):
            assert refuses_votes(disk)
        settled = Superblock.load(disk, TABLET)
        assert not settled.last_logged_known and settled.next_block == 1
        assert [p.split("-0")[0] for p in wal_places(disk)][:1] == [f"quarantine/{TABLET}"]
        ready = copy_over(settled, attempt(disk, source.copy_source)).run()
        assert ready.last_logged_known and ready.data_state is DataState.READY
        floor = ConsensusMeta.load(disk, TABLET).vote_floor_term
        assert floor == (5 if metadata == "there" else 6)
        assert not set(data_files(disk)) & set(old) and held(disk) == data_files(disk) != []
        source.replica.close()


def lost(disk: SimDisk) -> None:
    """A replica of term 5 whose superblock is gone."""
    replica_that_voted(disk)
    disk.remove(superblock_path(TABLET))


def test_copy_over_a_lost_superblock_asks_for_all_that_the_server_remembers() -> None:
    """IN-21. Goal: if a superblock is lost, a copy must not be older than what the running server remembers. Method: a
    superblock is lost; the server has acknowledged an entry that the source does not have; then its metadata are lost
    too, and it remembers a later term than the source's. Neither source is copied from, and nothing changes."""
    disk, source = new_disk(), leading_source()
    lost(disk)
    remembered = ConsensusMeta.load(disk, TABLET)
    before = disk.files
    with pytest.raises(Refused):
        copy_over(None, attempt(disk, source.copy_source), own_last_opid=OpId(6, 9)).run()
    assert disk.files == before
    remembered.save_hard_state(9, None)
    disk.remove(path_of(TABLET))
    before = disk.files
    with pytest.raises(Refused, match="earlier term"):
        copy_over(None, attempt(disk, source.copy_source), own_cmeta=lambda: remembered).run()
    assert disk.files == before
    source.replica.close()


def test_copy_over_a_lost_superblock_goes_on_with_the_tombstone_that_the_server_made() -> None:
    """IN-21. Goal: a copy continues with the tombstone that the server wrote when it stopped the replica. Method: the
    server puts it there as it stops the replica."""
    disk, source = new_disk(), leading_source()
    lost(disk)
    stopped = lambda check_source: write_tombstone_for_lost(disk, TABLET, None)  # noqa: E731
    ready = copy_over(None, attempt(disk, source.copy_source), stop_and_delete=stopped).run()
    assert ready.data_state is DataState.READY and len(disk.listdir("quarantine")) == 1
    source.replica.close()


def test_copy_hands_the_metadata_to_the_server_that_keeps_them() -> None:
    """TC-48. Goal: a server that has the tablet's metadata in memory merges them itself. Method: what it is given."""
    disk, source, given = new_disk(), leading_source(), list[bytes]()
    copy_over(None, attempt(disk, source.copy_source), merge=given.append).run()
    assert given == [source.replica.cmeta.encode()] and not disk.exists(path_of(TABLET))
    source.replica.close()


def test_tablet_that_was_about_to_be_created_has_lost_nothing() -> None:
    """IN-21. Goal: a creation that was cut off is no loss: its copy, if it fails, leaves a tombstone that votes.
    Method: metadata of term 0 and an empty log: a copy dies and a start takes it back; with a term it is a loss, and so
    it is with a log that has a segment, and with metadata that do not read back, which may have had a term."""
    disk, source = new_disk(), leading_source()
    ConsensusMeta.create(disk, TABLET, TARGET_UUID, CONFIG, 0)
    disk.mkdir(f"wals/{TABLET}")
    assert not was_here(disk, TABLET) and lost_tablets(disk) == []
    assert not was_here(new_disk(), TABLET), "nor is there a loss where nothing ever was"
    disk.arm("copy.3")
    with pytest.raises(SimCrash):
        copy_over(None, attempt(disk, source.copy_source)).run()
    disk.restart()
    assert start(disk).last_logged_known
    begun = new_disk()
    ConsensusMeta.create(begun, TABLET, TARGET_UUID, CONFIG, 0)
    begun.mkdir(f"wals/{TABLET}")
    begun.poke(f"wals/{TABLET}/wal-000000001", b"x")
    assert was_here(begun, TABLET)
    other = new_disk()
    ConsensusMeta.create(other, TABLET, TARGET_UUID, CONFIG, 1)
    assert was_here(other, TABLET)
    damaged = new_disk()
    ConsensusMeta.create(damaged, TABLET, TARGET_UUID, CONFIG, 0)
    damaged.corrupt(path_of(TABLET), 30)
    assert was_here(damaged, TABLET) and lost_tablets(damaged) == [TABLET]
    source.replica.close()


def test_tombstone_of_a_lost_superblock_gives_no_number_a_second_time() -> None:
    """IN-21, TC-64. Goal: no later block gets the name of a block that was left without a superblock. Method: no block
    is here; then some of the tablet's, in no order, and a higher one of another tablet."""
    for numbers, following in (((), 0), ((2, 7, 3), 8)):
        disk = new_disk()
        disk.mkdir(f"wals/{TABLET}")
        for number in numbers:
            disk.poke(f"data/{TABLET}-{number:06d}.arrow", b"x")
        disk.poke("data/other-000050.arrow", b"x")
        assert (
            write_tombstone_for_lost(disk, TABLET, None).next_block
            == following
            == Superblock.load(disk, TABLET).next_block
        )


def lose_another(disk: SimDisk) -> str:
    """A second tablet that lost its superblock, and a file that is no tablet's; the name of its block, which stays."""
    disk.mkdir("wals/other")
    disk.poke("data/other-000000.arrow", b"x")
    disk.poke("data/lost+found", b"")
    return "other-000000.arrow"


def test_copy_that_makes_up_for_a_lost_superblock_ends_the_stay_of_its_own_blocks_alone() -> None:
    """IN-21. Goal: blocks without a superblock are removed only when a copy of their tablet is complete and all
    superblocks can be read. Method: two tablets lost their superblocks, and a copy of one completes; once more while a
    third tablet's superblock cannot be read, which may name anything: the copy completes, and the old blocks stay until
    a later start."""
    for unreadable in (False, True):
        disk, source = new_disk(), leading_source()
        replica_that_voted(disk)
        disk.remove(superblock_path(TABLET))
        old, others = data_files(disk), lose_another(disk)
        if unreadable:
            disk.poke(superblock_path("third"), b"nonsense")
        assert copy_over(None, attempt(disk, source.copy_source)).run().data_state is DataState.READY
        assert others in data_files(disk)
        assert [name in data_files(disk) for name in old] == [unreadable] * len(old) != []
        source.replica.close()


def test_purge_removes_what_stayed_for_a_lost_superblock() -> None:
    """IN-21. Goal: an operator's purge removes the blocks that were left without a superblock. Method: two tablets lost
    their superblocks and a copy of one fails; the purge of its quarantine removes log and old blocks, and the tombstone
    stays one that does not vote. What stays for the other tablet is not touched."""
    disk, source = new_disk(), leading_source()
    replica_that_voted(disk)
    disk.remove(superblock_path(TABLET))
    old, others = data_files(disk), lose_another(disk)
    assert held(disk) == sorted([*old, others]), "a start sweeps what is no tablet's"
    disk.fail_on("pwrite", f"wals/{TABLET}/*", "EIO")
    with pytest.raises(DiskFailure):
        copy_over(None, attempt(disk, source.copy_source)).run()
    assert {f"data/{name}" for name in old} < set(purge_quarantine(disk, TABLET).removed)
    assert data_files(disk) == [others] and disk.listdir("quarantine") == [] and refuses_votes(disk)
    source.replica.close()


@pytest.mark.a_third
@pytest.mark.parametrize("step", [4, 5, 6])
def test_quarantine_is_durable_before_the_deletion_commits(step: int) -> None:
    """Goal: TC-44: what the tombstone refers to was synced before it. Method: lose power right after each later step,
    in many ways: the quarantined superblock reads back, the metadata is in both places after the start's redo, the
    log in exactly one."""
    for seed in range(12):
        disk = new_disk()
        last = replica_that_voted(disk)
        promised = cmeta_bytes(disk)
        disk.arm(f"delete.{step}")
        with pytest.raises(SimCrash):
            delete(disk, last)
        disk.power_loss(random.Random(seed))
        settled = settle_at_startup(disk, Superblock.load(disk, TABLET))
        assert settled.data_state is DataState.DELETED
        kept = parse_superblock(disk.read(f"{settled.quarantine}/superblock"), "quarantine")
        assert kept.data_state is DataState.READY and kept.blocks
        assert cmeta_bytes(disk) == promised == disk.read(f"{settled.quarantine}/cmeta")
        assert disk.listdir(f"{settled.quarantine}/wal") and not disk.listdir(f"wals/{TABLET}")


@pytest.mark.parametrize("over_tombstone", [False, True])
def test_death_right_after_the_merge_finds_the_merged_promises(over_tombstone: bool) -> None:
    """Goal: TC-48: COPY.2 adopts the source's metadata, or merges it into what is here, before any data comes. Method:
    die after COPY.2, over nothing and over a tombstone of term 5: term 6, no vote, the source's config, no log."""
    source, disk = leading_source(), new_disk()
    local = None
    if over_tombstone:
        local = delete(disk, replica_that_voted(disk))
    disk.arm("copy.2")
    with pytest.raises(SimCrash):
        copy_over(local, attempt(disk, source.copy_source)).run()
    disk.restart()
    merged = ConsensusMeta.load(disk, TABLET)
    assert (merged.uuid, merged.term, merged.voted_for) == (TARGET_UUID, 6, None)
    assert merged.committed_config == source.replica.cmeta.committed_config
    assert not disk.listdir(f"wals/{TABLET}")
    source.replica.close()


def test_copy_progress_tells_phase_and_bytes() -> None:
    """Goal: TC-10: an operator sees how far a copy is. Method: look at each chunk: the phase is the step under way,
    bytes rise to the total and no further."""
    source, disk, progress = leading_source(), new_disk(), CopyProgress()
    assert (progress.phase, progress.bytes_done, progress.bytes_total) == ("WAITING", 0, 0)
    seen: list[tuple[str, int]] = []
    paced = attempt(
        disk,
        source.copy_source,
        progress=progress,
        pace=lambda length: seen.append((progress.phase, progress.bytes_done)),
    )
    copy_over(None, paced).run()
    assert [phase for phase, _ in seen] == ["COPY.3", "COPY.4", "COPY.4"]
    done = [count for _, count in seen]
    assert done[0] == 0 and done == sorted(set(done)) and done[-1] < progress.bytes_done == progress.bytes_total
    source.replica.close()
