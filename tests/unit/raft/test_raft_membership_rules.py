"""Membership rules over whole groups: from when a member counts, retries after a dead leader, and disruptive
servers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.raft import Message, RaftOptions, Role, VoteReply, VoteRequest
from nyala.replica.types import Code, ConfigEdit, EditKind, Member, OpId
from tests.harness.raft_net import OPTIONS, Net, config_of, refused
from tests.harness.raft_solo import Solo, entry

ADD_D = ConfigEdit(EditKind.ADD, Member("d", votes=False))
TEN_MINUTES_TICKS = 12_000
"""Ten minutes in ticks of a server, whose tick is 50 ms."""


def led(voters: str = "abc", learners: str = "") -> Net:
    """A group that `a` leads, its term open."""
    net = Net(config_of(voters, learners))
    net.elect("a")
    net.tick(1)
    return net


def test_entry_that_adds_a_learner_needs_the_majority_of_before() -> None:
    """CC-11, CC-12. Goal: three voters and a learner commit with two voters. Method: one voter and the new member are
    dead."""
    net = led()
    net.isolate("c")
    net.isolate("d")
    core = net.nodes["a"].core
    opid = core.propose_config([ADD_D], None)
    net.settle()
    assert core.committed_config.opid == opid and core.active_config.voters == tuple("abc")
    net.write("a", b"x")
    net.settle()
    assert b"x" in net.verify.acked


@pytest.mark.parametrize("reached", [False, True])
def test_add_whose_leader_died_is_retried_and_ends_with_one_member(reached: bool) -> None:
    """CC-15. Goal: a driver whose addition got no answer can repeat it at the new leader, and one member is added.
    Method: the leader dies before the commit; its entry reached nobody (then it is gone) or one follower (then the
    retry meets what is there already)."""
    net = led()
    old = net.nodes["a"].core
    token = old.committed_config.opid
    net.isolate("a")
    if reached:
        net.cuts.discard(("a", "b"))
    old.propose_config([ADD_D], token)
    net.settle()
    net.crash("a")
    net.heal()
    net.elect("b")
    net.tick(2)
    core = net.nodes["b"].core
    code = refused(lambda: core.propose_config([ADD_D], token))
    assert code is (Code.CAS_FAILED if reached else Code.OK)
    net.tick(2)
    assert refused(lambda: core.propose_config([ADD_D], core.committed_config.opid)) is Code.ALREADY_EXISTS
    assert [m.uuid for m in core.committed_config.members] == list("abcd")
    assert len([e for e in net.nodes["c"].durable.entries if e.meta]) == 1


def test_removal_obeys_the_same_rules_as_an_addition() -> None:
    """CC-25. Goal: leader only, compare-and-swap, one at a time, in force on receipt. Method: each breach, then a
    removal beside a pending one."""
    net = led("abcd")
    core, follower = net.nodes["a"].core, net.nodes["b"].core
    gone = [ConfigEdit(EditKind.REMOVE, Member("d"))]
    assert refused(lambda: follower.propose_config(gone, None)) is Code.NOT_LEADER
    assert refused(lambda: core.propose_config(gone, OpId(9, 9))) is Code.CAS_FAILED
    assert refused(lambda: core.propose_config([ConfigEdit(EditKind.REMOVE, Member("x"))], None)) is Code.NOT_FOUND
    assert core.active_config.voters == tuple("abcd")
    core.propose_config(gone, core.committed_config.opid)
    assert core.active_config.voters == tuple("abc")
    more = [ConfigEdit(EditKind.REMOVE, Member("c"))]
    assert refused(lambda: core.propose_config(more, None)) is Code.CHANGE_PENDING
    net.settle()
    assert (core.committed_config.voters, core.pending_config) == (tuple("abc"), None)


def test_removed_voter_counts_no_more_from_the_entry_on() -> None:
    """CC-26, CC-16. Goal: the quorum is the new config's as soon as it is in the log. Method: of four voters one is
    removed; its acknowledgement does not help, and two of three suffice."""
    solo = Solo("abcd")
    solo.lead()
    for uuid in "bcd":
        solo.ack(uuid, 1)
    solo.core.propose_config([ConfigEdit(EditKind.REMOVE, Member("d"))], None)
    solo.persist()
    solo.ack("d", 2)
    assert solo.core.commit_index == 1
    solo.ack("b", 2)
    assert solo.core.commit_index == 2, "a and b are two of three, and would be two of four"


def asks(solo: Solo, term: int, last: OpId, *, pre_vote: bool = True) -> bool:
    sent = solo.step(VoteRequest(to_uuid="a", from_uuid="z", term=term, last=last, pre_vote=pre_vote))
    (reply,) = [m for m in sent if isinstance(m, VoteReply)]
    return reply.granted


def test_equal_log_gets_a_removed_server_past_the_log_test_but_not_past_a_live_leader() -> None:
    """CC-30, CC-31. Goal: a removed server that did not learn of it gets no vote while the voters hear a leader; its
    equal log alone does not stop it. Method: it holds the whole log; ask a voter that hears the leader, and one that
    does not."""
    solo = Solo(term=3, entries=[entry(3, 1)])
    solo.step(solo.append(3, OpId(3, 1)))
    assert not asks(solo, 4, OpId(3, 1))
    assert not asks(solo, 4, OpId(9, 9)), "a longer log does not help it either"
    for _ in range(OPTIONS.election_ticks_min):
        solo.core.tick()
    assert asks(solo, 4, OpId(3, 1)), "nobody leads: then it has to be granted"


def test_voter_is_patient_for_the_minimum_election_timeout_not_for_a_heartbeat() -> None:
    """CC-35. Goal: a voter denies votes for the minimum election timeout after it heard a leader, so some lost
    heartbeats cause no election. Method: ask after each tick of silence."""
    solo = Solo(term=3, entries=[entry(3, 1)], options=OPTIONS)
    solo.step(solo.append(3, OpId(3, 1)))
    granted = []
    for _ in range(OPTIONS.election_ticks_min):
        granted.append(asks(solo, 4, OpId(3, 1)))
        solo.core.tick()
    assert granted == [False] * OPTIONS.election_ticks_min
    assert OPTIONS.election_ticks_min > 2 * OPTIONS.heartbeat_ticks


def test_denied_pre_vote_leaves_both_terms_alone() -> None:
    """CC-32, CC-33. Goal: denied pre-votes raise no term, however often they are asked for. Method: 500 ticks of asking
    into a group that hears its leader, one-way; then it comes back without an election."""
    net = led()
    for other in "ab":
        net.cut(other, "c", one_way=True)
    net.tick(500)
    assert [net.nodes[u].core.term for u in "abc"] == [1, 1, 1]
    assert any(isinstance(m, VoteRequest) and m.pre_vote for m in net.log_of_messages)
    net.heal()
    net.tick(2)
    assert (net.nodes["a"].core.role, net.nodes["c"].core.role, net.nodes["c"].core.term) == (
        Role.LEADER,
        Role.FOLLOWER,
        1,
    )


class Claims(Net):
    """A group in which `d` claims a log that is longer than anybody's."""

    def send(self, msg: Message) -> None:
        boasts = isinstance(msg, VoteRequest) and msg.from_uuid == "d"
        super().send(replace(msg, last=OpId(msg.term - 1, 10**6)) if boasts else msg)


@pytest.mark.a_third
@pytest.mark.parametrize(
    ("group", "quiet_after_ticks"),
    [
        pytest.param(Net, 0, id="own-log", marks=pytest.mark.deep),
        pytest.param(Claims, 0, id="any-log"),
        pytest.param(Claims, 20, id="at-rest"),
    ],
)
def test_removed_server_that_was_not_told_disturbs_nobody_for_ten_minutes(
    group: type[Net], quiet_after_ticks: int
) -> None:
    """CC-31. Goal: leader and term stay the same however long a removed server asks for votes. Method: a voter is
    removed while nothing reaches it, and hears all from then on; ten minutes of ticks, with a write now and then. It
    asks hundreds of times, with the log that it has and with a longer one, a group that runs or rests: always denied,
    in no other term, and nobody changes its role."""
    net = group(config_of("abcd"), options=RaftOptions(quiet_after_ticks=quiet_after_ticks))
    net.elect("a")
    net.write("a", b"before")
    net.settle()
    for other in "abc":
        net.cut(other, "d")
    net.nodes["a"].core.propose_config([ConfigEdit(EditKind.REMOVE, Member("d"))], None)
    net.settle()
    net.heal()
    before = {uuid: len(node.moves) for uuid, node in net.nodes.items()}
    rested = 0
    for tick in range(TEN_MINUTES_TICKS):
        net.tick()
        rested += net.nodes["a"].core.quiet
        if tick % 1000 == 500:
            net.write("a", b"w%d" % tick)
        assert [net.nodes[u].core.term for u in "abcd"] == [1, 1, 1, 1]
    assert net.nodes["a"].core.role is Role.LEADER
    assert all(len(net.nodes[u].moves) == before[u] for u in "abc")
    assert len(net.verify.acked) == 1 + TEN_MINUTES_TICKS // 1000
    assert net.nodes["d"].core.committed_config.voters == tuple("abcd"), "it was not told"
    asked = [m for m in net.log_of_messages if isinstance(m, VoteRequest) and m.from_uuid == "d"]
    answers = [m for m in net.log_of_messages if isinstance(m, VoteReply) and m.to_uuid == "d"]
    assert len(asked) == len(answers) > 1000 and all(m.pre_vote for m in asked)
    assert not any(m.granted for m in answers) and bool(rested) == bool(quiet_after_ticks)


def test_several_learners_wait_together_and_are_promoted_one_after_the_other() -> None:
    """CC-14. Goal: promotions obey one-by-one though all are ready. Method: three blank members at once; every config
    on the way differs by one voter, and no entry between was skipped."""
    net = led("a")
    core = net.nodes["a"].core
    core.propose_config([ConfigEdit(EditKind.ADD, Member(u, votes=False, promote=True)) for u in "bcd"], None)
    net.settle()
    assert core.committed_config.voters == ("a",) and len(core.committed_config.members) == 4
    for uuid in "bcd":
        assert net.copy("a", uuid)
    for _ in range(20):
        net.write("a", b"w%d" % len(net.verify.acked))
        net.tick(1)
    assert [len(config.voters) for config in net.verify.configs] == [1, 2, 3, 4], "each committed before the next"
    assert core.active_config.voters == tuple("abcd")


def test_vote_request_of_a_higher_term_under_a_live_leader_leaves_the_term() -> None:
    """CC-31, CC-32. Goal: a disruptive server's real vote request is no better than its pre-vote (D-3, D-4). Method: a
    follower that hears its leader, and the leader itself, are asked in a far term; a transfer may ask."""
    follower = Solo(term=3, entries=[entry(3, 1)])
    follower.step(follower.append(3, OpId(3, 1)))
    assert not asks(follower, 40, OpId(9, 9), pre_vote=False)
    assert (follower.core.term, follower.core.voted_for) == (3, None)
    leader = Solo()
    leader.lead()
    assert not asks(leader, 40, OpId(9, 9), pre_vote=False)
    assert (leader.core.role, leader.core.term) == (Role.LEADER, 1)
    handed = VoteRequest(to_uuid="a", from_uuid="b", term=4, last=OpId(3, 1), transfer=True)
    assert [m.granted for m in follower.step(handed) if isinstance(m, VoteReply)] == [True]
