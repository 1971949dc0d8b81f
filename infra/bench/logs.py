"""Measures write-ahead logs that share their threads, and for comparison logs that have a thread each."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import google_crc32c

from nyala.replica.fs import RealDisk
from nyala.replica.fs.real import RealFile
from nyala.replica.types import Entry, EntryKind, OpId
from nyala.replica.wal import Log, LogThreads

from .meter import resident_mb
from .options import BenchmarkError
from .report import Figures

OWN_THREADS = "a thread each"
"""The comparison: each log has threads that no other log uses."""
BUSY = (1, 8, 64)
SLOW_SYNC_S = 0.005
_WAIT_S = 60.0
_PAYLOAD = bytes(range(1, 201))
_CRC = google_crc32c.value(_PAYLOAD)


class SlowDisk(RealDisk):
    """A disk each of whose syncs takes at least 5 ms, as one that turns, or one over a network."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """A file whose `datasync`, which ends each group commit, sleeps first."""
        file = super().open(path, create=create)
        datasync = file.datasync

        def slow() -> None:
            time.sleep(SLOW_SYNC_S)
            datasync()

        file.datasync = slow  # type: ignore[method-assign]
        return file


def logs_round(idle: int, watch_s: float, *, shared: bool) -> Figures:
    """Blocks a second of 1, 8 and 64 busy logs, on the disk of temporary files and on one with slow syncs, each for so
    long; then the threads and the memory of `idle` logs that were written once."""
    figures: Figures = {}
    for count in BUSY:
        for name, disk in (("", RealDisk), ("_slow", SlowDisk)):
            figures[f"logs{name}_{count}_blocks_per_s"] = _with_logs(
                disk, count, shared, partial(_blocks_per_s, watch_s)
            )
    threads, memory = threading.active_count(), resident_mb(os.getpid())

    def at_rest(logs: Sequence[Log]) -> float:
        figures["logs_idle_threads"] = threading.active_count() - threads
        return resident_mb(os.getpid()) - memory

    figures["logs_idle_memory_mb"] = _with_logs(RealDisk, idle, shared, at_rest)
    return figures


def _with_logs(kind: type[RealDisk], count: int, shared: bool, measure: Callable[[Sequence[Log]], float]) -> float:
    """The figure of so many logs that were written once, each a block."""
    with ExitStack() as stack:
        disk = kind(stack.enter_context(tempfile.TemporaryDirectory(prefix="nyala-bench-logs-")))
        together, logs = LogThreads() if shared else None, list[Log]()
        for number in range(count):
            threads = together or LogThreads(1, 1)
            stack.callback(threads.close)
            log, _ = Log.open(disk, f"wals/{number}", str(number), threads=threads)
            stack.callback(log.close)
            logs.append(log)
        _blocks(logs, count)
        return measure(logs)


def _blocks_per_s(watch_s: float, logs: Sequence[Log]) -> float:
    began_s = time.monotonic()
    blocks = _blocks(logs, len(logs), until_s=began_s + watch_s)
    return blocks / (time.monotonic() - began_s)


def _blocks(logs: Sequence[Log], least: int, until_s: float = 0.0) -> int:
    """Keep one entry of 200 bytes under way in each log, as an event loop does, until that time and for at least so
    many blocks; returns how many blocks became durable."""
    done: queue.SimpleQueue[tuple[Log, OpId | BaseException]] = queue.SimpleQueue()

    def append(log: Log) -> None:
        opid = OpId(1, log.last_reserved.index + 1)
        entry = Entry(opid, EntryKind.WRITE, opid.index << 12, 1, b"", _PAYLOAD, _CRC)
        log.append([entry], partial(_note, done, log))

    for log in logs:
        append(log)
    blocks, under_way = 0, len(logs)
    while under_way:
        log, result = done.get(timeout=_WAIT_S)
        if not isinstance(result, OpId):
            raise BenchmarkError(f"a log failed: {result}")
        blocks, under_way = blocks + 1, under_way - 1
        if blocks + under_way < least or time.monotonic() < until_s:
            append(log)
            under_way += 1
    return blocks


def _note(done: queue.SimpleQueue[tuple[Log, OpId | BaseException]], log: Log, result: OpId | BaseException) -> None:
    done.put((log, result))
