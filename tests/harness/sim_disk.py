"""A disk in memory that forgets what was not synced, tears writes at sector bounds, fills up and fails on demand.

It keeps two versions of everything: what a running process sees, and what the platter would hold after a power cut.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import shutil
import tempfile
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nyala.replica.fs import error_from_os
from nyala.replica.types import Code, DiskFailure, Refused, Rng

SECTOR_BYTES = 512


class SimCrash(BaseException):
    """The process died here. No handler of ordinary errors may catch it."""


class Call(NamedTuple):
    """One call of the disk, for tests that count them."""

    operation: str
    path: str
    length_bytes: int


@dataclass
class _Fault:
    operation: str
    pattern: str
    kind: str
    skip: int
    times: int | None


@dataclass(eq=False)
class _Inode:
    path: str = ""
    current: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)

    def touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES))

    def write(self, data: bytes, byte_offset: int) -> None:
        end = byte_offset + len(data)
        if end > len(self.current):
            self.current.extend(bytes(end - len(self.current)))
        self.current[byte_offset:end] = data
        self.touch(byte_offset, end)

    def resize(self, length_bytes: int) -> None:
        if length_bytes < len(self.current):
            self.touch(length_bytes, max(len(self.current), len(self.durable)))
            del self.current[length_bytes:]
        else:
            self.current.extend(bytes(length_bytes - len(self.current)))

    def persist(self, sectors: set[int], length_bytes: int) -> None:
        """Write these sectors, and that length, to the platter."""
        if length_bytes < len(self.durable):
            del self.durable[length_bytes:]
        else:
            self.durable.extend(bytes(length_bytes - len(self.durable)))
        for sector in sectors:
            start, end = sector * SECTOR_BYTES, min((sector + 1) * SECTOR_BYTES, length_bytes)
            piece = self.current[start:end]
            if piece:
                self.durable[start : start + len(piece)] = piece

    def sync(self) -> None:
        self.persist(self.dirty, len(self.current))
        self.dirty = set()

    def lose_power(self, rng: Rng) -> bool:
        """Keep any subset of the unsynced sectors, and the old length or the new one. Returns whether a write was
        torn."""
        length = len(self.durable) if rng.random() < 0.5 else len(self.current)
        share, dirty = rng.random(), sorted(self.dirty)
        survivors = {sector for sector in dirty if rng.random() < share}
        if len(survivors) in (0, len(dirty)) and len(dirty) > 1 and rng.random() < 0.8:
            # For a write of many sectors, all or nothing is the rare case.
            survivors = {dirty[rng.randint(0, len(dirty) - 1)]}
        torn = 0 < len(survivors) < len(self.dirty)
        self.persist(survivors, length)
        self.current = bytearray(self.durable)
        self.dirty = set()
        return torn


class SimFile:
    """A handle; every use after a crash or a power loss is an error of the test."""

    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.life
        self._open = True
        disk.handles[inode.path] += 1

    @property
    def _path(self) -> str:
        return self._inode.path

    def _enter(self, operation: str, length: int = 0) -> None:
        if not self._open or self._life != self._disk.life:
            raise ValueError(f"{operation} on a closed handle of {self._path}")
        self._disk.called(operation, self._path, length)

    def pwrite(self, data: bytes, byte_offset: int) -> None:
        self.pwritev((data,), byte_offset)

    def pwritev(self, parts: Sequence[bytes], byte_offset: int) -> None:
        data = b"".join(parts)
        try:
            self._enter("pwrite", len(data))
        except (Refused, DiskFailure):
            with self._disk.lock:
                self._inode.write(data[: len(data) // 2], byte_offset)
            raise
        with self._disk.lock:
            self._disk.claim(byte_offset + len(data) - len(self._inode.current), self._path)
            if self._disk.stray is not None and self._disk.stray(self._path, byte_offset, data):
                self._inode.resize(max(byte_offset + len(data), len(self._inode.current)))
                return
            self._inode.write(data, byte_offset)

    def pread(self, length_bytes: int, byte_offset: int) -> bytes:
        self._enter("pread", length_bytes)
        with self._disk.lock:
            return bytes(self._inode.current[byte_offset : byte_offset + length_bytes])

    def send_to(self, fd: int, byte_offset: int, length_bytes: int) -> int:
        self._enter("send_to", length_bytes)
        return os.write(fd, self.pread(length_bytes, byte_offset))

    def datasync(self) -> None:
        self._sync("datasync")

    def sync(self) -> None:
        self._sync("sync")

    def uncache(self) -> None:
        self._enter("uncache")

    def _sync(self, operation: str) -> None:
        try:
            self._enter(operation)
        except DiskFailure:
            self._inode.dirty = set()  # As Linux does: the pages count as clean, their content never arrived.
            raise
        with self._disk.lock:
            self._inode.sync()

    def truncate(self, length_bytes: int) -> None:
        self._enter("truncate", length_bytes)
        with self._disk.lock:
            self._inode.resize(length_bytes)

    def preallocate(self, length_bytes: int) -> None:
        self._enter("preallocate", length_bytes)
        with self._disk.lock:
            self._disk.claim(length_bytes - len(self._inode.current), self._path)
            self._inode.resize(max(length_bytes, len(self._inode.current)))

    def size(self) -> int:
        self._enter("stat")
        return len(self._inode.current)

    def close(self) -> None:
        if self._open and self._life == self._disk.life:
            self._disk.handles[self._path] -= 1
        self._open = False


class SimDisk:
    """Implements `Disk` in memory.

    `arm` makes a crash point raise SimCrash; `fail_on` injects an errno by operation and path; `restart` is what a
    kill -9 leaves, `power_loss` what a power cut leaves. `hook(operation, path)` runs before each call, on its thread.
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.lock = threading.RLock()
        self.life = 0
        self.torn = 0
        """The number of files of which a power loss kept some unsynced sectors and lost others."""
        self.fired: Counter[tuple[str, str]] = Counter()
        """Faults that occurred, by operation and kind."""
        self.calls: deque[Call] = deque(maxlen=100_000)
        self.crash_points_reached: deque[str] = deque(maxlen=100_000)
        self.hook: Callable[[str, str], None] | None = None
        self.stray: Callable[[str, int, bytes], bool] | None = None
        """Called before each write with (path, byte offset, bytes); returns whether it wrote the bytes elsewhere."""
        self.handles: Counter[str] = Counter()
        """Open files by path, of the present life."""
        self.capacity_bytes = capacity_bytes
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._folders: set[str] = {"", "tablet-meta"}  # as a format makes it; whoever writes a superblock does not
        self._durable_folders: set[str] = set(self._folders)
        self._pending: list[tuple[str, _Inode | None]] = []
        self._spares: dict[str, _Inode] = {}
        """The hidden file of each path that is replaced with `keep_room`."""
        self._armed: dict[str, int] = {}
        self._faults: list[_Fault] = []
        self._scratch: Path | None = None

    # What a test does to the disk.

    def arm(self, crash_point: str, passes: int = 1) -> None:
        """Raise SimCrash at the `passes`-th pass of that crash point."""
        self._armed[crash_point] = passes

    def disarm(self) -> None:
        self._armed.clear()

    def fail_on(self, operation: str, pattern: str, kind: str = "EIO", *, skip: int = 0, times: int | None = 1) -> None:
        """Fail calls of `operation` on paths like `pattern`, after `skip` good ones, `times` times (None: for ever).

        `kind`: the name of an errno, or CRASH, which is the end of the process just before the call.
        """
        self._faults.append(_Fault(operation, pattern, kind, skip, times))

    def forget(self, kind: str) -> None:
        """Remove the faults of that kind."""
        self._faults = [fault for fault in self._faults if fault.kind != kind]

    def heal(self) -> None:
        """Remove all faults; the disk is as large as needed."""
        self._faults.clear()
        self.stray = None
        self.capacity_bytes = None

    def restart(self) -> None:
        """Restart as after kill -9: the kernel keeps everything that was written; handles are gone."""
        with self.lock:
            self.life += 1
            self._armed.clear()
            self.handles.clear()

    def power_loss(self, rng: Rng) -> None:
        """Lose power: unsynced sectors, lengths and names survive or not, by `rng`; handles are gone."""
        with self.lock:
            self.restart()
            for name, inode in self._pending[: rng.randint(0, len(self._pending))]:
                self._settle(name, inode)
            self._pending.clear()
            for path, spare in self._spares.items():
                if self._durable_names.get(path) is spare and path in self._names:  # the exchange is undone
                    self._spares[path] = self._names[path]
            self._names = dict(self._durable_names)
            self._folders = set(self._durable_folders)
            seen: set[int] = set()
            for name in sorted(self._names):
                if id(self._names[name]) not in seen:
                    seen.add(id(self._names[name]))
                    self.torn += self._names[name].lose_power(rng)

    def write_back(self, path: str) -> None:
        """Write a file's unsynced sectors and its length to the platter, as the kernel may at any time."""
        with self.lock:
            self._names[path].sync()

    def corrupt(self, path: str, byte_offset: int, xor: int = 1) -> None:
        """Flip bits of one byte at rest."""
        inode = self._names[path]
        inode.current[byte_offset] ^= xor
        if byte_offset < len(inode.durable):
            inode.durable[byte_offset] ^= xor

    def strike(self, path: str, byte_offset: int, data: bytes) -> None:
        """Write bytes durably that were meant for another place; the file keeps its length."""
        with self.lock:
            inode = self._names[path]
            for content in (inode.current, inode.durable):
                piece = data[: max(0, len(content) - byte_offset)]
                content[byte_offset : byte_offset + len(piece)] = piece

    @property
    def files(self) -> dict[str, int]:
        """Return path -> length in bytes of each file, in order of path."""
        with self.lock:
            return {path: len(self._names[path].current) for path in sorted(self._names)}

    def poke(self, path: str, data: bytes) -> None:
        """Make the file exactly `data`, durable."""
        inode = _Inode(path, bytearray(data), bytearray(data))
        self._names[path] = self._durable_names[path] = inode

    def count(self, operation: str, pattern: str = "*") -> int:
        """Return how often `operation` was called on paths like `pattern`."""
        with self.lock:
            return sum(1 for call in self.calls if call.operation == operation and fnmatch.fnmatch(call.path, pattern))

    @property
    def used_bytes(self) -> int:
        with self.lock:
            return sum(len(inode.current) for inode in (*self._names.values(), *self._spares.values()))

    # What files call.

    def called(self, operation: str, path: str, length: int = 0) -> None:
        if self.hook is not None:
            self.hook(operation, path)
        with self.lock:
            self.calls.append(Call(operation, path, length))
            for fault in self._faults:
                if fault.operation != operation or not fnmatch.fnmatch(path, fault.pattern) or fault.times == 0:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                if fault.times is not None:
                    fault.times -= 1
                self.fired[operation, fault.kind] += 1
                if fault.kind == "CRASH":
                    raise SimCrash(f"{operation} {path}")
                number = getattr(errno, fault.kind)
                cause = OSError(number, os.strerror(number))
                if operation in ("sync", "datasync") and fault.kind != "ENOSPC":
                    raise DiskFailure("a sync failed", action=operation, path=path) from cause
                raise error_from_os(cause, operation, path) from cause

    def claim(self, more_bytes: int, path: str) -> None:
        if self.capacity_bytes is not None and more_bytes > 0 and self.used_bytes + more_bytes > self.capacity_bytes:
            raise Refused(Code.NO_SPACE, "the disk is full", path=path)

    # The Disk protocol.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.called("open", path)
        with self.lock:
            inode = self._names.get(path)
            if inode is None:
                if not create:
                    raise FileNotFoundError(path)
                self._need_folder(path)
                inode = _Inode(path)
                self._names[path] = inode
                self._pending.append((path, inode))
            return SimFile(self, inode)

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._folders

    def listdir(self, path: str) -> list[str]:
        self.called("listdir", path)
        with self.lock:
            prefix = f"{path}/" if path else ""
            below = [n[len(prefix) :] for n in (*self._names, *self._folders) if n.startswith(prefix) and n != path]
            return sorted({name.split("/")[0] for name in below if name and not name.startswith(".")})

    def mkdir(self, path: str) -> None:
        self.called("mkdir", path)
        with self.lock:
            parts = path.split("/")
            for end in range(1, len(parts) + 1):
                self._folders.add("/".join(parts[:end]))
                self._durable_folders.add("/".join(parts[:end]))

    def read(self, path: str) -> bytes:
        self.called("read", path)
        with self.lock:
            if path not in self._names:
                raise FileNotFoundError(path)
            return bytes(self._names[path].current)

    def replace(self, path: str, data: bytes, *, keep_room: bool = False) -> None:
        self.called("replace", path, len(data))
        with self.lock:
            self._need_folder(path)
            inode = self._spares.pop(path, None) if keep_room else None
            if inode is None:  # a kept file's last block has room for the few bytes that the new content is longer
                self.claim(len(data), path)
                inode = _Inode(path)
            stray = self.stray is not None and self.stray(path, 0, data)
            # If it went elsewhere, the new file has its length and its name, and never got its content.
            inode.write(bytes(len(data)) if stray else data, 0)
            inode.resize(len(data))
            former = self._names.get(path)
            if keep_room:
                self._spares[path] = inode
                self.crash_point("spare.written")
            inode.sync()
            if keep_room:
                self.crash_point("spare.synced")
                del self._spares[path]
                if former is not None:
                    self._spares[path] = former
            self._names[path] = inode
            self._pending.append((path, inode))
            if keep_room:
                self.crash_point("spare.exchanged")
            self.crash_point("disk.before_rename_sync")
            self._commit([path])

    def rename(self, source: str, target: str) -> None:
        self.called("rename", source)
        with self.lock:
            self._need_folder(target)
            moved = [n for n in (*self._names, *self._folders) if n == source or n.startswith(f"{source}/")]
            if not moved:
                raise FileNotFoundError(source)
            changed = []
            for name in sorted(moved):
                other = target + name[len(source) :]
                if name in self._folders:
                    self._folders.discard(name)
                    self._folders.add(other)
                    continue
                inode = self._names.pop(name)
                self._names[other] = inode
                inode.path = other
                self.handles[other] += self.handles.pop(name, 0)
                # One journal entry in truth; the target first, so that no prefix of the two loses the file.
                self._pending += [(other, inode), (name, None)]
                changed += [other, name]
            self.crash_point("disk.before_rename_sync")
            self._commit(changed)
            self._durable_folders = set(self._folders)

    def remove(self, path: str) -> None:
        self.called("remove", path)
        with self.lock:
            if path not in self._names:
                raise FileNotFoundError(path)
            del self._names[path]
            self._spares.pop(path, None)
            self._pending.append((path, None))

    def remove_tree(self, path: str) -> None:
        self.called("remove_tree", path)
        with self.lock:
            for name in [n for n in self._names if n == path or n.startswith(f"{path}/")]:
                del self._names[name]
                self._spares.pop(name, None)
                self._pending.append((name, None))
            self._folders = {n for n in self._folders if n != path and not n.startswith(f"{path}/")}

    def sync_dir(self, path: str) -> None:
        self.called("sync_dir", path)
        with self.lock:
            prefix = f"{path}/" if path else ""

            def reached(name: str) -> bool:
                """Return whether the name is in the folder itself, or below a folder that was removed from it."""
                child = prefix + name[len(prefix) :].partition("/")[0]
                return name.startswith(prefix) and (child == name or child not in self._folders)

            self._commit([name for name, _ in self._pending if reached(name)])
            self._durable_folders = {n for n in self._durable_folders if n in self._folders or not reached(n)}

    def size(self, path: str) -> int:
        with self.lock:
            if path not in self._names:
                raise FileNotFoundError(path)
            return len(self._names[path].current)

    def real_path(self, path: str) -> str:
        """Return a copy in a scratch folder of the host, made anew on each call."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="nyala-sim-"))
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)  # a crashed disk is not closed
        target = self._scratch / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with self.lock:
            target.write_bytes(self._names[path].current)
        return str(target)

    def close(self) -> None:
        """Drop the scratch folder, if there is one."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def crash_point(self, name: str) -> None:
        self.crash_points_reached.append(name)
        if name in self._armed:
            self._armed[name] -= 1
            if self._armed[name] == 0:
                raise SimCrash(name)

    # Names that are durable, and names that are not yet.

    def _need_folder(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        if folder not in self._folders:
            raise DiskFailure("a file's folder is gone", path=path)

    def _commit(self, names: Sequence[str]) -> None:
        wanted = set(names)
        for name, inode in self._pending:
            if name in wanted:
                self._settle(name, inode)
        self._pending = [(name, inode) for name, inode in self._pending if name not in wanted]

    def _settle(self, name: str, inode: _Inode | None) -> None:
        if inode is None:
            self._durable_names.pop(name, None)
        else:
            self._durable_names[name] = inode
