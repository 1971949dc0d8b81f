"""The start of a tablet: the options of its log, and a first config that is a desired change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.raft import Message, VoteRequest
from nyala.replica.server.__main__ import parse
from nyala.replica.server.options import ServerOptions
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet import superblock_path
from nyala.replica.types import Code, DataState, Refused, limits
from tests.harness.copies import TABLET, TARGET_UUID, new_disk, superblock, write_entry
from tests.harness.managers import new_manager
from tests.harness.patience import patience_s
from tests.harness.sim_disk import SimDisk
from tests.unit.server.test_server_ticking import ALONE, THREE

Use = Callable[[TabletManager], Coroutine[Any, Any, None]]


def life(
    disk: SimDisk, use: Use, *, sent: list[tuple[str, Message]] | None = None, options: ServerOptions | None = None
) -> None:
    """One life of a server on `disk`."""

    async def lived() -> None:
        manager = new_manager(disk, fatal.append, sent=sent, options=options)
        await manager.start()
        await asyncio.gather(*manager.open_all())
        try:
            await use(manager)
        finally:
            await manager.stop()

    fatal: list[BaseException] = []
    asyncio.run(lived())
    assert fatal == []
    disk.restart()


def test_logs_of_a_server_have_segments_as_long_as_it_is_told() -> None:
    """CN-17. Goal: an operator sets the length of segments; 64 MB by default. Method: a server that is told twice the
    first length; what its tablet's log asks the disk for, over two lives and many segments."""
    first = limits.WAL_SEGMENT_SIZE_BYTES_FIRST
    told = ["--root", "unused", "--wal-segment-size-bytes-max", str(2 * first)]
    assert parse(told[:2]).wal_segment_size_bytes_max == ServerOptions(root="unused").wal_segment_size_bytes_max
    assert ServerOptions(root="unused").wal_segment_size_bytes_max == 64 << 20
    disk, value = new_disk(), "x" * (first // 2)

    async def fill(manager: TabletManager) -> None:
        loop = asyncio.get_running_loop()
        hosted = await manager.create(superblock(), ALONE, campaign=False)
        assert hosted.log is not None
        for index in range(hosted.log.last.index + 1, hosted.log.last.index + 15):
            done = loop.create_future()
            hosted.log.append(
                [write_entry(index, [index], value, 1)],
                lambda result, done=done: loop.call_soon_threadsafe(done.set_result, result),
            )
            async with asyncio.timeout(patience_s(60)):
                assert await done == (1, index)

    for _ in range(2):
        life(disk, fill, options=parse(told))
    lengths = [call.length_bytes for call in disk.calls if call.operation == "preallocate"]
    assert lengths[:3] == [first, 2 * first, 2 * first] and len(lengths) > 6
    # The second life begins with twice the segment in which the first one ended, which may have one entry or two.
    assert min(lengths) == first and max(lengths) == 2 * first


def test_config_and_leader_that_a_creation_names_are_nothing_to_a_replica_that_has_a_config() -> None:
    """CN-35. Goal: a creation does not change the config or the leader of an existing replica. Method: a member of
    three is created again, while it runs and after a restart, as the only member and to lead: it keeps its config and
    its term on disk and in memory and asks nobody for a vote. As a tombstone it refuses, and keeps them too."""
    disk, sent = new_disk(), list[tuple[str, Message]]()

    def files() -> list[bytes]:
        return [disk.read(path) for path in (path_of(TABLET), superblock_path(TABLET))]

    async def wrong(manager: TabletManager) -> None:
        here, before = manager.get(TABLET), files()
        assert here.replica is not None
        assert await manager.create(superblock(), ALONE, campaign=True) is here
        manager.ticker.tick()
        assert here.running and not here.replica.is_leader and here.term == 0
        assert here.replica.active_config == here.replica.committed_config == THREE
        assert files() == before

    async def first(manager: TabletManager) -> None:
        await manager.create(superblock(), THREE, campaign=False)
        await wrong(manager)

    async def deleted(manager: TabletManager) -> None:
        await wrong(manager)
        await manager.delete(TABLET, None, "the test says so")
        before = files()
        with pytest.raises(Refused) as refused:
            await manager.create(superblock(), ALONE, campaign=True)
        assert refused.value.code is Code.TABLET_DELETED
        assert files() == before and manager.get(TABLET).data_state is DataState.DELETED

    for use in (first, wrong, deleted):
        life(disk, use, sent=sent)
        assert not [message for _, message in sent if isinstance(message, VoteRequest)]
    kept = ConsensusMeta.load(disk, TABLET)
    assert (kept.committed_config, kept.term, kept.voted_for, kept.uuid) == (THREE, 0, None, TARGET_UUID)
