"""The fields that a replica keeps for elections: the ticks since it heard a leader, and the votes that it received."""

from __future__ import annotations

from dataclasses import dataclass, field

from nyala.replica.types import Rng

from .options import RaftOptions


@dataclass(slots=True)
class Election:
    """The election timer and the votes of the election under way."""

    options: RaftOptions
    rng: Rng = field(repr=False)
    timeout: int
    ticks_since_leader: int
    """Ticks since a leader was heard."""
    elapsed: int = 0
    withhold_until: int = 0
    checks: int = 0
    """While quiet: calls of `quiet.probe_quiet_group` since the leader was heard."""
    votes: dict[str, bool] = field(default_factory=dict)

    def restart_timer(self) -> None:
        """Draw a new timeout, and count from now."""
        self.elapsed = 0
        self.timeout = self.rng.randint(self.options.election_ticks_min, self.options.election_ticks_max)
