"""The last block of a log, written once more when the log is opened."""

from __future__ import annotations

from nyala.replica.types import DiskFile

from .format import MARKER_BYTES, Header

_WINDOW_BYTES = 1 << 20


def rewrite_last_block(file: DiskFile, header: Header, content_end: int) -> None:
    """The same bytes at the same place, so that the sync after this really carries them to the disk.

    A sync that failed leaves pages that count as clean, with content that never arrived: the next process reads it from
    the page cache, and its own sync has nothing to do. Only the last block can be such a one, since no block is written
    before the one before it is synced. A power cut meanwhile finds the old bytes or the same ones.
    """
    start = _start_of_last_block(file, header, content_end)
    if start < content_end:
        file.pwrite(file.pread(content_end - start, start), start)


def _start_of_last_block(file: DiskFile, header: Header, content_end: int) -> int:
    """Right after the marker before the last one, which may be the header's."""
    window = _WINDOW_BYTES
    while True:
        low = max(header.length_bytes, content_end - window)
        data = file.pread(content_end - low, low)
        found = data.rfind(header.marker, 0, max(0, len(data) - MARKER_BYTES))
        if found >= 0:
            return low + found + MARKER_BYTES
        if low == header.length_bytes:
            return low
        window *= 4
