"""The fields of one core, and the operations that all rules share: send, append, truncate, save, make a `Ready`.

Invariants:
- commit_index never falls and never exceeds the log; handed (the last index given to apply) <= min(commit, persisted).
- The log is durable up to `persisted`, which falls only when a tail is truncated.
"""

from __future__ import annotations

from collections.abc import Callable

from nyala.replica.types import Entry, EntryKind, OpId, RaftConfig, Rng, check

from .leading import Leading
from .log_view import LogView
from .messages import Message
from .options import RaftOptions
from .outputs import Outputs
from .persistent_state import PersistentState
from .ready import Ready, Role
from .role_changes import ROLE_CHANGES
from .voting import Election


class State:
    """The fields of one core. Rules are functions over it, one module each."""

    def __init__(
        self,
        *,
        uuid: str,
        hard: PersistentState,
        log: LogView,
        commit_index: int,
        options: RaftOptions,
        rng: Rng,
        encode_config: Callable[[RaftConfig], bytes],
        decode_config: Callable[[bytes], RaftConfig],
        hybrid_now: Callable[[], int] | None,
        yields: Callable[[], bool],
    ) -> None:
        self.uuid = uuid
        self.options = options
        self.log = log
        self.encode_config = encode_config
        self.decode_config = decode_config
        self.hybrid_now = hybrid_now
        self.yields = yields
        self.last_hybrid = 0

        self.hard = hard
        self.role = Role.NON_PARTICIPANT
        self.leader_uuid: str | None = None
        self.commit_index = commit_index
        self.applied_index = commit_index
        self.handed = commit_index
        self.persisted = log.last.index

        self.voters: tuple[str, ...]
        self.witnesses: tuple[str, ...]
        """The voters that have no data."""
        self.electable: bool
        """Whether this replica may lead. Like the two fields above, it follows from the configs
        (`roles.config_in_force`)."""

        self.ticks = 0
        self.quiet = False
        """The timers are stopped; see quiet.py."""
        self.absent: set[str] = set()
        """Servers from which nothing is heard, as the driver reported. Never iterated."""
        self.election = Election(
            options, rng, timeout=options.election_ticks_max, ticks_since_leader=options.election_ticks_max
        )

        self.lead = Leading()
        self.clock: int | None = None
        """The latest time of the driver's monotonic clock that an input had, in ticks."""

        self.out = Outputs()

    # ------------------------------------------------------------------------------------------------ messages

    @property
    def hard_state_durable(self) -> bool:
        """Whether the present term and vote are on disk."""
        return self.hard.durable(self.out.advanced)

    def send(self, msg: Message) -> None:
        """Queue a message. If it names a term that is not saved yet, it waits for the disk [raft fig. 2]."""
        if not self.hard_state_durable:
            self.send_after_sync(msg)
        else:
            self.out.now.append(msg)

    def send_after_sync(self, msg: Message) -> None:
        """Queue a message that acknowledges entries which are not durable yet: it also waits for the entries of this
        `Ready`."""
        self.out.after.append(msg)

    def trace(self, text: str) -> None:
        self.out.traces.append(f"[term {self.hard.term} {self.role}] {text}")

    def set_role(self, role: Role) -> None:
        if role is not self.role:
            check(role in ROLE_CHANGES[self.role], "a legal change of role", uuid=self.uuid, old=self.role, new=role)
            if self.out.role_from is None:
                self.out.role_from = self.role
            self.role = role

    # --------------------------------------------------------------------------------------------------- log

    def next_hybrid_time(self) -> int:
        """The hybrid time of an entry that the core itself makes."""
        return self.hybrid_now() if self.hybrid_now else self.last_hybrid + 1

    def mark_active(self) -> None:
        """Leader: note that the group is in use. It goes quiet only after it has been idle again."""
        self.lead.idle_ticks = 0
        self.lead.quiet_round = 0
        self.quiet = False

    def append_received(self, entries: tuple[Entry, ...]) -> None:
        """Append entries that follow the log's end: received now, durable later."""
        self.log.append(entries)
        self.out.unstable.extend(entries)
        self.last_hybrid = entries[-1].hybrid_time

    def append_own(
        self, kind: EntryKind, hybrid_time: int, schema_id: int, meta: bytes, payload: bytes, payload_crc: int
    ) -> OpId:
        """Append a leader's own next entry."""
        opid = OpId(self.hard.term, self.log.last.index + 1)
        self.append_received((Entry(opid, kind, hybrid_time, schema_id, meta, payload, payload_crc),))
        self.mark_active()
        self.lead.sends_wanted = True
        return opid

    def truncate_after(self, index: int) -> None:
        """Drop a tail that a later leader's log does not have. Committed entries are never in it [raft §5.4.3]."""
        check(index >= self.commit_index, "a committed entry is never truncated", index=index, commit=self.commit_index)
        self.trace(f"truncate after {index} of {self.log.last}")
        self.out.truncate(index, self.log.last.index)
        self.log.truncate_after(index)
        self.persisted = min(self.persisted, index)

    def note_persisted(self, index: int) -> None:
        """Note that the log is durable through `index`, as of the writes up to the last advanced `Ready`."""
        self.persisted = max(self.persisted, min([index, self.last.index, *(i - 1 for i in self.out.fences())]))
        self.heal_withheld()

    def heal_withheld(self) -> None:
        """Forget the mark of the damaged tail once the durable log is past it."""
        if self.hard.healed(self.durable):
            self.trace(f"damaged tail {self.hard.withheld} is healed at {self.durable}")
            self.hard.withheld = None

    # --------------------------------------------------------------------------------------------------- ready

    def committed_range(self) -> tuple[int, int] | None:
        """The range [lo, hi) of entries that are committed, durable here and not given out yet. D-6."""
        hi = min(self.commit_index, self.persisted)
        return (self.handed + 1, hi + 1) if hi > self.handed else None

    def has_output(self) -> bool:
        """Whether `take_ready` would return work. A due config needs no check: it comes with committed entries or a
        trace."""
        return self.out.any_queued() or self.hard.dirty or self.committed_range() is not None

    def take_ready(self) -> Ready:
        """Return everything queued, as the next `Ready`."""
        committed = self.committed_range()
        if committed is not None:
            self.handed = committed[1] - 1
        due = self.out.config_due(self.persisted)
        return self.out.take(
            role=self.role,
            hard_state=self.hard.take(self.out.number + 1),
            committed=committed,
            config_committed=due,
        )

    @property
    def last(self) -> OpId:
        return self.log.last

    @property
    def durable(self) -> OpId:
        """The OpId of the last entry that is durable here."""
        return self.opid_at(self.persisted)

    def opid_at(self, index: int) -> OpId:
        """The OpId of a retained entry, or of the boundary just below the first one."""
        return OpId(self.log.term_at(index) or 0, index)
