"""Pools of threads that exist before they are needed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from .errors import ResourcesExhausted


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool all of whose threads run already, so that no work given to it fails because no thread can be started.

    ResourcesExhausted if not all of them can be started: a process that cannot have its threads does not begin.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    together = threading.Barrier(threads + 1)
    try:
        for _ in range(threads):
            pool.submit(together.wait)
    except RuntimeError as error:
        together.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        what = "no thread can be started: raise the limits of processes and threads (ulimit -u, pids.max)"
        raise ResourcesExhausted(what, pool=name, threads=threads, cause=str(error)) from error
    together.wait()
    return pool
