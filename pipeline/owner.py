"""The id of one run of a job, under which the run owns sources. It names the process of the run, so that other runs can
find out whether that process may be alive.

Its form is `host/pid/start-machine-random`. The catalog compares it as text only. A run that is killed leaves its lease
behind. A query on the same machine sees by the id that the process is gone, and need not wait for the end of the lease.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from nyala.replica.types import new_uuid

_FORM = re.compile(r"(?P<host>[^/]*)/(?P<pid>\d+)/(?P<start>\d+)-(?P<machine>[0-9a-f]+)-(?P<random>[0-9a-f]+)")


@dataclass(frozen=True)
class ProcessPlace:
    """Identifies one process: no later process has the same three values."""

    machine: str
    """A tag of this boot of the machine and of the namespace in which `pid` counts; empty if that is not known."""
    pid: int
    start: int
    """Clock ticks from boot to the start of the process; they distinguish it from a later one with its pid."""


def this_process(proc: Path = Path("/proc")) -> ProcessPlace:
    """Return the place of this process."""
    pid = os.getpid()
    return ProcessPlace(_machine(proc), pid, _start_of(pid, proc) or 0)


def new_owner_run(place: ProcessPlace | None = None) -> str:
    """Return a new id of a run in this process, or in the one at `place`."""
    at = place or this_process()
    host = re.sub(r"[^\w.-]", "-", socket.gethostname()) or "host"
    return f"{host}/{at.pid}/{at.start}-{at.machine or '0'}-{new_uuid()[:12]}"


def is_dead(owner_run: str, proc: Path = Path("/proc")) -> bool:
    """Whether the run's process is certainly gone: it ran on this machine, and no process here has its pid and start.

    False if that cannot be known: on another machine, container or boot, or for an id of another form.
    """
    found = _FORM.fullmatch(owner_run)
    machine = _machine(proc)
    if found is None or not machine or found["machine"] != machine:
        return False
    return _start_of(int(found["pid"]), proc) != int(found["start"])


def _machine(proc: Path) -> str:
    # A pid means something only within one boot and one namespace. While a namespace lives, its number is its own.
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        return hashlib.sha256(f"{boot} {os.readlink(proc / 'self/ns/pid')}".encode()).hexdigest()[:12]
    except OSError:
        return ""


def _start_of(pid: int, proc: Path) -> int | None:
    """Return the start of the process; None if there is none, or if it is dead and its parent has not waited for it
    yet."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold anything; fields are counted after it: 3 is the state, 22 the start.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])
