"""Roles: the table of moves, which replicas stay passive, and what makes a replica a non-participant."""

from __future__ import annotations

import itertools
from collections import Counter, deque

import pytest

from nyala.replica.raft import AppendEntries, AppendReply, RaftOptions, Role, VoteReply, VoteRequest
from nyala.replica.raft.role_changes import ROLE_CHANGES
from nyala.replica.types import EntryKind, InvariantViolation, OpId
from tests.harness.raft_net import OPTIONS, Net, config_of, encode_config
from tests.harness.raft_sim import run_seed
from tests.harness.raft_solo import Solo, entry

PASSIVE = {Role.FOLLOWER, Role.LEARNER, Role.NON_PARTICIPANT}
DRAWN = {
    *((Role.NON_PARTICIPANT, to) for to in (Role.LEARNER, Role.FOLLOWER)),
    *((Role.LEARNER, to) for to in (Role.FOLLOWER, Role.NON_PARTICIPANT)),
    *((Role.FOLLOWER, to) for to in (Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEARNER, Role.NON_PARTICIPANT)),
    (Role.PRE_CANDIDATE, Role.CANDIDATE),
    (Role.CANDIDATE, Role.LEADER),
    (Role.CANDIDATE, Role.PRE_CANDIDATE),
    *itertools.product((Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER), PASSIVE),
}
"""The arrows of the source's diagram, with the pre-vote's state between follower and candidate."""


def test_role_moves_are_those_of_the_diagram_and_no_others() -> None:
    """CN-31. Goal: only the documented changes of role are allowed: a learner never becomes a candidate, and a leader
    was a candidate before. Method: all pairs of roles, against a second copy of the table."""
    solo = Solo()
    for old, new in itertools.product(Role, Role):
        solo.core._s.role = old
        if old is new or (old, new) in DRAWN:
            solo.core._s.set_role(new)
            assert solo.core.role is new
        else:
            with pytest.raises(InvariantViolation):
                solo.core._s.set_role(new)
            assert solo.core.role is old


@pytest.mark.deep
def test_role_moves_between_members_all_happen() -> None:
    """CN-31. Goal: the table is about what cores do. Method: collect the moves of random histories; those that only a
    removal causes have tests of their own."""
    seen: set[tuple[Role, Role]] = set()
    for seed in range(25):
        for node in run_seed(seed).nodes.values():
            seen |= set(node.moves)
    must = {move for move in DRAWN if Role.NON_PARTICIPANT not in move}
    rare = set(itertools.product((Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER), (Role.LEARNER,)))
    assert must - rare <= seen <= DRAWN == {(old, new) for old in Role for new in ROLE_CHANGES[old]}


@pytest.mark.deep
def test_followers_of_a_healthy_leader_ask_for_no_vote() -> None:
    """CN-27. Goal: followers of a healthy leader ask for no votes. Method: 3,000 ticks with writes and late, reordered
    heartbeats: no vote request; then the leader stops, and one of them acts."""
    net = Net(config_of("abc"))
    net.elect("a")
    net.tick(1)
    del net.log_of_messages[:]
    for tick in range(3000):
        if tick % 7 == 0:
            net.write("a", b"%d" % tick)
        net.tick(settle=tick % (OPTIONS.election_ticks_min - 1) == 0)
        if tick % 3 == 0:
            net.wire.rotate(1)
    assert [m for m in net.log_of_messages if isinstance(m, VoteRequest)] == []
    assert (net.nodes["a"].core.role, net.nodes["a"].core.term) == (Role.LEADER, 1)
    net.tick(2 * OPTIONS.election_ticks_max, only="bc")
    net.isolate("a")
    net.tick(4 * OPTIONS.election_ticks_max, only="bc")
    leader = net.leader()
    assert leader is not None and leader.core.term > 1


MINUTE_TICKS = 1200
"""At a server's 50 ms."""


@pytest.mark.deep
def test_group_that_mostly_rests_for_a_healthy_hour_asks_for_no_vote_and_followers_only_answer() -> None:
    """CN-27. Goal: followers start no election while the leader lives, also while the group is quiet, and start one
    after its server falls silent. Method: an hour with a server's options and a learner among the followers: each
    minute a probe, a burst of writes, and quiet. There is no vote request, and followers send only answers, one for
    each append. Then the leader's server falls silent: the voters ask for votes, and one leads."""
    options = RaftOptions(quiet_after_ticks=20)
    net = Net(config_of("abc", "l"), options=options)
    net.elect("a")
    net.tick(1)
    cores = {uuid: node.core for uuid, node in net.nodes.items()}
    asked: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for minute in range(60):
        del net.log_of_messages[:]
        for node in net.nodes.values():
            node.core.probe_quiet_group()
        for tick in range(MINUTE_TICKS):
            if tick % 10 == 0 and tick < 30:
                net.write("a", b"%d.%d" % (minute, tick))
            net.tick()
            if tick >= 30 and all(core.quiet for core in cores.values()):
                break  # no server ticks a replica that rests
        assert all(core.quiet for core in cores.values()), minute
        appends = [m for m in net.log_of_messages if isinstance(m, AppendEntries) and m.from_uuid == "a"]
        replies = [m for m in net.log_of_messages if isinstance(m, AppendReply) and m.from_uuid != "a"]
        assert len(appends) + len(replies) == len(net.log_of_messages), "of other kinds there is none"
        asked.update(m.to_uuid for m in appends)
        answered.update(m.from_uuid for m in replies)
        assert asked == answered, minute
    assert {core.term for core in cores.values()} == {1} and len(net.verify.acked) == 180

    net.isolate("a")
    for uuid in "bcl":
        cores[uuid].server_silent("a", options.election_ticks_min)
    del net.log_of_messages[:]
    net.tick(4 * options.election_ticks_max, only="bcl")
    leader = net.leader()
    assert leader is not None and leader.core.term > 1
    assert {m.from_uuid for m in net.log_of_messages if isinstance(m, VoteRequest)} <= {"b", "c"}


def test_silent_member_stays_a_member() -> None:
    """CN-32. Goal: neither a timeout nor a death removes a member from the config (X-09). Method: a voter is cut off
    for 400 ticks."""
    net = Net(config_of("abcd"))
    net.elect("a")
    net.tick(1)
    net.isolate("d")
    net.tick(400)
    assert net.nodes["a"].core.active_config.voters == tuple("abcd")
    assert net.nodes["d"].core.role in (Role.FOLLOWER, Role.PRE_CANDIDATE)
    net.heal()
    net.tick(2 * OPTIONS.election_ticks_max)
    assert {net.nodes[u].core.role for u in "abcd"} == {Role.LEADER, Role.FOLLOWER}


def test_removed_member_is_a_non_participant_once_its_removal_is_committed() -> None:
    """CN-30, CN-32. Goal: a member is removed only when its removal is committed, and then it starts no election.
    Method: a follower receives the config without it, hears nobody, then learns of the commit."""
    gone = entry(1, 2, b"", EntryKind.CONFIG)._replace(meta=encode_config(config_of("bcd")))
    solo = Solo("abcd")
    solo.step(solo.append(1, OpId(0, 0), entry(1, 1), gone))
    assert solo.core.active_config.member("a") is None and solo.core.role is Role.FOLLOWER
    for _ in range(OPTIONS.election_ticks_max):
        solo.core.tick()
    assert solo.core.role is Role.PRE_CANDIDATE, "nobody but it may hold that entry"
    solo.step(solo.append(1, OpId(1, 2), commit=2))
    assert solo.core.role is Role.NON_PARTICIPANT
    sent = []
    for _ in range(10 * OPTIONS.election_ticks_max):
        solo.core.tick()
        sent += solo.persist()
    solo.core.campaign()
    assert solo.persist() == sent == [] and solo.core.role is Role.NON_PARTICIPANT


@pytest.mark.parametrize("reached", ["nobody", "one"])
def test_first_entry_of_a_term_is_pushed_by_the_next_leader_when_its_leader_dies(reached: str) -> None:
    """CN-38. Goal: what opens a term replicates like any entry and a successor brings its own. Method: the first leader
    dies between append and commit, its entry on no other disk or on one."""
    net = Net(config_of("abc"))
    net.nodes["a"].core.campaign()
    while net.nodes["a"].core.role is not Role.LEADER:
        net.nodes["a"].persist()
        net.nodes["a"].drain()
        for _ in range(len(net.wire)):
            net.deliver(net.wire.popleft())
        for uuid in "bc":
            net.nodes[uuid].persist()
    net.nodes["a"].drain()
    net.wire = deque(m for m in net.wire if reached == "one" and m.to_uuid == "b")
    net.settle()
    net.crash("a", written=9)
    assert net.nodes["b"].core.last.index == (1 if reached == "one" else 0)
    net.elect("b")
    net.tick(2)
    b, c = net.nodes["b"].core, net.nodes["c"].core
    assert b.term_committed and b.term == c.term == 2
    kinds = [e.kind for e in net.nodes["c"].durable.entries]
    assert kinds == [EntryKind.NOOP] * (2 if reached == "one" else 1)
    assert [e.opid.term for e in net.nodes["c"].durable.entries][-1] == 2
    net.write("b", b"after")
    net.settle()
    assert b"after" in net.verify.acked


def test_hinted_leader_with_a_shorter_log_is_not_elected() -> None:
    """CN-43, CN-37. Goal: a hint does not help a replica with a shorter log to be elected. Method: the hinted one lacks
    an entry that the others hold."""
    for uuid_log, granted in ((OpId(1, 1), False), (OpId(1, 2), True)):
        solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2)])
        answers = []
        for pre_vote in (True, False):
            request = VoteRequest(to_uuid="a", from_uuid="b", term=2, last=uuid_log, pre_vote=pre_vote)
            answers += [m.granted for m in solo.step(request) if isinstance(m, VoteReply)]
        assert answers == [granted, granted]
