"""The defaults of a server that follow from the processors and the memory that its process may use. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from nyala.replica.types import limits

from ..options import DERIVED, ServerOptions
from .machine import Machine
from .memory import ANONYMOUS_MARGIN_BYTES

MEASURED_CPUS = 2
"""The processors of the machine on which the figures below were measured. More processors raise none of them, because
that was not measured."""
HEAVY_THREADS, SCAN_THREADS, OPEN_THREADS = 6, 4, 4
HEAVY_THREADS_MIN = 2
"""One thread may compact for minutes; another one must be left for flushes and log GC."""
SOFT_BYTES_MIN = 32 << 20
"""Less would refuse single batches: the longest has 8 MB, and validation takes a few times its length."""


class Sizes(NamedTuple):
    """Options of a server that it derives if they are not given. The names are those of `ServerOptions`."""

    heavy_threads: int
    scan_threads: int
    open_threads: int
    memory_soft_bytes: int


def derived(machine: Machine) -> Sizes:
    """Return the values for a machine; what is not known of it lowers none.

    Threads: the measured number times the share of MEASURED_CPUS. Memory: half of what is left above an idle process's.
    The other half is for what the soft limit does not stop: writes that were admitted, rows of scans, flushes,
    compactions, and the pages of blocks.
    """
    share = min(1.0, machine.cpus.value / MEASURED_CPUS) if machine.cpus.value else 1.0
    soft_bytes = limits.SERVER_MEMORY_SOFT_BYTES
    if machine.memory.value:
        soft_bytes = min(soft_bytes, max(SOFT_BYTES_MIN, (int(machine.memory.value) - ANONYMOUS_MARGIN_BYTES) // 2))
    return Sizes(
        heavy_threads=max(HEAVY_THREADS_MIN, math.ceil(HEAVY_THREADS * share)),
        scan_threads=max(1, math.ceil(SCAN_THREADS * share)),
        open_threads=max(1, math.ceil(OPEN_THREADS * share)),
        memory_soft_bytes=soft_bytes,
    )


def sized(options: ServerOptions, machine: Machine) -> ServerOptions:
    """Return the options with a value for each that was not given."""
    values = derived(machine)._asdict()
    return replace(options, **{name: value for name, value in values.items() if getattr(options, name) == DERIVED})


def sizes_text(given: ServerOptions, machine: Machine) -> str:
    """Return what was found and what follows, for the log."""
    used = sized(given, machine)
    values = [
        f"{name} {getattr(used, name)} ({'derived' if getattr(given, name) == DERIVED else 'given'})"
        for name in derived(machine)._asdict()
    ]
    memory = f"{int(machine.memory.value) >> 20} MiB of memory" if machine.memory.value else "an unknown memory"
    return (
        f"may use {machine.cpus.value:g} processors ({machine.cpus.found_in}) and {memory} "
        f"({machine.memory.found_in}): {', '.join(values)}"
    )


def memory_problem(options: ServerOptions, machine: Machine) -> str:
    """Return a warning if the soft limit does not fit into the memory, with what to do; empty if it does. `options`:
    those in force."""
    soft_bytes, memory = options.memory_soft_bytes, int(machine.memory.value)
    needed = soft_bytes + ANONYMOUS_MARGIN_BYTES
    if not memory or needed <= memory:
        return ""
    return (
        f"at its soft limit of {soft_bytes} bytes this server takes {needed} bytes, and may use {memory} "
        f"({machine.memory.found_in}): the kernel would end it. Raise that limit, or lower memory_soft_bytes"
    )
