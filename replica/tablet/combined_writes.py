"""Chooses clients' small writes, next to each other in the log, that are applied as if they were one batch.

A one-row write costs as many vector operations as one of a thousand rows. Followers, and a leader with many clients,
often have several committed ones at a time. Writes may be combined if applying them in one step leaves the same rows,
times, results and ledger as applying them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from nyala.replica.rows import RowError, WriteMeta
from nyala.replica.types import Entry, EntryKind, Refused

from .hash_index import I64
from .ledger import Ledger
from .resolve import WireRows

PAYLOAD_BYTES_MAX = 4 << 10
"""Larger batches gain nothing from being combined."""
WRITES_MAX = 64


class CombinedWrites(NamedTuple):
    """Writes to be applied together, in log order.

    `rows.offsets` are positions over all rows, so they differ between the writes. `offsets` are those of the senders,
    `times` the hybrid time of each row, both of shape (rows,). `starts`: position of each write's first row.
    """

    entries: Sequence[Entry]
    metas: Sequence[WriteMeta]
    stamps: Sequence[int]
    """Hybrid time of each write."""
    rows: WireRows
    offsets: I64
    times: I64
    starts: I64
    payload_bytes: int

    def errors_by_write(self, errors: Sequence[RowError]) -> list[list[RowError]]:
        """Turn errors by position into a list for each write, of errors by the senders' offsets, ascending."""
        by_write: list[list[RowError]] = [[] for _ in self.entries]
        for error in sorted(errors):
            pos = int(np.searchsorted(self.starts, error.offset, side="right")) - 1
            by_write[pos].append(error._replace(offset=int(self.offsets[error.offset])))
        return by_write


def combine(
    entries: Sequence[Entry],
    first: int,
    *,
    schema_id: int,
    last_time: int,
    ledger: Ledger,
    decode: Callable[[Entry, WriteMeta], Any],
) -> CombinedWrites | None:
    """The longest run of writes from position `first` on that may be combined; None if there are fewer than two.

    `last_time`: the tablet's time before them. `decode(entry, meta)` returns the pa.RecordBatch or raises Refused. The
    run ends before a write that must be applied alone: one from a Kafka source, of another schema, of other columns or
    marks, or one whose outcome the ledger may know.
    """
    metas: list[WriteMeta] = []
    stamps: list[int] = []
    batches: list[Any] = []
    for entry in entries[first : first + WRITES_MAX]:
        if entry.kind is not EntryKind.WRITE or len(entry.payload) > PAYLOAD_BYTES_MAX or entry.schema_id != schema_id:
            break
        meta = WriteMeta.decode(entry.meta)
        if meta.source is not None or not meta.client_id:
            break
        if metas and _kind(meta) != _kind(metas[0]):
            break
        last_time = max(entry.hybrid_time, last_time + 1)
        try:
            batch = decode(entry, meta)
        except Refused:
            break
        metas.append(meta)
        stamps.append(last_time)
        batches.append(batch)
    if len(metas) < 2:
        return None
    count = ledger.new_writes(metas, stamps)
    if count < 2:
        return None
    metas, stamps, batches = metas[:count], stamps[:count], batches[:count]
    rows = WireRows.of_batch(pa.concat_batches(batches), metas[0])
    sizes = np.array([meta.rows for meta in metas])
    starts = np.cumsum(sizes) - sizes
    offsets, positions = rows.offsets, np.arange(len(rows.offsets))
    chosen = entries[first : first + count]
    return CombinedWrites(
        chosen,
        metas,
        stamps,
        rows._replace(offsets=positions),
        offsets,
        np.repeat(np.array(stamps, dtype=np.int64), sizes),
        starts,
        sum(len(entry.payload) for entry in chosen),
    )


def _kind(meta: WriteMeta) -> tuple[tuple[int, ...], bool, bool]:
    """The properties that rows must share to be applied in one step."""
    return meta.column_ids, meta.ignore_null, meta.rows_bounded
