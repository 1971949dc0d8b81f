"""The segment being written, and the one being prepared beside it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from nyala.replica.fs import exhausted
from nyala.replica.types import Disk, DiskFile, OpId, Refused

from .format import Header, decode_header, encode_block, encode_header, new_marker
from .newest import Newest, save_newest
from .recovery import TEMP_NAME, segment_name


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

    def write_block(self, count: int, parts: Sequence[bytes], length_bytes: int, *, stated: bool = False) -> int:
        """Write one block in one call, without a sync; returns where its first entry begins. See `encode_block`.

        If the disk is full, the file is cut back, so that no half block stays between two whole ones.
        """
        try:
            block = encode_block(self.header, self.written_bytes, count, parts, length_bytes, stated=stated)
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
    """Preallocates a file under a temporary name, on a thread of its own if `threaded`; then renames it into place.

    Concurrency: `start`, `take` and `close` under the log's i/o lock.
    """

    disk: Disk
    folder: str
    tablet_id: str
    _: KW_ONLY
    threaded: bool
    _thread: threading.Thread | None = field(default=None, init=False)
    _file: DiskFile | None = field(default=None, init=False)
    _size: int = field(default=0, init=False)
    _error: Exception | None = field(default=None, init=False)

    @property
    def _temp(self) -> str:
        return f"{self.folder}/{TEMP_NAME}"

    @property
    def idle(self) -> bool:
        """Whether no file is prepared or being prepared."""
        return self._thread is None and self._file is None

    def start(self, size_bytes: int) -> None:
        """Begin to prepare a file of that length."""
        self._size = size_bytes
        if not self.threaded:
            self._allocate()
            return
        thread = threading.Thread(target=self._allocate, name=f"wal-prealloc-{self.tablet_id}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the server has no thread left: appends wait for this, but nothing is lost
            self._allocate()
        else:
            self._thread = thread

    def _allocate(self) -> None:
        file: DiskFile | None = None
        try:
            file = self.disk.open(self._temp, create=True)
            file.truncate(0)
            file.preallocate(self._size)
            file.sync()
            self._file = file
        except Exception as error:  # noqa: BLE001 - the appender raises it; lost, it would try again for ever
            self._error = error
            if file is not None:
                file.close()

    def poll(self) -> bool:
        """Whether a file is ready. Raises the error of the preparation, once; then it is `idle` again."""
        if self._thread is not None:
            if self._thread.is_alive():
                return False
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._file is not None

    def take(self, number: int, first_index: int, last: OpId) -> ActiveSegment:
        """Give the prepared file its header and its name, durably; `last` was written before it."""
        file = self._file
        if file is None:
            raise ValueError("no segment is prepared")
        data = encode_header(self.tablet_id, number, first_index, new_marker(), last)
        try:
            file.pwrite(data, 0)
            file.sync()
            self.disk.crash_point("wal.before_rename_segment")
            self.disk.rename(self._temp, f"{self.folder}/{segment_name(number)}")
            self.disk.crash_point("wal.after_rename_segment")
            save_newest(self.disk, self.folder, Newest(number, len(data), last))
        except Refused:
            self._file = None  # A file with a header cannot be used again, because the next header may be shorter.
            file.close()
            raise
        self._file = None
        header = decode_header(data, segment_name(number))
        return ActiveSegment(file, header, self._size)

    def wait(self) -> None:
        """Wait until the preparation has ended, successfully or not."""
        if self._thread is not None:
            self._thread.join()

    def close(self, *, trusted: bool) -> None:
        """Wait for the thread and remove the prepared file; leave it if the disk is not `trusted` any more."""
        self.wait()
        self._thread = None
        if self._file is not None:
            self._file.close()
            self._file = None
            if trusted:
                self.disk.remove(self._temp)
