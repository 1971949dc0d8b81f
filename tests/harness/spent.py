"""Measures how much memory a piece of work took at its peak: Arrow's and Python's."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pyarrow as pa


def peak_bytes(work: Callable[[], Any]) -> int:
    """Return the most bytes that `work`, which may raise nothing, had allocated beyond the amount before."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        work()
        return int(pool.max_memory() or 0) + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
