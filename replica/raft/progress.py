"""What a leader knows of one peer, and how much it may send there. No messages are made here."""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from nyala.replica.types import ZERO_OPID, Code, DataState, OpId

from .options import RaftOptions


class ProgressState(StrEnum):
    """PROBE: the match point is being sought, one message at a time. REPLICATE: optimistic pipelining.
    COPY: the log cannot serve this peer, or it has no running replica; nothing but heartbeats is sent."""

    PROBE = "PROBE"
    REPLICATE = "REPLICATE"
    COPY = "COPY"


class Progress:
    """One peer of a leader, for one term.

    Invariants: `match` never falls within a term: it is the highest index known durable and equal there; a peer that
    lost a tail is served from `next` again, but what it once acknowledged stays counted, which is why a replica with
    a damaged tail may not vote. In REPLICATE, match < next. Inflight holds (last index, bytes) in send order.
    """

    __slots__ = (
        "applied_index",
        "behind_ticks",
        "caught_up",
        "commit_index",
        "contact_ticks",
        "copy_due_ticks",
        "copy_retry_ticks",
        "data_from",
        "data_state",
        "inflight",
        "inflight_bytes",
        "last_code",
        "last_opid",
        "loading",
        "match",
        "next",
        "options",
        "probe_sent",
        "quiet_round",
        "round_acked",
        "round_started",
        "round_target",
        "state",
        "uuid",
    )

    def __init__(self, uuid: str, *, next_index: int, options: RaftOptions, now: int) -> None:
        self.uuid = uuid
        self.options = options
        self.state = ProgressState.PROBE
        self.match = 0
        self.next = next_index
        self.probe_sent = False
        self.loading = False
        self.inflight: deque[tuple[int, int]] = deque()
        self.inflight_bytes = 0
        self.contact_ticks = 0
        self.behind_ticks = 0
        """For how many ticks the peer has lacked entries and acknowledged none."""
        self.round_acked = 0
        self.quiet_round = 0
        """The latest round in whose echo the peer agreed to rest."""
        self.last_code = Code.OK
        self.last_opid = ZERO_OPID
        self.data_state = DataState.READY
        self.commit_index = 0
        self.applied_index = 0
        self.data_from: int | None = None
        """Our commit index when the peer first said that it has its data; None while it says that it has none."""
        self.copy_due_ticks = 0
        self.copy_retry_ticks = options.copy_retry_ticks_min
        self.caught_up = False
        self.round_target = next_index - 1
        self.round_started = now

    def window_full(self) -> bool:
        """Whether nothing may be sent now but heartbeats."""
        if self.state is ProgressState.PROBE:
            return self.probe_sent
        if self.state is ProgressState.COPY:
            return True
        return (
            len(self.inflight) >= self.options.inflight_messages_max
            or self.inflight_bytes >= self.options.inflight_bytes_max
        )

    def sent(self, last_index: int, size_bytes: int) -> None:
        """Entries through last_index left. Replicating, they are assumed to arrive."""
        if self.state is ProgressState.PROBE:
            self.probe_sent = True
            return
        self.next = last_index + 1
        self.inflight.append((last_index, size_bytes))
        self.inflight_bytes += size_bytes

    def acknowledged(self, index: int) -> bool:
        """The peer's durable log equals ours through index. True if that is news."""
        news = index > self.match
        if news:
            self.behind_ticks = 0
        self.match = max(self.match, index)
        self.next = max(self.next, self.match + 1)
        while self.inflight and self.inflight[0][0] <= self.match:
            self.inflight_bytes -= self.inflight.popleft()[1]
        return news

    @property
    def has_data(self) -> bool:
        """Whether the peer's data is in, and what its log held meanwhile is replayed. CC-53."""
        return self.data_from is not None and self.applied_index >= self.data_from

    def become_probe(self, next_index: int) -> None:
        self._enter(ProgressState.PROBE)
        self.next = next_index

    def become_replicate(self) -> None:
        self._enter(ProgressState.REPLICATE)
        self.next = self.match + 1
        self.copy_retry_ticks = self.options.copy_retry_ticks_min

    def become_copy(self, data_state: DataState, last_opid: OpId) -> None:
        """`data_state`: what the peer has instead of a log that we could continue."""
        if self.state is not ProgressState.COPY:
            self._enter(ProgressState.COPY)
            self.copy_due_ticks = 0
        self.data_state = data_state
        self.last_opid = last_opid
        self.caught_up = False
        self.data_from = None

    def copy_asked(self) -> None:
        """A copy was asked for just now: wait, twice as long each time, before asking again."""
        self.copy_due_ticks = self.copy_retry_ticks
        self.copy_retry_ticks = min(self.copy_retry_ticks * 2, self.options.copy_retry_ticks_max)

    def observe_round(self, now: int, last_index: int) -> None:
        """Rounds of catching up [thesis §4.2.1; D-10]: it ends when the peer holds what our log held at its start."""
        if self.match < self.round_target:
            return
        self.caught_up = now - self.round_started <= self.options.promote_round_ticks_max
        self.round_target, self.round_started = last_index, now

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.probe_sent = False
        self.loading = False
        self.inflight.clear()
        self.inflight_bytes = 0
