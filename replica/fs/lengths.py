"""Finds files that a running process wrote and that are missing or too short now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from nyala.replica.types import Corruption, Disk, DiskFailure


class FileLength(NamedTuple):
    """The length of a file as its writer left it. `grows`: the writer may have appended since."""

    path: str
    length_bytes: int
    grows: bool


def lost_file(disk: Disk, written: Callable[[], Iterable[FileLength]]) -> Corruption | None:
    """Return the first file that is missing, or is not as long as it was written; None if there is none.

    `written` is called again before a file is reported, because the writer may have removed it meanwhile.
    """
    for file in written():
        found = _size(disk, file.path)
        if found == file.length_bytes or (file.grows and found is not None and found > file.length_bytes):
            continue
        if file in set(written()):
            what = "a file of a running replica is missing" if found is None else "a file of a running replica was cut"
            return Corruption(what, path=file.path, bytes=found, written=file.length_bytes)
    return None


def _size(disk: Disk, path: str) -> int | None:
    try:
        return disk.size(path)
    except (FileNotFoundError, DiskFailure):
        return None
