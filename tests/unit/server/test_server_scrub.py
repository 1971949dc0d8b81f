"""Damage of blocks that are never read: the scrub of a running server finds it, at the cost of one replica."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.fs.real import RealFile
from nyala.replica.raft_driver import Phase
from nyala.replica.rows import WriteMeta, crc32c, encode_batch
from nyala.replica.rpc import ConnectionBound, RequestChecks
from nyala.replica.server.copies.copy_jobs import CopyJobs
from nyala.replica.server.maintenance.maintenance import Maintenance
from nyala.replica.server.maintenance.scrub import CPU_SHARE, PIECE_BYTES, Scrub
from nyala.replica.server.metrics import Metrics
from nyala.replica.server.options import ServerOptions
from nyala.replica.server.requests.writes import Writes
from nyala.replica.server.runtime.gil_watch import GilWatch
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.tablets.hosted import HostedTablet
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet_copy.wire.remote_source import RemoteCopySource
from nyala.replica.transport import PeerServicer
from nyala.replica.types import (
    Address,
    Clock,
    Code,
    DiskFailure,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    Refused,
    SystemClock,
)
from nyala.replica.wal import SegmentInfo
from nyala.replica.wal.verify import STEP_BYTES
from tests.harness.copies import TABLET, TARGET_UUID, TestClock, superblock
from tests.harness.links import trusting
from tests.harness.managers import new_manager
from tests.harness.patience import patience_s
from tests.harness.rot import flip
from tests.harness.rows import batch
from tests.harness.server_pair import until

NEIGHBOUR = "neighbour"
ALONE = RaftConfig(OpId(0, 0), (Member(TARGET_UUID, (Address("127.0.0.1", 2),)),))
INTERVAL_S = 100.0


class NotedFile(RealFile):
    """A file of the host that notes how much each read wanted."""

    def __init__(self, file: RealFile, path: str, reads: list[int]) -> None:
        super().__init__(file._fd, path)
        self._reads = reads

    def pread(self, length_bytes: int, byte_offset: int) -> bytes:
        self._reads.append(length_bytes)
        return super().pread(length_bytes, byte_offset)


class HeldDisk(RealDisk):
    """The host's files. The next to open one whose name ends with `held`, if any, waits for `go_on`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.held = ""
        self.block_reads: list[int] = []
        """Bytes, for each read of a block's file."""
        self.trouble: Exception | None = None
        """The error that the next open of a file in `troubled` meets."""
        self.troubled = "data/"
        self.at_the_door = threading.Event()
        self.go_on = threading.Event()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        if self.held and path.endswith(self.held):
            self.held = ""
            self.at_the_door.set()
            assert self.go_on.wait(patience_s(60))
        trouble = self.trouble if path.startswith(self.troubled) else None
        if trouble is not None:
            self.trouble = None
            raise trouble
        file = super().open(path, create=create)
        return NotedFile(file, path, self.block_reads) if path.startswith("data/") else file


class Server:
    """A manager over a real folder with two tablets of one voter each, and its scrub, whose time the test moves."""

    def __init__(self, manager: TabletManager, disk: HeldDisk) -> None:
        self.manager = manager
        self.disk = disk
        self.now_s = 0.0
        self.cpu_s, self.step_cpu_s = 0.0, 0.0
        """CPU that the scrub has used, and what it takes to look at the clock of it."""
        self.scrub = Scrub(manager, lambda: self.now_s, self._cpu)
        self._written = 0

    def _cpu(self) -> float:
        self.cpu_s += self.step_cpu_s
        return self.cpu_s

    async def put(self, hosted: HostedTablet, *values: str) -> None:
        """Rows, and a block of them."""
        assert hosted.replica is not None and hosted.tablet is not None
        keys = range(self._written, self._written + len(values))
        self._written += len(values)
        payload, done = encode_batch(batch(list(keys), list(values))), asyncio.get_running_loop().create_future()
        meta = WriteMeta((1, 2), len(values)).encode()
        hosted.replica.write(EntryKind.WRITE, 1, meta, payload, crc32c(payload), done.set_result)
        result = await asyncio.wait_for(done, 20)
        assert not isinstance(result, BaseException) and not result.row_errors, result
        await self.manager.in_thread(hosted.tablet.flush)

    def files(self, hosted: HostedTablet) -> dict[str, int]:
        """Files of blocks, and their lengths."""
        assert hosted.tablet is not None
        return {path: length for path, length, _ in hosted.tablet.block_files()}

    async def close_segment(self, hosted: HostedTablet) -> SegmentInfo:
        """The log goes on in another segment; returns the one that is closed now."""
        assert hosted.log is not None
        await self.manager.in_thread(hosted.log.roll)
        closed = hosted.log.segments()[-1]
        await self.put(hosted, "e")
        return closed

    async def due(self) -> None:
        """All blocks there are have been seen, and an interval has passed."""
        await self.scrub.check_due()
        self.now_s += INTERVAL_S


Use = Callable[[Server, HostedTablet, HostedTablet], Coroutine[Any, Any, None]]


def served(root: Path, use: Use, *, clock: Clock | None = None, mb_per_s: int = 100) -> None:
    """`use(server, hosted, neighbour)` while both tablets serve; nothing may have ended the process."""
    fatal: list[BaseException] = []

    async def life() -> None:
        disk = HeldDisk(root)
        disk.mkdir("tablet-meta")
        options = ServerOptions(root="unused", scrub_mb_per_s=mb_per_s, scrub_interval_s=INTERVAL_S)
        manager = new_manager(disk, fatal.append, clock=clock or SystemClock(), options=options)
        server = Server(manager, disk)
        await manager.start()
        try:
            both = [
                await manager.create(replace(superblock(), tablet_id=tablet_id), ALONE, campaign=True)
                for tablet_id in (TABLET, NEIGHBOUR)
            ]
            await until(lambda: all(h.replica and h.replica.phase is Phase.RUNNING for h in both), "both serve")
            for hosted in both:
                await server.put(hosted, "a", "b", "c")
            await use(server, both[0], both[1])
        finally:
            disk.go_on.set()
            server.scrub.close()
            await manager.stop()

    asyncio.run(life())
    assert fatal == []


@pytest.mark.parametrize("suffix", [".arrow", ".idx"])
def test_flipped_bit_at_rest_is_found_and_costs_one_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    """TC-63. Goal: the scrub finds a flipped bit, and only that replica fails. Method: two tablets in a real folder, a
    bit of a block or of its sidecar flipped; before its time nothing is read, then the replica is FAILED, one line
    names file, range and both CRCs, the neighbour serves; what is read and found is counted."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        scrub, files = server.scrub, {**server.files(hosted), **server.files(neighbour)}
        (bad,) = [p for p in server.files(hosted) if p.endswith(suffix)]
        flip(tmp_path / bad)
        await scrub.check_due()
        server.now_s += INTERVAL_S - 1
        await scrub.check_due()
        assert (scrub.bytes, scrub.damaged) == (0, 0) and hosted.running

        server.now_s += 1
        await scrub.check_due()
        assert hosted.replica is not None and hosted.replica.phase is Phase.FAILED and neighbour.running
        assert scrub.damaged == 1 and files[bad] < scrub.bytes <= sum(files.values())
        lines = [r.getMessage() for r in caplog.records if bad in r.getMessage() and "CRC-32C" in r.getMessage()]
        assert len(lines) == 1 and lines[0].startswith(f"T {TABLET} P {TARGET_UUID} ")
        assert all(part in lines[0] for part in (f"0 to {files[bad]}", "crc=", "recorded=")), lines

        await server.put(neighbour, "d")
        server.now_s += INTERVAL_S
        await scrub.check_due()
        assert scrub.damaged == 1 and neighbour.running

    served(tmp_path, use)


@pytest.mark.a_third
@pytest.mark.parametrize("where", ["header", "entry", "end", "cut", "gone"])
def test_damage_of_a_closed_segment_is_found_and_costs_one_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """TC-63. Goal: the scrub finds a damaged entry before a start, a copy or a follower needs it. Method: both tablets
    have a closed segment and an open one; of one a bit of the closed one's header, of an entry or of the last marker is
    flipped, or its end or the file is gone; of the other a bit in the open one, which nobody looks at. Before its time
    nothing is read; then the replica is FAILED, one line names the file, and the neighbour serves."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        closed, _ = await server.close_segment(hosted), await server.close_segment(neighbour)
        bad = f"wals/{TABLET}/{closed.name}"
        if where == "gone":
            (tmp_path / bad).unlink()
        elif where == "cut":
            os.truncate(tmp_path / bad, closed.length_bytes - 1)
        else:
            flip(tmp_path / bad, {"header": 100, "entry": closed.length_bytes - 60}.get(where, closed.length_bytes - 1))
        assert neighbour.log is not None
        newest = neighbour.log.segments()[-1]
        assert not newest.closed
        flip(tmp_path / f"wals/{NEIGHBOUR}/{newest.name}", newest.length_bytes - 60)
        scrub = server.scrub
        await scrub.check_due()
        server.now_s += INTERVAL_S - 1
        await scrub.check_due()
        assert (scrub.bytes, scrub.damaged) == (0, 0) and hosted.running

        server.now_s += 1
        await scrub.check_due()
        assert hosted.replica is not None and hosted.replica.phase is Phase.FAILED and neighbour.running
        assert scrub.damaged == 1
        lines = [r.getMessage() for r in caplog.records if r.levelname == "ERROR" and bad in r.getMessage()]
        assert len(lines) == 1 and lines[0].startswith(f"T {TABLET} P {TARGET_UUID} "), lines
        server.now_s += INTERVAL_S
        await scrub.check_due()
        assert scrub.damaged == 1 and neighbour.running

    served(tmp_path, use)


def test_every_file_of_every_whole_block_is_read_once_in_an_interval(tmp_path: Path) -> None:
    """Goal: nothing is left out, nothing is read twice. Method: four blocks of two tablets and a closed segment, two
    rounds at one time, and one an interval later: once and twice the bytes of all are read, and all replicas run."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        await server.put(hosted, "d")
        closed = await server.close_segment(hosted)
        whole = sum({**server.files(hosted), **server.files(neighbour)}.values()) + closed.length_bytes
        assert len(server.files(hosted)) == 6 and whole
        await server.due()
        for rounds in (1, 2):
            await server.scrub.check_due()
            await server.scrub.check_due()
            assert server.scrub.bytes == rounds * whole and server.scrub.damaged == 0
            server.now_s += INTERVAL_S
        assert hosted.running and neighbour.running

    served(tmp_path, use)


def test_file_that_is_gone_under_a_running_replica_is_damage(tmp_path: Path) -> None:
    """TC-63. Goal: the scrub finds a removed block. Method: remove the file."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        (tmp_path / min(server.files(hosted))).unlink()
        await server.due()
        await server.scrub.check_due()
        assert hosted.replica is not None and hosted.replica.phase is Phase.FAILED
        assert "missing" in hosted.replica.error and neighbour.running and server.scrub.damaged == 1

    served(tmp_path, use)


@pytest.mark.a_third
@pytest.mark.parametrize("held", [".arrow", ".idx"])
@pytest.mark.parametrize("how", ["merged", "deleted"])
def test_block_that_goes_away_during_the_check_is_no_damage(tmp_path: Path, how: str, held: str) -> None:
    """TC-63. Goal: what a merge replaces, and what a deletion removes, was not lost. Method: the scrub is about
    to read the first block's data or sidecar; its tablet's blocks are merged into one, or the replica is deleted and
    its files are gone; then it goes on: nothing failed, nothing is damaged."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        for value in "def":
            await server.put(hosted, value)
        before = set(server.files(hosted))
        await server.due()
        server.disk.held = f"{TABLET}-000001{held}"
        assert f"data/{server.disk.held}" in before
        work = asyncio.create_task(server.scrub.check_due())
        await until(server.disk.at_the_door.is_set, "the scrub opens the file")
        if how == "merged":
            assert hosted.tablet is not None and await server.manager.in_thread(hosted.tablet.compact)
            assert before.isdisjoint(server.files(hosted))
        else:
            await server.manager.delete(TABLET, None, "a test")
            for path in before:
                (tmp_path / path).unlink(missing_ok=True)  # as a purge of what the tombstone put aside
        assert not any((tmp_path / path).exists() for path in before)
        server.disk.go_on.set()
        await asyncio.wait_for(work, patience_s(60))
        assert server.scrub.damaged == 0 and neighbour.running
        assert how == "deleted" or hosted.running

    served(tmp_path, use)


@pytest.mark.parametrize("how", ["log GC", "deleted"])
def test_segment_that_goes_away_during_the_check_is_no_damage(tmp_path: Path, how: str) -> None:
    """TC-63. Goal: what log GC frees, and what a deletion puts aside, was not lost, and nothing keeps it. Method: the
    scrub is about to read a closed segment; log GC removes it, or the replica is deleted; then it goes on."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        closed, log = await server.close_segment(hosted), hosted.log
        bad = tmp_path / f"wals/{TABLET}/{closed.name}"
        assert log is not None and bad.exists()
        await server.due()
        server.disk.held = f"{TABLET}/{closed.name}"
        work = asyncio.create_task(server.scrub.check_due())
        await until(server.disk.at_the_door.is_set, "the scrub opens the file")
        if how == "log GC":
            assert await server.manager.in_thread(lambda: log.gc(log.last.index)) == closed.length_bytes
        else:
            await server.manager.delete(TABLET, None, "a test")
        assert not bad.exists()
        server.disk.go_on.set()
        await asyncio.wait_for(work, patience_s(60))
        assert server.scrub.damaged == 0 and neighbour.running
        assert how == "deleted" or hosted.running

    served(tmp_path, use)


def test_segment_that_the_disk_cannot_give_is_damage_and_one_that_finds_no_descriptor_is_not(tmp_path: Path) -> None:
    """TC-63. Goal: an I/O error of a segment fails the replica; a missing descriptor delays the scrub by a round.
    Method: as for a block."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        await server.close_segment(hosted)
        await server.due()
        server.disk.troubled = "wals/"
        server.disk.trouble = Refused(Code.NO_SPACE, "too many files are open")
        await server.scrub.check_due()
        assert server.scrub.damaged == 0 and hosted.running and server.disk.trouble is None
        server.disk.trouble = DiskFailure("the disk failed", action="open")
        await server.scrub.check_due()
        assert hosted.replica is not None and hosted.replica.phase is Phase.FAILED and neighbour.running
        assert server.scrub.damaged == 1

    served(tmp_path, use)


@pytest.mark.deep
def test_scrub_takes_no_more_than_its_share_of_a_core(tmp_path: Path) -> None:
    """TC-63. Goal: the scrub takes at most its share of a processor, also for a log of small entries. Method: each
    piece costs a tenth of a second by a clock that the test gives; a segment of thirty blocks takes ten times as long
    as all its pieces, by another clock, and no piece is much longer than a step."""
    clock = TestClock()

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        for _ in range(30):
            await server.put(hosted, *(str(i) * 500 for i in range(8)))
        await server.close_segment(hosted)
        for both in (hosted, neighbour):
            assert both.tablet is not None
            await server.manager.in_thread(both.tablet.compact)
        await server.due()
        server.step_cpu_s = 0.1
        began_us, work = clock.now_us, asyncio.create_task(server.scrub.check_due())
        while not work.done():
            clock.now_us += 20_000
            await asyncio.sleep(0.0005)
        await work
        files = len({**server.files(hosted), **server.files(neighbour)}) + 1
        pieces = round(server.cpu_s / 0.1) // 2 - files  # each ends by a step without a piece
        assert pieces > server.scrub.bytes / (3 * STEP_BYTES)
        assert (clock.now_us - began_us) / 1_000_000 >= 0.9 * pieces * 0.1 / CPU_SHARE

    served(tmp_path, use, clock=clock)


def test_file_that_the_disk_cannot_give_is_damage_and_one_that_finds_no_descriptor_is_not(tmp_path: Path) -> None:
    """TC-63. Goal: an I/O error of a block fails the replica; a missing descriptor delays the scrub by a round. Method:
    the first file of a round is refused for want of a descriptor: nothing failed, and the next round begins with it; it
    meets EIO: that replica alone fails."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        await server.due()
        server.disk.trouble = Refused(Code.NO_SPACE, "too many files are open")
        await server.scrub.check_due()
        assert (server.scrub.bytes, server.scrub.damaged) == (0, 0) and hosted.running and neighbour.running
        server.disk.trouble = DiskFailure("the disk failed", action="open")
        await server.scrub.check_due()
        failed, runs = sorted((hosted, neighbour), key=lambda h: h.running)
        assert failed.replica is not None and failed.replica.phase is Phase.FAILED and runs.running
        assert server.scrub.damaged == 1 and server.scrub.bytes == sum(server.files(runs).values())

    served(tmp_path, use)


def test_scrub_holds_its_rate_and_reads_in_pieces(tmp_path: Path) -> None:
    """TC-63. Goal: the scrub keeps its rate and reads in small pieces, so other reads do not wait. Method: a block of
    six megabytes at one megabyte a second, by a clock that the test moves: no step reads more than a piece, and the
    whole takes as long as its bytes say."""
    clock = TestClock()

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        await server.put(hosted, *(str(i % 10) * 1000 for i in range(6000)))
        await server.due()
        server.disk.block_reads.clear()
        began_us, work = clock.now_us, asyncio.create_task(server.scrub.check_due())
        while not work.done():
            clock.now_us += 20_000
            await asyncio.sleep(0.0005)
        await work
        took_s, read = (clock.now_us - began_us) / 1_000_000, server.scrub.bytes
        assert read > 5 * PIECE_BYTES and took_s >= 0.9 * read / 1_000_000
        assert sum(server.disk.block_reads) == read and max(server.disk.block_reads) == PIECE_BYTES

    served(tmp_path, use, clock=clock, mb_per_s=1)


def test_scrub_that_is_off_reads_nothing(tmp_path: Path) -> None:
    """Goal: 0 is off. Method: the forever loop returns at once, and has read nothing though all is due."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        await server.due()
        await asyncio.wait_for(server.scrub.run_forever(), 20)
        assert server.scrub.bytes == 0

    served(tmp_path, use, mb_per_s=0)


def test_metrics_tell_what_was_scrubbed_and_what_was_found(tmp_path: Path) -> None:
    """TC-63. Goal: an operator sees that blocks are checked, and that one was bad. Method: `/metrics` over HTTP of a
    server's real parts, before a round and after one that found a flipped bit."""

    async def use(server: Server, hosted: HostedTablet, neighbour: HostedTablet) -> None:
        manager, loop = server.manager, asyncio.get_running_loop()
        memory = MemoryGuard(1 << 30, lambda: manager.memory_bytes)
        maintenance = Maintenance(manager, memory)
        validate = ThreadPoolExecutor(1)
        writes = Writes(memory, validate, lambda time: None, lambda: None)
        gil = GilWatch()
        jobs, peers = CopyJobs(manager, RemoteCopySource), PeerServicer(manager.uuid, manager.deliver, trusting())
        beats: Any = SimpleNamespace(replies_refused=0)
        checks = RequestChecks()
        parts = (manager, memory, writes, maintenance, jobs, gil, server.scrub, peers)
        metrics = Metrics(*parts, checks, ConnectionBound(1), beats)
        metrics.serve(0)

        def read() -> dict[str, float]:
            with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=patience_s(60)) as answer:
                lines = answer.read().decode().splitlines()
            return {name: float(value) for name, value in (text.split() for text in lines if not text.startswith("#"))}

        try:
            names = ("nyala_server_scrubbed_bytes_total", "nyala_server_damaged_files_total")
            before = await loop.run_in_executor(None, read)
            assert [before[n] for n in names] == [0, 0]
            flip(tmp_path / min(server.files(hosted)))
            await server.due()
            await server.scrub.check_due()
            after = await loop.run_in_executor(None, read)
            assert [after[n] for n in names] == [server.scrub.bytes, 1] and server.scrub.bytes
        finally:
            for part in (metrics, maintenance):
                part.close()
            validate.shutdown()
            checks.close()

    served(tmp_path, use)
