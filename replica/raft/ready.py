"""`Ready`: work that a core hands out, and the driver carries out in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from nyala.replica.types import Code, DataState, Entry, OpId, RaftConfig

from .messages import Message


class Role(StrEnum):
    """What a replica does now. Follower, learner and non-participant are derived from the active config."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    PRE_CANDIDATE = "PRE_CANDIDATE"
    LEARNER = "LEARNER"
    NON_PARTICIPANT = "NON_PARTICIPANT"


class HardState(NamedTuple):
    """Term and vote [raft fig. 2]: saved and synced before any message that depends on them is sent."""

    term: int
    voted_for: str | None


class CopyNeeded(NamedTuple):
    """A peer that the log can no longer serve; the driver sends it StartTabletCopy.

    `current_state` and `last_opid` are what the peer last reported, for the compare-and-set of that request
    [kudu raft-tablet-copy]: DOES_NOT_EXIST, DELETED, or READY (alive, but behind the log's first index).
    """

    peer_uuid: str
    current_state: DataState
    last_opid: OpId


class EntriesNeeded(NamedTuple):
    """A peer waits for entries from `lo` on which left memory: read them, `load` them, call `entries_loaded`."""

    peer_uuid: str
    lo: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerStatus:
    """The status of one peer of a leader. `contact_ticks`: ticks since it last answered as a running replica."""

    uuid: str
    state: str
    """PROBE, REPLICATE or COPY."""
    match_index: int
    next_index: int
    contact_ticks: int
    needs_copy: bool
    data_state: DataState
    last_code: Code
    applied_index: int
    commit_index: int
    caught_up: bool
    absent: bool = False
    """Whether nothing is heard from its server, as the driver reported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """Work for the driver. Everything in it is already true of the core and of its LogView.

    What the driver must do:

    1. *Take.* After every batch of `tick`/`step`/`propose`/`persisted`/... calls, call `ready()` until it returns None.
       Any number may be outstanding: nothing has to be finished before the next is taken. They carry
       consecutive `number`s, and every rule below that says "in order" means the order of those numbers.
    2. *At once, in any order:* send `messages_now`; answer `read_states` and `read_failures`; act on `copies_needed`,
       `entries_needed`, `role_change`; print `trace`. None of it waits for the disk.
    3. *To disk, in order.* If `hard_state` is set, save it to consensus metadata (synced). If `entries` is not empty,
       append them to the WAL (synced) after those of earlier ones; if `truncate_from` is set, everything in the WAL
       from that index on is void from now on, and the new entries replace it. `truncate_from` may come without entries
       only in theory; treat it the same. The hard state and the entries of one `Ready` may be written in parallel, and
       so may a hard state and entries of *earlier* ones; an entry must not become durable if saving a hard state of
       an earlier `Ready` failed for good. A failed save ends the replica. A save that found no room is tried again, and
       everything after it waits.
    4. *Afterwards.* When the hard states and entries of this `Ready` **and of all earlier ones** are durable, send
       `messages_after_persist`, then call `advance(ready)`: in order, once each, also for those with nothing to
       persist. Sending them earlier breaks Raft: they are vote requests, vote grants and acknowledgements.
       If the disk fails, send nothing, advance nothing, stop the replica.
    5. *Optionally earlier:* `persisted(opid)` as soon as the WAL is durable through opid, before the `Ready` can be
       advanced. It only speeds up a leader's own acknowledgement; `advance` implies it.
    6. *Apply* `committed` = (lo, hi): the entries with lo <= index < hi (as `LogView.entries(lo, hi)`), in order over
       all of them, each index exactly once. They are durable here already. Applying may run long after and elsewhere.
       Report progress by setting `core.applied_index` (it travels in replies, for people and metrics only).
    7. *`config_committed`:* save it to consensus metadata, in order, before or together with the next `hard_state`;
       nothing waits for it (the entry itself is durable), but log GC must not pass `config_committed.opid.index`
       before it is saved [kudu raft-config-change].
    8. Each entry, and `safe_time`, must be shown to the driver's hybrid clock before it issues another time
       (`HybridClock.observe`), whichever replica wrote it.

    `safe_time` = (index, hybrid_time): once this replica has applied through `index`, the leader that said so writes
    nothing at or below `hybrid_time`. This binds this leader only; see DESIGN.md before serving reads by it.
    """

    number: int
    hard_state: HardState | None = None
    truncate_from: int | None = None
    entries: tuple[Entry, ...] = ()
    messages_now: tuple[Message, ...] = ()
    messages_after_persist: tuple[Message, ...] = ()
    committed: tuple[int, int] | None = None
    """Half-open [lo, hi)."""
    config_committed: RaftConfig | None = None
    read_states: tuple[tuple[int, int], ...] = ()
    """(token, index): serve the read once `index` is applied."""
    read_failures: tuple[tuple[int, Code], ...] = ()
    copies_needed: tuple[CopyNeeded, ...] = ()
    entries_needed: tuple[EntriesNeeded, ...] = ()
    role_change: tuple[Role, Role] | None = None
    safe_time: tuple[int, int] | None = None
    trace: tuple[str, ...] = ()
