"""Config changes as their drivers send them: with and without the committed config's OpId, at once, in any order."""

from __future__ import annotations

import random

import pytest

from nyala.replica.types import Code, ConfigEdit, EditKind, Member, OpId
from tests.harness.raft_net import Net, config_of, refused

KINDS = {
    "AddServer": ConfigEdit(EditKind.ADD, Member("d", votes=False)),
    "RemoveServer": ConfigEdit(EditKind.REMOVE, Member("c")),
    "ChangeRole": ConfigEdit(EditKind.CHANGE, Member("c", votes=False, promote=True)),
}


def led(voters: str = "abc") -> Net:
    """A group that `a` leads, its term open."""
    net = Net(config_of(voters))
    net.elect("a")
    net.tick(1)
    return net


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_change_takes_the_committed_config_id_or_none(kind: str) -> None:
    """Goal: TC-68: the position of the committed config is optional on every kind of change. Method: a wrong one is
    refused and leaves everything; none at all is taken; the right one is taken."""
    for cas, code in ((OpId(7, 7), Code.CAS_FAILED), (None, Code.OK), (OpId(0, 0), Code.OK)):
        net = led()
        core = net.nodes["a"].core
        last = core.last
        assert refused(lambda core=core, cas=cas: core.propose_config([KINDS[kind]], cas)) is code  # type: ignore[misc]
        assert (core.last == last) == (code is not Code.OK)
        net.settle()
        assert (core.committed_config.opid == OpId(0, 0)) == (code is not Code.OK)


@pytest.mark.deep
def test_two_drivers_with_one_committed_config_id_never_both_succeed() -> None:
    """TC-69. Goal: of two drivers with the same committed config, the second one is refused and changes nothing.
    Method: two drivers read the same config and send different changes in any order, with the first committed before
    the second or not; 200 times."""
    rng = random.Random(69)
    net = led("abcdefg")
    core = net.nodes["a"].core
    for number in range(200):
        seen = core.committed_config.opid
        names = [f"n{number}x", f"n{number}y"]
        rng.shuffle(names)
        codes = []
        for name in names:
            edit = ConfigEdit(EditKind.ADD, Member(name, votes=False))
            codes.append(refused(lambda edit=edit, seen=seen: core.propose_config([edit], seen)))  # type: ignore[misc]
            if rng.random() < 0.5:
                net.settle()
        net.settle()
        assert codes[0] is Code.OK and codes[1] in (Code.CAS_FAILED, Code.CHANGE_PENDING)
        assert core.committed_config.member(names[0]) and not core.committed_config.member(names[1])
        core.propose_config([ConfigEdit(EditKind.REMOVE, Member(names[0]))], core.committed_config.opid)
        net.settle()


def test_change_beside_a_pending_one_is_refused_though_its_config_id_is_right() -> None:
    """TC-70. Goal: a change is refused while another one is pending, even with the right committed config. Method: the
    followers are away, so the first change stays pending; the second has the right position; then they are back."""
    net = led()
    core = net.nodes["a"].core
    for other in "bc":
        net.isolate(other)
    seen = core.committed_config.opid
    core.propose_config([KINDS["AddServer"]], seen)
    net.settle()
    assert core.committed_config.opid == seen
    last = core.last
    edit = ConfigEdit(EditKind.ADD, Member("e", votes=False))
    assert refused(lambda: core.propose_config([edit], seen)) is Code.CHANGE_PENDING
    assert core.last == last
    net.heal()
    net.tick(2)
    assert refused(lambda: core.propose_config([edit], seen)) is Code.CAS_FAILED
    assert refused(lambda: core.propose_config([edit], core.committed_config.opid)) is Code.OK


def test_client_program_and_master_drive_the_same_group_in_turn() -> None:
    """CC-06. Goal: a client program and a master can change the same group in turn. Method: a client without decision
    numbers, a master with them, the client again, an older master (refused), a newer one."""
    net = led()
    core = net.nodes["a"].core
    for name, decision, code in (
        ("d", (0, 0), Code.OK),
        ("e", (3, 7), Code.OK),
        ("f", (0, 0), Code.OK),
        ("g", (3, 7), Code.STALE_DECISION),
        ("g", (2, 99), Code.STALE_DECISION),
        ("h", (4, 1), Code.OK),
    ):
        edit = ConfigEdit(EditKind.ADD, Member(name, votes=False))
        got = refused(lambda edit=edit, decision=decision: core.propose_config([edit], None, decision))  # type: ignore[misc]
        assert got is code, (name, decision)
        net.settle()
    assert sorted(m.uuid for m in core.committed_config.members) == list("abcdefh")
