"""The files that a tablet must have on disk, and what a server does if one is missing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import RAFT_FOLDERS, open_or_format
from nyala.replica.raft import AppendEntries, AppendReply
from nyala.replica.tablet import Superblock
from nyala.replica.types import Code, DataState, EditKind, OpId
from tests.harness.copies import SOURCE_UUID, TABLET, TestClock, data_files, new_disk
from tests.harness.patience import patience_s
from tests.harness.server_pair import Pair, PairedServer, run_pair
from tests.harness.sim_disk import SimDisk

Scenario = Callable[[Pair], Coroutine[object, object, None]]


async def copied(pair: Pair) -> PairedServer:
    """The other server with a READY replica: one block, and unflushed entries in the log."""
    await pair.put(1)
    tablet = pair.leader.hosted.tablet
    assert tablet is not None
    tablet.flush()
    await pair.put(2)
    await pair.add_other()
    await pair.voting()
    await pair.change(EditKind.REMOVE, pair.other.member())
    return pair.other


def test_created_tablet_has_its_files_where_they_are_documented() -> None:
    """Goal: TC-33. Method: all files there are: of a directory that was formatted, `instance`, folders and marks; of
    a tablet that was created, tablet-meta/<id>, consensus-meta/<id>, a segment and its number in wals/<id>/; after a
    flush a block in data/ as well, and nothing else. The same of a real server:
    `test_created_tablet_is_all_that_ls_shows`."""
    fresh = new_disk()
    open_or_format(fresh, TestClock())
    folders = ["consensus-meta", "data", "instance", "quarantine", "replay", "tablet-meta", "wals"]
    marks = {".folder-of", *(f"{folder}/.folder-of" for folder in RAFT_FOLDERS)}
    assert (set(fresh.files), fresh.listdir("")) == ({"instance"} | marks, folders)

    async def scenario(pair: Pair) -> None:
        disk = pair.leader.disk
        log = {f"wals/{TABLET}/{name}" for name in ("wal-000000001", ".newest-segment")}
        created = {f"tablet-meta/{TABLET}", f"consensus-meta/{TABLET}", *log}
        assert set(disk.files) == created
        await pair.put(1)
        tablet = pair.leader.hosted.tablet
        assert tablet is not None
        tablet.flush()
        assert set(disk.files) == created | {f"data/{TABLET}-000000.{part}" for part in ("arrow", "idx")}

    run_pair(scenario)


def test_tablet_without_a_superblock_does_not_exist_but_its_promises_count() -> None:
    """TC-34. Goal: without a superblock there is no tablet, but its consensus metadata are merged when it is copied
    again. Method: remove the superblock only: an append is answered TABLET_NOT_FOUND and makes no file; a copy then
    comes over the kept term and vote."""

    async def scenario(pair: Pair) -> None:
        other = await copied(pair)
        await other.stop()
        promised = ConsensusMeta.load(other.disk, TABLET)
        promised.save_hard_state(7, SOURCE_UUID)
        other.disk.remove(f"tablet-meta/{TABLET}")
        await pair.restart_other()
        other = pair.other
        assert not other.has_tablet
        before = other.disk.listdir("tablet-meta"), other.disk.listdir("consensus-meta")
        answers: list[object] = []
        other.manager.reply = lambda tablet_id, message: answers.append(message)  # type: ignore[method-assign]
        heartbeat = AppendEntries(to_uuid=other.uuid, from_uuid=SOURCE_UUID, term=9, prev=OpId(1, 1), round=1)
        other.manager.deliver(TABLET, heartbeat)
        (answer,) = answers
        assert isinstance(answer, AppendReply)
        assert (answer.code, answer.data_state) == (Code.TABLET_NOT_FOUND, DataState.DOES_NOT_EXIST)
        assert (other.disk.listdir("tablet-meta"), other.disk.listdir("consensus-meta")) == before
        adopted = ConsensusMeta.adopt(other.disk, TABLET, other.uuid, pair.leader.disk.read(f"consensus-meta/{TABLET}"))
        assert (adopted.term, adopted.voted_for) == (7, SOURCE_UUID)

    run_pair(scenario)


def _remove_block(disk: SimDisk) -> None:
    disk.remove(f"data/{data_files(disk)[0]}")


@pytest.mark.a_third
@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (lambda disk: disk.remove(f"consensus-meta/{TABLET}"), "no consensus metadata"),
        (lambda disk: disk.remove_tree(f"wals/{TABLET}"), "no log folder"),
        (_remove_block, "block"),
    ],
    ids=["metadata", "log", "block"],
)
def test_tablet_that_lacks_one_of_its_parts_stays_offline(lose: Callable[[SimDisk], None], why: str) -> None:
    """TC-35, TC-63. Goal: a replica starts only with its superblock, metadata, log and blocks. Method: remove each in
    turn: the replica is FAILED, names what is missing, creates nothing in its place, and the server runs on."""

    async def scenario(pair: Pair) -> None:
        other = await copied(pair)
        await other.stop()
        lose(other.disk)
        files = {f: other.disk.listdir(f) for f in ("consensus-meta", "wals", "data")}
        await pair.restart_other()
        hosted = pair.other.hosted
        assert hosted.replica is None and why in hosted.error and hosted.superblock.data_state is DataState.READY
        assert {f: pair.other.disk.listdir(f) for f in files} == files
        assert Superblock.load(pair.other.disk, TABLET).data_state is DataState.READY

    run_pair(scenario)


def test_copies_run_on_a_pool_of_their_own() -> None:
    """Goal: TC-11: copies cannot crowd out what the server's leaders need. Method: as many copies as the pool has
    threads, and more, hang in their source: so many run, the others wait, and a write to the tablet here and work on
    the disk's pool go through meanwhile."""

    async def scenario(pair: Pair) -> None:
        server, free = pair.leader, threading.Event()
        started: list[int] = []

        def hang() -> None:
            started.append(1)
            assert free.wait(patience_s(60))

        jobs_max = server.manager.options.copy_jobs_max
        waiting = [server.jobs._pool.submit(hang) for _ in range(jobs_max + 8)]
        try:
            await pair.put(5)
            assert await asyncio.wait_for(server.manager.in_thread(lambda: 7), patience_s(60)) == 7
            assert server.rows() == [5] and len(started) <= jobs_max
        finally:
            free.set()
        await asyncio.gather(*(asyncio.wrap_future(w) for w in waiting))
        assert len(started) == jobs_max + 8

    run_pair(scenario)
