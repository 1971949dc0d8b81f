"""Decides when a tablet is flushed: by the memory that it uses, by the growth of its log since the last flush, or by
age. Pure; the caller passes the times."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from nyala.replica.types import ZERO_OPID, OpId, limits

AGE_S = 120.0
"""A store of SMALL_BYTES or more is flushed at this age, and a smaller one if it had no write for as long."""
SMALL_BYTES = 1 << 20
"""A store below this size is flushed later, so that blocks do not become too small."""
SMALL_AGE_S = 900.0
"""A small store is flushed at this age. So a tablet with few writes makes one small block in this time; compaction
merges four such blocks at once."""


@dataclass(frozen=True, kw_only=True)
class Unflushed:
    """Measures of the content of one tablet that is applied and not flushed, in bytes and seconds."""

    memory_bytes: int
    """The bytes of its stores, and of the supersessions of rows in blocks."""
    store_bytes: int
    """The bytes of its stores alone, of which a flush makes a block."""
    log_bytes: int
    """The growth of its log since the last flush."""
    age_s: float
    """The time since its first unflushed entry."""
    idle_s: float
    """The time since its last unflushed entry."""
    since_flush_s: float
    """The time since the last attempt to flush; infinite if there was none."""


def urgency(held: Unflushed, *, flush_wal_bytes: int, pressed_bytes: int = 0) -> float:
    """How urgent a flush is. From 1.0 on, the tablet should be flushed; the tablet with the highest value comes first.
    Age alone gives 1.0, so full stores and long logs come before it.

    `pressed_bytes`: the server's memory limit while memory is short, so that any store may be flushed; else 0.
    """
    return max(
        held.memory_bytes / limits.MEMSTORE_FLUSH_BYTES,
        held.log_bytes / flush_wal_bytes,
        1.0 + held.memory_bytes / pressed_bytes if pressed_bytes and held.memory_bytes else 0.0,
        1.0 if held.memory_bytes and is_old(held) else 0.0,
    )


def is_old(held: Unflushed) -> bool:
    """Whether the age alone makes a flush due. A small store waits longer, unless it has had no write for a while."""
    if held.age_s >= SMALL_AGE_S:
        return True
    worth_a_block = held.store_bytes >= SMALL_BYTES
    at_rest = held.idle_s >= AGE_S and held.since_flush_s >= SMALL_AGE_S
    return held.age_s >= AGE_S and (worth_a_block or at_rest)


@dataclass(frozen=True)
class FlushHistory:
    """The facts about one tablet that are kept from one check to the next. Seconds of one monotonic clock."""

    log_least_bytes: int
    """The log's smallest size since the last flush. At first this is the log kept for followers."""
    seen: OpId = ZERO_OPID
    first_s: float | None = None
    """The time at which an unflushed entry was first seen; None: all are flushed."""
    last_s: float = field(default=-math.inf)
    flushed_s: float = field(default=-math.inf)

    def after_check(self, applied: OpId, flushed: OpId, log_bytes: int, now_s: float) -> FlushHistory:
        """The new value after a check of the tablet."""
        if applied <= flushed:
            return replace(self, seen=applied, first_s=None, log_least_bytes=min(self.log_least_bytes, log_bytes))
        return replace(
            self,
            log_least_bytes=min(self.log_least_bytes, log_bytes),
            seen=applied,
            first_s=now_s if self.first_s is None else self.first_s,
            last_s=now_s if applied != self.seen else self.last_s,
        )

    def after_flush(self, log_bytes: int | None, now_s: float) -> FlushHistory:
        """The new value after a flush. `log_bytes`: None if it failed; then the age begins anew, but not the log's
        growth."""
        least = self.log_least_bytes if log_bytes is None else log_bytes
        return replace(self, log_least_bytes=least, first_s=None, flushed_s=now_s)

    def unflushed(self, memory_bytes: int, store_bytes: int, log_bytes: int, now_s: float) -> Unflushed:
        """The input of the rule, right after `looked`."""
        return Unflushed(
            memory_bytes=memory_bytes,
            store_bytes=store_bytes,
            log_bytes=max(0, log_bytes - self.log_least_bytes),
            age_s=0.0 if self.first_s is None else now_s - self.first_s,
            idle_s=now_s - self.last_s,
            since_flush_s=now_s - self.flushed_s,
        )
