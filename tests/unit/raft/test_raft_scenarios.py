"""Scenarios of other systems' bug reports, replayed on whole groups of cores."""

from __future__ import annotations

import pytest

from nyala.replica.base import Member, OpId
from nyala.replica.raft import AppendReply, ConfigEdit, EditKind, Role
from tests.harness.raft_net import Net, Node, config_of
from tests.harness.raft_solo import Solo, entry


def with_logs(logs: dict[str, list[int]], term: int) -> Net:
    """A group whose servers are found with these logs, each a list of terms, and this current term."""
    net = Net(config_of(logs))
    for uuid, terms in logs.items():
        durable = net.nodes[uuid].durable
        durable.entries = [entry(t, pos + 1, b"%d.%d" % (t, pos + 1)) for pos, t in enumerate(terms)]
        durable.hard = durable.hard._replace(term=term)
        net.nodes[uuid] = Node(net, uuid, durable)
    return net


def terms_of(net: Net, uuid: str) -> list[int]:
    return [e.opid.term for e in net.nodes[uuid].durable.entries]


def test_all_members_restart_and_the_slow_third_cannot_win() -> None:
    """Goal: scenario 2. Method: commit in term 5, stop all, start two, write; the third has an old log."""
    net = with_logs({"a": [1, 2], "b": [1, 2], "c": [1, 2]}, term=4)
    net.elect("a")
    net.isolate("c")
    net.write("a", b"k1")
    net.settle()
    for uuid in "abc":
        net.crash(uuid)
    net.heal()
    for uuid in "ab":
        net.restart(uuid)
    net.tick(40)
    leader = net.leader()
    assert leader is not None and leader.core.term > 5
    net.write(leader.uuid, b"k2")
    net.settle()
    committed = terms_of(net, leader.uuid)
    net.restart("c")
    for _ in range(40):
        net.nodes["c"].core.campaign()
        net.tick(1)
    assert net.nodes["c"].core.role is Role.FOLLOWER
    assert terms_of(net, "c")[: len(committed)] == committed
    assert {b"k1", b"k2"} <= set(net.verify.acked)


def test_leader_without_the_highest_terms_tail_overwrites_it() -> None:
    """Goal: scenario 8. Method: a minority holds an uncommitted tail of term 3; the others elect one."""
    net = with_logs({"a": [1, 2, 2], "b": [1, 2, 2], "c": [1, 2, 2], "d": [1, 3, 3, 3], "e": [1, 3]}, term=3)
    net.isolate("d")
    net.isolate("e")
    net.elect("a")
    net.tick(1)
    before = net.nodes["a"].core.commit_index
    net.heal()
    net.tick(5)
    assert before == 4 and {tuple(terms_of(net, u)) for u in "abcde"} == {(1, 2, 2, 4)}
    assert {net.nodes[u].core.commit_index for u in "abcde"} == {4}


def test_mismatch_as_the_first_request_after_a_restart_names_what_is_committed() -> None:
    """Goal: scenario 14. Method: 2.1-2.3, flushed through 2.2; restarted, it is sent what follows 3.3."""
    solo = Solo(term=2, entries=[entry(2, 1), entry(2, 2), entry(2, 3)], commit_index=2)
    (reply,) = solo.step(solo.append(3, OpId(3, 3), entry(3, 4)))
    assert isinstance(reply, AppendReply) and reply.mismatch
    assert (reply.commit_index, reply.last, reply.conflict_index) == (2, OpId(2, 3), 3)
    (reply,) = solo.step(solo.append(3, OpId(2, 2), entry(3, 3), entry(3, 4)))
    assert isinstance(reply, AppendReply) and (reply.mismatch, reply.last) == (False, OpId(3, 4))
    assert [solo.log.term_at(index) for index in range(1, 5)] == [2, 2, 3, 3]


def test_watermark_goes_back_with_a_tail_that_is_overwritten() -> None:
    """Goal: scenario 17. Method: five durable entries, the last three replaced: durable is two until the disk has the
    new ones, and nothing is acknowledged or handed out before."""
    solo = Solo(term=1, entries=[entry(1, index) for index in range(1, 6)])
    assert solo.core.persisted_index == 5
    solo.step(solo.append(2, OpId(1, 2)))
    solo.core.step(solo.append(2, OpId(1, 2), entry(2, 3), entry(2, 4), commit=4))
    assert solo.take() == []
    assert (solo.core.persisted_index, solo.core.commit_index) == (2, 4)
    assert [b.committed for b in solo.bundles if b.committed] == [(1, 3)]
    (reply,) = solo.persist()
    assert isinstance(reply, AppendReply) and reply.last == OpId(2, 4)
    assert solo.core.persisted_index == 4
    assert [b.committed for b in solo.bundles if b.committed] == [(1, 3), (3, 5)]


@pytest.mark.parametrize("flushed", range(8))
def test_apply_goes_on_right_after_the_flush_whatever_the_pages_were(flushed: int) -> None:
    """Goal: scenario 19. Method: restart at each flush index, learn of the commit in three pages: no index is skipped,
    none is handed out twice."""
    solo = Solo(term=1, entries=[entry(1, index) for index in range(1, 8)], commit_index=flushed)
    for commit in (3, 5, 7):
        solo.step(solo.append(1, OpId(1, 7), commit=commit))
    handed = [index for b in solo.bundles if b.committed for index in range(*b.committed)]
    assert handed == list(range(flushed + 1, 8))


def test_voter_of_a_pending_config_is_elected_and_all_converge() -> None:
    """Goal: scenario 24. Method: five become four, the fifth is added back while three hear nothing; the leader steps
    down, one of the three comes back, and the pending voter wins by the config that it has received."""
    net = Net(config_of("abcde"))
    net.elect("a")
    net.tick(1)
    core = net.nodes["a"].core
    core.propose_config([ConfigEdit(EditKind.REMOVE, Member("e"))], None)
    net.settle()
    net.tick(1)
    for uuid in "bcd":
        net.isolate(uuid)
    core.propose_config([ConfigEdit(EditKind.ADD, Member("e"))], None)
    net.settle()
    assert core.pending_config is not None and net.nodes["e"].core.active_config.voters == tuple("abcde")
    assert net.nodes["b"].core.active_config.voters == tuple("abcd")
    net.tick(net.options.election_ticks_max + 2, only="a")
    assert core.role is Role.FOLLOWER
    net.elect("e")
    assert net.nodes["e"].core.role is not Role.LEADER, "two of five"
    net.cuts = {way for way in net.cuts if not {"c", "d"}.isdisjoint(way)}
    net.elect("e")
    assert net.nodes["e"].core.role is Role.LEADER
    net.heal()
    net.tick(5)
    assert {net.nodes[u].core.committed_config.voters for u in "abcde"} == {tuple("abcde")}


def test_two_leaders_that_meet_end_with_one_and_writes_go_on() -> None:
    """Goal: scenario 34, and V2 over it. Method: an isolated leader of term 1 meets the leader of term 2, while the
    third server is cut off in its turn."""
    net = Net(config_of("abc"))
    net.elect("a")
    net.tick(1)
    net.isolate("a")
    net.elect("b")
    net.tick(1, only="bc")
    leaders = [u for u in "abc" if net.nodes[u].core.role is Role.LEADER]
    assert leaders == ["a", "b"]
    net.heal()
    net.isolate("c")
    net.tick(3 * net.options.election_ticks_max)
    leader = net.leader()
    assert leader is not None and [u for u in "ab" if net.nodes[u].core.role is Role.LEADER] == [leader.uuid]
    net.write(leader.uuid, b"x")
    net.settle()
    assert b"x" in net.verify.acked and leader.core.term >= 2
