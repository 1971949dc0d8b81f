"""What every process of this project has: a version, pools of threads, and a limit of open files."""

from __future__ import annotations

import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

from .errors import ResourcesExhausted

__version__ = version("nyala")
"""The version of servers, masters and the command. Durable formats have versions of their own."""

_OPEN_FILES_ENOUGH = 1 << 20


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads all run already, so that no later work fails because a thread cannot be started.

    ResourcesExhausted if one of them cannot be started.
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


def raise_open_files_limit() -> int:
    """Raise the soft limit to the hard one, to at most 1,048,576; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES_ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES_ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft
