"""Sets the C library's memory allocator, and gives free memory back to the kernel."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

_log = logging.getLogger("nyala.process")

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt(3)."""
_SETTINGS = ((_ARENA_MAX, 2), (_MMAP_THRESHOLD, 4 << 20), (_TRIM_THRESHOLD, 1 << 20))


def keep_memory_low() -> None:
    """Bound the allocator: two arenas, and large blocks go back as soon as they are free. Call once, before threads.

    A server has dozens of threads, and its batches have megabytes. With an arena for each thread, and thresholds that
    grow with freed blocks, a fifth of its memory was free and could not be used. Only glibc has these settings.
    """
    import ctypes  # here, because commands start sooner without it

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in _SETTINGS:
        if not mallopt(parameter, value):
            _log.info("the C library does not take memory setting %d = %d", parameter, value)


def give_back_free_memory() -> None:
    """Give freed memory between blocks in use back to the kernel. It takes tens of milliseconds; call it in a thread.

    Until then it counts as the server's memory, and only allocations that fit into it can use it.
    """
    import ctypes

    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
