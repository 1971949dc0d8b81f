"""Maps errors of the host and of libraries to the project's: the one place that reads an errno, or a text for it."""

from __future__ import annotations

import errno
import os

from nyala.replica.types import Code, DiskFailure, Refused, ReplicaError, ResourcesExhausted

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
EXHAUSTED = {
    errno.EMFILE: "too many files are open in this process: raise its limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this host: raise fs.file-max",
    errno.ENOMEM: "the host has no memory or no memory map left: give it more memory, or raise vm.max_map_count",
    errno.EAGAIN: "the host refuses this just now: look at its limits of memory, threads and locks",
    errno.ENOBUFS: "the host has no buffers left: give it more memory",
}
"""The errnos of an exhausted resource, and the remedy for each."""
DISK_FAILED = "the disk failed: check it, and the kernel's log"
NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_MEMORY = "there is no memory left: give the host more, or this server less (--memory-soft-bytes)"
_NO_THREAD = "no thread can be started: raise the limits of processes and threads (ulimit -u, pids.max)"

_PARSER_WITHOUT_MEMORY = "Arena alloc failed"
"""A part of the text of protobuf's DecodeError if its parser got no memory: the message may be sound. The class
is known by its name, because its import would be the largest part of a command that only reads files."""


def exhausted(error: BaseException) -> ResourcesExhausted | None:
    """Return the error for an exhausted resource, if `error` is one; None otherwise.

    A MemoryError is one, Arrow's too, and so is a thread that cannot be started. Libraries lose the errno: Arrow raises
    an OSError without one if the kernel refuses a map, and polars if a call fails. Their texts have the errno's own.
    """
    if isinstance(error, ResourcesExhausted):
        return error
    if isinstance(error, OSError) and (number := _number(error)) in EXHAUSTED:
        return ResourcesExhausted(EXHAUSTED[number], cause=str(error))
    if isinstance(error, MemoryError) or _is_of_the_parser(error):
        return ResourcesExhausted(_NO_MEMORY, cause=str(error) or "MemoryError")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return ResourcesExhausted(_NO_THREAD, cause=str(error))
    if isinstance(error, DiskFailure) and error.__cause__ is not None:
        return exhausted(error.__cause__)
    return None


def _is_of_the_parser(error: BaseException) -> bool:
    return type(error).__name__ == "DecodeError" and _PARSER_WITHOUT_MEMORY in str(error)


def _number(error: OSError) -> int:
    """The errno, or the one whose text a library gave instead; 0 if there is none."""
    if error.errno is not None:
        return error.errno
    text = str(error)
    found = {os.strerror(number): number for number in EXHAUSTED if os.strerror(number) in text}
    return found[max(found, key=len)] if found else 0  # the text of EMFILE is a part of ENFILE's


def error_from_os(error: OSError | MemoryError, action: str, path: str) -> ReplicaError:
    """Return the project's error for an error of a system call, except those for a missing or an existing file."""
    wanted = exhausted(error)
    if wanted is not None:
        return ResourcesExhausted(wanted.what, action=action, path=path, cause=str(error))
    number = error.errno if isinstance(error, OSError) else None
    if number in NO_SPACE:
        return Refused(Code.NO_SPACE, "the disk is full: free some space on it", action=action, path=path)
    if number in NOT_ALLOWED:
        what = "the file may not be used: check its owner, its permissions, and whether the disk is mounted writable"
        return DiskFailure(what, action=action, path=path, cause=str(error))
    return DiskFailure(DISK_FAILED, action=action, path=path, cause=str(error))
