"""Which changes of the masters' group are allowed, and what proves to a master that it was removed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

from nyala.replica.master.group.changing_members import MEMBERS_MAX, MembersSilent, addition, refuse_older, removal
from nyala.replica.master.group.forming import MasterBuild
from nyala.replica.master.group.joining import MasterSeen
from nyala.replica.master.group.leaving import leaves_out
from nyala.replica.master.group.startup_checks import check_config
from nyala.replica.master.requests import changing_masters
from nyala.replica.master.requests.changing_masters import ASKED_TIMES, remove_master
from nyala.replica.types import Address, Code, ConfigEdit, EditKind, Member, OpId, RaftConfig, Refused
from tests.harness.master_calls import MASTER, SECOND_MASTER, MasterWorld

A, B, C, D = (letter * 32 for letter in "abcd")
CLUSTER, OTHER = "1" * 32, "2" * 32
NEW = Address("new", 7051)
WAITS = MasterBuild(D, 1, "0.3.0", joins=CLUSTER, advertised=NEW, takes_changes=True)


def at(uuid: str) -> Address:
    return Address(uuid[0], 7051)


def config(*uuids: str, index: int = 5, unsafe: bool = False) -> RaftConfig:
    return RaftConfig(OpId(1, index), tuple(Member(u, (at(u),)) for u in uuids), unsafe=unsafe)


def test_waiting_master_is_added_without_a_vote_and_once() -> None:
    """MF-04. Goal: a new member votes only when it has caught up, and a repeated request adds nothing. Method: the edit
    for a master that waits to join, and the answer when it is a member at that address."""
    edit = addition(config(A, B, C), CLUSTER, NEW, WAITS)
    assert edit is not None and edit.kind is EditKind.ADD
    assert edit.member == Member(D, (NEW,), votes=False, promote=True)
    before = config(A, B, C)
    assert addition(replace(before, members=(*before.members, edit.member)), CLUSTER, NEW, WAITS) is None


WAITING = Member("e" * 32, (Address("e", 1),), votes=False, promote=True)
FULL = tuple(Member(f"{n:032x}", (Address("m", n),)) for n in range(1, MEMBERS_MAX + 1))


@pytest.mark.parametrize(
    ("code", "found", "members"),
    [
        (Code.ILLEGAL_STATE, WAITS._replace(joins="", advertised=None), ()),
        (Code.ILLEGAL_STATE, WAITS._replace(advertised=None), ()),
        (Code.ILLEGAL_STATE, WAITS._replace(cluster_id=CLUSTER), ()),
        (Code.WRONG_CLUSTER, WAITS._replace(joins=OTHER), ()),
        (Code.WRONG_CLUSTER, WAITS._replace(cluster_id=OTHER, joins=""), ()),
        (Code.INVALID_ARGUMENT, WAITS._replace(advertised=Address("elsewhere", 7051)), ()),
        (Code.ALREADY_EXISTS, WAITS._replace(uuid=B), ()),
        (Code.ALREADY_EXISTS, WAITS, (Member("e" * 32, (NEW,)),)),
        (Code.CHANGE_PENDING, WAITS, (WAITING,)),
        (Code.INVALID_ARGUMENT, WAITS, FULL),
    ],
    ids=(
        "forms a group of its own", "tells no address", "was a member", "joins another cluster", "of another cluster",
        "tells another address", "a member elsewhere", "another one is there", "another one catches up", "too many",
    ),
)  # fmt: skip
def test_master_that_must_not_be_added_is_refused(code: Code, found: MasterBuild, members: tuple[Member, ...]) -> None:
    """MF-04. Goal: no foreign, forged or used master becomes a member. Method: each reason alone."""
    before = config(A, B) if members != FULL else replace(config(A), members=FULL)
    before = before if members == FULL else replace(before, members=(*before.members, *members))
    with pytest.raises(Refused) as refused:
        addition(before, CLUSTER, NEW, found)
    assert refused.value.code is code and "nothing was changed" in str(refused.value)


@pytest.mark.parametrize(
    ("members", "uuid", "living", "allowed"),
    [
        ((A, B, C), B, (A, B, C), True),
        ((A, B, C), C, (A, B), True),
        ((A, B, C), B, (A, B), False),
        ((A, B), B, (A, B), True),
        ((A,), A, (A,), False),
        ((A, B, C, D), B, (A, B), False),
        ((A, B, C, D), C, (A, B, D), True),
    ],
)
def test_removal_leaves_a_living_majority(
    members: Collection[str], uuid: str, living: Collection[str], allowed: bool
) -> None:
    """MF-03, MF-04. Goal: no removal stops the group. Method: groups of one to four with some of them silent."""
    before = config(*members)
    if allowed:
        edit = removal(before, uuid, living)
        assert edit is not None and (edit.kind, edit.member.uuid) == (EditKind.REMOVE, uuid)
        return
    with pytest.raises(Refused) as refused:
        removal(before, uuid, living)
    assert refused.value.code is Code.ILLEGAL_STATE


def test_removal_of_no_member_changes_nothing_and_a_learner_may_always_leave() -> None:
    """MF-04. Goal: a repeated removal is harmless, and an addition can be taken back. Method: a stranger, a learner."""
    assert removal(config(A, B, C), D, {A}) is None
    learner = replace(config(A), members=(*config(A).members, WAITING))
    edit = removal(learner, WAITING.uuid, {A})
    assert edit is not None and edit.member == WAITING


def test_member_of_an_older_build_that_answers_forbids_a_change() -> None:
    """MF-04. Goal: no change that a member cannot follow at its next start. Method: one that knows, one that is silent,
    one that does not know."""
    refuse_older({A: WAITS, B: None})
    with pytest.raises(Refused, match=r"0\.2\.0"):
        refuse_older({A: WAITS, B: MasterBuild(B, 1, "0.2.0")})


def test_only_a_later_config_of_a_member_proves_a_removal() -> None:
    """MF-04, MF-10. Goal: no stranger and no outdated answer ends a master. Method: one answer that proves it, and each
    of its fields changed."""
    own, later = config(A, B, C), config(A, B, index=9)
    proof = MasterSeen(A, CLUSTER, True, later)
    assert leaves_out(own, C, CLUSTER, A, proof)
    others = (
        proof._replace(uuid=D), proof._replace(cluster_id=OTHER), proof._replace(config=config(A, B, index=5)),
        proof._replace(config=config(A, B, C, index=9)),
    )  # fmt: skip
    assert not any(leaves_out(own, C, CLUSTER, A, answer) for answer in others)


def test_changed_group_counts_more_than_the_options_of_its_first_start() -> None:
    """MF-05. Goal: a master whose group has changed needs no new options, and one whose group has not is held to them.
    Method: peers that are not the group's, for a config of a change, of the first start, and of an operator."""
    own, peers = Member(A, (at(A),)), [at(A), at(B), at(D)]
    note = check_config(config(A, B, C), own, peers)
    assert "which counts" in note and str(at(C)) in note and str(at(D)) in note
    assert check_config(config(A, B, C), own, [at(A), at(B), at(C)]) == check_config(config(A, B, C), own, []) == ""
    for agreed in (config(A, B, C, index=0), config(A, B, C, unsafe=True)):
        with pytest.raises(Refused, match="agreed"):
            check_config(agreed, own, peers)
    with pytest.raises(Refused, match="was removed"):
        check_config(config(B, C), own, peers)


@pytest.mark.parametrize(("refused_times", "done"), [(0, True), (ASKED_TIMES - 1, True), (ASKED_TIMES, False)])
def test_members_that_do_not_answer_at_once_are_asked_again(
    refused_times: int, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MF-04. Goal: a busy member, or a new leader that nobody has answered yet, lets no removal fail. Method: a real
    leading master, whose rule finds too few members that live for the first times; each time they are asked anew."""
    asked = 0

    def rule(before: RaftConfig, uuid: str, living: Collection[str]) -> ConfigEdit | None:
        if asked <= refused_times:
            raise MembersSilent(Code.ILLEGAL_STATE, "too few answer")
        return removal(before, uuid, living)

    async def nobody(address: Address) -> MasterBuild:
        nonlocal asked
        asked += 1
        raise Refused(Code.UNAVAILABLE, "nobody answers there", address=address)

    async def scene() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            seen = world.group.replica.committed_config.opid
            left = await remove_master(world.master, SECOND_MASTER, seen, nobody)
            assert left.changed and left.config.member(SECOND_MASTER) is None
        finally:
            await world.end()

    monkeypatch.setattr(changing_masters, "removal", rule)
    monkeypatch.setattr(changing_masters, "ASK_PAUSE_S", 0.0)
    if done:
        asyncio.run(scene())
    else:
        with pytest.raises(Refused, match="too few answer"):
            asyncio.run(scene())
    assert asked == min(refused_times + 1, ASKED_TIMES)


def test_removal_of_the_only_master_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """MF-04. Goal: a refusal that waiting cannot change does not wait. Method: the removal of a master that leads
    alone, with a second one that does not vote; the other is asked once, and no pause is made."""
    asked = 0

    async def ask(address: Address) -> MasterBuild:
        nonlocal asked
        asked += 1
        raise Refused(Code.UNAVAILABLE, "nobody answers there", address=address)

    async def scene() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            with pytest.raises(Refused, match="the only master that votes"):
                await remove_master(world.master, MASTER, world.group.replica.committed_config.opid, ask)
        finally:
            await world.end()

    monkeypatch.setattr(changing_masters, "ASK_PAUSE_S", 0.0)
    asyncio.run(scene())
    assert asked == 1
