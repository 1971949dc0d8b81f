"""What a piece of work took of memory at its peak: Arrow's and Python's."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pyarrow as pa


def peak_bytes(work: Callable[[], Any]) -> int:
    """Bytes that `work`, which may raise nothing, had allocated at most, beyond what there was before."""
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
