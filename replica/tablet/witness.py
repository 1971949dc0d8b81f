"""What stands for the rows of a witness: nothing. It counts the entries that it would apply.

Its flush position is the base of its log and never moves, so no log GC takes an entry that the data, when it is joined,
may not have yet. CC-47, CC-55.
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
        """Last entry counted."""
        return self._applied

    @property
    def flush_opid(self) -> OpId:
        """The base of the log: what follows it is kept until the data is joined."""
        return self._base

    @property
    def applied_time(self) -> int:
        """Highest hybrid time counted."""
        return self._time

    def apply(self, entries: Sequence[Entry]) -> list[Any]:
        """Count them."""
        for entry in entries:
            self._applied = entry.opid
            self._time = max(self._time, entry.hybrid_time)
        return [None] * len(entries)

    def close(self) -> None:
        """There is nothing to close."""
