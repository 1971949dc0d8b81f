"""Writes of one tablet from their arrival to their index."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nyala.replica.base import Refused
from nyala.replica.server.memory import MemoryGuard
from nyala.replica.server.writes import INLINE_BYTES_MAX, Writes
from tests.harness.rows import batch, write_request
from tests.harness.server_pair import Pair, run_pair


@pytest.mark.parametrize("how", ["refused", "cancelled"])
def test_write_that_gets_no_index_lets_nobody_overtake(how: str) -> None:
    """CN-25. Goal: writes keep their order of arrival. Method: a large write is being validated on a thread that is
    held up; one behind it is refused or given up by its caller, and a third one, of the first one's key, comes; once
    the thread goes on, the third one's value stands."""

    async def scenario(pair: Pair) -> None:
        hosted, held = pair.leader.hosted, threading.Event()
        pool = ThreadPoolExecutor(1)
        pool.submit(held.wait, 20)
        writes = Writes(pair.leader.uuid, MemoryGuard(1 << 30, lambda: 0), pool, lambda time: None, lambda: None)

        def begin(value: str, **wrong: Any) -> asyncio.Task[Any]:
            request = write_request(pair.leader.uuid, hosted.tablet_id, batch([1], [value]))
            for name, wrongly in wrong.items():
                setattr(request, name, wrongly)
            return asyncio.create_task(writes.write(hosted, request))

        try:
            first = begin("x" * 2 * INLINE_BYTES_MAX)
            await asyncio.sleep(0)
            second = begin("y", **({"payload_crc": 1} if how == "refused" else {}))
            await asyncio.sleep(0)
            if how == "cancelled":
                second.cancel()
            with pytest.raises(Refused if how == "refused" else asyncio.CancelledError):
                await second
            third = begin("z")
            done, _ = await asyncio.wait([first, third], timeout=0.2)
            assert not done, "nobody has an index while the first one is validated"
        finally:
            held.set()
            pool.shutdown(wait=False)
        await asyncio.gather(first, third)
        tablet = hosted.tablet
        assert tablet is not None
        assert [v for found in tablet.scan() for v in found.column("v").to_pylist()] == ["z"]

    run_pair(scenario)
