"""The persistent state (term, vote, configs, the damaged tail), and which `Ready` carries term and vote to disk."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import OpId, RaftConfig, check

from .ready import HardState


@dataclass(slots=True, kw_only=True)
class PersistentState:
    """Term, vote, configs and the damaged tail of the log, as they are now; the driver makes them durable.

    Invariants: the term never falls; `voted_for` changes at most once per term, from None. configs[0] is the last
    committed config, the others are those of later CONFIG entries of the log, in order; the last one is in force
    [thesis §4.1].
    """

    term: int
    voted_for: str | None
    configs: list[RaftConfig]
    withheld: OpId | None
    """Last OpId of a damaged tail of the log that may have been acknowledged; see DIVERGENCES D-7."""
    no_data: bool
    """Whether the disk has a log and no rows, whatever the config says; then this replica is never electable."""
    term_found: int
    """The term when the log was opened. All entries that it had lost by then have this term or an earlier one."""
    dirty: bool
    """Whether term and vote wait for the next `Ready`."""
    ready_number: int = 0
    """The number of the `Ready` that carried the latest term and vote."""

    @property
    def active_config(self) -> RaftConfig:
        return self.configs[-1]

    @property
    def pending_config(self) -> RaftConfig | None:
        return self.configs[-1] if len(self.configs) > 1 else None

    def set_term(self, term: int, voted_for: str | None) -> None:
        """Enter a term, or note the vote that this replica gives in the present one."""
        check(term >= self.term, "terms never fall", term=self.term, new_term=term)
        check(
            term > self.term or self.voted_for in (None, voted_for),
            "one vote per term",
            term=term,
            voted_for=self.voted_for,
            new_vote=voted_for,
        )
        if (term, voted_for) != (self.term, self.voted_for):
            self.term, self.voted_for = term, voted_for
            self.dirty = True

    def durable(self, advanced: int) -> bool:
        """Whether the present term and vote are on disk if each `Ready` up to `advanced` is."""
        return not self.dirty and self.ready_number <= advanced

    def take(self, number: int) -> HardState | None:
        """Term and vote for the `Ready` with that number; None if they have not changed."""
        if not self.dirty:
            return None
        self.dirty, self.ready_number = False, number
        return HardState(self.term, self.voted_for)

    def healed(self, durable: OpId) -> bool:
        """Whether there is a damaged tail, and the log, durable up to `durable`, has the lost entries again. That is so
        once the log reaches the lost index, or a term in which no entry can have been lost: the leader that sent those
        entries has everything committed, by log matching (D-7).
        """
        lost = self.withheld
        return lost is not None and (durable.index >= lost.index or durable.term > self.term_found)
