"""One core that asks for votes and is asked: each answer, and when it leaves."""

from __future__ import annotations

import pytest

from nyala.replica.raft import Message, Role, TimeoutNow, VoteReply, VoteRequest
from nyala.replica.types import Code, Entry, EntryKind, OpId
from tests.harness.raft_net import OPTIONS
from tests.harness.raft_solo import Solo, entry


def asked(by: str, term: int, last: OpId = OpId(1, 1), **fields: bool) -> VoteRequest:
    return VoteRequest(to_uuid="a", from_uuid=by, term=term, last=last, **fields)


def answer(sent: list[Message]) -> VoteReply:
    (reply,) = sent
    assert isinstance(reply, VoteReply)
    return reply


@pytest.mark.parametrize(
    ("request_", "reason", "term"),
    [
        (asked("b", 6), "", 6),
        (asked("b", 6, pre_vote=True), "", 5),
        (asked("b", 5), "", 5),
        (asked("b", 4), "old term", 5),
        (asked("b", 5, pre_vote=True), "old term", 5),
        (asked("b", 6, OpId(0, 0)), "our log is ahead: 1.1", 6),
        (asked("b", 6, OpId(0, 0), pre_vote=True), "our log is ahead: 1.1", 5),
    ],
)
def test_each_answer_says_why_and_in_which_term(request_: VoteRequest, reason: str, term: int) -> None:
    """Goal: a candidate and its operator learn what stands against it, and the voter's own term, which the candidate
    may have missed; a voter whose log is ahead takes the higher term, or it could never be elected itself. Method: a
    voter of term 5 that heard no leader is asked, as the table says; the last column is its term afterwards."""
    solo = Solo(term=5, entries=[entry(1, 1)])
    reply = answer(solo.step(request_))
    assert (reply.granted, reply.reason, reply.pre_vote) == (not reason, reason, request_.pre_vote)
    assert (reply.code, reply.term) == ((Code.ILLEGAL_STATE, term) if reason else (Code.OK, request_.term))
    assert solo.core.term == term


def test_live_leader_is_protected_from_its_former_voter_too_and_the_same_vote_is_given_again() -> None:
    """Goal: a lost answer costs no election, and a vote of an earlier term excuses nothing. Method: b, which has our
    vote of term 1, leads and is heard; it asks in term 2. Then c, to which b hands over, asks twice."""
    solo = Solo()
    assert answer(solo.step(asked("b", 1, OpId(0, 0)))).granted
    solo.step(solo.append(1, OpId(0, 0)))
    assert answer(solo.step(asked("b", 2, OpId(0, 0)))).reason == "a leader was heard"
    for transfer in (True, False):
        assert answer(solo.step(asked("c", 2, OpId(0, 0), transfer=transfer))).granted
    assert solo.readies[-1].hard_state is None, "it is on disk already"


@pytest.mark.parametrize("term", [5, 6])
def test_restarted_voter_waits_in_its_own_term_too(term: int) -> None:
    """CN-24. Goal: it may have promised a leader to give no vote. Method: it is asked at once, and after that time."""
    solo = Solo(term=5, withhold_votes=True)
    assert answer(solo.step(asked("b", term))).reason == "restarted a moment ago"
    for _ in range(OPTIONS.election_ticks_min):
        solo.core.tick()
    solo.persist()
    assert answer(solo.step(asked("b", term))).granted


def test_denial_does_not_wait_for_the_disk() -> None:
    """Goal: a slow disk delays no election that it has no part in. Method: an append is not durable yet when a
    candidate with an older log asks."""
    solo = Solo(term=1, entries=[entry(1, 1)])
    for _ in range(OPTIONS.election_ticks_min):
        solo.core.tick()
    solo.persist()
    solo.core.step(solo.append(1, OpId(1, 1), entry(1, 2)))
    solo.core.step(asked("c", 1))
    assert not answer(solo.take()).granted


@pytest.mark.parametrize("rival", ["pre-vote", "vote"])
def test_candidate_that_is_asked_in_its_own_term_stays_one(rival: str) -> None:
    """Goal: two candidates of a term deny each other, and each still counts. Method: a candidate is asked by another,
    then gets the vote that it lacks."""
    solo = Solo()
    solo.core.campaign()
    solo.persist()
    solo.step(VoteReply(to_uuid="a", from_uuid="b", term=1, granted=True, pre_vote=True))
    reply = answer(solo.step(asked("c", 1, OpId(0, 0), pre_vote=rival == "pre-vote")))
    assert not reply.granted and solo.core.role is Role.CANDIDATE
    solo.step(VoteReply(to_uuid="a", from_uuid="b", term=1, granted=True))
    assert (solo.core.role, solo.core.leader_uuid) == (Role.LEADER, "a")


def test_leader_is_protected_for_one_minimum_election_timeout() -> None:
    """CN-24. Goal: a voter withholds its vote for exactly the minimum election timeout after it heard its leader.
    Method: an append, then a request a tick."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0)))
    for _ in range(OPTIONS.election_ticks_min):
        assert answer(solo.step(asked("c", 2, OpId(0, 0)))).reason == "a leader was heard"
        solo.core.tick()
    assert answer(solo.step(asked("c", 2, OpId(0, 0)))).granted


def test_unanswered_candidate_asks_again_after_the_timeout_that_it_drew() -> None:
    """Goal: split votes resolve in time. Method: pre-campaign, then count the ticks until the next requests."""
    solo = Solo()
    solo.core.campaign()
    solo.persist()
    timeout = solo.core._s.election.timeout
    for _ in range(timeout - 1):
        solo.core.tick()
    assert solo.persist() == []
    solo.core.tick()
    assert [type(m) for m in solo.persist()] == [VoteRequest, VoteRequest]


def test_learner_that_hears_nobody_has_nothing_to_do() -> None:
    """CN-31. Goal: a learner without a leader makes no output. Method: many ticks without a leader."""
    solo = Solo("bc", "a")
    for _ in range(5 * OPTIONS.election_ticks_max):
        solo.core.tick()
    assert not solo.core.has_ready()


def test_follower_that_is_asked_in_its_leaders_term_names_the_leader_and_keeps_it() -> None:
    """Goal: a term has one leader, also for a voter that gave no vote in it. Method: it learned of the term by an
    append; a candidate of that term, to which another leader handed over, asks it."""
    solo = Solo()
    solo.step(solo.append(3, OpId(0, 0)))
    reply = answer(solo.step(asked("c", 3, transfer=True)))
    assert (reply.granted, reply.reason) == (False, "b leads this term")
    assert (solo.core.leader_uuid, solo.core.voted_for) == ("b", None)


def test_who_asks_for_votes_knows_no_leader() -> None:
    """Goal: a candidate names no leader. Method: a follower campaigns at its timeout; another one because its leader
    hands over, and loses to a third server."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0)))
    while solo.core.role is Role.FOLLOWER:
        solo.core.tick()
    assert solo.core.leader_uuid is None
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0)))
    solo.step(TimeoutNow(to_uuid="a", from_uuid="b", term=1, last=OpId(0, 0)))
    assert (solo.core.role, solo.core.leader_uuid) == (Role.CANDIDATE, None)
    solo.step(solo.append(2, OpId(0, 0), leader="c"))
    assert (solo.core.role, solo.core.leader_uuid) == (Role.FOLLOWER, "c")


def test_own_vote_waits_for_its_own_ready() -> None:
    """Goal: a candidate's own vote counts only when its own `Ready` is durable (CN-26). Method: the only voter of a
    group campaigns; a `Ready` from before becomes durable, then the one with the vote."""
    solo = Solo("a", term=0, entries=[entry(1, 1)])
    solo.take()
    solo.core.campaign()
    solo.take()
    first, second = solo.outstanding
    solo.core.advance(first)
    assert solo.core.role is Role.CANDIDATE
    solo.core.advance(second)
    assert solo.core.role is Role.LEADER


def test_late_promise_for_an_earlier_term_is_not_counted() -> None:
    """Goal: a pre-vote promises a vote in the term that it names [thesis §9.6]. Method: a pre-candidate learns of term
    1, asks for term 2, and only then gets a promise for term 1."""
    solo = Solo()
    solo.core.campaign()
    solo.persist()
    solo.step(VoteReply(to_uuid="a", from_uuid="b", term=1, granted=False, pre_vote=True))
    solo.core.campaign()
    solo.persist()
    for term, role in ((1, Role.PRE_CANDIDATE), (2, Role.CANDIDATE)):
        solo.step(VoteReply(to_uuid="a", from_uuid="c", term=term, granted=True, pre_vote=True))
        assert solo.core.role is role


def test_late_order_to_take_over_changes_nothing_for_one_that_asks_already() -> None:
    """Goal: one election at a time. Method: a follower's timeout passes, then its leader's TimeoutNow arrives."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0)))
    while solo.core.role is Role.FOLLOWER:
        solo.core.tick()
    solo.persist()
    assert solo.step(TimeoutNow(to_uuid="a", from_uuid="b", term=1, last=OpId(0, 0))) == []
    assert (solo.core.role, solo.core.term) == (Role.PRE_CANDIDATE, 1)


def test_entry_that_begins_a_term_is_empty() -> None:
    """Goal: it says nothing about rows, and a copy of it on any disk passes the checks of an entry. Method: lead."""
    solo = Solo(term=4, entries=[entry(4, 1)])
    solo.lead()
    assert [e for b in solo.readies for e in b.entries] == [Entry(OpId(5, 2), EntryKind.NOOP, 1, 0, b"", b"", 0)]
