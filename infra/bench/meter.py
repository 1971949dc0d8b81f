"""Measures the resources of processes during a piece of work: CPU, peak memory, WAL bytes, by kernel and files."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import threading
from pathlib import Path

from .report import Figures

WAL_LOOK_S = 0.1
MILLION = 1_000_000


def process_figures(pids: dict[str, int]) -> dict[str, tuple[float, float]]:
    """Name -> (peak resident MB, CPU seconds) of each live process."""
    out = {}
    per_second = os.sysconf("SC_CLK_TCK")
    for name, pid in pids.items():
        try:
            status, stat = Path(f"/proc/{pid}/status").read_text(), Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        if peak is None:
            continue  # it was killed, and not reaped yet
        fields = stat.rpartition(")")[2].split()
        out[name] = (int(peak[1]) / 1024, (int(fields[11]) + int(fields[12])) / per_second)
    return out


def resident_mb(pid: int) -> float:
    """The present memory of a process; 0 if it is gone."""
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def ended_children_cpu_s() -> float:
    """The CPU seconds of all ended children of this process, and of their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Meter:
    """CPU seconds and peak memory of processes from its construction on, when the kernel's peaks are reset."""

    def __init__(self, pids: dict[str, int]) -> None:
        """`pids` by name; a process named `clients` is the client, if there are no separate client processes."""
        self._pids = pids
        self._seen: dict[str, tuple[float, float]] = {}
        for pid in pids.values():
            with contextlib.suppress(OSError):  # without it, the peak is that of the process's whole life
                Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._before = process_figures(pids)
        self._clients_before = ended_children_cpu_s()

    def look(self) -> None:
        """Note the present use of each process. For one that is killed later, the last call counts."""
        self._seen |= process_figures(self._pids)

    def figures(self, work: str, rows: int) -> Figures:
        """Peak and CPU per million rows: the servers' in all, and each process's after an @. Empty without processes.

        @clients is the CPU of processes that were started and have ended meanwhile: client processes, or Spark with its
        workers. The names of CPU figures begin with `work`.
        """
        self.look()
        used = {
            name: (peak, cpu - self._before[name][1])
            for name, (peak, cpu) in self._seen.items()
            if name in self._before
        }
        servers = {name: both for name, both in used.items() if name.startswith("server")}
        if not servers:
            return {}
        cpu_name = f"{work}_cpu_s_per_million_rows"
        out = {
            f"{work}_server_peak_memory_mb": max(peak for peak, _ in servers.values()),
            cpu_name: sum(cpu for _, cpu in servers.values()) * MILLION / max(1, rows),
        }
        for name, (peak, cpu) in sorted(used.items()):
            out[f"{work}_server_peak_memory_mb@{name}"] = peak
            out[f"{cpu_name}@{name}"] = cpu * MILLION / max(1, rows)
        if "clients" not in self._pids:
            out[f"{cpu_name}@clients"] = (ended_children_cpu_s() - self._clients_before) * MILLION / max(1, rows)
        return out


class WalWatch:
    """Notes the segments of some tablets that come and are removed again, to add up the written bytes.

    Concurrency: a separate thread checks every WAL_LOOK_S, often enough for files that live for seconds.
    """

    def __init__(self, roots: list[Path], tablet_ids: list[str]) -> None:
        self._folders = [root / "wals" / tablet for root in roots for tablet in tablet_ids]
        self._sizes: dict[Path, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wal-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(WAL_LOOK_S):
            self.look()

    def look(self) -> set[Path]:
        """Note the present files."""
        there = set()
        for folder in self._folders:
            with contextlib.suppress(OSError):
                for entry in os.scandir(folder):
                    if not entry.name.startswith("wal-"):
                        continue  # the preallocated next segment
                    path = Path(entry.path)
                    self._sizes[path] = entry.stat().st_size
                    there.add(path)
        return there

    def removed_bytes(self) -> int:
        """The bytes of the noted segments that are gone; ends the watch."""
        self._stop.set()
        self._thread.join()
        there = self.look()
        return sum(size for path, size in self._sizes.items() if path not in there)
