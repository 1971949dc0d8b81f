"""The results of apply and flush."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.rows import RowError
from nyala.replica.types import OpId, Refused


@dataclass(frozen=True)
class ApplyResult:
    """The outcome of one entry; the same on every replica.

    `error`: the whole batch was refused and changed nothing. Otherwise `row_errors` (ascending by offset) has the
    failed rows, including the remembered errors of repeated rows. `rows_applied` counts the new rows that did not fail,
    `rows_replayed` those that the ledger had seen before. `last_offset` is the source's last offset afterwards, None
    for a write that names no source.
    """

    opid: OpId
    hybrid_time: int = 0
    """The time at which the rows became visible; for a repeated client write, that of its first application."""
    error: Refused | None = None
    row_errors: tuple[RowError, ...] = ()
    rows_applied: int = 0
    rows_replayed: int = 0
    last_offset: int | None = None


@dataclass(frozen=True)
class FlushResult:
    """The effect of a flush: everything up to `flush_opid` is durable."""

    flush_opid: OpId
    rows: int
    bytes_written: int
    blocks: tuple[str, ...]
    """The paths of the new blocks: normally one, none if there was nothing to write."""
