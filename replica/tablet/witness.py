"""The state machine of a witness. It has no rows, and only counts the entries that a tablet would apply.

Its flush position is the base of its log and never moves. So log GC removes no entry that the rows may lack when they
are joined. CC-47, CC-55.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nyala.replica.types import Entry, OpId, check

from .superblock import Superblock


class Witness:
    """The state machine of a replica that logs and votes without applying.

    Concurrency: as `raft_driver.StateMachine` says.
    """

    def __init__(self, superblock: Superblock) -> None:
        check(superblock.witness, "a replica with rows is opened as a tablet", tablet=superblock.tablet_id)
        self._base = self._applied = superblock.flush_opid
        self._time = superblock.flush_time

    @property
    def applied_opid(self) -> OpId:
        """The last counted entry."""
        return self._applied

    @property
    def flush_opid(self) -> OpId:
        """The base of the log: entries above it are kept until the rows are joined."""
        return self._base

    @property
    def applied_time(self) -> int:
        """The highest hybrid time counted."""
        return self._time

    def apply(self, entries: Sequence[Entry]) -> list[Any]:
        """Count the entries; each result is None."""
        for entry in entries:
            self._applied = entry.opid
            self._time = max(self._time, entry.hybrid_time)
        return [None] * len(entries)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
