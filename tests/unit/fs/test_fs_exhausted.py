"""A refusal of the host for lack of memory, maps, files or threads is reported as that, whichever call meets it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from nyala.replica.fs import RealDisk, error_from_os, exhausted, real
from nyala.replica.rpc import pb
from nyala.replica.types import (
    Code,
    DiskFailure,
    Refused,
    ReplicaError,
    ResourcesExhausted,
    is_transient,
    started_pool,
)
from tests.harness.sim_disk import SimDisk

EXHAUSTED = ("EMFILE", "ENFILE", "ENOMEM", "EAGAIN")
OTHERS = {"ENOSPC": Refused, "EDQUOT": Refused, "EIO": DiskFailure, "EACCES": DiskFailure, "EROFS": DiskFailure}


def os_error(name: str) -> OSError:
    return OSError(getattr(errno, name), os.strerror(getattr(errno, name)))


@pytest.mark.parametrize("name", [*EXHAUSTED, *OTHERS])
def test_errno_is_told_as_what_it_is(name: str) -> None:
    """IN-30. Goal: one function classifies errors, and only an exhausted resource counts as temporary. Method: each
    errno; what it becomes, whether it may pass, the code that a client sees; the text has the remedy, the action and
    the path."""
    told = error_from_os(os_error(name), "open", "data/f")
    assert ("data/f" in str(told), "open" in str(told)) == (True, True)
    if name in EXHAUSTED:
        assert isinstance(told, ResourcesExhausted) and told.code is Code.OVERLOADED
        assert is_transient(told) and exhausted(os_error(name)) is not None
        assert any(word in str(told) for word in ("ulimit -n", "fs.file-max", "vm.max_map_count", "limits")), told
        failed = DiskFailure("a sync failed")
        failed.__cause__ = os_error(name)
        assert exhausted(failed) is not None and not is_transient(failed)
    else:
        assert type(told) is OTHERS[name] and exhausted(told) is exhausted(os_error(name)) is None
        assert is_transient(told) == (name in ("ENOSPC", "EDQUOT"))


TEXTS = {
    "pyarrow maps": "Memory mapping file failed: {}",
    "pyarrow reads": "Error reading bytes from file. Detail: [errno 0] {}",
    "Rust": "{} (os error 0)",
}
"""The texts that libraries give an OSError without an errno."""


@pytest.mark.parametrize("library", TEXTS)
@pytest.mark.parametrize("name", [*EXHAUSTED, "ENOBUFS", *OTHERS, "EINVAL", "EFBIG"])
def test_error_of_a_library_without_an_errno_is_told_by_its_text(library: str, name: str) -> None:
    """IN-30. Goal: libraries that lose the errno cannot turn an exhausted resource into damage, nor the reverse.
    Method: each library's form of text with the kernel's text for an errno: it counts just as the errno does."""
    lost = OSError(TEXTS[library].format(os.strerror(getattr(errno, name))))
    assert lost.errno is None
    told, numbered = exhausted(lost), exhausted(os_error(name))
    assert (None if told is None else told.what) == (None if numbered is None else numbered.what)
    assert type(error_from_os(lost, "map", "f")) is (ResourcesExhausted if told else DiskFailure)


def test_message_that_the_parser_has_no_memory_for_is_not_malformed() -> None:
    """IN-30. Goal: protobuf's DecodeError counts as an exhausted resource if it says so. Method: its texts for no
    memory and for bytes that are no message."""
    text = "Error parsing message with type 'nyala.v1.PeerBatch': {}"
    assert exhausted(DecodeError(text.format("Arena alloc failed"))) is not None
    assert exhausted(ValueError("Arena alloc failed")) is None  # such as a name that somebody chose
    with pytest.raises(DecodeError) as malformed:
        pb.PeerBatch.FromString(b"\xff")
    assert exhausted(malformed.value) is None


def test_want_of_memory_or_of_a_thread_is_one_and_a_bug_is_none() -> None:
    """IN-30. Goal: Python's and Arrow's errors for exhausted memory or threads count as exhausted resources. Method:
    MemoryError, Arrow's, a thread that cannot be started; other errors."""
    for error in (
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 10 failed"),
        RuntimeError("can't start new thread"),
    ):
        found = exhausted(error)
        assert found is not None and found.code is Code.OVERLOADED
    for other in (RuntimeError("else"), ValueError("x"), Refused(Code.OVERLOADED, "the queue is full"), KeyError("k")):
        assert exhausted(other) is None and not is_transient(other)


CALLS: dict[str, tuple[str, Callable[[RealDisk], Any]]] = {
    "open": ("open", lambda disk: disk.open("f")),
    "create": ("open", lambda disk: disk.open("new", create=True)),
    "read": ("open", lambda disk: disk.replace("g", b"x")),
    "pread": ("pread", lambda disk: disk.open("f").pread(3, 0)),
    "pwrite": ("pwritev", lambda disk: disk.open("f").pwrite(b"x", 0)),
    "truncate": ("ftruncate", lambda disk: disk.open("f").truncate(1)),
    "preallocate": ("posix_fallocate", lambda disk: disk.open("f").preallocate(100)),
    "uncache": ("posix_fadvise", lambda disk: disk.open("f").uncache()),
    "size of an open file": ("fstat", lambda disk: disk.open("f").size()),
    "listdir": ("listdir", lambda disk: disk.listdir("")),
    "exists": ("stat", lambda disk: disk.exists("f")),
    "replace": ("replace", lambda disk: disk.replace("f", b"new")),
    "sync of a replacement": ("fsync", lambda disk: disk.replace("f", b"new")),
    "rename": ("replace", lambda disk: disk.rename("f", "g")),
    "sync_dir": ("open", lambda disk: disk.sync_dir("")),
}


DURABLE: dict[str, tuple[Callable[[RealDisk], Any], list[str]]] = {
    "replace": (lambda disk: disk.replace("d/f", b"new"), ["fsync d/.f.tmp", "replace", "fsync d"]),
    "replace in kept room": (
        lambda disk: disk.replace("d/f", b"new", keep_room=True),
        ["fsync d/.f.tmp", "exchange", "fsync d"],
    ),
    "rename": (lambda disk: disk.rename("d/f", "d/g"), ["replace", "fsync d"]),
    "rename to elsewhere": (lambda disk: disk.rename("d/f", "e/f"), ["replace", "fsync e", "fsync d"]),
    "mkdir": (lambda disk: disk.mkdir("x/y"), ["fsync .", "fsync x"]),
    "sync_dir": (lambda disk: disk.sync_dir("d"), ["fsync d"]),
}
"""Each call, and what the kernel is asked for, in order."""


@pytest.mark.parametrize("call", DURABLE)
def test_real_disk_syncs_what_it_says_is_durable_and_in_that_order(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-14. Goal: a name that was returned outlives power: its bytes are synced before it appears, its folder after.
    Method: the calls that reach the kernel, by the paths of their files."""
    disk = RealDisk(tmp_path)
    for name in ("d/f", "e/old"):
        disk.mkdir(name[0])
        disk.replace(name, b"old")
    act, expected = DURABLE[call]
    asked: list[str] = []
    fsync, replace, exchange = os.fsync, os.replace, real._exchange

    def heard_fsync(fd: int) -> None:
        asked.append(f"fsync {os.path.relpath(os.readlink(f'/proc/self/fd/{fd}'), tmp_path)}")
        fsync(fd)

    def heard_replace(*paths: Any) -> None:
        asked.append("replace")
        replace(*paths)

    def heard_exchange(*paths: Any) -> bool:
        asked.append("exchange")
        return exchange(*paths)

    monkeypatch.setattr(real, "_exchange", heard_exchange)
    monkeypatch.setattr(os, "fsync", heard_fsync)
    monkeypatch.setattr(os, "replace", heard_replace)
    act(disk)
    assert asked == expected


@pytest.mark.parametrize("name", EXHAUSTED)
@pytest.mark.parametrize("call", CALLS)
def test_real_disk_tells_a_want_as_one_in_every_call_and_changes_nothing(
    call: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-30. Goal: no call takes an exhausted resource for a failing disk or a missing file. Method: the kernel's
    answer to each call is that errno, once; then the same call works."""
    disk = RealDisk(tmp_path)
    disk.replace("f", b"old")
    function, attempt = CALLS[call]
    with monkeypatch.context() as patch:

        def refuses(*given: Any, **named: Any) -> Any:
            raise os_error(name)

        patch.setattr(os, function, refuses)
        with pytest.raises(ResourcesExhausted):
            attempt(disk)
    assert disk.read("f") == b"old"
    attempt(disk)


@pytest.mark.parametrize("name", EXHAUSTED)
def test_sync_that_fails_is_a_failing_disk_whatever_the_host_wants(name: str, tmp_path: Path) -> None:
    """IN-30. Goal: after a failed sync nothing is known of the pages, so a log's process ends, and its files are read
    again. Method: each errno at a log's sync, in the real and the simulated disk's words."""
    disk = SimDisk()
    disk.mkdir("wals")
    file = disk.open("wals/f", create=True)
    disk.fail_on("datasync", "*", name)
    with pytest.raises(DiskFailure) as failed:
        file.datasync()
    assert exhausted(failed.value) is not None
    file.datasync()


def test_pool_has_all_its_threads_before_it_is_given_work_or_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-30. Goal: no thread has to be started when work comes. Method: a pool that is made, and then no thread can be
    started any more: all its work runs at once. A pool that cannot be made is a want."""
    pool = started_pool(3, "full")
    start = threading.Thread.start

    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    together = threading.Barrier(3)
    assert sorted(job.result(20) for job in [pool.submit(together.wait, 20) for _ in range(3)]) == [0, 1, 2]
    with pytest.raises(ResourcesExhausted, match="ulimit -u") as refused:
        started_pool(2, "none")
    assert isinstance(refused.value, ReplicaError)
    left = [1]

    def once(thread: threading.Thread) -> None:
        if not left:
            refuses(thread)
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once)
    with pytest.raises(ResourcesExhausted):
        started_pool(2, "half")
    pool.shutdown()
