"""The segment being written, and the one being prepared beside it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from nyala.replica.fs import exhausted
from nyala.replica.types import Disk, DiskFile, OpId, Refused

from .format import Header, decode_header, encode_block, encode_header, new_marker
from .newest import Newest, save_newest
from .recovery import TEMP_NAME, segment_name
from .threads import TurnThreads


@dataclass(eq=False)
class ActiveSegment:
    """The newest segment file. Concurrency: one thread at a time, under the log's i/o lock."""

    file: DiskFile
    header: Header
    preallocated_bytes: int

    def __post_init__(self) -> None:
        self.written_bytes = self.header.length_bytes
        """The offset up to which the file consists of whole written blocks."""

    @property
    def number(self) -> int:
        return self.header.segment

    @property
    def name(self) -> str:
        return segment_name(self.number)

    @property
    def is_empty(self) -> bool:
        """Whether it has no block yet."""
        return self.written_bytes == self.header.length_bytes

    def write_block(self, count: int, parts: Sequence[bytes], length_bytes: int, *, with_trailer: bool = False) -> int:
        """Write one block in one call, without a sync; returns where its first entry begins. See `encode_block`.

        If the disk is full, the file is cut back, so that no half block stays between two whole ones.
        """
        try:
            block = encode_block(self.header, self.written_bytes, count, parts, length_bytes, with_trailer=with_trailer)
        except MemoryError as error:  # nothing is written yet
            raise exhausted(error) or error from error
        try:
            self.file.pwritev(block, self.written_bytes)
        except Refused:
            self.cut()
            raise
        start = self.written_bytes + len(block[0])
        self.written_bytes = start + length_bytes + len(self.header.marker)
        return start

    def sync(self) -> None:
        """Sync the file. Cheap inside the preallocated length, where the file's metadata do not change."""
        if self.written_bytes <= self.preallocated_bytes:
            self.file.datasync()
        else:
            self.file.sync()

    def cut(self) -> None:
        """Cut the file to its content; after NO_SPACE or ResourcesExhausted the file is unchanged, and usable."""
        self.file.truncate(self.written_bytes)
        self.preallocated_bytes = self.written_bytes

    def finish(self) -> None:
        """Cut the file to its content, durably. The handle is closed even if this raises."""
        try:
            if self.preallocated_bytes > self.written_bytes:
                self.cut()
            self.file.sync()
        finally:
            self.file.close()

    def abandon(self) -> None:
        """Close the handle and change nothing, because the disk cannot be trusted any more."""
        self.file.close()


@dataclass(eq=False)
class NextSegment:
    """Preallocates a file under a temporary name, on one of `threads` if there are any; then renames it into place.

    Concurrency: `start`, `take` and `close` under the log's i/o lock.
    """

    disk: Disk
    folder: str
    tablet_id: str
    _: KW_ONLY
    threads: TurnThreads | None
    _preparing: Future[DiskFile] | None = field(default=None, init=False)
    _size: int = field(default=0, init=False)

    @property
    def _temp(self) -> str:
        return f"{self.folder}/{TEMP_NAME}"

    @property
    def idle(self) -> bool:
        """Whether no file is prepared or being prepared."""
        return self._preparing is None

    @property
    def ready(self) -> bool:
        """Whether a preparation has ended, successfully or not."""
        return self._preparing is not None and self._preparing.done()

    def start(self, size_bytes: int, *, here: bool = False) -> None:
        """Begin to prepare a file of that length. `here`: in this thread, which cannot go on without it."""
        self._size = size_bytes
        self._preparing = Future()
        allocate = partial(self._allocate, self._preparing)
        if self.threads is None or here:
            allocate()
        else:
            self.threads.give(allocate)

    def _allocate(self, prepared: Future[DiskFile]) -> bool:
        file: DiskFile | None = None
        try:
            file = self.disk.open(self._temp, create=True)
            file.truncate(0)
            file.preallocate(self._size)
            file.sync()
            prepared.set_result(file)
        except BaseException as error:
            prepared.set_exception(error)  # `take` raises it; lost, the log would wait for ever
            if not isinstance(error, Exception):
                raise
            if file is not None:
                file.close()
        return False

    def take(self, number: int, first_index: int, last: OpId) -> ActiveSegment:
        """Wait for the preparation and give the file its header and its name, durably; `last` was written before it.

        Raises the error of the preparation, if it has failed. After any error nothing is prepared.
        """
        preparing, self._preparing = self._preparing, None
        if preparing is None:
            raise ValueError("no segment is prepared")
        file = preparing.result()
        data = encode_header(self.tablet_id, number, first_index, new_marker(), last)
        try:
            file.pwrite(data, 0)
            file.sync()
            self.disk.crash_point("wal.before_rename_segment")
            self.disk.rename(self._temp, f"{self.folder}/{segment_name(number)}")
            self.disk.crash_point("wal.after_rename_segment")
            save_newest(self.disk, self.folder, Newest(number, len(data), last))
        except Exception:
            file.close()  # A file with a header cannot be used again, because the next header may be shorter.
            raise
        header = decode_header(data, segment_name(number))
        return ActiveSegment(file, header, self._size)

    def close(self, *, trusted: bool) -> None:
        """Wait for the preparation and remove the prepared file; leave it if the disk is not `trusted` any more."""
        preparing, self._preparing = self._preparing, None
        if preparing is not None and preparing.exception() is None:
            preparing.result().close()
            if trusted:
                self.disk.remove(self._temp)
