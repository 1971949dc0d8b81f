"""The environment of one replica: its files, threads, clocks, random numbers, peers and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft import CopyNeeded, Message
from nyala.replica.types import Entry, HybridClock, Post, Rng, Timer
from nyala.replica.wal import Log

from .state_machine import RunHeavy, StateMachine

Send = Callable[[list[tuple[str, Message]]], None]


def _any_entry(_: Entry) -> str:
    return ""


def _nobody(_: str) -> None:
    return None


def _false() -> bool:
    return False


def _no_clock() -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of one replica. The caller owns the log and the state machine, and closes them."""

    cmeta: ConsensusMeta
    log: Log
    state_machine: StateMachine
    no_data: bool = False
    """The replica is a witness: its state machine only counts entries, and it never leads."""
    unfit: Callable[[Entry], str] = _any_entry
    """Returns the reason why this kind of state machine could not apply an entry of a peer, judged by its bytes alone;
    empty if it could."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The threads, time, random numbers and peers of one replica, and the callbacks that it calls."""

    hybrid_clock: HybridClock
    rng: Rng
    post: Post
    run_heavy: RunHeavy
    send: Send
    """`send([(tablet_id, message)])` must not block."""
    on_copy_needed: Callable[[str, CopyNeeded], None]
    on_fatal: Callable[[BaseException], None]
    """Called with a DiskFailure or InvariantViolation; the process must end."""
    on_change: Callable[[str], None] = _nobody
    """Called when role, term, leader, config or phase of the tablet changed."""
    on_awake: Callable[[str], None] = _nobody
    """Called when a replica for which `rest` returned True must be ticked again."""
    run_meta: RunHeavy | None = None
    """The ordered lane of consensus metadata, so that a vote never waits for an apply; by default `run_heavy`."""
    soon: Post | None = None
    """A cheaper `post` for the owner's own thread."""
    timer: Timer | None = None
    """Without a timer, no batch of small writes waits for writers that were just answered."""
    ticks_now: Callable[[], int | None] = _no_clock
    """The monotonic clock in ticks, pauses and suspends included. Leases are judged by it. Without it every strong read
    takes a round of heartbeats."""

    yields: Callable[[], bool] = _false
    """Whether other replicas shall lead, as long as one of them can."""

    @property
    def own_thread(self) -> Post:
        """The cheapest way to the owner's thread, from itself."""
        return self.soon or self.post

    @property
    def meta_lane(self) -> RunHeavy:
        return self.run_meta or self.run_heavy
