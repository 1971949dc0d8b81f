"""Term, vote and committed config: never forgotten, never taken back, merged as the rules say."""

from __future__ import annotations

import contextlib
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.consensus_metadata import ConsensusMeta, decode_config, encode_config, path_of
from nyala.replica.types import (
    Address,
    Code,
    Corruption,
    DiskFailure,
    InvariantViolation,
    Member,
    OpId,
    RaftConfig,
    Refused,
)
from tests.harness.sim_disk import SimCrash, SimDisk

POINTS = (
    "cmeta.before_flush",
    "spare.written",
    "spare.synced",
    "spare.exchanged",
    "disk.before_rename_sync",
    "cmeta.after_flush",
)
A, B, C, X = ("a" * 32, "b" * 32, "c" * 32, "d" * 32)


def config(index: int = 0, *uuids: str) -> RaftConfig:
    members = tuple(Member(uuid, (Address("h", 7000 + n),)) for n, uuid in enumerate(uuids or (A, B, C)))
    return RaftConfig(OpId(1 if index else 0, index), members, decision=(2, 3))


def created(term: int = 0) -> tuple[SimDisk, ConsensusMeta]:
    disk = SimDisk()
    return disk, ConsensusMeta.create(disk, "t", A, config(), term)


def same(left: ConsensusMeta, right: ConsensusMeta) -> bool:
    return left.encode() == right.encode()


members = st.builds(
    Member,
    uuid=st.uuids().map(lambda u: u.hex),
    addresses=st.lists(st.builds(Address, st.text(max_size=20), st.integers(0, 65535)), max_size=2).map(tuple),
    votes=st.just(False),
    promote=st.booleans(),
    holds_data=st.booleans(),
    replace=st.booleans(),
)


@pytest.mark.deep
@given(
    st.builds(
        RaftConfig,
        opid=st.builds(OpId, st.integers(0, 1 << 62), st.integers(0, 1 << 62)),
        members=st.lists(members, max_size=5, unique_by=lambda m: m.uuid).map(tuple),
        decision=st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
        unsafe=st.booleans(),
    )
)
def test_config_survives_its_encoding(value: RaftConfig) -> None:
    """Goal: the log carries configs exactly. Method: round trip of generated configs."""
    assert decode_config(encode_config(value)) == value


@given(st.binary(max_size=200))
def test_config_from_arbitrary_bytes_is_a_config_or_corruption(data: bytes) -> None:
    """Goal: bad bytes raise nothing else. Method: random bytes, and cut and flipped good ones."""
    for candidate in (
        data,
        encode_config(config())[: len(data)],
        bytes(a ^ b for a, b in zip(encode_config(config()), data, strict=False)),
    ):
        with contextlib.suppress(Corruption):
            assert isinstance(decode_config(candidate), RaftConfig)


def test_metadata_written_step_by_step_reads_back() -> None:
    """Goal: each change is durable on return. Method: cut the power after every change, load, compare."""
    disk, meta = created()
    steps = [
        lambda: meta.save_hard_state(1, None),
        lambda: meta.save_hard_state(1, B),
        lambda: meta.save_hard_state(4, A),
        lambda: meta.save_config(config(7, A, B)),
        lambda: meta.raise_vote_floor(3),
        lambda: meta.save_hard_state(5, None),
    ]
    for step in steps:
        step()
        disk.power_loss(random.Random(1))
        assert same(ConsensusMeta.load(disk, "t"), meta)
    assert (meta.term, meta.voted_for, meta.vote_floor_term) == (5, None, 3)
    assert meta.committed_config == config(7, A, B)
    assert (meta.uuid, meta.tablet_id) == (A, "t")


def test_config_given_at_creation_is_a_hint_for_a_server_without_one() -> None:
    """CN-35. Goal: the config given at a creation counts only on a server that has none yet (X-08). Method: create
    again, otherwise."""
    disk, meta = created()
    meta.save_config(config(7, A, B))
    for hint in (config(0, A), config(9, A, C)):
        with pytest.raises(Refused) as error:
            ConsensusMeta.create(disk, "t", A, hint)
        assert error.value.code is Code.ALREADY_EXISTS
    assert ConsensusMeta.load(disk, "t").committed_config == config(7, A, B)
    assert ConsensusMeta.create(disk, "other", A, config(0, A)).committed_config == config(0, A)


def test_promises_are_never_taken_back() -> None:
    """TC-14. Goal: no falling term, no second vote, no older config. Method: each attempt; the file stays as it was."""
    disk, meta = created(term=3)
    meta.save_hard_state(3, B)
    meta.save_config(config(9))
    meta.raise_vote_floor(2)
    before = disk.read(path_of("t"))
    for attempt in (
        lambda: meta.save_hard_state(2, None),
        lambda: meta.save_hard_state(3, C),
        lambda: meta.save_hard_state(3, None),
        lambda: meta.save_config(config(8)),
    ):
        with pytest.raises(InvariantViolation):
            attempt()
    meta.raise_vote_floor(1)
    with pytest.raises(Refused) as error:
        ConsensusMeta.create(disk, "t", A, config())
    assert error.value.code is Code.ALREADY_EXISTS
    assert disk.read(path_of("t")) == before
    assert same(ConsensusMeta.load(disk, "t"), meta)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("cut", [True, False])
def test_crash_during_a_vote_leaves_the_old_vote_or_the_new_one(point: str, cut: bool) -> None:
    """TC-14. Goal: never a third state, never none. Method: crash at each point, many seeds, vote again."""
    for seed in range(30):
        disk, meta = created(term=0)
        meta.save_hard_state(1, None)
        disk.arm(point)
        with pytest.raises(SimCrash):
            meta.save_hard_state(2, B)
        if cut:
            disk.power_loss(random.Random(seed))
        else:
            disk.restart()
        again = ConsensusMeta.load(disk, "t")
        assert (again.term, again.voted_for) in [(1, None), (2, B)]
        if point == "cmeta.after_flush":
            assert again.voted_for == B
            with pytest.raises(InvariantViolation):
                again.save_hard_state(2, C)


def test_metadata_that_a_killed_process_left_unsynced_is_durable_once_it_is_loaded() -> None:
    """TC-14: a promise made after a restart holds. Method: kill between the rename and its sync, load, cut the power:
    whatever the power cut takes, the term that was loaded is still there."""
    for seed in range(30):
        disk = SimDisk()
        ConsensusMeta.create(disk, "t", A, config())
        disk.arm("disk.before_rename_sync")
        with pytest.raises(SimCrash):
            ConsensusMeta.load(disk, "t").save_hard_state(4, "b")
        disk.restart()
        loaded = ConsensusMeta.load(disk, "t")
        assert (loaded.term, loaded.voted_for) == (4, "b")
        disk.power_loss(random.Random(seed))
        again = ConsensusMeta.load(disk, "t")
        assert (again.term, again.voted_for) == (4, "b")


@pytest.mark.a_third
@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("second", POINTS)
def test_two_crashes_in_a_row_leave_a_vote_that_was_asked_for_or_the_one_before(first: str, second: str) -> None:
    """TC-14. Goal: the file that a replacement writes over is never the one that a power cut brings back. Method: the
    process is killed at each point of one vote, the next one at each point of its own vote, and then the power goes."""
    for seed in range(30):
        disk, meta = created(term=0)
        meta.save_hard_state(1, None)
        found = [(1, None)]
        for term, point in ((2, first), (3, second)):
            disk.arm(point)
            with pytest.raises(SimCrash):
                meta.save_hard_state(term, B)
            disk.restart() if term == 2 else disk.power_loss(random.Random(seed))
            meta = ConsensusMeta.load(disk, "t")
            assert (meta.term, meta.voted_for) in [found[-1], (term, B)]
            found.append((meta.term, meta.voted_for))


def test_replica_that_voted_before_votes_on_a_full_disk_after_every_restart() -> None:
    """Goal: a restart on a disk without room can vote. Method: a replica that has had one term; the disk has
    room for nothing more; ten lives, each with a term and a vote of its own, read back after a power cut."""
    disk, meta = created(term=0)
    meta.save_hard_state(1, None)
    disk.capacity_bytes = disk.used_bytes
    for term in range(2, 12):
        for vote in (None, B):
            ConsensusMeta.load(disk, "t").save_hard_state(term, vote)
            disk.power_loss(random.Random(term))
            again = ConsensusMeta.load(disk, "t")
            assert (again.term, again.voted_for) == (term, vote)
    with pytest.raises(Refused, match="full"):
        disk.replace("another", b"x")


def test_failed_flush_changes_nothing_in_memory() -> None:
    """TC-57. Goal: what was not written is not believed. Method: no space, then a broken disk, under a vote."""
    for kind, family in (("ENOSPC", Refused), ("EIO", DiskFailure)):
        disk, meta = created(term=1)
        disk.fail_on("replace", "consensus-meta/*", kind)
        with pytest.raises(family):
            meta.save_hard_state(2, B)
        assert (meta.term, meta.voted_for) == (1, None)
        assert same(ConsensusMeta.load(disk, "t"), meta)


def test_unchanged_state_is_not_written_again() -> None:
    """Goal: repeating a promise costs no sync. Method: count replacements."""
    disk, meta = created(term=1)
    meta.save_hard_state(2, B)
    before = disk.count("replace")
    meta.save_hard_state(2, B)
    meta.save_config(config())
    assert disk.count("replace") == before


def test_file_with_any_bit_flipped_or_cut_is_corruption() -> None:
    """Goal: no wrong vote is ever read. Method: every byte flipped, every length."""
    disk, meta = created(term=2)
    meta.save_hard_state(2, B)
    whole = disk.read(path_of("t"))
    for position in range(len(whole)):
        for bad in (whole[:position], whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :]):
            disk.poke(path_of("t"), bad)
            with pytest.raises(Corruption):
                ConsensusMeta.load(disk, "t")
    disk.poke(path_of("u"), whole)
    with pytest.raises(Corruption, match="another tablet"):
        ConsensusMeta.load(disk, "u")
    with pytest.raises(Refused) as error:
        ConsensusMeta.load(disk, "absent")
    assert error.value.code is Code.NOT_FOUND


@pytest.mark.parametrize("remote_term", [4, 5, 6])
@pytest.mark.parametrize("own_vote", [None, B])
@pytest.mark.parametrize("remote_vote", [None, X])
def test_merge_follows_the_rules(remote_term: int, own_vote: str | None, remote_vote: str | None) -> None:
    """TC-53, TC-54, TC-55, TC-56; scenario 72. Goal: highest term, own vote in it or none, the source's config. Method:
    the grid."""
    disk, meta = created(term=5)
    meta.save_hard_state(5, own_vote)
    meta.save_config(config(20))
    meta.raise_vote_floor(2)
    _, remote = created(term=remote_term)
    remote.save_hard_state(remote_term, remote_vote)
    remote.save_config(config(10, A, B, X))
    remote.raise_vote_floor(4)
    meta.merge(remote.encode())
    again = ConsensusMeta.load(disk, "t")
    assert again.term == max(5, remote_term)
    assert again.voted_for == (own_vote if remote_term <= 5 else None)
    assert again.committed_config == config(10, A, B, X)
    assert (again.uuid, again.vote_floor_term) == (A, 2)
    if own_vote and remote_term <= 5:
        with pytest.raises(InvariantViolation):
            again.save_hard_state(5, C)


def test_adopting_without_local_metadata_never_takes_the_sources_vote() -> None:
    """TC-55. Goal: another server's promise is not ours. Method: a blank server adopts a source that voted."""
    _, remote = created(term=5)
    remote.save_hard_state(5, X)
    disk = SimDisk()
    meta = ConsensusMeta.adopt(disk, "t", B, remote.encode())
    assert (meta.term, meta.voted_for, meta.uuid) == (5, None, B)
    assert same(ConsensusMeta.load(disk, "t"), meta)
    meta.save_hard_state(6, C)
    again = ConsensusMeta.adopt(disk, "t", B, remote)
    assert (again.term, again.voted_for) == (6, C)


def test_metadata_that_were_lost_are_adopted_with_a_vote_floor() -> None:
    """TC-14, TC-55. Goal: a member that lost its metadata may have voted in the source's term, so it never does again.
    Method: adopt as one that took part before: the floor is the source's term, in the first version on disk already, so
    that no crash leaves metadata without it; a server that never took part, and a merge, have none."""
    _, remote = created(term=5)
    remote.save_hard_state(5, X)
    disk = SimDisk()
    meta = ConsensusMeta.adopt(disk, "t", B, remote.encode(), lost=True)
    assert (meta.term, meta.voted_for, meta.vote_floor_term) == (5, None, 5)
    assert same(ConsensusMeta.load(disk, "t"), meta) and disk.count("replace", path_of("t")) == 1
    assert ConsensusMeta.adopt(SimDisk(), "t", B, remote.encode()).vote_floor_term == 0
    disk.corrupt(path_of("t"), 12)
    with pytest.raises(Corruption):
        ConsensusMeta.adopt(disk, "t", B, remote.encode())
    assert ConsensusMeta.adopt(disk, "t", B, remote.encode(), lost=True).vote_floor_term == 5
    kept, own = created(term=4)
    assert ConsensusMeta.adopt(kept, "t", own.uuid, remote.encode(), lost=True).vote_floor_term == 0


@pytest.mark.parametrize("point", POINTS)
def test_crash_during_a_merge_leaves_the_old_state_or_the_merged_one(point: str) -> None:
    """TC-57. Goal: atomic. Method: crash at each point under power loss, many seeds."""
    for seed in range(20):
        disk, meta = created(term=5)
        meta.save_hard_state(5, B)
        _, remote = created(term=7)
        disk.arm(point)
        with pytest.raises(SimCrash):
            meta.merge(remote)
        disk.power_loss(random.Random(seed))
        again = ConsensusMeta.load(disk, "t")
        assert (again.term, again.voted_for) in [(5, B), (7, None)]


def test_votes_and_merges_race_without_a_second_vote() -> None:
    """TC-57. Goal: one lock covers both. Method: a thread votes while another merges; one vote per term at most."""
    for _ in range(100):
        disk, meta = created(term=5)
        _, remote = created(term=6)
        remote.save_hard_state(6, X)
        barrier = threading.Barrier(2)

        def vote(meta: ConsensusMeta = meta, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            meta.save_hard_state(6, B)

        thread = threading.Thread(target=vote)
        thread.start()
        barrier.wait()
        meta.merge(remote)
        thread.join()
        assert (meta.term, meta.voted_for) == (6, B)
        assert same(ConsensusMeta.load(disk, "t"), meta)


def test_vote_in_the_midst_of_a_merge_waits_for_it_and_stays() -> None:
    """TC-57. Goal: a vote that is given while a merge is on its way to the disk is not overwritten by it. Method: the
    vote begins as the merged file is about to be written: it ends only after the merge, and both read back."""
    disk, meta = created(term=5)
    _, remote = created(term=6)
    votes: list[threading.Thread] = []

    def begin_vote(operation: str, path: str) -> None:
        if operation == "replace" and not votes:
            votes.append(threading.Thread(target=meta.save_hard_state, args=(6, B)))
            votes[0].start()
            votes[0].join(0.2)
            waited.append(votes[0].is_alive())

    waited: list[bool] = []
    disk.hook = begin_vote
    meta.merge(remote)
    votes[0].join(60)
    assert not votes[0].is_alive()
    assert waited == [True]
    assert (meta.term, meta.voted_for) == (6, B)
    assert same(ConsensusMeta.load(disk, "t"), meta)


def test_adopting_another_servers_file_violates_an_invariant() -> None:
    """Goal: a uuid's promises are its own. Method: adopt with another uuid than the file's."""
    disk, _ = created()
    _, remote = created(term=2)
    with pytest.raises(InvariantViolation, match="another server"):
        ConsensusMeta.adopt(disk, "t", B, remote)
