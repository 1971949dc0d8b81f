"""Downloads of a copy's files: synced beside the next chunks, durable on return, ended by the first failure."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import google_crc32c
import pytest

from nyala.replica.tablet_copy import WHOLE, CopyFile, CopyManifest, CopyWanted, FileKind
from nyala.replica.tablet_copy.downloads import SYNC_BYTES, DamagedFile, Downloads, _Beside, _Inline
from nyala.replica.types import Corruption, DiskFailure, DiskFile, Refused
from tests.harness.copies import new_disk
from tests.harness.patience import patience_s
from tests.harness.sim_disk import SimDisk

CHUNK = 1 << 20
WAIT_S = patience_s(60.0)


class Files:
    """A source of files of random bytes; `before(name, byte_offset)` runs before each chunk is handed out."""

    def __init__(self, *sizes: int) -> None:
        rng = random.Random(3)
        self.content = {f"f{pos}": rng.randbytes(size) for pos, size in enumerate(sizes)}
        self.offered = [
            CopyFile(FileKind.BLOCK, name, len(data), google_crc32c.value(data)) for name, data in self.content.items()
        ]
        self.chunks = 0
        self.before: Callable[[str, int], None] = lambda name, byte_offset: None

    def begin(
        self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool, wanted: CopyWanted = WHOLE
    ) -> CopyManifest:
        raise AssertionError("a download begins no session")

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        for start in range(byte_offset, byte_offset + length_bytes, CHUNK):
            self.before(file.name, start)
            self.chunks += 1
            yield self.content[file.name][start : start + CHUNK]

    def end(self, session_id: str, success: bool, doubted: str = "") -> None:
        raise AssertionError("a download ends no session")

    def downloads(
        self,
        disk: SimDisk,
        streams: int,
        room: threading.Semaphore = threading.Semaphore(16),
        arrived: Callable[[int], None] = lambda length_bytes: None,
    ) -> Downloads:
        disk.mkdir("data")
        return Downloads(disk=disk, source=self, session_id="s", streams=streams, arrived=arrived, room=room)

    def download(self, disk: SimDisk, streams: int, room: threading.Semaphore = threading.Semaphore(16)) -> None:
        self.run(self.downloads(disk, streams, room))

    def run(self, downloads: Downloads) -> None:
        downloads.run(self.offered, {name: f"data/{name}" for name in self.content})


class Room(threading.Semaphore):
    """Counts the threads that wait in a `with`."""

    waiting = 0
    _lock = threading.Lock()

    def __enter__(self) -> bool:
        with self._lock:
            self.waiting += 1
        self.acquire()
        with self._lock:
            self.waiting -= 1
        return True


@pytest.mark.a_third
@pytest.mark.parametrize(("streams", "power_seed"), [(1, 1), (2, 1), (2, 2), (2, 3), (5, 4)])
def test_downloads_are_whole_and_durable_on_return(streams: int, power_seed: int) -> None:
    """Goal: row TC-51 with files that are synced beside the download. Method: files below, at and above the step of
    syncs, also an empty one; after the run the power fails: every byte is there."""
    files, disk = Files(0, 1, CHUNK, SYNC_BYTES, 2 * SYNC_BYTES + 5, 3), new_disk()
    files.download(disk, streams)
    disk.sync_dir("data")
    disk.power_loss(random.Random(power_seed))
    assert {name: disk.read(f"data/{name}") for name in files.content} == files.content


def test_slow_disk_keeps_a_fast_source_within_the_budget() -> None:
    """TC-11. Goal: the memory of a copy stays within its budget, however fast the source and slow the disk. Method:
    eight streams of a source that never waits, a disk that writes nothing at first, a budget of three chunks: three are
    fetched and the other five streams wait; then the disk goes on: never are more than three fetched and not written,
    and all files arrive."""
    files, disk, budget = Files(*[2 * CHUNK] * 8), new_disk(), Room(3)
    lock, writes, all_there = threading.Lock(), threading.Event(), threading.Event()
    now, most = 0, 0

    def fetched(name: str, byte_offset: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            if now == 8:
                all_there.set()

    def written(operation: str, path: str) -> None:
        nonlocal now
        if operation == "pwrite":
            assert writes.wait(WAIT_S)
            with lock:
                now -= 1

    files.before, disk.hook = fetched, written
    work = threading.Thread(target=files.download, args=(disk, 8, budget))
    work.start()
    deadline = time.monotonic() + WAIT_S
    while not (all_there.is_set() or (now == 3 and budget.waiting == 5)):
        assert time.monotonic() < deadline, (now, budget.waiting)
        all_there.wait(0.001)
    writes.set()
    work.join(WAIT_S)
    assert not work.is_alive() and most == 3 and budget.waiting == 0
    assert {name: disk.read(f"data/{name}") for name in files.content} == files.content


def test_failed_stream_gives_its_room_back() -> None:
    """Goal: a failed stream gives its part of the budget back, so the others do not wait for ever. Method: a budget of
    one chunk, two streams, one of which meets a full disk in the middle: the download fails by that, and does not
    hang."""
    files, disk = Files(3 * CHUNK, 3 * CHUNK), new_disk()
    disk.fail_on("pwrite", "data/*", "ENOSPC", skip=1)
    with pytest.raises(Refused, match="the disk is full"):
        files.download(disk, 2, threading.Semaphore(1))


@pytest.mark.parametrize("streams", [1, 3])
def test_what_is_synced_leaves_the_cache(streams: int) -> None:
    """TC-51. Goal: synced parts of a copy leave the page cache. Method: the disk's operations of files above and below
    the step of syncs: each sync is followed by the hint, and no file is closed without one behind its last write."""
    files, disk, seen = Files(1, SYNC_BYTES + CHUNK), new_disk(), [("", "")]
    disk.hook = lambda operation, path: seen.append((operation, path))
    files.download(disk, streams)
    for path in ("data/f0", "data/f1"):
        mine = [what for what, where in seen if where == path and what in ("sync", "datasync", "uncache")]
        assert mine[-2:] == ["sync", "uncache"]
        assert mine[1::2] == ["uncache"] * (len(mine) // 2)


def test_long_file_is_synced_while_it_arrives() -> None:
    """Goal: a long file is synced while later parts of it arrive. Method: the last chunk is handed out only once a sync
    of what came before has begun; without that the download would end with a refusal to hand it out."""
    files, disk, begun = Files(SYNC_BYTES + CHUNK), new_disk(), threading.Event()
    disk.hook = lambda operation, path: begun.set() if operation == "datasync" else None
    held: list[bool] = []

    def before(name: str, byte_offset: int) -> None:
        if byte_offset == SYNC_BYTES:
            held.append(begun.wait(WAIT_S))

    files.before = before
    files.download(disk, 2)
    assert held == [True]


def test_next_file_arrives_while_the_one_before_is_synced() -> None:
    """Goal: a stream fetches the next file while the former one is synced. Method: no sync of a file ends before the
    last file's last chunk was handed out, on fewer streams than files."""
    files, disk, all_sent = Files(CHUNK, CHUNK, CHUNK, CHUNK), new_disk(), threading.Event()
    waited: list[bool] = []
    handed_out: set[str] = set()

    def before(name: str, byte_offset: int) -> None:
        handed_out.add(name)  # by two threads
        if len(handed_out) == 4:
            all_sent.set()

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.startswith("data/"):
            waited.append(all_sent.wait(WAIT_S))

    files.before, disk.hook = before, hook
    files.download(disk, 2)
    assert waited == [True] * 4


@pytest.mark.parametrize(
    ("operation", "size"), [("datasync", 2 * SYNC_BYTES), ("datasync", SYNC_BYTES + 5), ("sync", 2 * SYNC_BYTES)]
)
def test_sync_that_fails_beside_a_download_fails_the_download(operation: str, size: int) -> None:
    """TC-51. Goal: a failed sync fails the download. Method: EIO of a sync on the thread that syncs, of one that
    another follows and of the last before the file's end, whose own sync is then told nothing: run raises it."""
    files, disk = Files(size, 5, 6), new_disk()
    disk.fail_on(operation, "data/f0", "EIO")
    with pytest.raises(DiskFailure):
        files.download(disk, 2)


def test_one_stream_brings_the_largest_file_first_on_its_callers_thread() -> None:
    """Goal: with one stream the caller's thread does all the work, as simulations need, and the largest file comes
    first. Method: four files, two of one size: which chunks are asked for, and by whom."""
    files, seen, threads = Files(1, 2 * CHUNK, CHUNK, CHUNK), list[str](), set[threading.Thread]()

    def before(name: str, byte_offset: int) -> None:
        seen.append(name)
        threads.add(threading.current_thread())

    files.before = before
    files.download(new_disk(), 1)
    assert seen == ["f1", "f1", "f2", "f3", "f0"] and threads == {threading.current_thread()}


def test_as_many_files_again_are_open_as_there_are_streams_while_they_are_synced() -> None:
    """Goal: a slow disk does not use up the process's file descriptors: at most twice as many files as streams are
    open. Method: three streams, nine files; the first sync ends only once six files were opened: a seventh is not
    opened before that."""
    files, disk = Files(*[1] * 9), new_disk()
    opened, six, seventh, most = list[str](), threading.Event(), threading.Event(), list[int]()

    def hook(operation: str, path: str) -> None:
        if not path.startswith("data/"):
            return
        if operation == "open":
            opened.append(path)
            if len(opened) == 6:
                six.set()
            if len(opened) == 7:
                seventh.set()
        if operation == "sync" and not most:
            assert six.wait(WAIT_S)
            seventh.wait(0.2)  # it comes meanwhile if there is room for it
            most.append(len(opened))

    disk.hook = hook
    files.download(disk, 3)
    assert most == [6] and len(opened) == 9


def test_stream_goes_on_while_a_sync_of_its_file_is_under_way() -> None:
    """Goal: a stream goes on while its own file is synced. Method: the first sync of a file ends only once its last
    chunk was asked for, three steps later; then all of it is durable."""
    files, disk, all_sent = Files(3 * SYNC_BYTES + 1), new_disk(), threading.Event()
    waited: list[bool] = []

    def before(name: str, byte_offset: int) -> None:
        if byte_offset == 3 * SYNC_BYTES:
            all_sent.set()

    def hook(operation: str, path: str) -> None:
        if operation == "datasync":
            waited.append(all_sent.wait(WAIT_S))

    files.before, disk.hook = before, hook
    files.download(disk, 2)
    disk.sync_dir("data")
    disk.power_loss(random.Random(1))
    assert waited and all(waited) and disk.read("data/f0") == files.content["f0"]


def test_file_that_cannot_be_opened_fails_the_download() -> None:
    """TC-51. Goal: a file that cannot be opened fails the download. Method: EIO as one of many is opened."""
    files, disk = Files(*[1] * 9), new_disk()
    disk.fail_on("open", "data/f4")
    with pytest.raises(DiskFailure):
        files.download(disk, 2)


class Chunk(bytes):
    """A chunk that is counted for as long as somebody holds it."""

    alive = 0

    def __init__(self, data: bytes) -> None:
        Chunk.alive += 1

    def __del__(self) -> None:
        Chunk.alive -= 1


def test_chunk_is_gone_before_the_next_one_is_asked_for() -> None:
    """TC-11. Goal: a written chunk is freed before its part of the budget is given to the next one. Method: count the
    chunks that are alive as each is asked for."""
    files, alive = Files(5 * CHUNK), list[int]()
    fetch = files.fetch
    files.before = lambda name, byte_offset: alive.append(Chunk.alive)
    files.fetch = lambda *given: map(Chunk, fetch(*given))  # type: ignore[method-assign]
    files.download(new_disk(), 1)
    assert alive == [0] * 5


class Endless(Files):
    """`f0` is of a million chunks, the second of which comes once the damaged `f1` was handed out."""

    def __init__(self) -> None:
        super().__init__(1_000_000, 1, 1, 1)
        self.asked = set[str]()
        self.content["f1"] = bytes([self.content["f1"][0] ^ 1])
        self._damaged = threading.Event()

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        self.asked.add(file.name)
        if file.name == "f1":
            self._damaged.set()
            yield self.content["f1"]
            return
        yield self.content["f0"][:1]
        assert self._damaged.wait(WAIT_S)
        for start in range(1, length_bytes):
            self.chunks += 1
            yield self.content["f0"][start : start + 1]


def test_failure_of_one_file_ends_the_others_at_their_next_chunk() -> None:
    """Goal: if one file fails, the other downloads end at their next chunk. Method: one file is damaged while another
    one has nearly a million chunks to come: they are not all asked for."""
    files = Endless()
    with pytest.raises(DamagedFile) as damaged:
        files.download(new_disk(), 2)
    assert files.chunks < 999_999 and files.asked == {"f0", "f1"}, "nor is a file that is left"
    assert damaged.value.file.name == "f1", "and it is the one that is told"


def test_source_that_sends_more_than_it_recorded_is_stopped_at_once() -> None:
    """Goal: TC-51: a broken source cannot fill this disk. Method: a file recorded with two chunks goes on for ever: the
    third is not written, the file does not count."""
    files, disk = Files(2 * CHUNK), new_disk()
    files.content["f0"] += bytes(40 * CHUNK)
    files.offered = [files.offered[0]]
    whole = CopyFile(FileKind.BLOCK, "f0", 42 * CHUNK, 0)
    recorded, fetch = files.offered[0], files.fetch
    files.fetch = lambda session, file, at, length: fetch(session, whole, at, whole.length_bytes)  # type: ignore[method-assign]
    with pytest.raises(Corruption, match="not what the source recorded"):
        files.download(disk, 1)
    assert recorded.length_bytes == 2 * CHUNK == len(disk.read("data/f0")) and files.chunks == 3


def test_file_of_another_length_is_damaged_though_its_checksum_is_right() -> None:
    """TC-51. Goal: nothing that is short counts as brought. Method: a source that ends with half of what it recorded,
    of which the checksum is that half's."""
    files = Files(10)
    (offered,) = files.offered
    files.content["f0"] = files.content["f0"][:5]
    files.offered = [replace(offered, crc=google_crc32c.value(files.content["f0"]))]
    with pytest.raises(DamagedFile):
        files.download(new_disk(), 1)


@pytest.mark.parametrize("streams", [1, 2])
def test_each_chunk_is_told_before_it_is_written_and_may_end_the_copy(streams: int) -> None:
    """TC-11. Goal: the rate and a cancellation act on each chunk of a copy. Method: what is told of three files; then
    the second chunk is refused: that error ends the run, and no more than one chunk was written."""
    files, disk, told = Files(2 * CHUNK, CHUNK + 1, 0), new_disk(), list[int]()
    files.run(files.downloads(disk, streams, arrived=told.append))
    assert sorted(told) == [1, CHUNK, CHUNK, CHUNK]

    def refuse(length_bytes: int) -> None:
        told.append(length_bytes)
        if len(told) == 2:
            raise ZeroDivisionError

    told.clear()
    files, disk = Files(9 * CHUNK), new_disk()
    with pytest.raises(ZeroDivisionError):
        files.run(files.downloads(disk, streams, arrived=refuse))
    assert told == [CHUNK] * 2 and disk.size("data/f0") == CHUNK


@pytest.mark.a_third
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("fails", ["", "pwrite", "sync", "datasync"])
def test_run_leaves_no_file_open_and_no_thread(fails: str, streams: int) -> None:
    """Goal: a server copies for months. Method: a run that succeeds, and one whose disk fails in a write, in a sync
    beside it and in one at the end of a file."""
    files, disk = Files(SYNC_BYTES + CHUNK, 5), new_disk()
    if fails:
        disk.fail_on(fails, "data/*")
    try:
        files.download(disk, streams)
    except DiskFailure:
        assert fails
    assert disk.fired or not fails or (fails, streams) == ("datasync", 1)
    assert not +disk.handles and disk.count("open", "data/*") > 0
    assert not [each.name for each in threading.enumerate() if each.name.startswith("copy-s")]


class Steps(_Inline):
    """Notes how long a file was at each sync that it was asked for; the disk is busy at the first."""

    def __init__(self) -> None:
        self.chunks = list[int]()

    def begin(self, file: DiskFile) -> bool:
        self.chunks.append(file.size() // CHUNK)
        return len(self.chunks) > 1


def test_long_file_is_synced_in_steps() -> None:
    """TC-51. Goal: no sync of a copy takes long, and there are few. Method: a file of three steps and a half, whose
    first sync the disk cannot take at once: it is asked for again a chunk later, and the next a step behind it."""
    files, steps, step = Files(7 * SYNC_BYTES // 2), Steps(), SYNC_BYTES // CHUNK
    files.downloads(disk := new_disk(), 2)._one(files.offered[0], "data/f0", steps)
    assert steps.chunks == [step, step + 1, 2 * step + 1, 3 * step + 1]
    assert disk.read("data/f0") == files.content["f0"]


def test_sync_beside_is_begun_again_once_the_one_before_has_ended() -> None:
    """TC-51. Goal: a file has one sync under way at most, and is synced all along. Method: a sync is asked for while
    one is held, after its end, and after one that failed, whose error is told."""
    disk, gate, begun = new_disk(), threading.Event(), threading.Event()
    disk.mkdir("data")

    def hook(operation: str, path: str) -> None:
        if operation == "datasync":
            begun.set()
            assert gate.wait(WAIT_S)

    disk.hook = hook
    with _Beside(1) as beside:
        file = beside.open(disk, "data/f0")
        assert beside.begin(file) and begun.wait(WAIT_S)
        assert not beside.begin(file)
        gate.set()
        beside._latest[file].result(WAIT_S)
        disk.fail_on("datasync", "data/f0")
        assert beside.begin(file) and beside._latest[file].exception(WAIT_S)
        assert disk.count("datasync") == 2
        with pytest.raises(DiskFailure):
            beside.begin(file)
        beside.abandon(file)
    assert not +disk.handles
