"""Open files and memory maps are counted, and reported before they run out."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import resource
import tempfile
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from nyala.replica.fs import memory_maps
from nyala.replica.rpc import ConnectionBound, RequestChecks
from nyala.replica.server.maintenance.maintenance import Maintenance
from nyala.replica.server.metrics import Metrics
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.runtime.resources import LOOK_EVERY_S, ResourceWatch, open_files, warning_due
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.types import ResourceUse
from tests.harness.copies import new_disk
from tests.unit.server.test_server_open import served, two_tablets


def test_files_and_maps_of_this_process_are_counted() -> None:
    """IN-32. Goal: the numbers are the kernel's. Method: open files and make maps: each counts until it is closed."""
    files, maps = open_files(), memory_maps()
    assert files.limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0] and files.used > 3
    assert 0 < maps.used < maps.limit
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4 << 20))
        file.flush()
        more = [os.dup(file.fileno()) for _ in range(20)]
        mapped = [mmap.mmap(file.fileno(), mmap.PAGESIZE, offset=2 * n * mmap.PAGESIZE) for n in range(400)]
        assert open_files().used >= files.used + 20
        assert memory_maps().used >= maps.used + 200  # the kernel may join neighbours, and other tests' threads end
        for fd in more:
            os.close(fd)
        for one in mapped:
            one.close()
    assert abs(open_files().used - files.used) < 20


@pytest.mark.parametrize("name", ["open files", "memory maps"])
def test_use_is_told_once_from_four_fifths_on_and_again_after_it_fell(name: str) -> None:
    """IN-32. Goal: an operator hears of it in time, and not all day. Method: a use that rises, stays, falls a little,
    falls, and rises again; an unknown limit is never told."""
    told, said = False, []
    for used in (10, 79, 80, 95, 99, 75, 85, 69, 79, 81):
        text, told = warning_due(name, ResourceUse(used, 100), told)
        said.append((used, bool(text)))
        if text:
            assert f"{used} of 100 {name}" in text and "move tablets" in text
    assert [used for used, now in said if now] == [80, 81]
    assert warning_due(name, ResourceUse(10**9, 0), False) == ("", False)


def test_server_counts_them_in_its_metrics_and_warns_in_its_log(caplog: pytest.LogCaptureFixture) -> None:
    """IN-32. Goal: a server shows its open files and memory maps in its metrics, and warns in its log. Method: the
    maintenance of a server whose maps are nearly used up: gauges with their limits, a warning with number, limit and
    remedy; it looks again only after a while."""
    disk, fatal, now, looks = new_disk(), [], [100.0], []  # type: ignore[var-annotated]
    two_tablets(disk)

    def maps() -> ResourceUse:
        looks.append(now[0])
        return ResourceUse(60_000, 65_530)

    async def look(manager: TabletManager) -> None:
        maintenance = Maintenance(manager, MemoryGuard(1 << 40, lambda: 0), lambda: now[0])
        maintenance.resources = ResourceWatch(manager.uuid, lambda: ResourceUse(30, 1000), maps)
        for later_s in (0.0, 1.0, LOOK_EVERY_S, 1.0):
            now[0] += later_s
            await maintenance.count_resources()
        anything: Any = SimpleNamespace(
            running=list, hold_ms_max=0, hold_ms_recent=0, batches=0, rows=0, bytes=0, damaged=0
        )
        anything.refusals = SimpleNamespace(count=0)
        anything.listener = SimpleNamespace(connections=0, begun_bytes=0)
        anything.replies_refused = 0
        memory = MemoryGuard(1 << 40, lambda: 0)
        with closing(RequestChecks()) as checks:
            parts = (manager, memory, anything, maintenance, anything, anything, anything, anything)
            metrics = Metrics(*parts, checks, ConnectionBound(1), anything)
            values = {f.name: f.samples[0].value for f in metrics.collect()}
        assert (values["nyala_server_open_files"], values["nyala_server_open_files_max"]) == (30, 1000)
        assert (values["nyala_server_memory_maps"], values["nyala_server_memory_maps_max"]) == (60_000, 65_530)
        maintenance.close()
        await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, "nyala.server"):
        served(disk, look, fatal)
    assert fatal == [] and len(looks) == 2
    warned = [r.getMessage() for r in caplog.records if "memory maps" in r.getMessage()]
    assert len(warned) == 1 and "60000 of 65530" in warned[0] and "vm.max_map_count" in warned[0]
