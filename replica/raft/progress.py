"""A leader's knowledge of one peer, and the bounds on what it may send to it. Makes no messages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from nyala.replica.types import ZERO_OPID, Code, DataState, OpId

from .options import RaftOptions


class ProgressState(StrEnum):
    """PROBE: the leader looks for the last index at which both logs match, one message at a time.
    REPLICATE: a pipeline of appends that assumes their arrival.
    COPY: the log cannot serve this peer, or it has no running replica; nothing but heartbeats is sent."""

    PROBE = "PROBE"
    REPLICATE = "REPLICATE"
    COPY = "COPY"


@dataclass(slots=True)
class Progress:
    """One peer of a leader, for one term.

    Invariants: `match` is the highest index up to which the peer's durable log is known to equal the leader's. It never
    falls within a term. A peer that lost a tail is served from `next` again, but what it acknowledged still counts, and
    therefore a replica with a damaged tail may not vote. In REPLICATE, match < next. `inflight` holds (last index,
    bytes) in the order of sending.
    """

    uuid: str
    options: RaftOptions = field(repr=False)
    next: int
    round_started: int
    state: ProgressState = ProgressState.PROBE
    match: int = 0
    probe_sent: bool = False
    loading: bool = False
    inflight: deque[tuple[int, int]] = field(default_factory=deque)
    contact_ticks: int = 0
    behind_ticks: int = 0
    """The number of ticks for which the peer has lacked entries and acknowledged none."""
    round_acked: int = 0
    quiet_round: int = 0
    """The latest round in whose echo the peer agreed to go quiet."""
    last_code: Code = Code.OK
    last_opid: OpId = ZERO_OPID
    data_state: DataState = DataState.READY
    commit_index: int = 0
    applied_index: int = 0
    data_from: int | None = None
    """Our commit index when the peer first reported that it has its rows; None while it reports that it has none."""
    copy_due_ticks: int = 0
    copy_retry_ticks: int = field(init=False)
    caught_up: bool = False
    round_target: int = field(init=False)

    def __post_init__(self) -> None:
        self.copy_retry_ticks = self.options.copy_retry_ticks_min
        self.round_target = self.next - 1

    def window_full(self) -> bool:
        """Whether only heartbeats may be sent now."""
        if self.state is ProgressState.PROBE:
            return self.probe_sent
        if self.state is ProgressState.COPY:
            return True
        size_bytes = sum(size for _, size in self.inflight)
        return len(self.inflight) >= self.options.inflight_messages_max or size_bytes >= self.options.inflight_bytes_max

    def sent(self, last_index: int, size_bytes: int) -> None:
        """Entries up to `last_index` were sent. In REPLICATE they are assumed to arrive."""
        if self.state is ProgressState.PROBE:
            self.probe_sent = True
            return
        self.next = last_index + 1
        self.inflight.append((last_index, size_bytes))

    def acknowledged(self, index: int) -> None:
        """The peer's durable log equals ours up to `index`."""
        if index > self.match:
            self.behind_ticks = 0
        self.match = max(self.match, index)
        self.next = max(self.next, self.match + 1)
        while self.inflight and self.inflight[0][0] <= self.match:
            self.inflight.popleft()

    @property
    def has_data(self) -> bool:
        """Whether the peer has its rows, and has applied everything that was committed when it first reported that.
        CC-53."""
        return self.data_from is not None and self.applied_index >= self.data_from

    def become_probe(self, next_index: int) -> None:
        self._enter(ProgressState.PROBE)
        self.next = next_index
        self.data_state = DataState.READY

    def become_replicate(self) -> None:
        self._enter(ProgressState.REPLICATE)
        self.copy_retry_ticks = self.options.copy_retry_ticks_min

    def become_copy(self, data_state: DataState, last_opid: OpId) -> None:
        """Stop sending entries: the peer needs a copy. `data_state`: what the peer has instead of a log that ours
        continues."""
        if self.state is not ProgressState.COPY:
            self._enter(ProgressState.COPY)
            self.copy_due_ticks = 0
        self.data_state = data_state
        self.last_opid = last_opid
        self.caught_up = False
        self.data_from = None

    def copy_asked(self) -> None:
        """Note the request for a copy, and double the pause before the next one."""
        self.copy_due_ticks = self.copy_retry_ticks
        self.copy_retry_ticks = min(self.copy_retry_ticks * 2, self.options.copy_retry_ticks_max)

    def observe_round(self, now: int, last_index: int) -> None:
        """End a round of catching up if the peer has everything that our log had at its start [thesis §4.2.1; D-10]."""
        if self.match < self.round_target:
            return
        self.caught_up = now - self.round_started <= self.options.promote_round_ticks_max
        self.round_target, self.round_started = last_index, now

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.probe_sent = False
        self.loading = False
        self.inflight.clear()
