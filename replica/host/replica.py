"""One replica: the Raft core, its log, its metadata and its state machine, held together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nyala.replica.base import DataState, EntryKind, HybridClock, OpId, Post, RaftConfig, Refused, Rng

from .options import HostOptions
from .state_machine import RunHeavy, StateMachine
from .status import Phase, ReplicaStatus

Done = Callable[[Any], None]


class Anchor:
    """Keeps the log from `index` on until it is released."""


class Replica:
    """SIGNATURES ONLY for now; the body follows."""

    phase: Phase
    error: str

    def __init__(
        self,
        *,
        tablet_id: str,
        uuid: str,
        cmeta: Any,  # ConsensusMeta
        log: Any,  # wal.Log
        replay: Any,  # wal.Replay
        state_machine: StateMachine,
        hybrid_clock: HybridClock,
        raft_options: Any,  # RaftOptions
        rng: Rng,
        post: Post,
        run_heavy: RunHeavy,
        send: Callable[[list[tuple[str, Any]]], None],  # [(tablet_id, raft message)]
        on_copy_needed: Callable[[str, Any], None],  # (tablet_id, CopyNeeded)
        on_fatal: Callable[[BaseException], None],  # DiskFailure, InvariantViolation: the process must end
        on_change: Callable[[str], None] = lambda tablet_id: None,  # role, term, config, phase changed: report soon
        run_meta: RunHeavy | None = None,  # ordered lane of consensus metadata; default: run_heavy
        soon: Post | None = None,  # cheap post for the owner's thread only (loop.call_soon); default: post
        options: HostOptions | None = None,
    ) -> None: ...

    # All methods on the owner's thread, except bootstrap.
    def bootstrap(self) -> None:
        """Heavy: call in a thread, once, before start. Raises Corruption."""

    def start(self, *, campaign: bool = False) -> None:
        """Join the group; `campaign`: the hinted leader of a new tablet does not wait for a timeout."""

    def tick(self) -> None: ...

    def step(self, message: Any) -> None:
        """A raft message whose to_uuid is this server's."""

    def write(self, kind: EntryKind, schema_id: int, meta: bytes, payload: bytes, payload_crc: int, done: Done) -> None:
        """done(ApplyResult | Refused), once, on the owner's thread, never before this returns."""

    def change_config(self, edits: Sequence[Any], cas: OpId | None, decision: tuple[int, int], done: Done) -> None:
        """done(RaftConfig | Refused) when the new config is committed. edits: raft.ConfigEdit."""

    def transfer(
        self, target: str | None, done: Done, *, cas: OpId | None = None, decision: tuple[int, int] = (0, 0)
    ) -> None:
        """done(new leader's uuid | Refused)."""

    def read_barrier(self, done: Done) -> None:
        """done(index | Refused): this is the leader, and everything committed before the call is applied."""

    def wait_applied(self, index: int, done: Done) -> None:
        """done(index | Refused)."""

    def wait_safe(self, hybrid_time: int, done: Done) -> None:
        """done(hybrid_time | Refused): a snapshot at that time is complete here and stays so after any failover."""

    def anchor(self, index: int) -> Anchor: ...

    def release(self, anchor: Anchor) -> None: ...

    def gc(self, done: Done | None = None) -> None:
        """Delete log that nobody needs, off-thread; done(bytes freed)."""

    def status(self) -> ReplicaStatus: ...

    def stop(self) -> None:
        """Fail what waits, drop what comes; the log stays open for whoever holds it (`log.close()` is the caller's)."""

    @property
    def role(self) -> str: ...
    @property
    def term(self) -> int: ...
    @property
    def leader_uuid(self) -> str | None: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def committed_config(self) -> RaftConfig: ...
    @property
    def active_config(self) -> RaftConfig: ...
    @property
    def commit_index(self) -> int: ...
    @property
    def applied_index(self) -> int: ...
    @property
    def last_logged(self) -> OpId: ...


_ = (DataState, Refused)
