"""The answers of a server for a tablet that does not run there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft import VoteRequest
from nyala.replica.rpc import opid_from_pb
from nyala.replica.server.tablets.status import replica_status
from nyala.replica.server.tablets.tombstone import answer_without_replica, vote_reply
from nyala.replica.types import DataState, OpId
from tests.harness.copies import CONFIG, SOURCE_UUID, TABLET, TARGET_UUID, close_disks, new_disk
from tests.harness.server_pair import Pair, run_pair, until
from tests.harness.sim_disk import SimDisk

OTHER = "d" * 32
KEPT = OpId(5, 90)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    """A disk with the metadata of a tombstone in term 5 that voted for nobody."""
    disk = new_disk()
    ConsensusMeta.create(disk, TABLET, TARGET_UUID, CONFIG, 5)
    yield disk
    close_disks()


def ask(
    term: int, last: OpId, *, candidate: str = SOURCE_UUID, pre_vote: bool = False, to: str = TARGET_UUID
) -> VoteRequest:
    return VoteRequest(to_uuid=to, from_uuid=candidate, term=term, last=last, pre_vote=pre_vote)


@pytest.mark.parametrize(
    ("request_", "granted"),
    [
        (ask(6, OpId(5, 90)), True),
        (ask(6, OpId(6, 1)), True),
        (ask(5, OpId(5, 90)), True),
        (ask(6, OpId(5, 89)), False),
        (ask(9, OpId(4, 999)), False),
        (ask(4, OpId(5, 90)), False),
        (ask(6, OpId(5, 90), to="e" * 32), False),
    ],
)
def test_tombstone_votes_by_its_kept_last_opid(disk: SimDisk, request_: VoteRequest, granted: bool) -> None:
    """Goal: row TC-76. Method: candidates below, at and above the kept 5.90; a granted vote is on disk, a refused one
    leaves the file as it was."""
    before = disk.read(f"consensus-meta/{TABLET}")
    reply = vote_reply(request_, uuid=TARGET_UUID, cmeta=ConsensusMeta.load(disk, TABLET), last=KEPT)
    assert reply.granted is granted, reply.reason
    after = ConsensusMeta.load(disk, TABLET)
    if granted:
        assert (after.term, after.voted_for) == (request_.term, SOURCE_UUID)
    else:
        assert disk.read(f"consensus-meta/{TABLET}") == before and reply.reason


def test_tombstone_votes_once_per_term_over_restarts(disk: SimDisk) -> None:
    """Goal: row TC-14. Method: grant in term 6, reload the metadata, ask for another candidate in term 6."""
    first = vote_reply(ask(6, KEPT), uuid=TARGET_UUID, cmeta=ConsensusMeta.load(disk, TABLET), last=KEPT)
    again = vote_reply(ask(6, KEPT), uuid=TARGET_UUID, cmeta=ConsensusMeta.load(disk, TABLET), last=KEPT)
    other = vote_reply(
        ask(6, KEPT, candidate=OTHER), uuid=TARGET_UUID, cmeta=ConsensusMeta.load(disk, TABLET), last=KEPT
    )
    assert (first.granted, again.granted, other.granted) == (True, True, False)


def test_pre_vote_of_a_tombstone_writes_nothing(disk: SimDisk) -> None:
    """Goal: row CC-33. Method: a pre-vote that is granted; the metadata's bytes stay."""
    before = disk.read(f"consensus-meta/{TABLET}")
    cmeta = ConsensusMeta.load(disk, TABLET)
    assert vote_reply(ask(7, KEPT, pre_vote=True), uuid=TARGET_UUID, cmeta=cmeta, last=KEPT).granted
    assert disk.read(f"consensus-meta/{TABLET}") == before


def test_tombstone_abstains_up_to_its_vote_floor(disk: SimDisk) -> None:
    """Goal: a replica that may have forgotten its log's end does not vote. Method: ask below and above it."""
    cmeta = ConsensusMeta.load(disk, TABLET)
    cmeta.raise_vote_floor(8)
    assert not vote_reply(ask(8, OpId(9, 9)), uuid=TARGET_UUID, cmeta=cmeta, last=KEPT).granted
    assert vote_reply(ask(9, OpId(9, 9)), uuid=TARGET_UUID, cmeta=cmeta, last=KEPT).granted


def test_tombstone_gives_no_vote_while_a_leader_may_hold_a_lease(disk: SimDisk) -> None:
    """CC-31, TC-76. Goal: a voter that becomes a tombstone keeps its leader's lease. Method: all three requests."""
    cmeta = ConsensusMeta.load(disk, TABLET)
    for request in (ask(6, KEPT), ask(6, KEPT, pre_vote=True)):
        assert not vote_reply(request, uuid=TARGET_UUID, cmeta=cmeta, last=KEPT, owes_lease=True).granted
    assert (cmeta.term, cmeta.voted_for) == (5, None)
    handed = VoteRequest(to_uuid=TARGET_UUID, from_uuid=SOURCE_UUID, term=6, last=KEPT, transfer=True)
    assert vote_reply(handed, uuid=TARGET_UUID, cmeta=cmeta, last=KEPT, owes_lease=True).granted


def test_replica_whose_logs_end_is_damaged_keeps_that_end_as_a_tombstone() -> None:
    """Goal: TC-36, TC-61: a tombstone votes by what was acknowledged, not by what can be read. Method: the last entry
    of the other server's log is damaged at rest, nobody brings it back; deleted, the tombstone keeps that entry's OpId
    and refuses a candidate whose log ends right below it."""

    async def scenario(pair: Pair) -> None:
        await pair.add_other()
        await pair.voting()
        last = await pair.put(1, 2)
        await until(lambda: pair.other.hosted.last_opid == last, "the other server has the entry")
        await pair.other.stop()
        disk = pair.other.disk
        newest = f"wals/{TABLET}/{disk.listdir(f'wals/{TABLET}')[-1]}"
        disk.corrupt(newest, len(disk.read(newest).rstrip(b"\0")) - 40)
        pair.cut = True
        await pair.restart_other()
        hosted = pair.other.hosted
        assert hosted.replica is not None and hosted.replica.withheld == last and hosted.last_opid < last
        assert opid_from_pb(replica_status(hosted, TARGET_UUID, 50).withheld) == last, "operators see it"
        below = hosted.last_opid
        await pair.other.manager.delete(TABLET, None, "damaged")
        assert hosted.superblock.last_logged == last and hosted.cmeta is not None
        request = VoteRequest(to_uuid=TARGET_UUID, from_uuid=SOURCE_UUID, term=99, last=below, pre_vote=False)
        reply = vote_reply(request, uuid=TARGET_UUID, cmeta=hosted.cmeta, last=hosted.last_opid)
        assert not reply.granted and "was acknowledged here" in reply.reason

    run_pair(scenario)


def test_replica_that_could_not_be_opened_gives_no_vote_as_a_tombstone() -> None:
    """TC-36, TC-76. Goal: the tombstone of a replica that could not be opened gives no vote, because it may have
    acknowledged more than it knows. Method: the other server's log is damaged in its first block, so that its replica
    does not open; deleted, the tombstone has a lower bound and refuses whoever asks, in any term, after a start too."""

    async def scenario(pair: Pair) -> None:
        await pair.add_other()
        await pair.voting()
        last = await pair.put(1, 2)
        await until(lambda: pair.other.hosted.last_opid == last, "the other server has the entry")
        await pair.other.stop()
        disk = pair.other.disk
        segment = f"wals/{TABLET}/{disk.listdir(f'wals/{TABLET}')[0]}"
        disk.corrupt(segment, 4)
        pair.cut = True
        await pair.restart_other()
        assert pair.other.hosted.replica is None and pair.other.hosted.error
        await pair.other.manager.delete(TABLET, None, "cannot be read")
        await pair.restart_other()
        hosted, answers = pair.other.hosted, []
        assert hosted.superblock.data_state is DataState.DELETED and hosted.last_opid < last
        assert not hosted.superblock.last_logged_known
        pair.other.manager.reply = lambda _, message: answers.append(message)  # type: ignore[method-assign]
        pair.other.manager.owes_a_lease = lambda _: False  # type: ignore[method-assign]
        for request in (ask(99, OpId(98, 1)), ask(99, OpId(98, 1), pre_vote=True)):
            answer_without_replica(pair.other.manager, hosted, TABLET, request)
        await until(lambda: len(answers) == 2, "both are answered")
        assert not any(a.granted for a in answers) and "could not be read" in answers[0].reason

    run_pair(scenario)
