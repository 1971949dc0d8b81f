"""Downloads the files of one copy session: several at once, each checked, and synced while the next ones arrive.

A sync at the end of each file would leave the network idle while the disk works. So a separate thread syncs the arrived
bytes in steps, and the rest of a file after its last byte; `run` waits for all of it.

Synced bytes are dropped from the page cache at once, and the next bytes get the same pages. So a copy needs the memory
of a few steps and not of the whole tablet. It pushes little out of the cache, and asks the machine's host for few
pages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import google_crc32c

from nyala.replica.types import Corruption, Disk, DiskFile, check, limits

from .manifest import CopyFile, CopySource

SYNC_BYTES = 8 << 20
"""A file is synced each time this many of its bytes have arrived. The step is small, because a sync of the log, for
which a write waits, may have to wait until the disk has written these bytes."""
_CHUNKS_IN_FLIGHT_MAX = limits.COPY_IN_FLIGHT_BYTES // limits.COPY_CHUNK_BYTES


@dataclass(eq=False, kw_only=True)
class Downloads:
    """Downloads of one session.

    `arrived(bytes)` is called for each chunk, from any stream; it may block to hold a rate, and raises to end the copy.
    Invariants: each chunk takes one of `room` before it is fetched and until it is written, so COPY_IN_FLIGHT_BYTES are
    in memory at most, however many streams there are and however slow the disk is.
    Concurrency: one `run` at a time. With one stream everything happens on the caller's thread, in order.
    """

    disk: Disk
    source: CopySource
    session_id: str
    streams: int
    arrived: Callable[[int], None]
    room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_CHUNKS_IN_FLIGHT_MAX))
    _stop: threading.Event = field(default_factory=threading.Event, init=False)

    def run(self, files: Sequence[CopyFile], targets: dict[str, str]) -> None:
        """Fetch `files` to the paths that `targets` names, largest first. On return all are checked and synced.

        Raises Corruption if a file is not what the manifest says, and the errors of the source, the disk and `arrived`.
        """
        ordered = sorted(files, key=lambda f: (-f.length_bytes, f.name))
        if self.streams == 1:
            for file in ordered:
                self._one(file, targets[file.name], _Inline())
            return
        with ExitStack() as stack:
            syncs = stack.enter_context(_Beside(2 * self.streams))
            pool = stack.enter_context(ThreadPoolExecutor(self.streams, thread_name_prefix="copy-stream"))
            for work in [pool.submit(self._unless_stopped, file, targets[file.name], syncs) for file in ordered]:
                work.result()
            syncs.wait()

    def _unless_stopped(self, file: CopyFile, target: str, syncs: _Beside) -> None:
        if self._stop.is_set():
            return
        try:
            self._one(file, target, syncs)
        except BaseException:
            self._stop.set()
            raise

    def _one(self, file: CopyFile, target: str, syncs: _Inline) -> None:
        out = syncs.open(self.disk, target)
        try:
            crc, offset, synced = 0, 0, 0
            chunks = iter(self.source.fetch(self.session_id, file, 0, file.length_bytes))
            while True:
                with self.room:
                    chunk = next(chunks, None)
                    if chunk is None:
                        break
                    check(len(chunk) <= limits.COPY_CHUNK_BYTES, "a chunk is bounded", name=file.name, bytes=len(chunk))
                    if offset + len(chunk) > file.length_bytes:
                        raise DamagedFile(file, offset + len(chunk), crc)
                    self.arrived(len(chunk))
                    out.pwrite(chunk, offset)
                    crc = google_crc32c.extend(crc, chunk)
                    offset += len(chunk)
                    del chunk
                if self._stop.is_set():
                    break  # another file failed, and the copy ends with that error
                if offset - synced >= SYNC_BYTES and syncs.begin(out):
                    synced = offset
            if not self._stop.is_set() and (offset != file.length_bytes or crc != file.crc):
                raise DamagedFile(file, offset, crc)
        except BaseException:
            syncs.abandon(out)
            raise
        syncs.finish(out)


class DamagedFile(Corruption):
    """A file that arrived with other bytes than the manifest states."""

    def __init__(self, file: CopyFile, length_bytes: int, crc: int) -> None:
        super().__init__(
            "a copied file is not what the source recorded",
            name=file.name,
            bytes=length_bytes,
            wanted_bytes=file.length_bytes,
            crc=f"{crc:08x}",
            wanted_crc=f"{file.crc:08x}",
        )
        self.file = file


def _sync_step(file: DiskFile) -> None:
    file.datasync()
    file.uncache()


class _Inline:
    """Syncs each file at its end, on the thread that wrote it."""

    def open(self, disk: Disk, path: str) -> DiskFile:
        return disk.open(path, create=True)

    def begin(self, file: DiskFile) -> bool:
        """Begin to sync the written bytes; returns whether it did."""
        return False

    def finish(self, file: DiskFile) -> None:
        """Sync and close the file."""
        try:
            file.sync()
            file.uncache()
        finally:
            file.close()

    def abandon(self, file: DiskFile) -> None:
        """Close a file that failed."""
        file.close()


class _Beside(_Inline):
    """Syncs files on a separate thread, in the order of the calls; a bounded number of files is open."""

    def __init__(self, open_max: int) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="copy-sync")
        self._room = threading.BoundedSemaphore(open_max)
        self._lock = threading.Lock()
        self._latest: dict[DiskFile, Future[None]] = {}
        self._finished: list[Future[None]] = []

    def __enter__(self) -> _Beside:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def open(self, disk: Disk, path: str) -> DiskFile:
        self._room.acquire()  # not released if the open fails: that ends the run, and there is more room than streams
        return super().open(disk, path)

    def begin(self, file: DiskFile) -> bool:
        with self._lock:
            before = self._latest.get(file)
            if before is not None and not before.done():
                return False
            self._latest[file] = self._thread.submit(_sync_step, file)
        if before is not None:
            before.result()
        return True

    def finish(self, file: DiskFile) -> None:
        with self._lock:
            before = self._latest.pop(file, None)
            self._finished.append(self._thread.submit(self._end, file, before))

    def abandon(self, file: DiskFile) -> None:
        self._thread.submit(self._close, file)  # after a sync of it that may be under way

    def wait(self) -> None:
        """Wait until every finished file is synced; raises the error of a failed sync."""
        for work in self._finished:
            work.result()

    def _end(self, file: DiskFile, before: Future[None] | None) -> None:
        try:
            if before is not None:
                before.result()
            file.sync()
            file.uncache()
        finally:
            self._close(file)

    def _close(self, file: DiskFile) -> None:
        try:
            file.close()
        finally:
            self._room.release()
