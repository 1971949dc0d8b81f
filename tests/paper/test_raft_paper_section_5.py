"""Our reading of [raft §5], one claim a test. The core is one follower, candidate or leader; the test is its peers."""

from __future__ import annotations

from dataclasses import replace

from nyala.replica.raft import AppendEntries, AppendReply, Message, Role, VoteReply, VoteRequest
from nyala.replica.types import EntryKind, OpId
from tests.harness.raft_net import OPTIONS, Net, Node, config_of
from tests.harness.raft_solo import Solo, entry


def granted(sent: list) -> list[bool]:  # type: ignore[type-arg]
    return [m.granted for m in sent if isinstance(m, VoteReply)]


def test_section_5_1_higher_term_turns_any_role_into_a_follower() -> None:
    """§5.1: whoever sees a higher term adopts it and follows, whatever it was before."""
    for prepare in (lambda s: None, lambda s: s.core.campaign(), lambda s: s.lead()):
        solo = Solo()
        prepare(solo)
        solo.step(solo.append(9, OpId(0, 0)))
        assert (solo.core.role, solo.core.term, solo.core.leader_uuid) == (Role.FOLLOWER, 9, "b")


def test_section_5_1_stale_term_request_is_rejected() -> None:
    """§5.1: requests with a stale term are rejected, and the answer names the newer term."""
    solo = Solo(term=4)
    assert granted(solo.step(VoteRequest(to_uuid="a", from_uuid="b", term=3, last=OpId(9, 9)))) == [False]
    (reply,) = solo.step(solo.append(3, OpId(0, 0)))
    assert reply.term == 4


def test_section_5_2_follower_stays_passive_while_it_hears_a_leader() -> None:
    """§5.2: heartbeats within the election timeout keep a follower from campaigning."""
    solo = Solo()
    for _ in range(100):
        for _ in range(solo.core._s.options.election_ticks_min - 1):
            solo.core.tick()
        solo.step(solo.append(1, OpId(0, 0)))
        assert solo.core.role is Role.FOLLOWER


def test_section_5_2_election_timeouts_differ_and_stay_in_their_range() -> None:
    """§5.2: timeouts are drawn anew from a fixed interval, so split votes are rare and resolve."""
    solo = Solo()
    low, high = solo.core._s.options.election_ticks_min, solo.core._s.options.election_ticks_max
    drawn = set()
    for _ in range(200):
        solo.core._s.election.restart_timer()
        drawn.add(solo.core._s.election.timeout)
    assert drawn == set(range(low, high + 1))


def test_section_5_2_candidate_that_hears_the_terms_leader_follows_it() -> None:
    """§5.2: a candidate recognises a leader of at least its own term."""
    solo = Solo()
    solo.core.campaign()
    solo.persist()
    solo.step(VoteReply(to_uuid="a", from_uuid="b", term=1, granted=True, pre_vote=True))
    assert solo.core.role is Role.CANDIDATE
    solo.step(solo.append(1, OpId(0, 0), leader="c"))
    assert (solo.core.role, solo.core.leader_uuid) == (Role.FOLLOWER, "c")


def test_section_5_3_consistency_check_accepts_only_after_a_matching_entry() -> None:
    """§5.3: an append is taken only where the entry before it has the same index and term."""
    solo = Solo(term=2, entries=[entry(1, 1), entry(2, 2)])
    for prev, mismatch in ((OpId(1, 1), False), (OpId(2, 2), False), (OpId(1, 2), True), (OpId(2, 3), True)):
        (reply,) = solo.step(solo.append(3, prev))
        assert isinstance(reply, AppendReply)
        assert reply.mismatch is mismatch


def test_section_5_3_leader_makes_seven_divergent_logs_identical() -> None:
    """§5.3, figure 7: whatever a follower misses or has too much, the leader's log is what all end with."""
    lead = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    others = {
        "b": lead[:9],
        "c": lead[:4],
        "d": [*lead, 6],
        "e": [*lead, 7, 7],
        "f": [1, 1, 1, 4, 4, 4, 4],
        "g": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
    }
    net = Net(config_of("abcdefg"))
    for uuid, terms in {"a": lead, **others}.items():
        durable = net.nodes[uuid].durable
        durable.entries = [entry(term, pos + 1, b"%d" % term) for pos, term in enumerate(terms)]
        durable.hard = durable.hard._replace(term=max(terms))
        net.nodes[uuid] = Node(net, uuid, durable)
    for _ in range(3):  # The first attempts learn of term 7.
        net.tick(10, only="a")
        net.elect("a")
    net.tick(3)
    assert net.nodes["a"].core.role is Role.LEADER
    want = [e.opid for e in net.nodes["a"].durable.entries]
    assert [o.term for o in want[:10]] == lead
    for uuid in others:
        assert [e.opid for e in net.nodes[uuid].durable.entries] == want, uuid


def test_section_5_4_1_vote_goes_only_to_a_log_at_least_as_up_to_date() -> None:
    """§5.4.1: the later last term wins; with equal terms, the longer log."""
    table = [(OpId(2, 2), True), (OpId(2, 3), True), (OpId(3, 1), True), (OpId(1, 9), False), (OpId(2, 1), False)]
    for last, given in table:
        solo = Solo(term=2, entries=[entry(1, 1), entry(2, 2)])
        assert granted(solo.step(VoteRequest(to_uuid="a", from_uuid="b", term=5, last=last))) == [given]


def test_section_5_4_2_leader_commits_older_entries_only_under_its_own() -> None:
    """§5.4.2: counting replicas commits only entries of the current term; the older ones follow from them."""
    solo = Solo(term=1, entries=[entry(1, 1)])
    solo.lead()
    solo.ack("b", 1)
    solo.ack("c", 1)
    assert solo.core.commit_index == 0
    solo.ack("b", 2)
    assert solo.core.commit_index == 2


def on_disk(net: Net, logs: dict[str, list[int]], term: int) -> None:
    """Every server is found with the given log, as a list of terms, and with the given current term, no vote in it."""
    for uuid, terms in logs.items():
        durable = net.nodes[uuid].durable
        durable.entries = [entry(t, pos + 1, b"%d" % t) for pos, t in enumerate(terms)]
        durable.hard = durable.hard._replace(term=term, voted_for=None)
        net.nodes[uuid] = Node(net, uuid, durable)


class Lossy(Net):
    """Entries of the term `lost` reach nobody; all else arrives, entry by entry."""

    lost = 0

    def deliver(self, msg: Message) -> None:
        if not (isinstance(msg, AppendEntries) and any(e.opid.term == self.lost for e in msg.entries)):
            super().deliver(msg)


def figure_8_c() -> Lossy:
    """Figure 8 (a) to (c): S1 = a led term 2 and brought its entry to b; S5 = e led term 3 and told nobody of its own.
    a leads term 4, has an entry of it, and brings that of term 2 to c: a majority holds it. d and e hear nothing."""
    net = Lossy(config_of("abcde"), options=replace(OPTIONS, probe_bytes_max=1, append_batch_bytes_max=1))
    on_disk(net, {"a": [1, 2], "b": [1, 2], "c": [1], "d": [1], "e": [1, 3]}, term=3)
    net.lost = 4
    net.crash("e")
    net.cut("a", "d")
    assert net.elect("a").core.role is Role.LEADER and net.nodes["a"].core.term == 4
    net.tick(4)
    assert [[e.opid.term for e in net.nodes[u].durable.entries] for u in "abcd"] == [[1, 2, 4], [1, 2], [1, 2], [1]]
    matched = net.nodes["a"].core._s.lead.progress
    assert [matched[u].match for u in "bc"] == [2, 2], "the leader knows that a majority holds the entry of term 2"
    assert net.nodes["a"].core.commit_index == 0, "and commits nothing by counting it"
    net.heal()
    return net


def test_section_5_4_2_figure_8_majority_of_an_older_term_may_still_be_overwritten() -> None:
    """CN-26. Figure 8 (d): a dies before its entry of term 4 is on a majority; e, with one of term 3, wins the votes of
    those that hold the one of term 2, and overwrites it: it was committed nowhere."""
    net = figure_8_c()
    net.crash("a")
    net.restart("e")
    net.tick(OPTIONS.election_ticks_min, only="e")  # until then a restarted voter stays put
    for _ in range(2):  # the first attempt learns of term 4
        net.elect("e")
    net.tick(3)
    assert net.nodes["e"].core.role is Role.LEADER
    net.restart("a")
    net.tick(5)
    term = net.nodes["e"].core.term
    for uuid in "abcde":
        assert [e.opid.term for e in net.nodes[uuid].durable.entries] == [1, 3, term], uuid


def test_section_5_4_2_figure_8_entry_of_the_own_term_on_a_majority_protects_what_is_below() -> None:
    """Figure 8 (e): the entry of term 4 reaches a majority before a dies, which commits all three: e cannot win, and
    the entry of term 2 is in every later log."""
    net = figure_8_c()
    net.lost = 0
    net.cut("a", "d")
    net.tick(4)
    assert net.nodes["a"].core.commit_index == 3
    net.crash("a")
    net.heal()
    net.restart("e")
    for _ in range(5):
        net.elect("e")
        assert net.nodes["e"].core.role is not Role.LEADER
    net.tick(60)
    leader = net.leader()
    assert leader is not None and leader.uuid in "bc"
    net.restart("a")
    net.tick(5)
    for uuid in "abcde":
        assert [e.opid.term for e in net.nodes[uuid].durable.entries][:3] == [1, 2, 4], uuid


def test_section_5_4_3_committed_entry_is_in_every_later_leaders_log() -> None:
    """§5.4.3: whoever wins after a commit has it. Every pair of dead servers out of five, every candidate left."""
    for dead in ("ab", "ac", "ad", "ae", "bc", "bd", "be", "cd", "ce", "de"):
        net = Net(config_of("abcde"))
        on_disk(net, {"a": [1, 2], "b": [1, 2], "c": [1, 2], "d": [1], "e": [1]}, term=2)
        for uuid in dead:
            net.crash(uuid)
        for uuid in sorted(net.nodes):
            net.elect(uuid)
            leader = net.leader()
            assert leader is None or leader.uuid in "abc"
        net.tick(60)
        leader = net.leader()
        assert leader is not None and [e.opid.term for e in leader.durable.entries][:2] == [1, 2]


def test_section_8_leader_begins_its_term_with_an_entry_of_its_own() -> None:
    """§8: a no-op at the start of the term tells the leader what is committed."""
    solo = Solo(term=1, entries=[entry(1, 1)])
    sent = solo.lead()
    appends = [m for m in sent if isinstance(m, AppendEntries) and m.entries]
    assert [(m.to_uuid, m.prev, m.entries[0].opid, m.entries[0].kind) for m in appends] == [
        (uuid, OpId(1, 1), OpId(2, 2), EntryKind.NOOP) for uuid in "bc"
    ]
