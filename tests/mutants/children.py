"""Forked children, several at a time: each has a folder, a process group and a limit of time of its own."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.harness.orphans import end_with

SAID = "said"
"""File in a child's folder: all that it printed."""
BROKEN = 70
"""Exit status of a child whose job raised."""


@dataclass(frozen=True)
class Child:
    """A child that was started as number `pos`; `begun_s` is on the monotonic clock."""

    pos: int
    pid: int
    pidfd: int
    folder: Path
    begun_s: float
    wait_s: float


def fork(pos: int, folder: Path, wait_s: float, job: Callable[[], int]) -> Child:
    """A child that runs `job` and exits with its result; it is killed if the caller ends before. `folder` exists; the
    caller has no other thread."""
    begun_s, parent = time.monotonic(), os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        _work(parent, folder, job)
    return Child(pos, pid, os.pidfd_open(pid), folder, begun_s, wait_s)


Lane = tuple[Sequence[int], int]
"""Numbers of children in the order in which they start, and how many of them run at a time."""


def ends(lanes: Sequence[Lane], start: Callable[[int], Child]) -> Iterator[tuple[Child, int | None, float]]:
    """Each child of the lanes, its exit status (None if it was not over in time) and the seconds that it took, in the
    order of their ends. A child's folder is removed when the next one is asked for."""
    waiting, running = [deque(numbers) for numbers, _ in lanes], dict[int, tuple[int, Child]]()
    try:
        with selectors.DefaultSelector() as selector:
            while any(waiting) or running:
                for lane, (_, workers) in enumerate(lanes):
                    while waiting[lane] and sum(at == lane for at, _ in running.values()) < workers:
                        child = start(waiting[lane].popleft())
                        running[child.pidfd] = lane, child
                        selector.register(child.pidfd, selectors.EVENT_READ)
                next_s = min(child.begun_s + child.wait_s for _, child in running.values())
                ready = {key.fd for key, _ in selector.select(max(0.0, next_s - time.monotonic()))}
                now_s = time.monotonic()
                for fd, (_, child) in list(running.items()):
                    if fd in ready or now_s >= child.begun_s + child.wait_s:
                        selector.unregister(fd)
                        del running[fd]
                        status = _collect(child)
                        yield child, status if fd in ready else None, time.monotonic() - child.begun_s
                        shutil.rmtree(child.folder, ignore_errors=True)
    finally:
        for _, child in running.values():
            _collect(child)


def _work(parent: int, folder: Path, job: Callable[[], int]) -> NoReturn:
    status = BROKEN
    try:
        end_with(parent)
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        said = os.open(folder / SAID, os.O_CREAT | os.O_WRONLY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd, target in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(fd, target)
        status = job()
    finally:
        os._exit(status)


def _collect(child: Child) -> int:
    """Kills what is left of the child and of its process group; its exit status, negative for a signal."""
    for kill in (os.killpg, os.kill):  # it may have no group of its own yet
        with suppress(ProcessLookupError):
            kill(child.pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    os.close(child.pidfd)
    return status
