"""Which messages a core accepts, and what it shows of itself and of its peers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.raft import AppendReply, Message, Role, TimeoutNow, VoteReply, VoteRequest
from nyala.replica.types import Code, EntryKind, OpId, Refused
from tests.harness.raft_net import OPTIONS, config_of, encode_config
from tests.harness.raft_solo import Solo, entry


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(to_uuid="z", from_uuid="b", term=4, last=OpId(1, 9)),
        VoteReply(to_uuid="z", from_uuid="b", term=4, granted=False),
        AppendReply(to_uuid="z", from_uuid="b", term=4, code=Code.INVALID_TERM),
        TimeoutNow(to_uuid="z", from_uuid="b", term=4, last=OpId(4, 9)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_message_for_another_server_is_not_used_and_only_an_append_is_answered(message: Message) -> None:
    """TC-22. Goal: a server neither uses nor answers a message for another server whose address it has taken over; only
    an append is answered. Method: each other kind of message, of a higher term, for a server that this one is not."""
    solo = Solo(term=1, entries=[entry(1, 1)])
    assert solo.step(message) == []
    assert (solo.core.term, solo.core.voted_for, solo.core.role) == (1, None, Role.FOLLOWER)


def test_answer_of_a_server_without_a_part_in_the_group_deposes_nobody() -> None:
    """Goal: a removed member with a high term does not depose the leader. Method: answers of term 9 to a leader: of a
    stranger and, to a vote, of a learner; then of a member."""
    solo = Solo("abc", "d")
    solo.lead()
    for message in (
        AppendReply(to_uuid="a", from_uuid="x", term=9, code=Code.INVALID_TERM),
        VoteReply(to_uuid="a", from_uuid="x", term=9, granted=False),
        VoteReply(to_uuid="a", from_uuid="d", term=9, granted=False),
    ):
        assert solo.step(message) == []
        assert (solo.core.role, solo.core.term) == (Role.LEADER, 1)
    solo.step(AppendReply(to_uuid="a", from_uuid="d", term=9, code=Code.INVALID_TERM))
    assert (solo.core.role, solo.core.term) == (Role.FOLLOWER, 9)


def test_member_of_a_config_that_is_not_committed_yet_has_its_part() -> None:
    """Goal: [thesis §4.1]: a config is in force from its entry on. Method: a fourth voter is not committed: its vote
    counts for a candidate, and its acknowledgement at a leader; and a leader that no config here names is followed."""
    more = entry(1, 1, b"", EntryKind.CONFIG)._replace(meta=encode_config(config_of("abcd")))
    solo = Solo(term=1, entries=[more])
    solo.core.campaign()
    solo.persist()
    for uuid in "bd":
        solo.step(VoteReply(to_uuid="a", from_uuid=uuid, term=2, granted=True, pre_vote=True))
    assert solo.core.role is Role.CANDIDATE
    for uuid in "bd":
        solo.step(VoteReply(to_uuid="a", from_uuid=uuid, term=2, granted=True))
    solo.ack("d", 2)
    assert [peer.match_index for peer in solo.core.peer_status() if peer.uuid == "d"] == [2]
    follower = Solo()
    follower.step(follower.append(1, OpId(0, 0), entry(1, 1), leader="x"))
    assert (follower.core.leader_uuid, follower.log.last) == ("x", OpId(1, 1))


def test_server_that_told_a_higher_term_is_not_taken_for_its_leader() -> None:
    """Goal: a replica learns its leader only from an append. Method: `b` answers with a higher term, and `c` leads
    it."""
    solo = Solo()
    solo.lead()
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=9, code=Code.INVALID_TERM))
    assert solo.core.leader_uuid is None
    solo.step(solo.append(9, OpId(0, 0), leader="c"))
    assert solo.core.leader_uuid == "c"


def test_follower_that_learns_of_a_later_term_elsewhere_has_still_heard_its_leader() -> None:
    """CN-24. Goal: a voter withholds its vote after it heard its leader, even if it then learns of a later term.
    Method: a follower that heard its leader just now is told a later term by a member, and then asked for its vote."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0)))
    solo.step(AppendReply(to_uuid="a", from_uuid="c", term=5, code=Code.INVALID_TERM))
    [answer] = solo.step(VoteRequest(to_uuid="a", from_uuid="c", term=6, last=OpId(4, 9)))
    assert isinstance(answer, VoteReply) and not answer.granted
    assert (solo.core.term, solo.core.voted_for) == (5, None)


def test_deposed_leader_votes_at_once() -> None:
    """Goal: a deposed leader may vote at once, because it heard no other leader. Method: it was handed the lead by
    another, and leads for a moment; then a later term is told, and a vote asked for."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0), entry(1, 1)))
    solo.step(TimeoutNow(to_uuid="a", from_uuid="b", term=1, last=OpId(1, 1)))
    solo.step(VoteReply(to_uuid="a", from_uuid="b", term=2, granted=True))
    assert solo.core.role is Role.LEADER
    solo.step(AppendReply(to_uuid="a", from_uuid="c", term=5, code=Code.INVALID_TERM))
    [answer] = solo.step(VoteRequest(to_uuid="a", from_uuid="c", term=6, last=OpId(5, 9)))
    assert isinstance(answer, VoteReply) and answer.granted


def test_follower_says_once_whom_it_follows() -> None:
    """Goal: heartbeats and appends fill no log file. Method: the trace of the first of each, and of the second."""
    solo = Solo()
    for prev, entries, lines in ((0, [], 1), (0, [], 0), (0, [1], 0), (1, [2, 3], 0)):
        solo.step(solo.append(1, OpId(min(prev, 1), prev), *(entry(1, index) for index in entries)))
        traces = [line for ready in solo.readies for line in ready.trace if "term of" not in line]
        assert len(traces) == lines
        solo.readies.clear()


def test_safe_time_is_handed_out_for_the_end_of_the_append_that_names_it() -> None:
    """Goal: a follower may read as of a time once it has applied what was written until then. Method: an append with a
    safe time, one whose entries do not fit, and one that names none."""
    solo = Solo()
    solo.step(replace(solo.append(1, OpId(0, 0), entry(1, 1), entry(1, 2)), safe_time=70))
    solo.step(replace(solo.append(1, OpId(1, 9)), safe_time=80))
    solo.step(solo.append(1, OpId(1, 2)))
    assert [ready.safe_time for ready in solo.readies if ready.safe_time is not None] == [(2, 70)]


def test_restarted_voter_that_withholds_its_vote_does_not_campaign_either() -> None:
    """Goal: X-19 bends no lease: the leader may hold one that this voter promised before it restarted. Method: it is
    told to campaign in each tick until a minimum election timeout has passed."""
    solo = Solo(withhold_votes=True)
    for _ in range(OPTIONS.election_ticks_min):
        solo.core.campaign()
        assert solo.core.role is Role.FOLLOWER
        solo.core.tick()
    solo.core.campaign()
    assert solo.core.role is Role.PRE_CANDIDATE


def test_term_is_open_from_the_leaders_first_commit_until_it_is_deposed() -> None:
    """Goal: clients are sent to a leader that takes writes. Method: elected, first entry committed, deposed."""
    solo = Solo()
    solo.lead()
    assert not solo.core.term_committed
    with pytest.raises(Refused) as refused:
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    assert refused.value.code is Code.NOT_READY
    solo.ack("b", 1)
    assert solo.core.term_committed
    solo.step(solo.append(5, OpId(1, 1), commit=1))
    assert not solo.core.term_committed


def test_applied_index_travels_to_the_leader_which_shows_it_beside_the_commit_index() -> None:
    """Goal: an operator sees how far each replica has applied. Method: a follower's answer, and what a leader shows
    after such an answer."""
    solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2)], commit_index=1)
    assert solo.core.applied_index == 1
    solo.core.applied_index = 2
    assert solo.core.applied_index == 2
    [answer] = solo.step(solo.append(1, OpId(1, 2), commit=2))
    assert isinstance(answer, AppendReply) and (answer.applied_index, answer.commit_index) == (2, 2)
    leader = Solo()
    leader.lead()
    leader.ack("b", 1, applied_index=0, commit_index=1)
    assert [(p.uuid, p.applied_index, p.commit_index) for p in leader.core.peer_status()] == [("b", 0, 1), ("c", 0, 0)]


def test_peers_whose_server_is_not_heard_are_shown_absent() -> None:
    """Goal: an operator sees which link is down. Method: one link is lost, and found again."""
    solo = Solo()
    solo.lead()
    solo.core.server_silent("b", 1)
    assert [(p.uuid, p.absent) for p in solo.core.peer_status()] == [("b", True), ("c", False)]
    solo.core.server_heard("b")
    assert [(p.uuid, p.absent) for p in solo.core.peer_status()] == [("b", False), ("c", False)]
