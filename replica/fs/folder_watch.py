"""Notices that a folder was removed or replaced while the server runs. A write to an open file in it still succeeds."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nyala.replica.types import DiskFailure

from .os_errors import exhausted
from .real import RealDisk


class FolderWatch:
    """Remembers folders by device and inode. Concurrency: any thread."""

    def __init__(self, disk: RealDisk, folders: Sequence[str]) -> None:
        """Remember `folders`, which exist."""
        self._disk = disk
        self._known: dict[str, tuple[int, int] | None] = {}
        self._known = {folder: self._identity(folder) for folder in folders}

    def check(self) -> None:
        """Raise DiskFailure if one of them is gone, or another folder is in its place."""
        for folder, known in self._known.items():
            if self._identity(folder) != known:
                raise DiskFailure("a folder was taken away under the server", path=self._disk.real_path(folder))

    def _identity(self, folder: str) -> tuple[int, int] | None:
        try:
            found = os.stat(self._disk.real_path(folder))
        except OSError as error:
            if exhausted(error) is not None:
                return self._known.get(folder)  # It cannot be looked up now, which does not mean that it changed.
            return None
        return found.st_dev, found.st_ino
