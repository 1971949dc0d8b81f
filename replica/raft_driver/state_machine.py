"""The interface of the state that a replica changes by entries. Data tablets and the masters' catalog implement it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from nyala.replica.types import Entry, OpId

T = TypeVar("T")

RunHeavy = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""`run(function, done)`: runs `function` off the owner's thread, one at a time and in order per replica, then calls
`done(result or BaseException)` on the owner's thread."""


class StateMachine(Protocol):
    """State that entries change, deterministically.

    Concurrency: `apply` runs on one thread at a time, off the owner's thread; the properties may be read from any.
    """

    @property
    def applied_opid(self) -> OpId:
        """The last applied entry; when the state is opened, equal to `flush_opid`."""
        ...

    @property
    def flush_opid(self) -> OpId:
        """The last entry whose effect is durable without the log. After a restart, all later entries are applied
        again."""
        ...

    @property
    def applied_time(self) -> int:
        """Highest hybrid time applied; 0 if none."""
        ...

    def apply(self, entries: Sequence[Entry]) -> list[Any]:
        """Apply entries in index order, of all kinds; returns one result per entry, in order.

        Raises Corruption, or another error, if a committed entry cannot be applied: then the replica fails.
        """
        ...

    def close(self) -> None: ...
