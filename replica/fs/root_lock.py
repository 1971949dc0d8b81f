"""One server per directory: an exclusive lock that the kernel drops when its holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from nyala.replica.types import Code, Refused

from .os_errors import error_from_os

LOCK_NAME = ".lock"


class RootLock:
    """The lock of a directory, held until `close` or until the process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> RootLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lock_root(root: str | os.PathLike[str]) -> RootLock:
    """Lock the directory `root`, which is made if absent, for this process.

    Raises Refused(ILLEGAL_STATE) naming the process that has it; DiskFailure, or Refused(NO_SPACE), if the lock file
    cannot be made. The file is never removed: otherwise two servers could hold locks on two files of one name.
    """
    folder = Path(root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise error_from_os(error, "lock", str(folder)) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        raise Refused(
            Code.ILLEGAL_STATE, "another server runs on this directory", detail=holder, root=str(folder), pid=holder
        ) from None
    except BaseException:
        os.close(fd)
        raise
    return RootLock(fd)


def lock_stopped(root: str | os.PathLike[str]) -> RootLock:
    """Lock the directory of a server that does not run, for an offline tool; no server starts on it meanwhile.

    Raises Refused(NOT_FOUND) if there is no such directory. Raises Refused(ILLEGAL_STATE), with the pid, if a process
    has it: a tool cannot know what a running server is about to write.
    """
    if not Path(root).is_dir():
        raise Refused(Code.NOT_FOUND, "there is no such directory", root=str(root))
    try:
        return lock_root(root)
    except Refused as error:
        what = "a server, or another offline tool, works on this directory; stop it first"
        raise Refused(Code.ILLEGAL_STATE, what, detail=error.detail, root=str(root), pid=error.detail) from None
