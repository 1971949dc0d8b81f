"""Everything one core holds, and the few moves that every rule shares: send, append, truncate, save, hand out.

Invariants:
- term never falls; voted_for changes at most once per term, from None.
- commit_index never falls and never exceeds the log; handed (the last index given to apply) <= min(commit, persisted).
- persisted: the log is durable through it; it falls only when a tail is truncated.
- configs[0] is the last committed config, the others are those of later CONFIG entries of the log, in order; the last
  one is in force [thesis §4.1].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from nyala.replica.base import ZERO_OPID, Code, Entry, EntryKind, OpId, RaftConfig, Rng, check

from .log_view import LogView
from .messages import Message
from .moves import LEGAL_MOVES
from .options import RaftOptions
from .progress import Progress
from .ready import CopyNeeded, EntriesNeeded, HardState, Ready, Role


class State:
    """The fields of one core. Rules are functions over it, one module each."""

    def __init__(
        self,
        *,
        uuid: str,
        term: int,
        voted_for: str | None,
        configs: list[RaftConfig],
        log: LogView,
        commit_index: int,
        options: RaftOptions,
        rng: Rng,
        encode_config: Callable[[RaftConfig], bytes],
        decode_config: Callable[[bytes], RaftConfig],
        hybrid_now: Callable[[], int] | None,
    ) -> None:
        self.uuid = uuid
        self.options = options
        self.rng = rng
        self.log = log
        self.encode_config = encode_config
        self.decode_config = decode_config
        self.hybrid_now = hybrid_now
        self.last_hybrid = 0

        self.term = term
        self.voted_for = voted_for
        self.role = Role.NON_PARTICIPANT
        self.leader_uuid: str | None = None
        self.commit_index = commit_index
        self.applied_index = commit_index
        self.handed = commit_index
        self.persisted = log.last.index

        self.configs = configs
        self.voters: tuple[str, ...] = ()
        self.witnesses: tuple[str, ...] = ()
        """Those of the voters that hold no data."""
        self.electable = False
        self.no_data = False
        """The disk here has a log and no rows, whatever the config says: never electable."""
        self.pending_since = 0
        """Leader: tick at which the pending config was appended."""
        self.aborted: OpId | None = None
        """The change that this replica took back last, as a leader."""
        self.may_campaign = True
        self.withheld: OpId | None = None
        self.term_found = term
        """When the log was opened: nothing that it lost by then is of a later term."""

        self.ticks = 0
        self.elapsed = 0
        self.timeout = options.election_ticks_max
        self.heard = options.election_ticks_max
        """Ticks since a leader was heard."""
        self.withhold_until = 0
        self.quiet = False
        """Timers stand still; see quiet.py."""
        self.checks = 0
        """Quiet: looks around since the leader was heard."""
        self.idle_ticks = 0
        """Leader: ticks since something was replicated, read or changed."""
        self.quiet_round = 0
        """Leader: the first round of this stretch of asking for quiet; 0 if it does not ask."""
        self.absent: set[str] = set()
        """Servers from which nothing is heard, as the host says. Never iterated."""
        self.votes: dict[str, bool] = {}
        self.transfer_election = False

        self.progress: dict[str, Progress] = {}
        """Leader: by uuid, in sorted order."""
        self.term_start = 0
        """Leader: index of the NOOP that began its term."""
        self.heartbeat_elapsed = 0
        self.round = 0
        self.round_wanted = False
        self.sends_wanted = False
        self.clock: int | None = None
        """The host's monotonic clock, in ticks, as last told."""
        self.round_stamps: deque[tuple[int, int]] = deque()
        """Leader: (round, `clock` when it began), at most one a tick, none older than a lease."""
        self.lease_given_up = False
        self.reads_waiting: list[int] = []
        self.reads_running: list[tuple[int, int, int]] = []
        """(token, index, round)."""
        self.transfer_target: str | None = None
        self.transfer_elapsed = 0
        self.transfer_sent = False

        self.number = 0
        self.advanced = 0
        self.hard_state_dirty = False
        self.hard_state_number = 0
        """Bundle that carried the latest hard state."""
        self.unstable: list[Entry] = []
        self.truncate_from: int | None = None
        self.truncations: list[tuple[int, int]] = []
        """(bundle, index) of truncations handed out and not yet advanced."""
        self.now: list[Message] = []
        self.after: list[Message] = []
        self.config_committed: RaftConfig | None = None
        self.read_states: list[tuple[int, int]] = []
        self.read_failures: list[tuple[int, Code]] = []
        self.copies_needed: list[CopyNeeded] = []
        self.entries_needed: list[EntriesNeeded] = []
        self.role_from: Role | None = None
        self.safe_time: tuple[int, int] | None = None
        self.traces: list[str] = []

    # ------------------------------------------------------------------------------------------------- configs

    @property
    def active_config(self) -> RaftConfig:
        return self.configs[-1]

    @property
    def pending_config(self) -> RaftConfig | None:
        return self.configs[-1] if len(self.configs) > 1 else None

    # ------------------------------------------------------------------------------------------------ messages

    @property
    def hard_state_durable(self) -> bool:
        """Whether term and vote, as they are now, are on disk."""
        return not self.hard_state_dirty and self.hard_state_number <= self.advanced

    def send(self, msg: Message, *, promise: bool = False) -> None:
        """Queue a message. A promise, and whatever names a term not yet saved, waits for the disk [raft fig. 2]."""
        if promise or not self.hard_state_durable:
            self.after.append(msg)
        else:
            self.now.append(msg)

    def trace(self, text: str) -> None:
        self.traces.append(f"[term {self.term} {self.role}] {text}")

    # ---------------------------------------------------------------------------------------------- hard state

    def set_term(self, term: int, voted_for: str | None) -> None:
        """Enter a term, or give the vote of this one."""
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
            self.hard_state_dirty = True

    def set_role(self, role: Role) -> None:
        if role is not self.role:
            check(role in LEGAL_MOVES[self.role], "a legal move between roles", uuid=self.uuid, old=self.role, new=role)
            if self.role_from is None:
                self.role_from = self.role
            self.role = role

    def restart_election_timer(self) -> None:
        self.elapsed = 0
        self.timeout = self.rng.randint(self.options.election_ticks_min, self.options.election_ticks_max)

    # --------------------------------------------------------------------------------------------------- log

    def next_hybrid_time(self) -> int:
        """Time of an entry that the core makes itself."""
        return self.hybrid_now() if self.hybrid_now else self.last_hybrid + 1

    def stir(self) -> None:
        """Leader: the group is needed. No quiet until it has been idle for a while again."""
        self.idle_ticks = 0
        self.quiet_round = 0
        self.quiet = False

    def append_received(self, entries: tuple[Entry, ...]) -> None:
        """Entries that follow the log's end: received now, durable later."""
        self.log.append(entries)
        self.unstable.extend(entries)
        self.last_hybrid = max(self.last_hybrid, entries[-1].hybrid_time)

    def append_own(
        self, kind: EntryKind, hybrid_time: int, schema_id: int, meta: bytes, payload: bytes, payload_crc: int
    ) -> OpId:
        """A leader's own next entry."""
        opid = OpId(self.term, self.log.last.index + 1)
        self.append_received((Entry(opid, kind, hybrid_time, schema_id, meta, payload, payload_crc),))
        self.stir()
        self.sends_wanted = True
        return opid

    def truncate_after(self, index: int) -> None:
        """Drop a tail that a later leader's log does not have. Committed entries are never in it [raft §5.4.3]."""
        check(index >= self.commit_index, "a committed entry is never truncated", index=index, commit=self.commit_index)
        self.trace(f"truncate after {index} of {self.log.last}")
        handed_out = self.unstable[0].opid.index - 1 if self.unstable else self.log.last.index
        self.log.truncate_after(index)
        while self.unstable and self.unstable[-1].opid.index > index:
            self.unstable.pop()
        if index < handed_out:
            self.truncate_from = index + 1 if self.truncate_from is None else min(self.truncate_from, index + 1)
        self.persisted = min(self.persisted, index)

    def note_persisted(self, index: int, *, through_bundle: int) -> None:
        """The WAL holds the log through index, as of the writes of bundles up to `through_bundle`.

        A truncation of a later bundle voids what it covers, even if the same OpId was received again since: on disk the
        first copy is overwritten before the second one is durable.
        """
        fences = [start for number, start in self.truncations if number > through_bundle]
        if self.truncate_from is not None:
            fences.append(self.truncate_from)
        if self.unstable:
            fences.append(self.unstable[0].opid.index)
        self.persisted = max(self.persisted, min([index, self.log.last.index, *(start - 1 for start in fences)]))
        if self.withheld is not None:
            self.heal_withheld()

    def heal_withheld(self) -> None:
        """A damaged tail is healed once the durable log has reached the index that was lost, or a term in which nothing
        can have been lost: whoever sent that had what was committed, by log matching (DIVERGENCES D-7)."""
        durable = OpId(self.log.term_at(self.persisted) or 0, self.persisted)
        lost = self.withheld
        if lost is not None and (durable.index >= lost.index or durable.term > self.term_found):
            self.trace(f"damaged tail {lost} is healed at {durable}")
            self.withheld = None
            self.may_campaign = True

    # --------------------------------------------------------------------------------------------------- ready

    def committed_range(self) -> tuple[int, int] | None:
        """Committed, durable here and not handed out yet: half-open. D-6."""
        hi = min(self.commit_index, self.persisted)
        return (self.handed + 1, hi + 1) if hi > self.handed else None

    def has_output(self) -> bool:
        return bool(
            self.now
            or self.after
            or self.unstable
            or self.hard_state_dirty
            or self.truncate_from is not None
            or self.role_from is not None
            or self.read_states
            or self.read_failures
            or self.copies_needed
            or self.entries_needed
            or self.safe_time is not None
            or self.traces
            or self.committed_range() is not None
            or self._config_due() is not None
        )

    def take_ready(self) -> Ready:
        """Hand out everything queued, as the next bundle."""
        self.number += 1
        committed = self.committed_range()
        if committed is not None:
            self.handed = committed[1] - 1
        config_committed = self._config_due()
        if config_committed is not None:
            self.config_committed = None
        hard_state = HardState(self.term, self.voted_for) if self.hard_state_dirty else None
        if hard_state is not None:
            self.hard_state_dirty, self.hard_state_number = False, self.number
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
            role_change=None if self.role_from is None else (self.role_from, self.role),
            safe_time=self.safe_time,
            trace=tuple(self.traces),
        )
        self.truncate_from, self.role_from, self.safe_time = None, None, None
        queues: tuple[list[Any], ...] = (self.unstable, self.now, self.after, self.read_states, self.read_failures)
        for queue in (*queues, self.copies_needed, self.entries_needed, self.traces):
            queue.clear()
        return ready

    def _config_due(self) -> RaftConfig | None:
        due = self.config_committed
        return due if due is not None and due.opid.index <= self.persisted else None

    @property
    def last(self) -> OpId:
        return self.log.last

    def opid_at(self, index: int) -> OpId | None:
        """OpId of a retained index or the boundary; None if its term is unknown."""
        if index == 0:
            return ZERO_OPID
        term = self.log.term_at(index)
        return None if term is None else OpId(term, index)
