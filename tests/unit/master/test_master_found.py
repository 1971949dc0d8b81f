"""Addresses that masters give to servers, and those that a master takes from other masters."""

from __future__ import annotations

import asyncio

from nyala.replica.master.group.joining import MasterSeen
from nyala.replica.master.group.leaving import learned
from nyala.replica.types import Address, Member, OpId, RaftConfig
from tests.harness.master_calls import MasterWorld, S, where

A, B, C, D = (letter * 32 for letter in "abcd")
CLUSTER = "9" * 32


def test_masters_give_addresses_of_members_alone() -> None:
    """IN-50, CN-34. Goal: a server believes messages from the addresses that masters give, so a process that only sends
    heartbeats is not among them. Method: a member seeks another member, a server that counts and has no replica, and an
    unknown one."""

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            reply = await world.done("Heartbeat", world.beat(S[0], seeking=[S[1], S[4], "f" * 32]))
            assert [(p.uuid, p.addresses[0].port) for p in reply.found] == [(S[1], where(S[1]).port)]
        finally:
            await world.end()

    asyncio.run(scenario())


def config(*uuids: str, index: int = 5) -> RaftConfig:
    return RaftConfig(OpId(2, index), tuple(Member(uuid, (Address(uuid[0], 1),)) for uuid in uuids))


def test_master_that_was_away_learns_a_later_config_from_the_masters_that_it_knows() -> None:
    """MF-04, IN-50. Goal: a master finds members that joined while it was away, by the answers of its own members and
    of its command line, and by no others; only a member's answer removes it. Method: answers of other clusters, uuids
    and positions, and two of which one is later."""
    own, joined, without = config(A, B, C), config(C, B, D, index=9), config(A, B, index=9)
    good = MasterSeen(A, CLUSTER, True, joined)

    def found(*answers: tuple[str, MasterSeen]) -> tuple[RaftConfig | None, bool]:
        return learned(own, C, CLUSTER, answers)

    later = good._replace(uuid=D, config=config(C, D, index=12))
    assert found((A, good)) == found((A, good), ("", good)) == (joined, False)
    assert found(("", later)) == found((A, good), ("", later)) == found(("", later), (A, good)) == (later.config, False)
    assert found(("", later), (A, good._replace(config=without))) == (without, True)
    assert found(("", good._replace(config=without))) == (without, False), "no member says so"
    wrong = (
        good._replace(uuid=B), good._replace(cluster_id="8" * 32), good._replace(config=config(C, B, D, index=5)),
    )  # fmt: skip
    assert [found((A, seen)) for seen in wrong] == [(None, False)] * 3
