"""The order to copy a damaged replica anew in its place, as its server carries it out."""

from __future__ import annotations

import asyncio

import pytest

from nyala.replica.raft_driver import Phase
from nyala.replica.rpc import opid_to_pb, pb
from nyala.replica.server.requests.tablet_service import renew_tablet
from nyala.replica.server.startup.replay_watch import EntryCrashesReplay
from nyala.replica.server.tablets.status import replica_status
from nyala.replica.types import Code, Corruption, DataState, LaterFormat, OpId, Refused
from tests.harness.copies import TABLET, TARGET_UUID
from tests.harness.server_pair import Pair, PairedServer, run_pair, until


async def refused(server: PairedServer, as_of: OpId) -> Code:
    """Return the answer to an order as of that config that must not be carried out."""
    with pytest.raises(Refused) as found:
        await renew_tablet(server.manager, order(as_of))
    return found.value.code


def order(as_of: OpId) -> pb.DeleteTabletRequest:
    return pb.DeleteTabletRequest(
        dest_uuid=TARGET_UUID, tablet_id=TABLET, committed_config_id=opid_to_pb(as_of), has_cas=True
    )


def told_as_damaged(server: PairedServer) -> bool:
    return bool(replica_status(server.hosted, server.uuid, 10).damaged)


def test_order_of_a_copy_in_place_hits_a_damaged_replica_only() -> None:
    """TC-63, TC-13. Goal: a late or repeated order deletes no whole replica, nor one that was added again. Method: of
    two voters the follower is ordered to be renewed while it runs, as of an outdated config when it is damaged, then
    as it should be: a tombstone with its term and last OpId, which the leader copies; once more: nothing changes."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1, 2)
        await pair.add_other()
        await pair.voting()
        last = await pair.put(3)
        other = pair.other
        await until(lambda: other.rows() == [1, 2, 3], "all rows are there")
        hosted = other.hosted
        assert hosted.replica is not None
        now = hosted.replica.committed_config.opid
        await until(lambda: hosted.cmeta and hosted.cmeta.committed_config.opid == now, "its metadata have the config")
        assert not told_as_damaged(other)
        assert await refused(other, now) is Code.ILLEGAL_STATE and other.serving

        pair.cut = True  # no copy before it was looked at
        other.manager.damaged(hosted, Corruption("a block has changed"))
        assert hosted.replica.phase is Phase.FAILED and told_as_damaged(other)
        assert await refused(other, OpId(now.term, now.index - 1)) is Code.CAS_FAILED
        assert hosted.data_state is DataState.READY and told_as_damaged(other)

        term = hosted.term
        await renew_tablet(other.manager, order(now))
        assert hosted.data_state is DataState.DELETED and not told_as_damaged(other)
        assert hosted.term >= term and hosted.last_opid >= last and hosted.last_opid_known
        assert await refused(other, now) is Code.ILLEGAL_STATE
        pair.cut = False
        await until(lambda: other.serving, "it was copied anew")
        await until(lambda: other.rows() == [1, 2, 3], "all rows are there again")
        assert await refused(other, now) is Code.ILLEGAL_STATE and other.serving
        assert hosted.replica is not None and hosted.replica.committed_config.opid == now

    run_pair(scenario)


def test_order_that_waits_for_another_ones_turn_looks_again() -> None:
    """TC-63. Goal: an order that was late by one transition misses the whole replica that is there now. Method: a
    damaged replica is ordered to be renewed while it is being closed and opened: the order is refused, and it runs."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        leader, hosted = pair.leader, pair.leader.hosted
        assert hosted.replica is not None
        now = hosted.replica.committed_config.opid
        leader.manager.damaged(hosted, Corruption("a block has changed"))
        async with hosted.transition:
            late = asyncio.create_task(renew_tablet(leader.manager, order(now)))
            for _ in range(20):
                await asyncio.sleep(0)  # it has found the damage, and waits
            await leader.manager.shutdowns.halt(hosted)
            await leader.manager.open(hosted)
        with pytest.raises(Refused) as found:
            await late
        assert found.value.code is Code.ILLEGAL_STATE

        def runs() -> bool:
            assert hosted.replica is not None
            for _ in range(100):
                hosted.replica.tick()  # it elects itself
            return leader.serving

        await until(runs, "it runs")

    run_pair(scenario)


def test_order_that_found_no_room_may_come_again() -> None:
    """TC-63. Goal: a damaged replica that was stopped and could not be put aside is damaged still. Method: the first
    deletion finds no room, which is refused; the same order again makes the tombstone."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        leader = pair.leader
        hosted = leader.hosted
        leader.manager.damaged(hosted, Corruption("a block has changed"))
        leader.disk.fail_on("replace", "tablet-meta/*", "ENOSPC")
        assert await refused(leader, OpId(1, 99)) is Code.NO_SPACE
        assert hosted.replica is None and told_as_damaged(leader)
        await renew_tablet(leader.manager, order(OpId(1, 99)))
        assert hosted.data_state is DataState.DELETED and not told_as_damaged(leader)
        assert not hosted.unreadable, "what is copied here next is not told as damaged before it was opened"

    run_pair(scenario)


@pytest.mark.parametrize(
    ("error", "damaged"),
    [
        (Corruption("a bad block"), True),
        (EntryCrashesReplay("it kills"), False),
        (LaterFormat("whole, and not for us"), False),
        (Refused(Code.NO_SPACE, "full"), False),
    ],
)
def test_only_damage_that_a_copy_heals_is_told(error: Corruption | Refused, damaged: bool) -> None:
    """TC-63. Goal: nothing is put aside for what a copy would bring again, or what passes by itself. Method: a replica
    whose start ends in each."""

    async def scenario(pair: Pair) -> None:
        hosted = pair.leader.hosted
        await pair.leader.manager.shutdowns.halt(hosted)
        pair.leader.manager._fail(hosted, error)
        assert told_as_damaged(pair.leader) is damaged

    run_pair(scenario)
