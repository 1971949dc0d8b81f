"""Which configs an operator may confirm: those that a replica can hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from nyala.replica.master.catalog.records import TABLET
from nyala.replica.rpc import checked_request, pb
from nyala.replica.types import Code, Refused, limits, next_generation
from tests.harness.master_calls import MasterWorld, S

CALL = "MasterService.ConfirmConfig"


def config(**fields: Any) -> pb.RaftConfig:
    """A config that a replica can hold: two voters, a learner and a witness."""
    members = [
        pb.Member(
            uuid=uuid, addresses=[pb.Address(host="h", port=n + 1)], votes=n != 2, promote=n == 2, holds_data=n != 3
        )
        for n, uuid in enumerate(S[:4])
    ]
    wanted = {"opid": pb.OpId(term=1, index=9), "members": members, "decision_term": 1, "decision_version": 3}
    return pb.RaftConfig(**wanted | fields)


def changed(change: Callable[[Any], Any]) -> Callable[[], pb.RaftConfig]:
    """That config after a change."""

    def make() -> pb.RaftConfig:
        made = config()
        change(made)
        return made

    return make


def put(member: int, **fields: Any) -> Callable[[], pb.RaftConfig]:
    def change(made: Any) -> None:
        for name, value in fields.items():
            setattr(made.members[member], name, value)

    return changed(change)


def placed(member: int, host: str = "h", port: int = 7) -> Callable[[], pb.RaftConfig]:
    def change(made: Any) -> None:
        made.members[member].addresses[0].CopyFrom(pb.Address(host=host, port=port))

    return changed(change)


def at(term: int, index: int) -> Callable[[], pb.RaftConfig]:
    return lambda: config(opid=pb.OpId(term=term, index=index))


def votes_of_none(made: Any) -> None:
    for member in made.members:
        member.votes = member.promote = False


def data_of_none(made: Any) -> None:
    for member in made.members:
        member.holds_data, member.votes, member.promote = False, True, False


def many(made: Any) -> None:
    for n in range(limits.CONFIG_MEMBERS_MAX):
        made.members.add(uuid=f"{n:032x}", votes=True, holds_data=True)


IMPOSSIBLE: dict[str, tuple[Callable[[], pb.RaftConfig], str]] = {
    "no member": (lambda: config(members=[]), "could lead"),
    "no voter": (changed(votes_of_none), "could lead"),
    "voters without data": (changed(data_of_none), "could lead"),
    "too many members": (changed(many), "at most"),
    "one uuid twice": (put(1, uuid=S[0]), S[0]),
    "no uuid": (put(1, uuid=""), "uuid"),
    "a path as a uuid": (put(1, uuid="../x"), "../x"),
    "a name as a uuid": (put(1, uuid="server-1"), "server-1"),
    "a voter that waits to vote": (put(0, promote=True), "promoted"),
    "one address twice": (placed(1, port=1), "h:1"),
    "no host": (placed(1, host=""), ":7"),
    "a host that is none": (placed(1, host="a b"), "a b"),
    "no port": (placed(1, port=0), "h:0"),
    "a port too high": (placed(1, port=65536), "65536"),
    "no position": (lambda: config(opid=pb.OpId()), "0.0"),
    "no opid": (changed(lambda made: made.ClearField("opid")), "0.0"),
    "term 0": (at(0, 9), "0.9"),
    "index 0": (at(1, 0), "1.0"),
    "a negative term": (at(-1, 9), "-1"),
    "a negative index": (at(1, -9), "-9"),
    "the highest term": (at(limits.NUMBER_MAX, 9), str(limits.NUMBER_MAX)),
    "a term that no group reaches": (at(next_generation(1) - 1, 9), str(next_generation(1) - 1)),
    "the highest index": (at(1, (1 << 63) - 1), str((1 << 63) - 1)),
    "a negative decision": (lambda: config(decision_term=-1), "-1"),
    "a decision to come": (lambda: config(decision_term=1000), "1000"),
    "a negative version": (lambda: config(decision_version=-1), "-1"),
}
POSSIBLE: dict[str, Callable[[], pb.RaftConfig]] = {
    "as it is": config,
    "forced": lambda: config(opid=pb.OpId(term=next_generation(1), index=10), unsafe=True),
    "one member": lambda: config(members=config().members[:1]),
    "no addresses": changed(lambda made: made.members[0].ClearField("addresses")),
    "no decision": lambda: config(decision_term=0, decision_version=0),
}


async def confirmed(world: MasterWorld, made: pb.RaftConfig) -> tuple[int, str]:
    """The code and the text of the answer, at the door or by the handler."""
    data = pb.ConfirmConfigRequest(tablet_id=world.tablet, config=made).SerializeToString()
    try:
        request = checked_request(CALL, data, pb.ConfirmConfigRequest)
    except Refused as refused:
        return refused.code, str(refused)
    error = (await world.call("MasterService", "ConfirmConfig", request)).error
    assert not error.outcome_unknown
    return error.code, error.message


def run(scenario: Callable[[MasterWorld], Any]) -> None:
    async def scene() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            await scenario(world)
        finally:
            await world.end()

    asyncio.run(scene())


def test_config_that_no_replica_can_hold_is_not_confirmed() -> None:
    """IN-42, IN-82. Goal: an operator's word makes no impossible config the one that the masters believe. Method: each
    field of a config with each value that no replica can have: refused as INVALID_ARGUMENT with the value, and nothing
    has changed."""

    async def scenario(world: MasterWorld) -> None:
        before = await world.state()
        for name, (make, value) in IMPOSSIBLE.items():
            code, text = await confirmed(world, make())
            assert code == Code.INVALID_ARGUMENT and value in text, (name, code, text)
            assert await world.state() == before, name

    run(scenario)


@pytest.mark.parametrize("name", POSSIBLE)
def test_config_that_a_replica_can_hold_is_confirmed(name: str) -> None:
    """IN-42. Goal: what is refused is impossible. Method: neighbours of the configs above are confirmed, and stored as
    they are."""

    async def scenario(world: MasterWorld) -> None:
        made = POSSIBLE[name]()
        code, text = await confirmed(world, made)
        assert code == 0, text
        tablet = world.group.catalog.get(TABLET, world.tablet)
        assert tablet is not None and tablet.config is not None
        assert tablet.config.opid == (made.opid.term, made.opid.index)
        assert [m.uuid for m in tablet.config.members] == [m.uuid for m in made.members]

    run(scenario)
