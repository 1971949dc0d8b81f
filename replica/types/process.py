"""What every process of this project has: a version, one form of log line, pools of threads, a limit of open files.

Times of log lines are in UTC to the millisecond, because files of several machines and several days are read side by
side.
"""

from __future__ import annotations

import faulthandler
import logging
import resource
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

from .errors import ResourcesExhausted

__version__ = version("nyala")
"""The version of servers, masters and the command. Durable formats have versions of their own."""


FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname).1s %(message)s"
FORMAT_WITH_NAMES = "%(asctime)s.%(msecs)03dZ %(levelname).1s %(name)s %(message)s"
DAY_AND_TIME = "%Y-%m-%dT%H:%M:%S"
_OPEN_FILES_ENOUGH = 1 << 20


class UtcFormatter(logging.Formatter):
    """Writes the times of records in UTC, whatever the machine's time zone is."""

    converter = staticmethod(time.gmtime)


def log_to_stderr(level: int | str = logging.INFO, *, names: bool = False) -> None:
    """Begin to log; called once in a process. `names`: with the logger's name. A signal that ends the process, such as
    SIGBUS, writes its name and the stacks of all threads."""
    faulthandler.enable(sys.__stderr__ or sys.stderr)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(UtcFormatter(FORMAT_WITH_NAMES if names else FORMAT, DAY_AND_TIME))
    logging.basicConfig(level=level, handlers=[handler])


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
