"""Measures many idle tablets: CPU, memory, disk, and the time of a cold start and of one server's restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nyala.replica.rows import PartitionSpec
from nyala.replica.rpc import pb
from nyala.replica.types import Refused

from . import work
from .meter import process_figures, resident_mb
from .options import BenchmarkError
from .report import Figures
from .target import Target

TABLETS_PER_TABLE_MAX = 1024
REPLICAS = 3
POLL_S = 0.25
WAIT_S = 600.0
CALM_S = 10.0
"""The time from the last election to the first CPU measurement, so that work left from the start does not count."""

Note = Callable[[str], None]


def idle_round(target: Target, tablets: int, watch_s: float, number: int, note: Note) -> Figures:
    """Create tables of empty tablets, measure them at rest, kill every server at once, then restart one.

    Disk is the space of the files, preallocation included; CPU is user and system time of a server per measured second.
    """
    began = time.monotonic()
    handles = []
    for table, buckets in enumerate(tables_of(tablets)):
        name, part = f"bench_idle_{number}_{table}", PartitionSpec(("key",), buckets)
        handles.append(target.client.create_table(name, work.SCHEMA, part, timeout_s=WAIT_S))
    tablet_ids = [t.tablet_id for handle in handles for t in handle.tablets]
    wait_led(target, tablet_ids, REPLICAS)
    figures: Figures = {"idle_tablets": tablets, "idle_create_s": time.monotonic() - began}
    members = _members(_statuses(target, tablet_ids))
    note(f"{tablets} tablets are led; resting")
    time.sleep(CALM_S)
    figures |= _at_rest(target, watch_s)
    figures["idle_disk_mb_per_replica"] = max(
        _disk_bytes(folder) / tablets / 1e6 for name, folder in target.folders.items() if name.startswith("server")
    )
    note("killing every server: a cold start")
    figures |= _restart(target, "idle_cold_start", _servers(target), tablet_ids)
    note("restarting one server")
    figures |= _restart(target, "idle_restart", _servers(target)[:1], tablet_ids)
    time.sleep(CALM_S)
    figures |= {f"{name}_after_restarts": value for name, value in _at_rest(target, watch_s).items() if "@" not in name}
    if _members(_statuses(target, tablet_ids)) != members:
        raise BenchmarkError("a restart changed the members of a tablet: it set off a re-replication")
    for handle in handles:
        target.client.drop_table(handle.name)
    return figures


def tables_of(tablets: int) -> list[int]:
    """The number of tablets of each table: as few tables of about equal size as the bound of a table allows."""
    tables = -(-tablets // TABLETS_PER_TABLE_MAX)
    return [(tablets + table) // tables for table in range(tables)]


def _servers(target: Target) -> list[str]:
    return sorted(name for name in target.pids() if name.startswith("server"))


def _at_rest(target: Target, watch_s: float) -> Figures:
    """CPU percent of one core, and resident MB, of the server that uses most; each process's after an @."""
    pids = target.pids()
    before, began = process_figures(pids), time.monotonic()
    time.sleep(watch_s)
    after, seconds = process_figures(pids), time.monotonic() - began
    cpu = {name: 100 * (after[name][1] - before[name][1]) / seconds for name in before if name in after}
    memory = {name: resident_mb(pid) for name, pid in pids.items()}
    servers = _servers(target)
    figures: Figures = {
        "idle_cpu_percent": max(cpu[name] for name in servers),
        "idle_memory_mb": max(memory[name] for name in servers),
    }
    figures |= {f"idle_cpu_percent@{name}": share for name, share in cpu.items()}
    return figures | {f"idle_memory_mb@{name}": size for name, size in memory.items()}


def _disk_bytes(folder: Path) -> int:
    """The disk space of the files under `folder`."""
    return sum(512 * path.lstat().st_blocks for path in folder.rglob("*") if path.is_file())


def _restart(target: Target, name: str, names: Sequence[str], tablet_ids: Sequence[str]) -> Figures:
    """Kill -9 these servers and start them again, all at once; the seconds until every tablet has a leader and runs on
    all."""
    stack = target.own
    spent = _server_cpu(target)
    for server in names:
        stack.kill_for_good(server)
    began = time.monotonic()
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(stack.start_child, names))
    wait_led(target, tablet_ids, REPLICAS)
    seconds = time.monotonic() - began
    cpu = sum(cpu - spent.get(pid, 0.0) for pid, cpu in _server_cpu(target).items())
    return {f"{name}_s": seconds, f"{name}_cpu_s": cpu}


def _server_cpu(target: Target) -> dict[int, float]:
    """The CPU seconds of each server's process so far."""
    pids = target.pids()
    return {pids[name]: cpu for name, (_, cpu) in process_figures(pids).items() if name.startswith("server")}


def wait_led(target: Target, tablet_ids: Iterable[str], replicas: int) -> None:
    """Wait until each tablet has a leader whose term is open, and `replicas` running replicas."""
    waiting, deadline = set(tablet_ids), time.monotonic() + WAIT_S
    while waiting:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{len(waiting)} tablets are not led, or do not run everywhere, after {WAIT_S:.0f} s")
        waiting -= _settled(_statuses(target, sorted(waiting)), replicas)
        if waiting:
            time.sleep(POLL_S)


def _statuses(target: Target, tablet_ids: Sequence[str]) -> list[pb.ReplicaStatus]:
    found: list[Any] = []
    try:
        for server in target.servers():
            found += target.client.list_tablets(server, tablet_ids)
    except Refused:
        return []  # one of them starts
    return found


def _settled(statuses: Iterable[pb.ReplicaStatus], replicas: int) -> set[str]:
    running: dict[str, list[str]] = {}
    for status in statuses:
        if status.phase == "RUNNING":
            running.setdefault(status.tablet_id, []).append(status.role)
    return {t for t, roles in running.items() if len(roles) >= replicas and "LEADER" in roles}


def _members(statuses: Iterable[pb.ReplicaStatus]) -> dict[str, list[str]]:
    return {s.tablet_id: sorted(m.uuid for m in s.committed_config.members) for s in statuses if s.role == "LEADER"}
