"""Reads a closed segment again while the log is in use, and checks that it is still intact."""

from __future__ import annotations

from collections.abc import Generator

from nyala.replica.types import Corruption, Disk, DiskFailure, DiskFile

from .format import HEADER_BYTES_MAX, decode_header
from .handles import SegmentInfo
from .index import SeenOpIds
from .scan import Window, whole_blocks

STEP_BYTES = 16 << 10
"""Bytes checked in one step, or one block if that is longer: small entries cost 0.1 s of CPU for each megabyte."""


def verify_segment(disk: Disk, folder: str, tablet_id: str, info: SegmentInfo) -> Generator[int, None, None]:
    """Check every byte of the closed segment `info` of that log in small steps, each of which yields its bytes.

    Corruption if it has changed or cannot be read. Between steps only the file is held open, so log GC may remove the
    segment; then the file may be missing, and the check has no result. Before and after, the check asks the page cache
    to drop the file. It takes a megabyte of memory, or one block.
    """
    path = f"{folder}/{info.name}"
    try:
        file = disk.open(path)
        try:
            file.uncache()
            yield from _steps(file, path, tablet_id, info)
            file.uncache()
        finally:
            file.close()
    except FileNotFoundError as error:
        raise Corruption("a segment's file is missing", path=path) from error
    except DiskFailure as error:
        raise Corruption("a segment's file cannot be read", path=path, reason=str(error)) from error


def _steps(file: DiskFile, path: str, tablet_id: str, info: SegmentInfo) -> Generator[int, None, None]:
    header = decode_header(file.pread(HEADER_BYTES_MAX, 0), path)
    if (header.tablet_id, header.segment) != (tablet_id, info.number):
        raise Corruption("a segment belongs elsewhere", path=path, tablet_id=header.tablet_id, number=header.segment)
    told, end = 0, header.length_bytes  # the header's bytes are yielded with the first blocks
    seen = SeenOpIds()
    for end, _ in whole_blocks(Window(file), header, lambda entry, first, after: seen.add(entry.opid), seen):
        if end - told >= STEP_BYTES:
            yield end - told
            told = end
    if end != info.length_bytes:
        what = "a closed segment is not what was written"
        raise Corruption(what, path=path, byte_offset=end, length_bytes=info.length_bytes)
    if end > told:
        yield end - told
