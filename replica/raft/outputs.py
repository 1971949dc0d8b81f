"""Collects the work that the rules of one core queue, and returns it as one `Ready`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nyala.replica.types import Code, Entry, RaftConfig, check

from .messages import Message
from .ready import CopyNeeded, EntriesNeeded, HardState, Ready, Role


@dataclass(slots=True)
class Outputs:
    """The next `Ready`, and what is known of those that were handed out.

    Invariant: they are numbered from 1 without a gap, and `advanced` never exceeds `number`.
    """

    number: int = 0
    """The last `Ready` that was handed out."""
    advanced: int = 0
    """The last `Ready` that the driver has made durable."""
    unstable: list[Entry] = field(default_factory=list)
    truncate_from: int | None = None
    truncations: list[tuple[int, int]] = field(default_factory=list)
    """(number of the `Ready`, index) of truncations handed out and not yet advanced."""
    now: list[Message] = field(default_factory=list)
    after: list[Message] = field(default_factory=list)
    config_committed: RaftConfig | None = None
    read_states: list[tuple[int, int]] = field(default_factory=list)
    read_failures: list[tuple[int, Code]] = field(default_factory=list)
    copies_needed: list[CopyNeeded] = field(default_factory=list)
    entries_needed: list[EntriesNeeded] = field(default_factory=list)
    role_from: Role | None = None
    safe_time: tuple[int, int] | None = None
    traces: list[str] = field(default_factory=list, repr=False)

    def truncate(self, index: int, last_index: int) -> None:
        """The log, which ended at `last_index`, now ends at `index`: entries above it in earlier `Ready` objects are
        void."""
        handed_out = self.unstable[0].opid.index - 1 if self.unstable else last_index
        while self.unstable and self.unstable[-1].opid.index > index:
            self.unstable.pop()
        if index < handed_out:
            self.truncate_from = index + 1

    def fences(self) -> list[int]:
        """Indexes of truncations that are not advanced yet.

        From each of them on, nothing that was written before counts as durable, even if the same OpId was received
        again: on disk, the first copy is voided before the second one is durable.
        """
        return [start for _, start in self.truncations] + [entry.opid.index for entry in self.unstable[:1]]

    def advance(self, number: int) -> None:
        """Note that this `Ready` and all before it are durable."""
        check(number == self.advanced + 1, "Ready objects are advanced in order", ready=number, after=self.advanced)
        self.advanced = number
        self.truncations = [t for t in self.truncations if t[0] > number]

    def config_due(self, persisted: int) -> RaftConfig | None:
        """The committed config to be saved, if its entry is durable; otherwise None."""
        due = self.config_committed
        return due if due is not None and due.opid.index <= persisted else None

    def any_queued(self) -> bool:
        """Whether something is queued, apart from committed entries.

        Some things need no check: a truncation always comes with an entry, a change of role with a trace, and a safe
        time with an answer.
        """
        asked = (self.copies_needed, self.entries_needed, self.read_states, self.read_failures)
        return any((self.unstable, self.now, self.after, *asked, self.traces))

    def take(
        self,
        *,
        role: Role,
        hard_state: HardState | None,
        committed: tuple[int, int] | None,
        config_committed: RaftConfig | None,
    ) -> Ready:
        """Everything that is queued, as the next `Ready`."""
        self.number += 1
        if config_committed is not None:
            self.config_committed = None
        if self.truncate_from is not None:
            self.truncations.append((self.number, self.truncate_from))
        ready = Ready(
            number=self.number,
            hard_state=hard_state,
            truncate_from=self.truncate_from,
            entries=tuple(self.unstable),
            messages_now=tuple(self.now),
            messages_after_persist=tuple(self.after),
            committed=committed,
            config_committed=config_committed,
            read_states=tuple(self.read_states),
            read_failures=tuple(self.read_failures),
            copies_needed=tuple(self.copies_needed),
            entries_needed=tuple(self.entries_needed),
            role_change=None if self.role_from is None else (self.role_from, role),
            safe_time=self.safe_time,
            trace=tuple(self.traces),
        )
        self.truncate_from, self.role_from, self.safe_time = None, None, None
        queues: tuple[list[Any], ...] = (self.unstable, self.now, self.after, self.read_states, self.read_failures)
        for queue in (*queues, self.copies_needed, self.entries_needed, self.traces):
            queue.clear()
        return ready
