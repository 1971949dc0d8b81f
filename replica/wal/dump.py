"""Say what a segment file holds, and what is broken in it and where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nyala.replica.base import Disk


def dump_segment(disk: Disk, path: str) -> Iterator[dict[str, Any]]:
    """One dict for the header, each block, each entry, each damage and the tail; never raises on bad bytes."""
    raise NotImplementedError
    yield {}
