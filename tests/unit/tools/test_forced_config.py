"""A config forced upon one replica at rest, and a term raised: what is on its disk afterwards, whenever it dies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, decode_config, encode_config, path_of
from nyala.replica.raft import RaftCore, RaftOptions, Role
from nyala.replica.raft_driver.bootstrap import recover
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import delete_replica, wal_folder
from nyala.replica.tools.forced_config import Rewritten, force_config, raise_term, rewrite_config
from nyala.replica.types import Code, EntryKind, Member, OpId, RaftConfig, Refused, next_generation
from nyala.replica.wal import Log, read_offline
from tests.harness.copies import SOURCE_UUID, TABLET, RestingReplica, close_disks, new_disk
from tests.harness.lost_majority import make_witness
from tests.harness.sim_disk import SimCrash, SimDisk

ALONE = (Member(SOURCE_UUID),)


@pytest.fixture(autouse=True)
def _disks() -> Iterator[None]:
    yield
    close_disks()


def replica_at_rest(*, flushed: bool = False, log_of_terms: tuple[int, ...] = (1, 1, 3)) -> SimDisk:
    """A READY replica of three voters that wrote one row a term, and is stopped."""
    disk = new_disk()
    resting = RestingReplica(disk)
    for index, term in enumerate(log_of_terms):
        resting.write([index], "v", term)
    if flushed:
        resting.tablet.flush()
    resting.cmeta.save_hard_state(4, "b" * 32)
    resting.close()
    return disk


def last_entries(disk: SimDisk, count: int) -> list[tuple[OpId, EntryKind]]:
    return [(e.opid, e.kind) for e in read_offline(disk, wal_folder(TABLET), TABLET).entries][-count:]


def contents(disk: SimDisk) -> dict[str, bytes]:
    paths = [path_of(TABLET), *(f"{wal_folder(TABLET)}/{name}" for name in disk.listdir(wal_folder(TABLET)))]
    return {path: disk.read(path) for path in paths} | {"undo": repr(disk.listdir("undo")).encode()}


def start(disk: SimDisk) -> RaftCore:
    """A core from what is on the disk, as a server would start it."""
    meta = ConsensusMeta.load(disk, TABLET)
    superblock = Superblock.load(disk, TABLET)
    log, replay = Log.open(disk, wal_folder(TABLET), TABLET)
    found = recover(replay, flush_opid=superblock.flush_opid, flush_time=0, cmeta=meta, cache_bytes_max=1 << 20)
    log.close()
    core = RaftCore(
        uuid=meta.uuid,
        term=meta.term,
        voted_for=meta.voted_for,
        committed_config=found.committed_config,
        pending_config=found.pending_config,
        log=found.cache,
        commit_index=superblock.flush_opid.index,
        options=RaftOptions(),
        rng=random.Random(1),
        encode_config=encode_config,
        decode_config=decode_config,
    )
    core.campaign()
    while (ready := core.ready()) is not None:
        core.advance(ready)
    return core


@pytest.mark.parametrize("flushed", [False, True])
def test_forced_config_is_the_logs_last_entry_and_committed(flushed: bool) -> None:
    """CC-45. Goal: a forced config is an ordinary entry after the whole log, and with it the survivor alone can lead.
    Method: rewrite a replica whose log is flushed or not; look at the log; start a core from the disk."""
    disk = replica_at_rest(flushed=flushed)
    done = rewrite_config(disk, TABLET, ALONE)
    opid = OpId(next_generation(4), 4)
    assert last_entries(disk, 1) == [(opid, EntryKind.CONFIG)]
    assert (done.after.term, done.after.voted_for, done.after.config.opid) == (opid.term, None, opid)
    core = start(disk)
    assert (core.role, core.term) == (Role.LEADER, opid.term + 1)
    assert core.committed_config.voters == (SOURCE_UUID,) and core.commit_index == core.last.index == 5


def test_forced_config_stands_behind_what_is_flushed_and_gone_from_the_log() -> None:
    """CC-45. Goal: the end of a replica is the end of its log or of its flush, whichever is later. Method: all flushed,
    the log empty as after a copy; a dry run and the rewrite put the config right behind the flush."""
    disk = replica_at_rest(flushed=True)
    disk.remove_tree(wal_folder(TABLET))
    disk.mkdir(wal_folder(TABLET))
    opid = OpId(next_generation(4), 4)
    assert rewrite_config(disk, TABLET, ALONE, dry_run=True).after.config.opid == opid
    assert rewrite_config(disk, TABLET, ALONE).after.config.opid == opid
    assert last_entries(disk, 2) == [(opid, EntryKind.CONFIG)]


def test_forced_config_beats_older_configs_that_wait_in_the_log() -> None:
    """CC-45. Goal: uncommitted configs of the log do not come back into force after a forced one. Method: a log with
    two uncommitted configs behind the metadata's; rewrite; start."""
    disk = replica_at_rest()
    log, _ = Log.open(disk, wal_folder(TABLET), TABLET)
    resting = RestingReplica(new_disk())
    entry = next(iter(read_offline(disk, wal_folder(TABLET), TABLET).entries))
    for index in (4, 5):
        config = RaftConfig(OpId(4, index), (*ALONE, Member("b" * 32), Member(str(index) * 32)))
        waiting = entry._replace(
            opid=config.opid, kind=EntryKind.CONFIG, meta=encode_config(config), payload=b"", payload_crc=0
        )
        log.append([waiting], lambda outcome: None)
        log.drain()
    log.close()
    resting.close()
    rewrite_config(disk, TABLET, ALONE)
    core = start(disk)
    assert core.role is Role.LEADER and core.active_config.voters == (SOURCE_UUID,)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("point", ["recover.logged", "cmeta.before_flush", "cmeta.after_flush"])
def test_rewrite_cut_off_anywhere_ends_the_same_when_repeated(point: str, power: bool) -> None:
    """CC-44. Goal: a repeated rewrite ends with one forced config, wherever the first one died. Method: die at each
    point by kill and by power loss, run it again with the same config, compare with an undisturbed run."""
    whole = replica_at_rest()
    rewrite_config(whole, TABLET, ALONE)
    config = ConsensusMeta.load(whole, TABLET).committed_config
    disk = replica_at_rest()
    earlier = disk.read(path_of(TABLET))
    disk.arm(point)
    with pytest.raises(SimCrash):
        rewrite_config(disk, TABLET, ALONE)
    disk.power_loss(random.Random(3)) if power else disk.restart()
    disk.disarm()
    planned = rewrite_config(disk, TABLET, ALONE, dry_run=True)
    assert planned.after.config == config
    rewrite_config(disk, TABLET, ALONE)
    assert rewrite_config(disk, TABLET, ALONE).undo == ""
    force_config(disk, TABLET, config, 4 << 12)
    assert [disk.read(f"undo/{name}") for name in disk.listdir("undo")] == [earlier]
    assert ConsensusMeta.load(disk, TABLET).encode() == ConsensusMeta.load(whole, TABLET).encode()
    assert last_entries(disk, 4) == last_entries(whole, 4)


def test_rewrite_to_other_members_after_one_was_cut_off_begins_another_generation() -> None:
    """CC-44. Goal: only the same rewrite is completed; one to other members begins a new generation. Method: die
    between log and metadata; rewrite to other members; the number of an undo that was removed is not given again."""
    disk = replica_at_rest()
    disk.mkdir("undo")
    disk.replace(f"undo/{TABLET}.cmeta-000004", b"an earlier one")
    disk.arm("recover.logged")
    with pytest.raises(SimCrash):
        rewrite_config(disk, TABLET, ALONE)
    disk.restart()
    disk.disarm()
    done = rewrite_config(disk, TABLET, (*ALONE, Member("b" * 32)))
    assert done.after.config.opid == OpId(next_generation(next_generation(4)), 5)
    assert last_entries(disk, 2) == [
        (OpId(next_generation(4), 4), EntryKind.CONFIG),
        (done.after.config.opid, EntryKind.CONFIG),
    ]
    assert disk.listdir("undo") == [f"{TABLET}.cmeta-000004", f"{TABLET}.cmeta-000005"]


def test_rewrite_that_cannot_be_leaves_every_byte() -> None:
    """CC-44. Goal: a refused rewrite changes no file. Method: no voter; a config for another log; a tombstone; a dry
    run."""
    disk = replica_at_rest()
    before = contents(disk)
    with pytest.raises(Refused, match="nobody could lead"):
        rewrite_config(disk, TABLET, (Member(SOURCE_UUID, votes=False),))
    far = RaftConfig(OpId(1 << 32, 9), ALONE, unsafe=True)
    with pytest.raises(Refused, match="does not end where"):
        force_config(disk, TABLET, far, 1)
    assert rewrite_config(disk, TABLET, ALONE, dry_run=True).after.config.voters == (SOURCE_UUID,)
    assert raise_term(disk, TABLET, 9, dry_run=True).after.term == 9
    assert contents(disk) == before
    delete_replica(disk, Superblock.load(disk, TABLET), OpId(3, 3), stop=lambda: None)
    with pytest.raises(Refused, match="READY"):
        force_config(disk, TABLET, replace(far, opid=OpId(1 << 32, 4)), 1)


def test_witness_is_not_rewritten_to_a_member_with_rows() -> None:
    """CC-44. Goal: a witness cannot be rewritten to a member with rows, because it has none. Method: a witness'
    directory, as a voter and as a non-voter, and for a look only: refused, every byte as before; named as the witness
    that it is, beside one that holds data, it is rewritten."""
    disk = replica_at_rest()
    make_witness(disk)
    before = contents(disk)
    for own in (Member(SOURCE_UUID), Member(SOURCE_UUID, votes=False)):
        for dry_run in (True, False):
            with pytest.raises(Refused, match="is a witness") as refusal:
                rewrite_config(disk, TABLET, (own, Member("b" * 32)), dry_run=dry_run)
            assert refusal.value.code is Code.ILLEGAL_STATE
    assert contents(disk) == before
    members = (Member(SOURCE_UUID, holds_data=False), Member("b" * 32))
    assert rewrite_config(disk, TABLET, members).after.config.members == members


def test_term_is_only_raised_within_its_generation_and_the_undo_is_kept() -> None:
    """CC-44. Goal: an operator can only raise the term, and only so far that elections have terms left. Method: lower,
    equal, higher, a leap, and the end of a generation, of the first and of a later one; the earlier bytes stand beside;
    the vote of the earlier term is gone with it."""
    disk = replica_at_rest()
    earlier = disk.read(path_of(TABLET))
    for term in (3, next_generation(4)):
        with pytest.raises(Refused) as refusal:
            raise_term(disk, TABLET, term)
        assert refusal.value.code is Code.INVALID_ARGUMENT
    assert raise_term(disk, TABLET, 4).undo == ""
    assert disk.read(path_of(TABLET)) == earlier
    done: Rewritten = raise_term(disk, TABLET, 7)
    assert (done.before.term, done.after.term, done.after.voted_for) == (4, 7, None)
    assert disk.read(done.undo) == earlier
    assert raise_term(disk, TABLET, 7).undo == ""
    for last in ((1 << 32) - 1, (1 << 31) + 1):
        with pytest.raises(Refused, match="nobody is ever elected again"):
            raise_term(disk, TABLET, last)
    assert raise_term(disk, TABLET, 1 << 31).after.term == 1 << 31
    rewrite_config(disk, TABLET, ALONE)
    with pytest.raises(Refused, match=f"highest={(1 << 32) + (1 << 31)}"):
        raise_term(disk, TABLET, (1 << 33) - 1)
    assert raise_term(disk, TABLET, (1 << 32) + 9).after.term == (1 << 32) + 9
