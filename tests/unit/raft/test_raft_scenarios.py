"""Scenarios of other systems' bug reports, replayed on whole groups of cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from nyala.replica.raft import AppendEntries, AppendReply, Message, Role, VoteRequest
from nyala.replica.types import Code, ConfigEdit, EditKind, EntryKind, Member, OpId, RaftConfig, Refused
from tests.harness.raft_net import OPTIONS, Net, Node, config_of
from tests.harness.raft_solo import Solo, entry


def with_logs(logs: dict[str, list[int]], term: int, net_class: Callable[[RaftConfig], Net] = Net) -> Net:
    """A group whose servers are found with these logs, each a list of terms, and this current term."""
    net = net_class(config_of(logs))
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
    assert [b.committed for b in solo.readies if b.committed] == [(1, 3)]
    (reply,) = solo.persist()
    assert isinstance(reply, AppendReply) and reply.last == OpId(2, 4)
    assert solo.core.persisted_index == 4
    assert [b.committed for b in solo.readies if b.committed] == [(1, 3), (3, 5)]


@pytest.mark.parametrize("flushed", range(8))
def test_apply_goes_on_right_after_the_flush_whatever_the_pages_were(flushed: int) -> None:
    """Goal: scenario 19. Method: restart at each flush index, learn of the commit in three pages: no index is skipped,
    none is handed out twice."""
    solo = Solo(term=1, entries=[entry(1, index) for index in range(1, 8)], commit_index=flushed)
    for commit in (3, 5, 7):
        solo.step(solo.append(1, OpId(1, 7), commit=commit))
    handed = [index for b in solo.readies if b.committed for index in range(*b.committed)]
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


@pytest.mark.parametrize("silent", range(OPTIONS.election_ticks_max + 3))
def test_two_leaders_that_meet_end_with_one_and_writes_go_on(silent: int) -> None:
    """Goal: scenario 34, and V2 over it. Method: an isolated leader of term 1 meets the leader of term 2, which has not
    heard the third server for some time and is about to step down, or has just done so."""
    net = Net(config_of("abc"))
    net.elect("a")
    net.tick(1)
    net.isolate("a")
    net.elect("b")
    net.tick(1, only="bc")
    leaders = [u for u in "abc" if net.nodes[u].core.role is Role.LEADER]
    assert leaders == ["a", "b"]
    net.isolate("c")
    net.tick(silent, only="b")
    abdicated = net.nodes["b"].core.role is not Role.LEADER
    assert abdicated == (silent > OPTIONS.election_ticks_max)
    net.heal()
    net.isolate("c")
    net.tick(3 * OPTIONS.election_ticks_max)
    leader = net.leader()
    assert leader is not None and [u for u in "ab" if net.nodes[u].core.role is Role.LEADER] == [leader.uuid]
    net.write(leader.uuid, b"x")
    net.settle()
    assert b"x" in net.verify.acked and leader.core.term == (3 if silent >= OPTIONS.election_ticks_max else 2)
    net.heal()
    net.tick(5)
    assert {net.nodes[u].core.leader_uuid for u in "abc"} == {leader.uuid}
    net.at_end()


def test_leader_that_hears_and_is_not_heard_is_replaced_and_joins_the_new_one() -> None:
    """Goal: scenario 33: a leader whose messages are lost is replaced, and then follows; none of the writes that it
    took meanwhile was acknowledged. Method: everything that the leader sends is lost."""
    net = Net(config_of("abc"))
    net.elect("a")
    net.tick(1)
    for other in "bc":
        net.cut("a", other, one_way=True)
    net.write("a", b"lost")
    net.tick(3 * OPTIONS.election_ticks_max)
    leader = net.leader()
    assert leader is not None and leader.uuid != "a" and net.nodes["a"].core.role is not Role.LEADER
    net.write(leader.uuid, b"x")
    net.settle()
    assert set(net.verify.acked) == {b"x"}
    net.heal()
    net.tick(5)
    assert {net.nodes[u].core.commit_index for u in "abc"} == {leader.core.commit_index}
    net.at_end()


def test_seven_diverged_logs_are_skipped_term_by_term() -> None:
    """Goal: scenario 7: figure 7 costs as few round trips with long terms as with short ones. Method: each entry of the
    figure ten times over; the leader's log is what all end with, after one mismatch a term that differs at most."""
    lead = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    others = {
        "b": (lead[:9], 1),
        "c": (lead[:4], 1),
        "d": ([*lead, 6], 1),
        "e": ([*lead, 7, 7], 1),
        "f": ([1, 1, 1, 4, 4, 4, 4], 1),
        "g": ([1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3], 2),
    }
    logs = {"a": lead, **{uuid: terms for uuid, (terms, _) in others.items()}}
    net = with_logs({uuid: [term for term in terms for _ in range(10)] for uuid, terms in logs.items()}, term=7)
    for _ in range(2):
        net.elect("a")
    net.tick(5)
    assert net.nodes["a"].core.role is Role.LEADER
    want = terms_of(net, "a")
    assert want[:100] == [term for term in lead for _ in range(10)]
    answers = [m for m in net.log_of_messages if isinstance(m, AppendReply) and m.mismatch]
    for uuid, (_, terms) in others.items():
        assert terms_of(net, uuid) == want, uuid
        assert len([m for m in answers if m.from_uuid == uuid]) <= terms + 1, uuid
    net.at_end()


class Watched(Net):
    """`c` gives its vote and hears no leader; `b` gets heartbeats only, at first. After each message, what `a` believes
    of `b`'s log is compared with what is on `b`'s disk."""

    only_heartbeats = True

    def __init__(self, config: RaftConfig) -> None:
        super().__init__(config)
        self.true_matches: Counter[int] = Counter()

    def deliver(self, msg: Message) -> None:
        lost = isinstance(msg, AppendEntries) and (msg.to_uuid == "c" or (self.only_heartbeats and msg.entries))
        if not lost:
            super().deliver(msg)
        leader, other = self.nodes["a"], self.nodes["b"]
        if leader.core.role is Role.LEADER:
            match = leader.core._s.lead.progress["b"].match
            ours, theirs = ([e.opid for e in n.durable.entries[:match]] for n in (leader, other))
            assert ours == theirs and len(theirs) == match
            assert leader.core.commit_index <= match
            self.true_matches[match] += 1


def test_match_of_a_longer_and_different_log_moves_with_the_true_prefix_only() -> None:
    """Goal: scenario 16. Method: the new leader has 15 entries of term 1 and its peer 25; the leader's own follow,
    until its log is as long; its only voter in reach is that peer. What the leader believes, and what it commits, never
    goes beyond what is the same on both disks, over a catch-up of several pages."""
    net = with_logs({"a": [1] * 15, "b": [1] * 25, "c": [1] * 15}, term=1, net_class=Watched)
    assert isinstance(net, Watched)
    net.elect("a")
    core = net.nodes["a"].core
    assert core.role is Role.LEADER and core.commit_index == 0
    for at in range(9):
        core._s.append_own(EntryKind.WRITE, 1, 1, b"", b"%060d" % at, 0)
    net.tick(3)
    assert core.last == OpId(2, 25), "as long as the peer's"
    assert max(net.true_matches) == 15 and core.commit_index == 0, "of one term up to there, and no further"
    net.only_heartbeats, net.stalled = False, {"b"}
    net.tick(3)
    assert max(net.true_matches) == 15 and core.commit_index == 0, "the peer's disk still has its own tail"
    net.stalled = set()
    net.tick(5)
    assert terms_of(net, "b") == terms_of(net, "a") == [1] * 15 + [2] * 10
    assert core.commit_index == 25 and len([match for match in net.true_matches if match > 15]) > 2
    net.at_end()


def test_election_completes_after_split_pre_votes_and_with_a_higher_term_that_returns() -> None:
    """Goal: scenario 94. Method: b and c ask at the same moment and neither gets a majority; later one whose term is
    much higher comes back in the moment in which the leader is lost. Each time somebody is elected. (There are no
    servers without pre-vote that could be among them.)"""
    net = Net(config_of("abcd"))
    net.elect("a")
    net.tick(1)
    net.crash("a")
    net.tick(net.options.election_ticks_min, only="d")
    net.isolate("d")
    for uuid in "bc":
        net.nodes[uuid].core.campaign()
    net.settle()
    assert {net.nodes[u].core.role for u in "bcd"} & {Role.LEADER, Role.CANDIDATE} == set(), "two of four each"
    net.heal()
    net.tick(5 * net.options.election_ticks_max)
    first = net.leader()
    assert first is not None

    term = first.core.term + 10
    other = next(u for u in "bcd" if u != first.uuid)
    net.crash(other)
    net.crashed[other].hard = net.crashed[other].hard._replace(term=term, voted_for=None)
    net.restart("a")
    net.tick(5)
    net.restart(other)
    net.crash(first.uuid)
    net.tick(10 * net.options.election_ticks_max)
    second = net.leader()
    assert second is not None and second.core.term > term
    net.write(second.uuid, b"k")
    net.settle()
    assert b"k" in net.verify.acked


def test_full_window_that_was_lost_while_the_log_was_compacted_opens_by_a_copy() -> None:
    """Goal: scenario 103. Method: c's window is full of appends that are all lost, and what it lacks is collected
    meanwhile: a heartbeat round finds out, and nothing but heartbeats goes there. Its copy ends exactly at the leader's
    last index: the next round makes it an ordinary peer, and it gets what is written next."""
    net = Net(config_of("abc"))
    net.elect("a")
    net.tick(1)
    net.cut("a", "c")
    for number in range(24):
        net.write("a", b"%d" % number)
    net.settle()
    net.tick(1)
    leader = net.nodes["a"]
    assert leader.core.commit_index == 25
    for uuid in "ab":
        net.compact(uuid, 25)
    net.heal()
    net.tick(2)
    (peer,) = [p for p in leader.core.peer_status() if p.uuid == "c"]
    assert peer.needs_copy and [(s, t) for s, t, *_ in net.copies] == [("a", "c")]
    assert net.copy("a", "c")
    net.tick(2)
    (peer,) = [p for p in leader.core.peer_status() if p.uuid == "c"]
    assert (peer.needs_copy, peer.match_index) == (False, 25)
    net.write("a", b"next")
    net.settle()
    assert net.nodes["c"].core.last.index == 26


def test_transfer_to_who_needs_a_copy_is_refused_and_a_higher_term_ends_one() -> None:
    """Goal: scenario 100: a transfer to a peer that needs a copy is refused, and a higher term ends a transfer. The
    other outcomes are in `transfer_that_cannot_end_is_given_up.txt`. Method: a target below the log's beginning is
    refused and writes go on; during a transfer an answer of a higher term comes: the leader follows, and refuses writes
    as one."""
    solo = Solo(term=1, entries=[entry(1, index) for index in range(5, 9)], boundary=OpId(1, 4), commit_index=4)
    solo.lead()
    solo.ack("c", solo.log.last.index)
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=2, mismatch=True, last=OpId(1, 1), conflict_index=2))
    with pytest.raises(Refused) as caught:
        solo.core.transfer_leadership("b")
    assert caught.value.code is Code.ILLEGAL_STATE
    solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    solo.persist()
    solo.core.transfer_leadership("c")
    with pytest.raises(Refused) as caught:
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    assert caught.value.code is Code.STEPPING_DOWN
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=9))
    assert (solo.core.role, solo.core.term, solo.core.transfer_target) == (Role.FOLLOWER, 9, None)
    with pytest.raises(Refused) as caught:
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    assert caught.value.code is Code.NOT_LEADER


def test_entries_are_applied_in_index_order_whatever_is_told_first_of_their_commits() -> None:
    """Goal: scenario 43: entries are applied in order of their indexes, in whatever order their commits arrive (D-16).
    Method: two entries of one key; the commit of the second is told before that of the first; then the second comes
    without the first: neither is applied, both are pending once they are there, and after a restart."""
    first, both = entry(1, 1), (entry(1, 2, b"k"), entry(1, 3, b"k"))
    solo = Solo(term=1, entries=[first], commit_index=1)
    solo.step(solo.append(1, OpId(1, 1), *both, commit=1))
    for commit in (3, 2, 3):
        solo.step(solo.append(1, OpId(1, 3), commit=commit))
    assert [b.committed for b in solo.readies if b.committed] == [(2, 4)]

    late = Solo(term=1, entries=[first], commit_index=1)
    late.step(late.append(1, OpId(1, 2), both[1], commit=3))
    assert (late.core.last, late.core.commit_index) == (OpId(1, 1), 1)
    late.step(late.append(1, OpId(1, 1), *both, commit=1))
    again = Solo(term=1, entries=[first, *both], commit_index=1)
    again.persist()
    for one in (late, again):
        assert (one.core.last, one.core.commit_index) == (OpId(1, 3), 1)
        assert not [b.committed for b in one.readies if b.committed]


def test_election_timer_starts_with_a_promotion_and_stops_with_a_demotion() -> None:
    """Goal: scenario 97: a promoted learner starts its election timer, and a demoted voter stops it.
    `test_failure_detector_runs_on_electable_voters_only` has the members that never had one. Method: c hears nobody for
    long as a learner, as a voter that it was made, and as a learner again; only in between does it ask for votes. The
    leader, whose voters answer, asks for none in all that time."""
    net = Net(config_of("ab", "c"))
    net.elect("a")
    net.tick(1)
    began = len(net.log_of_messages)

    def alone() -> Role:
        net.isolate("c")
        net.tick(40, only="c")
        role = net.nodes["c"].core.role
        net.heal()
        net.tick(3)
        return role

    def change(member: Member) -> None:
        net.nodes["a"].core.propose_config([ConfigEdit(EditKind.CHANGE, member)], None)
        net.settle()
        net.tick(5)

    assert alone() is Role.LEARNER
    change(Member("c", votes=False, promote=True))
    assert net.nodes["c"].core.committed_config.voters == ("a", "b", "c")
    assert alone() is Role.PRE_CANDIDATE
    change(Member("c", votes=False))
    assert net.nodes["c"].core.committed_config.voters == ("a", "b")
    assert alone() is Role.LEARNER
    net.tick(40)
    asked = {m.from_uuid for m in net.log_of_messages[began:] if isinstance(m, VoteRequest)}
    assert asked == {"c"} and net.nodes["a"].core.role is Role.LEADER and net.nodes["a"].core.term == 1
