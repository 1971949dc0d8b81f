"""The fields that only a leader uses: its peers, its rounds of heartbeats, the pending reads, and a transfer under
way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from nyala.replica.types import OpId

from .progress import Progress


@dataclass(slots=True)
class Leading:
    """A leader's state. Other replicas have no peers, reads and transfer here; what else is left is of the last term in
    which they led, and is not used.

    Invariants: a read waits or runs, never both; `round_stamps` has at most one stamp a tick, none older than a lease.
    """

    progress: dict[str, Progress] = field(default_factory=dict, repr=False)
    """The peers by uuid, in sorted order."""
    term_start: int = 0
    """Index of the NOOP with which this leader's term began."""
    heartbeat_elapsed: int = 0
    """Ticks since the last round of heartbeats, also one for reads."""
    quorum_check_elapsed: int = 0
    """Ticks since the last check-quorum. With it the leader also tries transfers, promotions and copies again."""
    idle_ticks: int = 0
    """Ticks since something was replicated, read or changed."""
    quiet_round: int = 0
    """The first round of the present request for quiet; 0 if the leader does not ask for quiet."""
    round: int = 0
    """The number of the newest round of heartbeats in this term."""
    round_wanted: bool = False
    """Whether the next `Ready` begins a round of heartbeats."""
    sends_wanted: bool = False
    """Whether the next `Ready` has to send entries to the peers whose windows have room."""
    round_stamps: deque[tuple[int, int]] = field(default_factory=deque)
    """(round, time of the driver's clock when it began)."""
    lease_given_up: bool = False
    """Whether a TimeoutNow was sent in this term: then it has no lease any more."""
    reads_waiting: list[int] = field(default_factory=list)
    """Tokens of reads that are not assigned to a round yet."""
    reads_running: list[tuple[int, int, int]] = field(default_factory=list)
    """Reads of running rounds: (token, index, round)."""
    pending_since: int = 0
    """Tick at which the pending config was appended."""
    aborted: OpId | None = None
    """OpId of the config change that this replica took back last."""
    transfer_target: str | None = None
    """The voter that shall lead; None if no transfer is under way."""
    transfer_elapsed: int = 0
    """Ticks since the transfer began."""
    transfer_sent: bool = False
    """Whether TimeoutNow was sent since the last check-quorum, after which it is sent again."""

    def begin_term(self) -> None:
        """Reset the rounds and the lease. `end_term` has forgotten the rest of the last term."""
        self.heartbeat_elapsed = self.quorum_check_elapsed = self.round = 0
        self.round_stamps.clear()
        self.lease_given_up = False

    def end_term(self) -> list[int]:
        """Forget the peers, the reads and the transfer. Returns the tokens of the reads, which cannot be answered any
        more."""
        self.progress.clear()
        self.sends_wanted = self.round_wanted = False
        tokens = [*self.reads_waiting, *(token for token, _, _ in self.reads_running)]
        self.reads_waiting.clear()
        self.reads_running.clear()
        self.transfer_target, self.transfer_sent = None, False
        return tokens

    def drop_reads(self, gone: frozenset[int]) -> None:
        """Forget these reads, whose callers no longer wait."""
        self.reads_waiting = [token for token in self.reads_waiting if token not in gone]
        self.reads_running = [read for read in self.reads_running if read[0] not in gone]
