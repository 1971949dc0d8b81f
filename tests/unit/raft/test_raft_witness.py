"""A witness logs and votes and holds no data: the appendix's steps t1 to t5, with what each tolerates."""

from __future__ import annotations

import itertools

import pytest

from nyala.replica.base import Member
from nyala.replica.raft import ConfigEdit, EditKind, Role
from tests.harness.raft_net import OPTIONS, Net, config_of

WITNESS = ConfigEdit(EditKind.ADD, Member("d", holds_data=False))
DEMOTE_C = ConfigEdit(EditKind.CHANGE, Member("c", votes=False))
RESTORE_C = ConfigEdit(EditKind.CHANGE, Member("c"))


def commits(net: Net, payload: bytes) -> bool:
    """Whether a write of the leader is acknowledged within an election timeout."""
    leader = net.leader()
    assert leader is not None
    net.write(leader.uuid, payload)
    net.settle()
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
        assert net.copy("a", "d")  # the log; what else a copy brings is the host's
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
