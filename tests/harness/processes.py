"""Processes that tests did not start themselves: their identity, whether they are gone, and their end."""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness.cluster import wait_until


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_gone(pid: int) -> bool:
    """Return whether the process has ended; one that only waits to be reaped has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def kill(pid: int) -> None:
    """Send kill -9, and wait until it is gone."""
    os.kill(pid, 9)
    wait_until(lambda: is_gone(pid), f"process {pid} is gone")
