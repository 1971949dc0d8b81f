"""How the C library hands out memory, and takes it back."""

from __future__ import annotations

import ctypes
import logging
from contextlib import suppress

import pyarrow as pa

_log = logging.getLogger("nyala.server")

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt(3)."""
_SETTINGS = ((_ARENA_MAX, 2), (_MMAP_THRESHOLD, 4 << 20), (_TRIM_THRESHOLD, 1 << 20))


def keep_memory_low() -> None:
    """To be called once, before there are threads: two arenas, and large blocks given back as soon as they are free.

    A server has dozens of threads and its batches are megabytes: with an arena for each thread, and thresholds that
    grow with what was freed, a fifth of its memory was free blocks that nobody could use. Other C libraries are left
    alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in _SETTINGS:
        if not mallopt(parameter, value):
            _log.info("the C library does not take memory setting %d = %d", parameter, value)


def give_back_free_memory() -> None:
    """What was freed between blocks that are in use goes back to the kernel: tens of milliseconds; in a thread.

    Nobody can use it meanwhile but who asks for blocks of that size, and it counts as the server's.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
