"""Interfaces to clock, random numbers and disk. Production, simulator and tests pass their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Clock(Protocol):
    """The wall clock, which may be set, and a monotonic clock."""

    def wall_us(self) -> int:
        """Return the microseconds since 1970; they may jump."""
        ...

    def monotonic_us(self) -> int:
        """Return microseconds since an arbitrary origin; they never go back, and count suspends if the machine can."""
        ...


class Rng(Protocol):
    """The part of `random.Random` that is used."""

    def randint(self, a: int, b: int) -> int: ...

    def random(self) -> float: ...


Post = Callable[[Callable[[], None]], None]
"""Runs a function on the owner's thread, soon, in order of the calls; may be called from any thread."""


class Timer(Protocol):
    """Runs functions on the owner's thread later, for waits that are shorter than a tick."""

    def now_us(self) -> int:
        """Return microseconds since an arbitrary origin; they never go back."""
        ...

    def after(self, delay_us: int, function: Callable[[], None]) -> None:
        """Run `function` on the owner's thread, that much later or a little more."""
        ...


class DiskFile(Protocol):
    """An open file. Offsets and lengths in bytes."""

    def pwrite(self, data: bytes, byte_offset: int) -> None: ...

    def pwritev(self, parts: Sequence[bytes], byte_offset: int) -> None:
        """Write the parts one after the other, in one system call if possible. Large payloads are not joined first."""
        ...

    def pread(self, length_bytes: int, byte_offset: int) -> bytes: ...

    def send_to(self, fd: int, byte_offset: int, length_bytes: int) -> int:
        """Send bytes to the blocking socket `fd`. Returns how many the socket accepted; 0 only at the file's end.

        DiskFailure for an error of this file; OSError for one of the socket.
        """
        ...

    def datasync(self) -> None:
        """Make content and length durable; a failure raises DiskFailure."""
        ...

    def sync(self) -> None: ...

    def uncache(self) -> None:
        """Tell the page cache that synced pages of this file need not stay in memory. Only a hint."""
        ...

    def truncate(self, length_bytes: int) -> None: ...

    def preallocate(self, length_bytes: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """The interface to files, and the only one. Paths are relative to the server's root, with `/`."""

    def open(self, path: str, *, create: bool = False) -> DiskFile: ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names; empty if the folder does not exist."""
        ...

    def mkdir(self, path: str) -> None:
        """Make the folder and its parents; the new entries are durable on return."""
        ...

    def read(self, path: str) -> bytes: ...

    def replace(self, path: str, data: bytes, *, keep_room: bool = False) -> None:
        """Replace the file atomically and durably: temp file, sync, rename, sync of the folder.

        `keep_room`: the former file is kept, hidden, and is overwritten by the next such call, which so needs no free
        space. If a process did not replace the path before, it must sync the folder first: a power cut could bring the
        former file back.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; both folders are durable on return."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def size(self, path: str) -> int: ...

    def real_path(self, path: str) -> str:
        """Return the path under which other libraries find the file, such as those that map it into memory."""
        ...

    def crash_point(self, name: str) -> None:
        """End the process here if the named crash point is armed; otherwise do nothing."""
        ...
