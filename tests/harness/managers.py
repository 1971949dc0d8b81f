"""A tablet manager over a disk that the test passes, without a network: nothing leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from nyala.replica.raft import Message
from nyala.replica.server.options import ServerOptions
from nyala.replica.server.runtime.lanes import LoopPost
from nyala.replica.server.runtime.machine import UNKNOWN
from nyala.replica.server.runtime.sizing import sized
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.types import Clock, Disk, HybridClock, RaftConfig
from tests.harness.copies import TARGET_UUID, TestClock
from tests.harness.wal_entries import log_threads


def new_manager(
    disk: Disk,
    on_fatal: Callable[[BaseException], None],
    *,
    sent: list[tuple[str, Message]] | None = None,
    pulse: Callable[[Sequence[str]], None] = lambda uuids: None,
    clock: Clock | None = None,
    options: ServerOptions | None = None,
    learn_config: Callable[[RaftConfig], None] = lambda config: None,
) -> TabletManager:
    """Return a manager on the running loop; the test starts, ticks and stops it. `sent` receives what it would have
    sent."""
    clock = clock or TestClock()
    return TabletManager(
        disk=disk,
        uuid=TARGET_UUID,
        options=sized(options or ServerOptions(root="unused"), UNKNOWN),
        clock=clock,
        hybrid_clock=HybridClock(clock),
        post=LoopPost(asyncio.get_running_loop(), on_fatal),
        heavy=ThreadPoolExecutor(2),
        log_threads=log_threads(),
        send=(lambda messages: None) if sent is None else sent.extend,
        pulse=pulse,
        learn_config=learn_config,
        on_copy_needed=lambda tablet_id, need: None,
        on_fatal=on_fatal,
    )
