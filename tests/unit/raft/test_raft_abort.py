"""Config changes that cannot commit and are taken back: by command, by check-quorum, when overdue, and at random."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nyala.replica.raft import AppendReply, RaftCore, RaftOptions, Role
from nyala.replica.types import Code, ConfigEdit, EditKind, EntryKind, Member, OpId, Refused
from tests.harness.raft_net import OPTIONS, Net, config_of, encode_config, refused
from tests.harness.raft_sim import NAMES, SimNet, run_seed
from tests.harness.raft_solo import Solo, entry


def voter(uuid: str) -> ConfigEdit:
    """Adds a server as a voter at once, as a careless driver may."""
    return ConfigEdit(EditKind.ADD, Member(uuid))


def led(voters: str) -> Net:
    """A group that `a` leads, its term open."""
    net = Net(config_of(voters))
    net.elect("a")
    net.tick(1)
    return net


def test_abort_of_a_dead_voter_restores_a_group_of_one() -> None:
    """TC-79. Goal: if a dead server was added as the second voter of one, an abort by command lets the leader serve
    again at once, in the same term. Method: the group commits nothing until the abort; then the waiting writes are
    committed, and the config is the old one."""
    net = led("a")
    net.isolate("d")
    core = net.nodes["a"].core
    pending = core.propose_config([voter("d")], core.committed_config.opid)
    net.write("a", b"waits")
    net.settle()
    assert core.pending_config is not None and b"waits" not in net.verify.acked
    opid = core.abort_config(pending)
    net.settle()
    assert b"waits" in net.verify.acked and core.term == 1
    assert (core.committed_config.opid, core.committed_config.voters, core.pending_config) == (opid, ("a",), None)
    assert core.aborted == pending


@pytest.mark.parametrize("voters", ["a", "abc"])
def test_change_without_a_quorum_is_taken_back_and_the_leader_stays(voters: str) -> None:
    """TC-80. Goal: a change that cannot be committed is taken back after an election timeout without a command, and I4
    holds. Method: add a dead voter to one, and to three of which one is dead; tick; the same leader, in the same term,
    commits again."""
    net = led(voters)
    for dead in "cd":
        net.isolate(dead)
    core = net.nodes["a"].core
    core.propose_config([voter("d")], None)
    net.write("a", b"waits")
    net.tick(OPTIONS.election_ticks_max + 2 * OPTIONS.heartbeat_ticks)
    assert (core.role, core.term) == (Role.LEADER, 1)
    assert core.committed_config.voters == tuple(voters) and core.pending_config is None
    assert b"waits" in net.verify.acked
    net.heal()
    net.tick(3)
    assert refused(lambda: core.propose_config([voter("d")], core.committed_config.opid)) is Code.OK, "and again"


def test_peers_that_answer_without_the_tablet_are_no_quorum() -> None:
    """TC-25, IN-35. Goal: a leader that hears only servers without a running replica steps down, because those can
    acknowledge nothing. Method: both peers answer each tick that they have no such tablet, or that their replica has
    failed; beside it, one that holds the log is enough to go on."""
    for whole, code, leads in (
        ("", Code.TABLET_NOT_FOUND, False),
        ("", Code.TABLET_FAILED, False),
        ("b", Code.TABLET_NOT_FOUND, True),
    ):
        solo = Solo()
        solo.lead()
        for _ in range(2 * OPTIONS.election_ticks_max):
            for uuid in "bc":
                if uuid in whole:
                    solo.ack(uuid, solo.core.last.index)
                else:
                    solo.step(AppendReply(to_uuid="a", from_uuid=uuid, term=solo.core.term, last=OpId(0, 0), code=code))
            solo.core.tick()
            solo.persist()
        assert (solo.core.role is Role.LEADER) is leads


def test_leader_without_a_quorum_of_either_config_steps_down() -> None:
    """TC-80. Goal: if the leader reaches no majority of the old config either, it steps down instead of taking the
    change back. Method: two of three are dead, a dead voter is added."""
    net = led("abc")
    for dead in "bcd":
        net.isolate(dead)
    net.nodes["a"].core.propose_config([voter("d")], None)
    net.tick(OPTIONS.election_ticks_max + 2 * OPTIONS.heartbeat_ticks)
    core = net.nodes["a"].core
    assert core.role is not Role.LEADER and core.aborted is None


def test_change_that_is_heard_but_never_durable_is_taken_back_when_overdue() -> None:
    """TC-80. Goal: a change is taken back after a bounded time, counted from the change, if a new voter answers
    heartbeats and never makes an entry durable. Method: one voter that has led for long adds such a voter; count ticks;
    a removal that is only slow is not taken back."""
    options = RaftOptions(config_abort_ticks=60)
    solo = Solo("a", options=options)
    solo.lead()
    for _ in range(options.config_abort_ticks):
        solo.core.tick()
        solo.persist()
    pending = solo.core.propose_config([voter("b")], None)
    solo.persist()
    for tick in range(options.config_abort_ticks + options.heartbeat_ticks):
        assert solo.core.aborted is None, tick
        solo.core.tick()
        for message in solo.persist():
            if message.to_uuid == "b":
                answer = AppendReply(
                    to_uuid="a", from_uuid="b", term=1, last=OpId(0, 0), round=getattr(message, "round", 0)
                )
                solo.step(answer)
        if solo.core.aborted is not None:
            break
    assert solo.core.aborted == pending and tick + 1 == options.config_abort_ticks
    assert solo.core.committed_config.voters == ("a",) and solo.core.role is Role.LEADER
    net = led("abc")
    net.stalled |= {"b", "c"}
    core = net.nodes["a"].core
    core.propose_config([ConfigEdit(EditKind.REMOVE, Member("c"))], None)
    net.tick(OPTIONS.config_abort_ticks * 2)
    assert core.aborted is None and core.role is Role.LEADER, "the old voters could not commit either"


@pytest.mark.parametrize(
    ("edit", "stalled"),
    [
        (ConfigEdit(EditKind.CHANGE, Member("d")), "ad"),
        (ConfigEdit(EditKind.CHANGE, Member("d")), "cd"),
        (ConfigEdit(EditKind.REMOVE, Member("c")), "a"),
    ],
    ids=["leader's disk and the new voter's", "another's disk and the new voter's", "leader's disk, a voter removed"],
)
def test_leader_does_not_hand_a_change_over_that_its_successor_cannot_commit(edit: ConfigEdit, stalled: str) -> None:
    """TC-80, IN-35. Goal: a leader with a pending change does not hand over, because only it can take the change back,
    and its successor might need voters whose disks hang. Method: three voters, a learner; a voter is added or removed,
    then disks stop; the leader is asked to hand over in every tick, as one whose log hangs does. Heartbeats are
    answered all the while. Another leads within two transfers, and writes, by the old config."""
    net = Net(config_of("abc", "d"))
    net.elect("a")
    net.tick(1)
    net.stalled |= set(stalled)
    core = net.nodes["a"].core
    pending = core.propose_config([edit], None)
    for _ in range(2 * OPTIONS.election_ticks_min + 2 * OPTIONS.heartbeat_ticks):
        if core.role is Role.LEADER and core.transfer_target is None:
            core.transfer_leadership(None)
        net.tick(1)
    leader = net.leader()
    assert leader is not None and leader.uuid == "b", net.status()
    assert (core.aborted, leader.core.committed_config.voters) == (pending, tuple("abc"))
    net.write("b", b"after")
    net.settle()
    assert b"after" in net.verify.acked


@pytest.mark.parametrize("slow_ticks", [0, OPTIONS.election_ticks_min - 1])
def test_leader_hands_over_once_its_change_is_committed(slow_ticks: int) -> None:
    """Goal: a transfer waits up to an election timeout for a pending change of voters to be committed. Method: a voter
    is added and leadership handed over in one turn; two of the four disks are quick, or slow for less than an election
    timeout. The change is committed first, then the other leads, in the same tick."""
    net = Net(config_of("abc", "d"))
    net.elect("a")
    net.tick(1)
    net.stalled |= {"c", "d"} if slow_ticks else set()
    core = net.nodes["a"].core
    core.propose_config([ConfigEdit(EditKind.CHANGE, Member("d"))], None)
    core.transfer_leadership("b")
    net.tick(slow_ticks)
    net.stalled.clear()
    net.settle()
    leader = net.leader()
    assert leader is not None and leader.uuid == "b" and core.aborted is None
    assert leader.core.committed_config.voters == tuple("abcd")


@pytest.mark.parametrize("votes", [True, False])
def test_change_that_a_transfer_waits_for_is_taken_back_after_an_election_timeout(votes: bool) -> None:
    """TC-80. Goal: a transfer takes back the change of voters that it waits for, once that is as old as an election
    timeout. Method: a server is added, as a voter or not; disks hang; leadership is to be handed over a little later;
    the followers answer heartbeats all the while."""
    solo = Solo("abc")
    solo.lead()
    solo.ack("b", 1)
    pending = solo.core.propose_config([ConfigEdit(EditKind.ADD, Member("d", votes=votes))], None)
    taken_back = []
    for tick in range(1, 2 * OPTIONS.election_ticks_min):
        if tick == OPTIONS.election_ticks_min - 1:
            solo.core.transfer_leadership("b")
        solo.core.tick()
        solo.ack("b", 1)
        if solo.core.aborted is not None:
            taken_back.append((tick, solo.core.aborted))
            assert solo.core.transfer_target == "b", "and leadership is still handed over"
            break
    assert taken_back == ([(OPTIONS.election_ticks_min, pending)] if votes else [])


def test_transfer_to_a_voter_that_is_none_again_ends() -> None:
    """Goal: a transfer ends if the change that made its target a voter is taken back. Method: a learner is made a
    voter, and is to lead; its disk and another's hang."""
    solo = Solo("abc", "d")
    solo.lead()
    solo.ack("b", 1)
    solo.core.propose_config([ConfigEdit(EditKind.CHANGE, Member("d"))], None)
    solo.core.tick()
    solo.core.transfer_leadership("d")
    while solo.core.aborted is None:
        assert solo.core.transfer_target == "d"
        solo.core.tick()
        solo.ack("b", 1)
    assert solo.core.active_config.voters == tuple("abc") and solo.core.transfer_target is None


def test_abort_is_refused_when_there_is_nothing_of_the_kind_to_take_back() -> None:
    """Goal: TC-79: an abort that comes late, twice, for another change or to a follower changes nothing. Method: each;
    the log's end does not move."""
    net = led("abc")
    core, follower = net.nodes["a"].core, net.nodes["b"].core
    assert refused(lambda: core.abort_config(None)) is Code.NOT_FOUND
    assert refused(lambda: follower.abort_config(None)) is Code.NOT_LEADER
    for dead in "bcd":
        net.isolate(dead)
    pending = core.propose_config([voter("d")], None)
    last = core.last
    assert refused(lambda: core.abort_config(OpId(1, 1))) is Code.CAS_FAILED and core.last == last
    core.abort_config(pending)
    last = core.last
    assert refused(lambda: core.abort_config(None)) is Code.ALREADY_INPROGRESS
    assert refused(lambda: core.abort_config(pending)) is Code.CAS_FAILED
    assert refused(lambda: core.propose_config([voter("e")], None)) is Code.CHANGE_PENDING
    assert core.last == last
    net.heal()
    net.settle()
    assert refused(lambda: core.abort_config(None)) is Code.NOT_FOUND


def test_leader_without_a_committed_entry_of_its_term_takes_no_change_back() -> None:
    """Goal: I4: a leader takes no change back before it has committed an entry of its term, because an abort is a
    config change. Method: a leader whose log brought an uncommitted fourth voter; only one of the old voters is heard,
    and its disk hangs: the abort is refused, a hand-over that waits for the change ends without one, and check-quorum
    makes the leader step down."""
    change = entry(1, 1, b"", EntryKind.CONFIG)._replace(meta=encode_config(config_of("abcd")))
    solo = Solo("abc", term=1, entries=[change])
    solo.lead()
    assert refused(lambda: solo.core.abort_config(None)) is Code.NOT_READY
    for ticks in range(OPTIONS.election_ticks_max + OPTIONS.heartbeat_ticks):
        if ticks == OPTIONS.election_ticks_min:
            solo.core.transfer_leadership("b")
        solo.core.tick()
        solo.ack("b", 0)
    assert solo.core.role is Role.FOLLOWER and solo.core.aborted is None


def test_change_is_not_taken_back_by_command_while_leadership_is_handed_over() -> None:
    """Goal: a leader that hands over appends no abort. Method: a change that cannot commit, a transfer that waits for
    it, an abort."""
    solo = Solo("abc")
    solo.lead()
    solo.ack("b", 1)
    pending = solo.core.propose_config([voter("d")], None)
    solo.core.transfer_leadership("b")
    assert refused(lambda: solo.core.abort_config(pending)) is Code.STEPPING_DOWN
    assert solo.core.pending_config is not None and solo.core.pending_config.opid == pending


@pytest.mark.parametrize("reached", ["", "b", "d"])
def test_abort_whose_leader_dies_leaves_one_group(reached: str) -> None:
    """TC-80. Goal: a server that received the change and not its abort cannot form a second group. Method: the change
    reaches no server, an old voter, or the new one alone; the leader aborts it and dies. An old voter with the change
    needs three of four votes, and waits; in the end all have the old config."""
    net = led("abc")
    core = net.nodes["a"].core
    for other in "bcd":
        if other != reached:
            net.isolate(other)
    pending = core.propose_config([voter("d")], None)
    net.settle()
    for other in "bcd":
        net.cut("a", other)
    core.abort_config(pending)
    net.settle()
    net.crash("a")
    net.cuts = {pair for pair in net.cuts if "a" in pair or "d" in pair}
    net.tick(100)
    leader = net.leader()
    assert (leader is None) == (reached == "b")
    if leader is not None:
        net.write(leader.uuid, b"after")
        net.tick(2)
        assert b"after" in net.verify.acked
    net.heal()
    net.restart("a")
    net.tick(100)
    assert {net.nodes[u].core.committed_config.voters for u in "abc"} == {tuple("abc")}
    assert len({net.nodes[u].core.leader_uuid for u in "abc"}) == 1


class AbortNet(SimNet):
    """Random groups whose drivers add absent servers as voters directly, and abort at random moments.

    Not to a group of one: if its leader dies before the abort, only the new voter, or unsafe recovery, can help.
    """

    def __init__(self, seed: int, core_class: Callable[..., RaftCore] = RaftCore) -> None:
        super().__init__(seed, core_class)
        self.odds["config"] = 0.2

    def _change_config(self) -> None:
        leader = self.leader()
        if leader is None or self.paused.get(leader.uuid, 0) > self.clock:
            return
        core = leader.core
        try:
            if core.pending_config is not None and self.rng.random() < 0.3:
                core.abort_config(core.pending_config.opid)
                self.marks["abort asked"] += 1
            elif any(u not in self.nodes and u not in self.crashed for u in core.active_config.voters):
                return  # beside an absent voter, a second change could leave nobody who can be elected
            elif len(core.active_config.voters) > 1 and self.fresh < len(NAMES) and self.rng.random() < 0.4:
                core.propose_config([voter(NAMES[self.fresh])], None)
                self.isolate(NAMES[self.fresh])
                self.fresh += 1
                self.marks["voter added"] += 1
            else:
                super()._change_config()
        except Refused:
            return
        leader.drain()

    def count_marks(self) -> None:
        super().count_marks()
        self.marks["aborted"] += sum(node.core.aborted is not None for node in self.nodes.values())


@pytest.mark.deep
def test_random_groups_with_aborted_changes_stay_one_group() -> None:
    """Goal: TC-80, I4: aborts, direct voters, crashes, cuts and transfers at random break none of the oracles, and a
    healed group converges. Method: 40 seeds; aborts by command and by themselves must have happened."""
    marks: dict[str, int] = {}
    for seed in range(40):
        for mark, count in run_seed(10_000 + seed, net_class=AbortNet).marks.items():
            marks[mark] = marks.get(mark, 0) + count
    assert min(marks["abort asked"], marks["voter added"], marks["aborted"]) >= 10, marks
