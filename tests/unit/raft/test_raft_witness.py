"""A witness logs and votes and holds no data: the appendix's steps t1 to t5, with what each tolerates."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from nyala.replica.raft import AppendEntries, AppendReply, Message, Role, TimeoutNow, VoteRequest
from nyala.replica.types import ZERO_OPID, Code, ConfigEdit, EditKind, EntryKind, Member, OpId, RaftConfig
from tests.harness.raft_net import OPTIONS, Net, config_of, refused
from tests.harness.raft_solo import Solo, entry

WITNESS = ConfigEdit(EditKind.ADD, Member("d", holds_data=False))
DEMOTE_C = ConfigEdit(EditKind.CHANGE, Member("c", votes=False))
RESTORE_C = ConfigEdit(EditKind.CHANGE, Member("c"))


def commits(net: Net, payload: bytes) -> bool:
    """Whether a write of the leader is acknowledged within an election timeout."""
    leader = net.leader()
    assert leader is not None
    net.write(leader.uuid, payload)
    net.settle()
    net.tick(OPTIONS.heartbeat_ticks)
    return payload in net.verify.acked


def at(step: str) -> Net:
    """The group as it stands at t1 (three whole replicas), t2 (c dead), t3 (witness d added), t4 (c demoted)."""
    net = Net(config_of("abc"))
    net.elect("a")
    net.tick(1)
    if step > "t1":
        net.isolate("c")
    if step > "t2":
        core = net.nodes["a"].core
        core.propose_config([WITNESS], None)
        net.settle()
        assert net.copy("a", "d")  # the log; what else a copy brings is the driver's
        net.tick(3)
        assert core.pending_config is None
    if step > "t3":
        net.nodes["a"].core.propose_config([DEMOTE_C], None)
        net.settle()
    return net


@pytest.mark.parametrize(
    ("step", "majority", "spare"),
    [("t1", 2, 1), ("t2", 2, 0), ("t3", 3, 0), ("t4", 2, 1)],
)
def test_step_of_the_appendix_tolerates_what_its_table_says(step: str, majority: int, spare: int) -> None:
    """CC-49, CC-50, CC-51. Goal: one fault at t1, none at t2 and t3, one again at t4. Method: at each step, kill every
    set of the other living members: the group commits exactly if no more than `spare` die."""
    living = [u for u in "bcd" if not (u == "c" and step > "t1") and not (u == "d" and step < "t3")]
    for count in range(len(living) + 1):
        for dead in itertools.combinations(living, count):
            net = at(step)
            assert len(net.nodes["a"].core.active_config.voters) // 2 + 1 == majority
            for uuid in dead:
                net.isolate(uuid)
            assert commits(net, b"x") is (count <= spare), dead


def test_witness_logs_votes_and_elects_but_never_leads() -> None:
    """CC-48, CC-53. Goal: attributes are independent: it logs and votes and is not electable. Method: at t4 the
    leader dies: the other whole replica is elected by the witness's vote, which itself never asks for one."""
    net = at("t4")
    assert commits(net, b"x")
    assert net.nodes["d"].core.active_config.member("d") == Member("d", holds_data=False)
    net.isolate("a")
    net.tick(6 * OPTIONS.election_ticks_max)
    assert (net.nodes["b"].core.role, net.nodes["d"].core.role) == (Role.LEADER, Role.FOLLOWER)
    assert commits(net, b"y")
    net.isolate("b")
    net.tick(6 * OPTIONS.election_ticks_max)
    assert net.nodes["d"].core.role is Role.FOLLOWER
    assert not [m for m in net.log_of_messages if m.from_uuid == "d" and type(m).__name__ == "VoteRequest"]


def test_witness_is_never_ahead_of_who_may_lead_next() -> None:
    """CC-51. Goal: the fault that is tolerated may be the leader's, in the midst of writes. Method: at t4 the leader
    dies with a write that the other whole replica lacks: the witness lacks it too, so the other one is elected and
    commits. One that is slow is not waited for: the witness has the next write a heartbeat later, and it commits."""
    net = at("t4")
    assert commits(net, b"x")
    net.isolate("b")
    net.write("a", b"y")
    net.settle()
    assert b"y" not in net.verify.acked
    net.heal()
    for dead in "ac":
        net.isolate(dead)
    net.tick(6 * OPTIONS.election_ticks_max)
    assert net.nodes["b"].core.role is Role.LEADER
    assert commits(net, b"z")
    net = at("t4")
    net.isolate("b")
    assert commits(net, b"slow") and commits(net, b"and again")
    assert net.nodes["d"].core.last == net.nodes["a"].core.last


def test_witness_is_never_ahead_of_every_disk_with_rows() -> None:
    """CC-51. Goal: no power loss of the only replica with rows leaves a witness with a longer log, whose vote it needs.
    Method: a and the witness d; a's disk stalls, a write is proposed, and d is not sent it; a loses power, starts, and
    leads again. With a whole b that keeps up a's disk holds nothing up: d has the write as soon as b has it. Neither
    does it hold up for ever: once the disk goes on, d has what it has."""
    net = Net(RaftConfig(ZERO_OPID, (Member("a"), Member("d", holds_data=False))))
    net.elect("a")
    assert commits(net, b"x")
    net.stalled.add("a")
    net.write("a", b"y")
    net.settle()
    assert net.nodes["d"].core.last < net.nodes["a"].core.last
    net.crash("a")
    net.stalled.clear()
    net.restart("a")
    net.tick(6 * OPTIONS.election_ticks_max)
    assert net.nodes["a"].core.role is Role.LEADER and commits(net, b"z")
    net.stalled.add("a")
    net.write("a", b"later")
    net.settle()
    net.stalled.clear()
    net.settle()
    assert net.nodes["d"].core.last == net.nodes["a"].core.last
    net = Net(RaftConfig(ZERO_OPID, (Member("a"), Member("b"), Member("d", holds_data=False))))
    net.elect("a")
    assert commits(net, b"x")
    net.stalled.add("a")
    net.write("a", b"y")
    net.settle()
    assert net.nodes["d"].core.last == net.nodes["b"].core.last == net.nodes["a"].core.last


def test_witness_does_not_wait_for_who_catches_up() -> None:
    """CC-51. Goal: a voter that comes back with much to catch up holds no write up. Method: a window of one message; b
    answers nothing for a heartbeat, the witness commits on; b answers again, far behind: the next write goes to the
    witness at once; b has caught up: the one after that goes to b first, and to the witness when b has it."""
    members = (Member("a"), Member("b"), Member("d", holds_data=False))
    options = replace(OPTIONS, inflight_messages_max=1, append_batch_bytes_max=1, append_batch_bytes_min=0)
    solo = Solo(config=RaftConfig(OpId(0, 0), members), options=options)

    def sent(messages: list[Message]) -> list[tuple[str, int]]:
        appends = [m for m in messages if isinstance(m, AppendEntries)]
        return [(m.to_uuid, e.opid.index) for m in appends for e in m.entries]

    def write() -> list[tuple[str, int]]:
        solo.core.propose(EntryKind.WRITE, solo.log.last.index + 1, 1, b"", b"x", 0)
        return sent(solo.persist())

    assert sent(solo.lead()) == [("b", 1)], "also while it is not known how far b's log matches"
    assert sent(solo.ack("b", 1)) == [("d", 1)]
    solo.ack("d", 1)
    assert [write(), write(), write()] == [[("b", 2)], [], []]
    solo.core.tick()
    for _ in range(OPTIONS.heartbeat_ticks - 1):
        assert not sent(solo.persist())
        solo.core.tick()
    assert sent(solo.persist()) == [("d", 2)]
    for index in (2, 3, 4):
        solo.ack("d", index)
    assert solo.core.commit_index == 4
    assert sent(solo.ack("b", 2)) == [("b", 3)]
    assert write() == [("d", 5)]
    solo.ack("d", 5)
    for index in (3, 4, 5):
        solo.ack("b", index)
    assert write() == [("b", 6)]
    assert sent(solo.ack("b", 6)) == [("d", 6)]


def test_demoted_member_that_comes_back_first_is_restored() -> None:
    """Goal: demoted, not removed: its data counts again at once. Method: at t4 it comes back; made a voter again, the
    witness goes: three whole replicas, one fault."""
    net = at("t4")
    net.heal()
    net.tick(3)
    core = net.nodes["a"].core
    for edit in (RESTORE_C, ConfigEdit(EditKind.REMOVE, Member("d"))):
        core.propose_config([edit], core.committed_config.opid)
        net.settle()
    assert core.committed_config.voters == tuple("abc")
    net.isolate("b")
    assert commits(net, b"x")


def test_witness_with_its_data_becomes_a_whole_replica() -> None:
    """CC-54, CC-53. Goal: t5: {L} and three whole replicas, one fault and an electable newcomer. Method: at t4 the
    witness is made a whole member; both others are cut off in turn."""
    net = at("t4")
    core = net.nodes["a"].core
    core.propose_config([ConfigEdit(EditKind.CHANGE, Member("d"))], core.committed_config.opid)
    net.settle()
    assert core.committed_config.voters == tuple("abd")
    core.transfer_leadership("d")
    net.settle()
    net.tick(1)
    assert net.nodes["d"].core.role is Role.LEADER
    net.isolate("a")
    assert commits(net, b"x")


def test_witness_takes_two_steps_to_become_a_whole_member() -> None:
    """CC-53. Goal: a witness votes as soon as it has a log, and is whole when its data is in and its own log replayed.
    Method: a leader of b adds d without data; d answers that it has none: a voter that holds no data, and nothing more,
    however long it answers so. Then it has its data and has not applied what was committed: nothing. Then it has. A
    change that calls it whole before is refused."""
    solo = Solo("ab")
    solo.lead()
    solo.ack("b", 1)
    solo.core.propose_config([ConfigEdit(EditKind.ADD, Member("d", votes=False, promote=True, holds_data=False))], None)
    solo.persist()
    solo.ack("b", 2)

    def answers(index: int, applied: int, *, no_data: bool) -> Member | None:
        solo.ack("d", index, applied_index=applied, commit_index=applied, no_data=no_data)
        solo.ack("b", solo.log.last.index)
        return solo.core.committed_config.member("d")

    answers(2, 2, no_data=True)
    answers(2, 2, no_data=True)
    assert answers(3, 3, no_data=True) == Member("d", votes=True, promote=True, holds_data=False)
    for _ in range(5):
        answers(3, 3, no_data=True)
    assert solo.log.last.index == 3
    whole = ConfigEdit(EditKind.CHANGE, Member("d"))
    assert refused(lambda: solo.core.propose_config([whole], None)) is Code.NOT_READY
    answers(3, 2, no_data=False)
    answers(3, 2, no_data=False)
    assert solo.log.last.index == 3
    for _ in range(2):
        answers(3, 3, no_data=True)
    assert solo.log.last.index == 3, "its data is gone again"
    answers(3, 3, no_data=False)
    assert answers(4, 4, no_data=False) == Member("d")


def test_learner_whose_disk_has_no_rows_gets_no_vote_as_a_whole_member() -> None:
    """CC-53. Goal: a learner without rows is not promoted to a voter with data. Method: a witness was removed and is
    added as an ordinary learner before its files are gone: it keeps up and answers that it has no data, for long: it
    gets no vote; it answers that it has: it does."""
    solo = Solo("ab")
    solo.lead()
    solo.ack("b", 1)
    solo.core.propose_config([ConfigEdit(EditKind.ADD, Member("d", votes=False, promote=True))], None)
    solo.persist()
    solo.ack("b", 2)
    for _ in range(5):
        solo.ack("d", 2, applied_index=2, commit_index=2, no_data=True)
    assert solo.log.last.index == 2
    solo.ack("d", 2, applied_index=2, commit_index=2)
    solo.ack("b", 3)
    assert solo.core.committed_config.member("d") == Member("d")


def test_replica_without_rows_never_leads_whatever_its_config_says() -> None:
    """CC-53. Goal: a disk that holds only a log is not electable. Method: its config calls it a whole voter; it waits
    long for a leader, is told to campaign, and gets a planned transfer: it asks for no vote, and says that it has no
    data."""
    solo = Solo("abc", term=1, entries=[entry(1, 1)], no_data=True)
    for _ in range(100):
        solo.core.tick()
    solo.core.campaign()
    sent = solo.step(solo.append(2, OpId(1, 1)))
    sent += solo.step(TimeoutNow(to_uuid="a", from_uuid="b", term=2, last=OpId(1, 1)))
    assert solo.core.role is Role.FOLLOWER
    assert [m.no_data for m in sent if isinstance(m, AppendReply)] == [True]
    assert not [m for m in sent if isinstance(m, VoteRequest)]


def appended(sent: list[Message], to: str) -> list[int]:
    return [m.entries[-1].opid.index for m in sent if isinstance(m, AppendEntries) and m.entries and m.to_uuid == to]


@pytest.mark.parametrize("other", ["silent learner", "learner without rows", "voter that is copied"])
def test_witness_waits_for_voters_that_keep_up_and_for_nobody_else(other: str) -> None:
    """CC-51. Goal: a witness gets an entry only after the voters that could lead have it; no other member delays it.
    Method: voters a, b and the witness w; a fourth member that cannot lead and acknowledges nothing: a write is sent to
    the witness as soon as b has it, or as soon as it is durable here if b is what cannot lead; a learner without rows
    is itself sent everything at once."""
    witness, learner = Member("w", holds_data=False), Member("d", votes=False, holds_data=other == "silent learner")
    solo = Solo(config=RaftConfig(ZERO_OPID, (Member("a"), Member("b"), witness, learner)))
    solo.lead()
    for _ in range(2):
        for uuid in "bdw":
            solo.ack(uuid, 1)
    if other == "voter that is copied":
        solo.step(AppendReply(to_uuid="a", from_uuid="b", term=1, code=Code.TABLET_NOT_FOUND))
    solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    sent = solo.persist()
    assert appended(sent, "d") == [2]
    if other != "voter that is copied":
        assert appended(sent, "w") == []
        sent = solo.ack("b", 2)
    assert appended(sent, "w") == [2]


def test_witness_waits_for_a_voter_that_acknowledges_nothing_as_long_as_a_heartbeat_takes() -> None:
    """CC-51. Goal: a disk that hangs holds a witness up for a bounded time. Method: b answers every heartbeat with what
    it had before the write; the write is sent to the witness in the tick that makes it so long."""
    options = replace(OPTIONS, heartbeat_ticks=3, election_ticks_min=12, election_ticks_max=20)
    config = RaftConfig(ZERO_OPID, (Member("a"), Member("b"), Member("w", holds_data=False)))
    solo = Solo(config=config, options=options)
    solo.lead()
    for uuid in "bw":
        solo.ack(uuid, 1)
    solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    assert appended(solo.persist(), "w") == []
    sent = []
    for _ in range(options.heartbeat_ticks):
        solo.core.tick()
        sent.append(appended([*solo.persist(), *solo.ack("b", 1)], "w"))
    assert sent == [[], [], [2]]


def test_witness_whose_data_came_and_went_is_made_no_whole_member() -> None:
    """CC-53. Goal: what counts is the data that is there now. Method: a witness that stands in for a replica says that
    its data is in and has applied a part; then that it has none; then, that it is in again and later that its replica
    is gone; then it is in again, and applied all that was committed then, while more is committed."""
    member = Member("w", holds_data=False, promote=True)
    solo = Solo(config=RaftConfig(ZERO_OPID, (Member("a"), Member("b"), member)))
    solo.lead()

    def said(applied: int, **fields: object) -> bool:
        for uuid in "bw":
            solo.ack(uuid, solo.log.last.index, commit_index=applied, **({"applied_index": applied} | fields))
        config = solo.core.active_config.member("w")
        return config is not None and config.holds_data

    def write() -> None:
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
        solo.persist()

    assert not said(0, no_data=True)
    write()
    assert not said(0)
    assert not said(0, no_data=True)
    write()
    assert not said(1)
    solo.step(AppendReply(to_uuid="a", from_uuid="w", term=1, code=Code.TABLET_NOT_FOUND))
    write()
    assert not said(3)
    write()
    write()
    assert not said(3)
    assert said(4)
