"""A directory in which an offline change of several servers is half done: no server starts on it before the end."""

from __future__ import annotations

from nyala.replica.types import Code, Disk, Refused

FENCE = "unsafe-recovery"
"""The file's name. What it says is its writer's; that it is there is enough to keep a server out."""


def refuse_fenced(disk: Disk) -> None:
    """Refused(ILLEGAL_STATE) if the directory waits for the rest of an offline change."""
    if disk.exists(FENCE):
        raise Refused(
            Code.ILLEGAL_STATE,
            "an unsafe recovery of this directory is not finished: run the same `nyala unsafe recover` again",
            path=disk.real_path(FENCE),
        )
