"""Files of the machine's file system, behind the `Disk` protocol."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath

from nyala.replica.types import CrashPoints, DiskFailure, Refused, check

from .os_errors import DISK_FAILED, error_from_os, exhausted

_UNREADABLE = {errno.EIO, errno.EUCLEAN, errno.EBADMSG}
"""The errnos that `send_to` blames on the file, because a TCP socket has none of them."""
_PARTS_MAX = 1024
"""The IOV_MAX of Linux: more parts need another system call."""
_CANNOT_EXCHANGE = {errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES}
"""The errnos of an exchange that has no second file, or that the file system or the kernel does not offer. EPERM and
EACCES: some containers forbid calls that they do not know. If the folder itself is forbidden, the plain rename that
follows fails with the same errno."""


@contextmanager
def _translated(action: str, path: str) -> Iterator[None]:
    """Turn an OSError into the project's families; FileNotFoundError and FileExistsError stay what they are."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except (OSError, MemoryError) as error:
        raise error_from_os(error, action, path) from error


@contextmanager
def _creating(action: str, path: str) -> Iterator[None]:
    """Translate as `_translated` does, for calls that make a file: if something is missing, it is the folder, so a disk
    is gone."""
    try:
        with _translated(action, path):
            yield
    except FileNotFoundError as error:
        what = "a file's folder is gone, and nothing was written: check whether its disk is mounted"
        raise DiskFailure(what, action=action, path=path, cause=str(error)) from error


@contextmanager
def _sync_translated(action: str, path: str) -> Iterator[None]:
    """Turn a failed sync into a DiskFailure whatever its cause: the kernel may have marked the dirty pages clean."""
    try:
        yield
    except OSError as error:
        what = "a sync failed, so what was written before it may be lost: check the disk, and the kernel's log"
        raise DiskFailure(what, action=action, path=path, cause=str(error)) from error


def _temp_of(full: Path) -> Path:
    """Return the file that a `replace` of `full` writes first."""
    return full.with_name(f".{full.name}.tmp")


def _open_temp(temp: Path, mode: int) -> int:
    """Open the file that a `replace` writes. If it has another name, too, a backup of hard links shares it: then it is
    made anew."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(temp, flags, mode)
    if os.fstat(fd).st_nlink == 1:
        return fd
    os.close(fd)
    temp.unlink()
    return os.open(temp, flags, mode)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Open a folder to be synced. It is opened before anything in it changes, so that a failure leaves no half
    change."""
    with _translated("open folder", str(folder)):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _sync(fd: int, folder: Path) -> None:
    with _sync_translated("sync folder", str(folder)):
        os.fsync(fd)


@cache
def _renameat2() -> Callable[..., int] | None:
    import ctypes  # here, because commands start sooner without it

    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the files of two names in one step. False if there is no `other`, or if this system cannot do it; then
    nothing was changed."""
    import ctypes

    at_cwd, exchange, renameat2 = -100, 2, _renameat2()
    if renameat2 is None:
        return False
    if renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number))


class RealFile:
    """One open file descriptor.

    Concurrency: pread, pwrite and datasync may overlap; close must not overlap with them.
    """

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def pwrite(self, data: bytes, byte_offset: int) -> None:
        """Write all of `data`. After Refused(NO_SPACE) or DiskFailure any part of it may be on disk."""
        self.pwritev((data,), byte_offset)

    def pwritev(self, parts: Sequence[bytes], byte_offset: int) -> None:
        """Write all parts, gathered by the kernel. None is copied here, unless a write came back short."""
        with _translated("write", self._path):
            for start in range(0, len(parts), _PARTS_MAX):
                group = parts[start : start + _PARTS_MAX]
                length = sum(map(len, group))
                done = os.pwritev(self._fd, group, byte_offset)
                if done < length:
                    self._write_rest(b"".join(group), done, byte_offset)
                byte_offset += length

    def _write_rest(self, data: bytes, done: int, byte_offset: int) -> None:
        view = memoryview(data)
        while done < len(data):
            step = os.pwrite(self._fd, view[done:], byte_offset + done)
            if step == 0:
                raise OSError(errno.EIO, "a write made no progress")
            done += step

    def pread(self, length_bytes: int, byte_offset: int) -> bytes:
        """Read up to `length_bytes`; fewer only at the end of the file."""
        with _translated("read", self._path):
            data = os.pread(self._fd, length_bytes, byte_offset)
            if len(data) in (0, length_bytes):
                return data
            parts = [data]
            got = len(data)
            while got < length_bytes and (more := os.pread(self._fd, length_bytes - got, byte_offset + got)):
                parts.append(more)
                got += len(more)
            return b"".join(parts)

    def send_to(self, fd: int, byte_offset: int, length_bytes: int) -> int:
        """Send bytes through the page cache, without a copy in this process."""
        try:
            return os.sendfile(fd, self._fd, byte_offset, length_bytes)
        except OSError as error:
            if exhausted(error) is not None and error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                raise error_from_os(error, "send", self._path) from error
            if error.errno in _UNREADABLE:
                raise DiskFailure(DISK_FAILED, action="send", path=self._path, cause=str(error)) from error
            raise

    def datasync(self) -> None:
        with _sync_translated("datasync", self._path):
            os.fdatasync(self._fd)

    def sync(self) -> None:
        with _sync_translated("sync", self._path):
            os.fsync(self._fd)

    def uncache(self) -> None:
        """Make the page cache drop the clean pages of this file."""
        with _translated("uncache", self._path):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def truncate(self, length_bytes: int) -> None:
        with _translated("truncate", self._path):
            os.ftruncate(self._fd, length_bytes)

    def preallocate(self, length_bytes: int) -> None:
        """Reserve blocks up to `length_bytes`; the file's size becomes at least that, new bytes read as zeros.

        Refused(NO_SPACE) leaves the size as it was and releases the reserved blocks. Otherwise ext4 would keep all that
        was left of the disk.
        """
        with _translated("preallocate", self._path):
            size = os.fstat(self._fd).st_size
            try:
                os.posix_fallocate(self._fd, 0, length_bytes)
            except OSError:
                os.ftruncate(self._fd, size)
                raise

    def size(self) -> int:
        with _translated("stat", self._path):
            return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with _translated("close", self._path):
                os.close(fd)


class RealDisk:
    """The files below one root directory.

    Durability: `replace`, `rename` and `mkdir` are durable on return. A created or removed name is durable after
    `sync_dir` of its folder.
    Names that begin with a dot are never listed: temp files, the lock and the marks of this folder, and the WAL's
    record of a log's end.
    Concurrency: any thread; two calls of `replace` on one path must not overlap.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, crash_points: CrashPoints | None = None, file_mode: int = 0o644
    ) -> None:
        """`file_mode`: the permissions of the files that are made, less the process's umask."""
        self._file_mode = file_mode
        self._root = Path(root).absolute()
        self._root.mkdir(parents=True, exist_ok=True)
        self._crash_points = crash_points or CrashPoints()

    @property
    def root(self) -> Path:
        """Return the directory that all paths are relative to."""
        return self._root

    def _full(self, path: str) -> Path:
        pure = PurePosixPath(path)
        check(not pure.is_absolute() and ".." not in pure.parts, "a path stays below its root", path=path)
        return self._root / pure

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open a file. FileNotFoundError unless it exists or `create`; DiskFailure if the folder to create it in is
        gone."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _creating("open", path) if create else _translated("open", path):
            return RealFile(os.open(self._full(path), flags, self._file_mode), path)

    def exists(self, path: str) -> bool:
        """Return whether the path exists. DiskFailure if that cannot be read, because callers act on a missing file."""
        with _translated("stat", path):
            try:
                os.stat(self._full(path))
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names, without those that begin with a dot; empty if the folder does not exist."""
        with _translated("list", path):
            try:
                return sorted(name for name in os.listdir(self._full(path)) if not name.startswith("."))
            except FileNotFoundError:
                return []

    def mkdir(self, path: str) -> None:
        full = self._full(path)
        with _translated("stat", path):
            missing = [p for p in (full, *full.parents) if p.is_relative_to(self._root) and not p.exists()]
        for folder in reversed(missing):
            with _opened(folder.parent) as parent:
                with _translated("mkdir", path):
                    folder.mkdir(exist_ok=True)
                _sync(parent, folder.parent)

    def read(self, path: str) -> bytes:
        with _translated("read", path):
            return self._full(path).read_bytes()

    def replace(self, path: str, data: bytes, *, keep_room: bool = False) -> None:
        full = self._full(path)
        temp = _temp_of(full)
        try:
            with _creating("write", path):
                fd = _open_temp(temp, self._file_mode)
            file = RealFile(fd, path)
            try:
                file.pwrite(data, 0)
                file.truncate(len(data))  # and no O_TRUNC, so that the write uses a spare's blocks again
                self._pass("spare.written", keep_room)
                with _translated("write", path):  # and not `_sync_translated`: without space, the old content stays
                    os.fsync(fd)
            finally:
                file.close()
            self._pass("spare.synced", keep_room)
            with _opened(full.parent) as folder:
                with _translated("rename", path):
                    if not (keep_room and _exchange(temp, full)):
                        os.replace(temp, full)
                self._pass("spare.exchanged", keep_room)
                _sync(folder, full.parent)
        except (Refused, DiskFailure) as error:
            # After a failed sync of the folder, the disk may still have the former file under `path`. That file is the
            # temp file now. It is removed, because the next call would overwrite it.
            if not keep_room or isinstance(error, DiskFailure):
                with suppress(OSError):
                    temp.unlink()
            raise

    def _pass(self, crash_point: str, keep_room: bool) -> None:
        if keep_room:
            self.crash_point(crash_point)

    def rename(self, source: str, target: str) -> None:
        full_source, full_target = self._full(source), self._full(target)
        with _opened(full_source.parent) as source_folder, _opened(full_target.parent) as target_folder:
            with _translated("rename", source):
                os.replace(full_source, full_target)
            _sync(target_folder, full_target.parent)
            if full_source.parent != full_target.parent:
                _sync(source_folder, full_source.parent)

    def remove(self, path: str) -> None:
        full = self._full(path)
        with _translated("remove", path):
            full.unlink()
            _temp_of(full).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything below; do nothing if it does not exist."""
        with _translated("remove", path), suppress(FileNotFoundError):
            shutil.rmtree(self._full(path))

    def sync_dir(self, path: str) -> None:
        folder = self._full(path)
        with _opened(folder) as fd:
            _sync(fd, folder)

    def size(self, path: str) -> int:
        with _translated("stat", path):
            return self._full(path).stat().st_size

    def real_path(self, path: str) -> str:
        return str(self._full(path))

    def crash_point(self, name: str) -> None:
        self._crash_points.reach(name)
