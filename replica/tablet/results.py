"""What apply and flush report."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.rows import RowError
from nyala.replica.types import OpId, Refused


@dataclass(frozen=True)
class ApplyResult:
    """The outcome of one entry; the same on every replica.

    `error`: the batch was refused whole and moved nothing. Otherwise `row_errors` (ascending by offset) names the rows
    that failed, remembered ones of replayed rows included; `rows_applied` counts the rows that were new and did not
    fail, `rows_replayed` those that the ledger had seen before. `last_offset` is the source's last offset afterwards,
    None for a write that names no source.
    """

    opid: OpId
    hybrid_time: int = 0
    """The time at which the rows became visible; a replayed client write reports its first application's."""
    error: Refused | None = None
    row_errors: tuple[RowError, ...] = ()
    rows_applied: int = 0
    rows_replayed: int = 0
    last_offset: int | None = None


@dataclass(frozen=True)
class FlushResult:
    """What a flush made durable: everything up to `flush_opid`."""

    flush_opid: OpId
    rows: int
    bytes_written: int
    blocks: tuple[str, ...]
    """Paths of the new blocks: one as a rule, none if there was nothing to write."""
