"""Files of one copy session onto this disk: some at once, each checked, and synced while the next ones arrive.

A sync at the end of each file would leave the network idle while the disk works. So what has arrived is synced in
steps, by a thread of its own, and so is the rest of a file when its last byte is there; `run` waits for all of it.

What is synced leaves the page cache, and its pages take the next bytes: a copy needs a few steps' worth of memory, not
a page for each page of the tablet, neither from what others have cached nor from a host that is slow to give one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import google_crc32c

from nyala.replica.types import Corruption, Disk, DiskFile, check, limits

from .in_flight import InFlight
from .manifest import CopyFile, CopySource

SYNC_BYTES = 8 << 20
"""A file's sync begins when so much of it has arrived since the one before. Small: a sync of the log, which a write
waits for, may have to wait for what a copy has the disk write."""


class Downloads:
    """Downloads of one session.

    `arrived(bytes)` is called for each chunk, from any stream; it may block to hold a rate, and raises to end the copy.
    Invariants: `in_flight` has room for a chunk before it is fetched and until it is written, however many streams
    there are and however slow the disk is.
    Concurrency: one `run` at a time. With one stream everything happens on the caller's thread, in order.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        source: CopySource,
        session_id: str,
        streams: int,
        arrived: Callable[[int], None],
        in_flight: InFlight | None = None,
    ) -> None:
        self._disk = disk
        self._source = source
        self._session_id = session_id
        self._streams = streams
        self._arrived = arrived
        self._in_flight = in_flight or InFlight(limits.COPY_IN_FLIGHT_BYTES)
        self._stop = threading.Event()

    def run(self, files: Sequence[CopyFile], targets: dict[str, str]) -> None:
        """Bring `files` to the paths `targets` names, largest first. On return all are checked and synced.

        Corruption if a file is not what the manifest says; what the source, the disk or `arrived` raises.
        """
        ordered = sorted(files, key=lambda f: (-f.length_bytes, f.name))
        if self._streams == 1:
            for file in ordered:
                self._one(file, targets[file.name], _Inline())
            return
        with ExitStack() as stack:
            syncs = stack.enter_context(_Beside(2 * self._streams))
            pool = stack.enter_context(ThreadPoolExecutor(self._streams, thread_name_prefix="copy-stream"))
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
        out = syncs.open(self._disk, target)
        try:
            crc, offset, synced = 0, 0, 0
            chunks = iter(self._source.fetch(self._session_id, file, 0, file.length_bytes))
            while True:
                with self._in_flight.room(limits.COPY_CHUNK_BYTES):
                    chunk = next(chunks, None)
                    if chunk is None:
                        break
                    check(len(chunk) <= limits.COPY_CHUNK_BYTES, "a chunk is bounded", name=file.name, bytes=len(chunk))
                    if offset + len(chunk) > file.length_bytes:
                        raise DamagedFile(file, offset + len(chunk), crc)
                    self._arrived(len(chunk))
                    out.pwrite(chunk, offset)
                    crc = google_crc32c.extend(crc, chunk)
                    offset += len(chunk)
                    del chunk
                if self._stop.is_set():
                    break  # another file failed: that is what the copy ends with
                if offset - synced >= SYNC_BYTES and syncs.begin(out):
                    synced = offset
            if not self._stop.is_set() and (offset != file.length_bytes or crc != file.crc):
                raise DamagedFile(file, offset, crc)
        except BaseException:
            syncs.abandon(out)
            raise
        syncs.finish(out)


class DamagedFile(Corruption):
    """A file that arrived as something else than the manifest says."""

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
    """Each file is synced at its end, by the thread that wrote it."""

    def open(self, disk: Disk, path: str) -> DiskFile:
        return disk.open(path, create=True)

    def begin(self, file: DiskFile) -> bool:
        """Begin to sync what is written; whether that was begun."""
        return False

    def finish(self, file: DiskFile) -> None:
        """Sync and close."""
        try:
            file.sync()
            file.uncache()
        finally:
            file.close()

    def abandon(self, file: DiskFile) -> None:
        """Close a file that failed."""
        file.close()


class _Beside(_Inline):
    """Files are synced by a thread of its own, in the order in which that was asked; so many are open at most."""

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
        self._room.acquire()
        try:
            return super().open(disk, path)
        except BaseException:
            self._room.release()
            raise

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
        with self._lock:
            self._latest.pop(file, None)
        self._thread.submit(self._close, file)  # behind a sync of it that may be under way

    def wait(self) -> None:
        """Until every finished file is synced; raises what a sync raised."""
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
