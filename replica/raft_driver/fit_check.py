"""Checks, before the entries of an append go into the log, that this kind of state machine could apply them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nyala.replica.raft import AppendEntries
from nyala.replica.types import Entry, limits

from .environment import Files
from .lifecycle import Lifecycle
from .state_machine import RunHeavy


@dataclass(eq=False, kw_only=True)
class FitCheck:
    """Decodes the new entries of a message: on the owner's thread if they are few and small, otherwise off it.

    Invariant: at most one message is decoded off the thread at a time. Concurrency: the owner's thread.
    """

    files: Files
    life: Lifecycle
    run_heavy: RunHeavy
    step_again: Callable[[AppendEntries], str]
    _looking: bool = field(default=False, init=False)
    _found: tuple[Sequence[Entry], str] | None = field(default=None, init=False)
    """The result of decoding one message off the thread: its entries, and why they could not be applied."""

    def refusal(self, message: AppendEntries, new: Sequence[Entry]) -> str | None:
        """The reason why one of `new`, the entries of the message that are not here yet, could not be applied; else
        empty.

        None: decoding takes long, so it runs off the thread, and the caller drops the message. If its entries are fit,
        it is stepped again. If not, the refusal is returned when the sender repeats the message.
        """
        meta_bytes = sum(len(entry.meta) for entry in new)
        if meta_bytes <= limits.APPEND_META_BYTES_MAX and len(new) <= limits.APPEND_ENTRIES_MAX:
            return self._look(new)
        if self._found is not None and self._found[0] == new:
            return self._found[1]
        if not self._looking:
            self._looking = True
            self.run_heavy(lambda: self._look(new), lambda found: self._looked(message, new, found))
        return None

    def _look(self, new: Sequence[Entry]) -> str:
        for entry in new:
            if why := self.files.unfit(entry):
                return f"{entry.kind.name} entry {entry.opid}: {why}"
        return ""

    def _looked(self, message: AppendEntries, new: Sequence[Entry], found: str | BaseException) -> None:
        self._looking = False
        if not self.life.serving:
            return
        if isinstance(found, BaseException):
            self.life.fail(found)
            return
        self._found = (new, found)
        if not found:
            self.step_again(message)
            self._found = None
