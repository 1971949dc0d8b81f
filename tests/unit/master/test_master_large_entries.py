"""A following master checks large changes of the catalog outside its event loop, each of them once."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.fs import MASTER, RealDisk, open_or_format
from nyala.replica.master.catalog.catalog import decode_change, encode_change
from nyala.replica.master.group.catalog_group import CatalogGroup
from nyala.replica.master.group.entries import unfit_record
from nyala.replica.raft import AppendEntries
from nyala.replica.types import ZERO_OPID, Address, Entry, EntryKind, Member, OpId, RaftConfig, SystemClock, limits
from tests.harness.leading_master import S

SOURCES = 10_000
"""As many as one request may open."""


def change(sources: int, term: int = 1, index: int = 1, **fields: Any) -> Entry:
    """A change of so many sources; each record with `fields` in place of its own."""
    texts = dict.fromkeys(("table", "topic", "cluster_id", "topic_id", "owner_run"), "x" * 30) | {"table_id": "a" * 32}
    record = texts | dict.fromkeys(("generation", "start", "done", "owner_deadline_us", "kafka_partition"), 7) | fields
    puts = {f"source/{n:05d}": {k: v for k, v in record.items() if v is not None} for n in range(sources)}
    return Entry(OpId(term, index), EntryKind.CATALOG, 1, 0, encode_change(puts), b"", 0)


class Follower:
    """One of two masters, to which a test speaks as the leader."""

    def __init__(self, group: CatalogGroup, uuid: str) -> None:
        self.group, self.uuid = group, uuid

    def step(self, *entries: Entry, prev: OpId = ZERO_OPID, commit: int = 0) -> str:
        return self.group.replica.step(
            AppendEntries(to_uuid=self.uuid, from_uuid=S[0], term=1, prev=prev, entries=entries, commit_index=commit)
        )

    async def looked(self) -> None:
        """Return once what was given to the thread is done, and what follows from it on the loop."""
        for _ in range(3):
            await asyncio.get_running_loop().run_in_executor(self.group._lane, lambda: None)
            await asyncio.sleep(0)

    async def applied(self, index: int) -> None:
        done = asyncio.Event()
        self.group.replica.wait_applied(index, lambda _: done.set())
        await done.wait()


class Counted:
    """Calls of functions, by thread and by function."""

    def __init__(self) -> None:
        self.on_loop = 0
        self.decodes = {"loop": 0, "thread": 0}
        self.records_on_loop = 0

    def note(self, frame: Any, event: str, arg: Any) -> None:
        here = threading.current_thread() is threading.main_thread()
        if here:
            self.on_loop += event in ("call", "c_call")
        if event == "call":
            self.decodes["loop" if here else "thread"] += frame.f_code is decode_change.__code__
            self.records_on_loop += here and frame.f_code is unfit_record.__code__


@contextmanager
def counting() -> Iterator[Counted]:
    """Of this thread, and of all that begin meanwhile."""
    counted = Counted()
    threading.setprofile(counted.note)
    sys.setprofile(counted.note)
    try:
        yield counted
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def follow(folder: Path, scenario: Callable[[Follower], Awaitable[None]]) -> None:
    async def life() -> None:
        disk, clock = RealDisk(folder), SystemClock()
        uuid = open_or_format(disk, clock, kind=MASTER).uuid
        config = RaftConfig(OpId(0, 0), (Member(uuid, (Address("h", 1),)), Member(S[0], (Address("h", 2),))))
        group = CatalogGroup(disk, clock, uuid, config, send=lambda messages: None, on_fatal=pytest.fail)
        await group.start()
        await scenario(Follower(group, uuid))
        await group.stop()

    asyncio.run(life())


@pytest.mark.deep
def test_largest_change_costs_a_followers_loop_no_decode(tmp_path: Path) -> None:
    """IN-60. Goal: a change of 10,000 sources, 4 MB, which takes a second to check, does not delay the loop of a
    following master. Method: calls of functions are counted on every thread from its arrival until it is applied: the
    loop decodes nothing and makes no more calls than a small request may; all in all it is decoded twice."""

    async def scenario(follower: Follower) -> None:
        large = change(SOURCES)
        assert len(large.meta) > limits.APPEND_BATCH_BYTES_MAX // 2
        before = counted.on_loop
        assert follower.step(large) == ""
        await follower.looked()
        assert follower.group.replica.last_logged == large.opid
        follower.step(prev=large.opid, commit=1)
        await follower.applied(1)
        assert follower.group.catalog.count("source/") == SOURCES
        assert counted.decodes == {"loop": 0, "thread": 2} and counted.records_on_loop == 0
        assert counted.on_loop - before < limits.REQUEST_STEPS

    with counting() as counted:
        follow(tmp_path, scenario)


def test_small_change_is_taken_at_once(tmp_path: Path) -> None:
    """Goal: a small change is not checked on another thread. Method: a change of ten sources is in the log when `step`
    returns."""

    async def scenario(follower: Follower) -> None:
        assert follower.step(change(10)) == "" and follower.group.replica.last_logged == OpId(1, 1)

    follow(tmp_path, scenario)


@pytest.mark.deep
def test_large_forged_change_is_refused_and_only_what_was_looked_at_is_taken(tmp_path: Path) -> None:
    """IN-50. Goal: a large change, which is checked on another thread, is accepted only after that check. Method: a
    large change with one invalid field: the sender gets the reason when it repeats the change, and nothing went into
    the log. A change with the same position and other bytes is checked anew; a good one is accepted in the end,
    whatever arrives meanwhile."""

    async def scenario(follower: Follower) -> None:
        forged, good = change(SOURCES // 4, topic=7), change(SOURCES // 4)
        assert follower.step(forged) == ""
        assert follower.step(good) == "", "one at a time"
        await follower.looked()
        assert "has no possible 'topic'" in follower.step(forged)
        assert follower.group.replica.last_logged == ZERO_OPID
        assert follower.step(change(SOURCES // 4, topic=None)) == ""
        await follower.looked()
        assert "lacks 'topic'" in follower.step(change(SOURCES // 4, topic=None))
        assert follower.group.replica.last_logged == ZERO_OPID
        assert follower.step(good) == ""
        assert follower.step(change(1, index=2), prev=OpId(1, 1)) == "", "its predecessor is not here yet"
        await follower.looked()
        assert follower.group.replica.last_logged == OpId(1, 1)
        assert follower.step(change(1, index=2), prev=OpId(1, 1)) == ""
        assert follower.group.replica.last_logged == OpId(1, 2)

    follow(tmp_path, scenario)
