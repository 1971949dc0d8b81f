"""Which masters another directory may take over: those that are gone, and no other."""

from __future__ import annotations

import asyncio
from itertools import chain, combinations

import pytest

from nyala.replica.master.catalog.catalog import Catalog
from nyala.replica.master.catalog.records import MASTER as RECORD
from nyala.replica.master.catalog.records import Takeover
from nyala.replica.master.group.takeovers import next_takeover
from nyala.replica.raft import RaftOptions
from nyala.replica.rpc import pb
from nyala.replica.types import Address, Code, Member, OpId, RaftConfig, Refused
from tests.harness.master_calls import MASTER, SECOND_MASTER, MasterWorld
from tests.harness.sim_disk import SimDisk

UUIDS = [digit * 32 for digit in "12345"]
OTHER = "9" * 32


def answer(config: RaftConfig, uuid: str, seen: int, in_touch: frozenset[str]) -> Code | int:
    try:
        return next_takeover(Catalog.open(SimDisk()), config, uuid, seen, in_touch)[1]
    except Refused as refused:
        assert "nothing was changed" in str(refused) or refused.code is not Code.ILLEGAL_STATE
        return refused.code


@pytest.mark.parametrize("count", [1, 3, 5])
def test_only_a_master_that_is_gone_is_taken_over(count: int) -> None:
    """Goal: MF-10: no takeover of a master that the leader is in touch with, the leader included. A takeover needs a
    majority that is in touch, so no number of forged requests leaves less than a majority. Method: all sets of
    followers that are heard, each member and a stranger, the right count and a wrong one."""
    members = UUIDS[:count]
    config = RaftConfig(OpId(1, 1), tuple(Member(u, (Address("h", n + 1),)) for n, u in enumerate(members)))
    followers = members[1:]
    for heard in chain.from_iterable(combinations(followers, n) for n in range(count)):
        in_touch = frozenset({members[0], *heard})
        for uuid in (*members, OTHER):
            for seen in (0, 1):
                wanted = 1 if seen == 0 else Code.CAS_FAILED
                if uuid in in_touch:
                    wanted = Code.ILLEGAL_STATE
                if uuid == OTHER:
                    wanted = Code.INVALID_NAME
                assert answer(config, uuid, seen, in_touch) == wanted, (uuid, seen, in_touch)


def test_leader_counts_a_master_as_alive_for_an_election_timeout() -> None:
    """Goal: MF-10: what counts is when the leader last heard the master. Method: a leader that has just been elected
    refuses the takeover of the other master until that one was silent for longer than the longest election timeout,
    tick by tick; and that of itself always. What is refused leaves everything as it was."""

    async def play() -> None:
        world = MasterWorld()
        try:
            await world.begin()
            before = await world.state()
            request = pb.TakeOverRequest(uuid=SECOND_MASTER)
            for _ in range(RaftOptions().election_ticks_max):
                world.group.tick()
                for uuid in (SECOND_MASTER, MASTER):
                    reply = await world.call("MasterService", "TakeOver", pb.TakeOverRequest(uuid=uuid))
                    assert reply.error.code == Code.ILLEGAL_STATE, reply
            assert await world.state() == before
            world.group.tick()
            assert (await world.done("TakeOver", request)).number == 1
            assert world.group.catalog.get(RECORD, SECOND_MASTER) == Takeover(takeover=1)
        finally:
            await world.end()

    asyncio.run(play())
