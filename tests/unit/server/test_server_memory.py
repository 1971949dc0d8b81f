"""Memory of a server: free memory is returned before a write is refused for lack of it, and what stopped holds none."""

from __future__ import annotations

import numpy as np
import pytest

from nyala.replica.server.maintenance.maintenance import GIVE_BACK_EVERY_S, Maintenance
from nyala.replica.server.runtime.memory import ANONYMOUS_MARGIN_BYTES, MemoryGuard, anonymous_bytes
from nyala.replica.types import Code, Refused, give_back_free_memory
from tests.harness.server_pair import Pair, run_pair

SOFT = 100 << 20


def guard_of(tracked: int, anonymous: int) -> MemoryGuard:
    guard = MemoryGuard(SOFT, lambda: tracked, lambda: ANONYMOUS_MARGIN_BYTES + anonymous)
    guard.refresh()
    return guard


def test_memory_that_nobody_tracks_is_given_back_before_writes_are_refused_for_it() -> None:
    """Goal: free blocks of the allocator do not refuse writes for ever. Method: guards whose memory is low, tracked, or
    mostly free; then again at once, and later."""

    async def scenario(pair: Pair) -> None:
        clock = [0.0]
        for tracked, anonymous, gives in ((0, SOFT // 2, False), (SOFT, SOFT, False), (SOFT // 3, SOFT, True)):
            maintenance = Maintenance(pair.leader.manager, guard_of(tracked, anonymous), now=lambda: clock[0])
            try:
                assert not await maintenance.give_back(), "not at once"
                clock[0] += GIVE_BACK_EVERY_S + 1
                assert await maintenance.give_back() is gives
                assert not await maintenance.give_back()
            finally:
                maintenance.close()

    run_pair(scenario)
    with pytest.raises(Refused) as refused:
        guard_of(0, SOFT).admit(1)
    assert refused.value.code is Code.OVERLOADED


def test_freed_blocks_between_used_ones_leave_the_process() -> None:
    """Goal: giving back works in the middle of the heap. Method: 100 MB in blocks of 32 KB; one in 64 stays."""
    give_back_free_memory()
    blocks = [np.ones(32 << 10, dtype=np.uint8) for _ in range(3200)]
    full = anonymous_bytes()
    kept = blocks[::64]
    blocks.clear()
    give_back_free_memory()
    assert full - anonymous_bytes() > 80 << 20 and len(kept) == 50


def test_stopped_replica_holds_neither_rows_nor_entries() -> None:
    """TC-39. Goal: what is stopped costs no memory, although its objects refer to each other and stay until they are
    collected. Method: rows at a leader, in memory and in its log's cache; it is stopped, and looked at afterwards."""

    async def scenario(pair: Pair) -> None:
        hosted = pair.leader.hosted
        await pair.put(*range(2000))
        replica, tablet = hosted.replica, hosted.tablet
        assert replica is not None and tablet is not None
        held = tablet.store_bytes
        assert replica.cache_bytes > 0 and held > 0
        async with hosted.transition:
            await pair.leader.manager.shutdowns.halt(hosted)
        assert replica.cache_bytes == 0 and tablet.store_bytes < held

    run_pair(scenario)
