"""Writes the last block of a log once more when the log is opened."""

from __future__ import annotations

from nyala.replica.types import DiskFile

from .format import MARKER_BYTES, Header

_WINDOW_BYTES = 1 << 20


def rewrite_last_block(file: DiskFile, header: Header, content_end: int) -> None:
    """Write the same bytes at the same place, so that the sync after this really writes them to the disk.

    A failed sync leaves pages that count as clean although their content never reached the disk: the next process reads
    it from the page cache, and its own sync has nothing to do. This can happen to the last block alone, because each
    block is synced before the next is written. After a power cut the disk has the old bytes or the same ones.
    """
    start = _start_of_last_block(file, header, content_end)
    if start < content_end:
        file.pwrite(file.pread(content_end - start, start), start)


def _start_of_last_block(file: DiskFile, header: Header, content_end: int) -> int:
    """The offset right after the marker before the last one; that marker may be the header's."""
    window = _WINDOW_BYTES
    while True:
        low = max(header.length_bytes, content_end - window)
        data = file.pread(content_end - low, low)
        found = data.rfind(header.marker, 0, -MARKER_BYTES)
        if found >= 0:
            return low + found + MARKER_BYTES
        if low == header.length_bytes:
            return low
        window *= 4
