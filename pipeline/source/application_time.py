"""The newest hybrid time that a Spark application has read or written: its stale reads are not older.

Spark plans reads and commits writes of a Python source in worker processes beside the driver, perhaps each time in
another one. So the memory of one process is not enough for "the reads of one application never go back". The workers of
a driver share a folder that belongs to the application and is removed with it: SPARK_LOCAL_DIRS. In it, one small file
for each cluster holds the time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from nyala.replica.client import TableHandle, parse_masters

_DIGITS = 20


def application_folder() -> Path | None:
    """Return the folder that the processes of this driver, or of this executor, share; None if Spark names none."""
    folders = [Path(each) for each in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if each]
    return next((folder for folder in folders if folder.is_dir()), None)


def observe_time(handle: TableHandle, masters: str, hybrid_time: int = 0, folder: str = "") -> int:
    """Return the application's time for the cluster of that table, raised to `hybrid_time` if that is newer.

    A task passes the driver's `folder`. If Spark names no folder, the result is `hybrid_time`: then one process does
    everything, and its client remembers the time.
    """
    place = Path(folder) if folder else application_folder()
    if place is None:
        return hybrid_time
    cluster = handle.cluster_id or _spelling(masters)
    path = place / f"nyala-time-seen-{hashlib.sha256(cluster.encode()).hexdigest()[:16]}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        text = os.pread(fd, _DIGITS, 0)
        # A worker that was killed while it wrote the first time leaves less than a whole one.
        before = int(text) if len(text) == _DIGITS and text.isdigit() else 0
        if hybrid_time > before:
            os.pwrite(fd, b"%0*d" % (_DIGITS, hybrid_time), 0)
        return max(before, hybrid_time)
    finally:
        os.close(fd)


def _spelling(masters: str) -> str:
    """Return a text that stands for the id of a cluster whose masters are of an older build and do not send it."""
    return ",".join(sorted(str(address) for address in parse_masters(masters)))
