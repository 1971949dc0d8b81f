"""Measures processes again and again, on a thread of its own, whatever the load does meanwhile."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.load.judge import Measure, Sample

PERIOD_S = 0.1
_ROLLUP = re.compile(r"^(Pss|Pss_Anon|Pss_Shmem):\s+(\d+) kB", re.MULTILINE)
_THREADS = re.compile(r"^Threads:\s+(\d+)", re.MULTILINE)


def measured(pid: int) -> dict[Measure, float]:
    """Return what the kernel reports of a process now. OSError if it is gone, or belongs to another user."""
    proc = Path(f"/proc/{pid}")
    kb = {name: int(value) for name, value in _ROLLUP.findall((proc / "smaps_rollup").read_text())}
    threads = _THREADS.search((proc / "status").read_text())
    with (proc / "maps").open("rb") as lines:
        maps = sum(1 for _ in lines)
    return {
        Measure.PRIVATE_MB: (kb["Pss_Anon"] + kb["Pss_Shmem"]) / 1024,
        Measure.PSS_MB: kb["Pss"] / 1024,
        Measure.FILES: len(os.listdir(proc / "fd")),
        Measure.THREADS: int(threads[1]) if threads else 0,
        Measure.MAPS: maps,
    }


class Sampler:
    """Samples processes by name from `with` to its end. A process that ends meanwhile is an error at the end of the
    block: under load no process may die.

    Concurrency: the samples belong to the sampler's thread until the block has ended.
    """

    def __init__(self, pids: dict[str, int], done: Callable[[], float], period_s: float = PERIOD_S) -> None:
        """`done`: returns the units of work that are done by now; called from the sampler's thread."""
        self.samples: dict[str, list[Sample]] = {name: [] for name in pids}
        self._pids = pids
        self._done = done
        self._period_s = period_s
        self._end = threading.Event()
        self._lost: list[str] = []
        self._thread = threading.Thread(target=self._run, name="load-sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    @property
    def lost(self) -> list[str]:
        """Return the processes that ended meanwhile."""
        return sorted(set(self._lost))

    def _run(self) -> None:
        began = time.monotonic()
        while True:
            last = self._end.is_set()
            done = self._done()
            for name, pid in self._pids.items():
                try:
                    values = measured(pid)
                except (OSError, KeyError):
                    self._lost.append(name)
                    continue
                self.samples[name].append(Sample(at_s=time.monotonic() - began, done=done, values=values))
            if last:
                return
            self._end.wait(self._period_s)
