"""How many processors and how much memory this process may use: of the machine, and of its control groups.

The functions above `found_machine` are pure. They read what the kernel writes, and leave out what they cannot read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_READ_BYTES_MAX = 4 << 20
"""Bounds what is read of one file. A line of `mountinfo` has some 100 bytes, and a host has at most 100,000 mounts."""
_BYTES_MAX = 1 << 60
"""From this limit on, there is none: version 1 of control groups writes 2^63 less a page."""
_ESCAPE = re.compile(r"\\([0-7]{3})")
_V2 = "cgroup2"
_V1_CONTROLLERS = frozenset({"memory", "cpu"})


class Bound(NamedTuple):
    """A figure, and where it was found."""

    value: float
    found_in: str


@dataclass(frozen=True)
class Machine:
    """What this process may use. 0: it is not known."""

    cpus: Bound
    """Processors; a part of one is possible."""
    memory: Bound
    """Bytes."""


NOTHING = Bound(0, "nothing that can be read")
UNKNOWN = Machine(NOTHING, NOTHING)


class Mount(NamedTuple):
    """A place at which control groups of one hierarchy are mounted."""

    controllers: frozenset[str]
    """The controllers of version 1; none: version 2."""
    root: str
    """The group that is seen at `at`."""
    at: str


def mounts_of(mountinfo: str) -> list[Mount]:
    """Return the mounts of control groups in the text of `/proc/self/mountinfo`."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split(" "), after.split(" ")
        if len(place) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", _V2):
            continue
        controllers = frozenset(kind[2].split(",")) & _V1_CONTROLLERS if kind[0] == "cgroup" else frozenset[str]()
        if kind[0] == _V2 or controllers:
            found.append(Mount(controllers, _unescaped(place[3]), _unescaped(place[4])))
    return found


def groups_of(cgroup: str) -> list[tuple[frozenset[str], str]]:
    """Return (controllers of version 1, or none for version 2; the group's path) of `/proc/self/cgroup`."""
    found = []
    for line in cgroup.splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers and path.startswith("/"):
            found.append((frozenset[str](), path))
        elif known := frozenset(controllers.split(",")) & _V1_CONTROLLERS:
            found.append((known, path))
    return found


def folders_of(mount: Mount, path: str) -> list[str]:
    """Return the folders of a group and of all groups above it that the mount shows, the innermost first.

    In a container, the mount may show only a part of the hierarchy, and the path may lead out of that part. Then the
    groups that the mount shows at its top are the ones that hold this process.
    """
    parts = [part for part in PurePosixPath(path).parts if part != "/"]
    top = [part for part in PurePosixPath(mount.root).parts if part != "/"]
    below = parts[len(top) :] if parts[: len(top)] == top and ".." not in parts else []
    return [str(PurePosixPath(mount.at, *below[:n])) for n in range(len(below), -1, -1)]


def bytes_of(text: str) -> int:
    """Return a limit of memory; 0 if there is none, or the text is no limit."""
    word = text.strip()
    if not (word.isascii() and word.isdecimal() and len(word) <= 20):
        return 0
    value = int(word)
    return value if 0 < value < _BYTES_MAX else 0


def cpus_of_max(text: str) -> float:
    """Return the processors of `cpu.max`, which is "QUOTA PERIOD"; 0 if there is no limit, or the text is none."""
    words = text.split()
    return cpus_of(words[0], words[1]) if len(words) == 2 else 0.0


def cpus_of(quota: str, period: str) -> float:
    """Return the processors that a quota in a period comes to, both in microseconds; 0 as `cpus_of_max`."""
    quota_us, period_us = bytes_of(quota), bytes_of(period)
    return quota_us / period_us if quota_us and period_us else 0.0


def memory_total_of(meminfo: str) -> int:
    """Return the machine's memory of the text of `/proc/meminfo`; 0 if it is not there."""
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if name == "MemTotal" and len(words) == 2 and words[1] == "kB":
            return bytes_of(words[0]) << 10
    return 0


def smallest(bounds: Iterator[Bound]) -> Bound:
    """Return the smallest figure that is known, the first of equal ones."""
    known = [bound for bound in bounds if bound.value > 0]
    return min(known, key=lambda bound: bound.value, default=NOTHING)


def found_machine(root: Path = Path("/"), processors: int | None = None) -> Machine:
    """Read what this process may use; never raises for what the kernel shows.

    The smallest limit of the group of this process and of all groups above it counts, because each of them holds.
    `root`: the folder that holds `proc` and `sys`. `processors`: those on which this process may run.
    """
    if processors is None:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
    mounts, groups = mounts_of(_text(root, "/proc/self/mountinfo")), groups_of(_text(root, "/proc/self/cgroup"))
    folders = [
        (mount.controllers, folder)
        for mount in mounts
        for controllers, path in groups
        if controllers == mount.controllers or controllers & mount.controllers
        for folder in folders_of(mount, path)
    ]
    total = Bound(memory_total_of(_text(root, "/proc/meminfo")), "the machine")
    return Machine(
        cpus=smallest(iter([*_cpus(root, folders), Bound(processors, "the processors of this process")])),
        memory=smallest(iter([*_memory(root, folders), total])),
    )


def _memory(root: Path, folders: list[tuple[frozenset[str], str]]) -> Iterator[Bound]:
    for controllers, folder in folders:
        names = ("memory.max", "memory.high") if not controllers else ("memory.limit_in_bytes",)
        if not controllers or "memory" in controllers:
            for name in names:
                yield Bound(bytes_of(_text(root, f"{folder}/{name}")), f"{folder}/{name}")


def _cpus(root: Path, folders: list[tuple[frozenset[str], str]]) -> Iterator[Bound]:
    for controllers, folder in folders:
        if not controllers:
            yield Bound(cpus_of_max(_text(root, f"{folder}/cpu.max")), f"{folder}/cpu.max")
        elif "cpu" in controllers:
            quota = f"{folder}/cpu.cfs_quota_us"
            yield Bound(cpus_of(_text(root, quota), _text(root, f"{folder}/cpu.cfs_period_us")), quota)


def _text(root: Path, path: str) -> str:
    """The text of a file; empty if it cannot be read."""
    with suppress(OSError, ValueError), (root / path.lstrip("/")).open("rb") as file:
        return file.read(_READ_BYTES_MAX).decode(errors="replace")
    return ""


def _unescaped(path: str) -> str:
    """A path of `mountinfo`, in which blanks and backslashes are octal numbers."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), path)
