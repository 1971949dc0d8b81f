"""One data tablet: memory store, sorted blocks, versions, the ledger; deterministic `apply`.

Signatures (see tablet.py):

    Superblock: load/save/exists/list_tablets, .blocks, .next_block, .ledger, .schema, .partition, ...
    block_names(superblock) -> frozenset[str]; sweep_orphans(disk, live_names) -> list[str]
    Tablet.create(disk, superblock) / Tablet.open(disk, superblock, verify=True) -> Tablet
    .check_write(schema_id, column_ids, payload, payload_crc, rows) -> pa.RecordBatch
    .precheck(meta) -> ApplyResult | None      (GAP, STALE_GENERATION, EXPIRED or a wholly replayed batch)
    .apply(entries) -> list[ApplyResult]
    .scan(columns=None, predicates=(), snapshot_time=None, slice=(0, 1), limit=0, count_only=False)
        -> Scan: iterator of pa.RecordBatch with .schema and .snapshot_time; count_only: one batch {count: int64}
    .checksum(snapshot_time=None) -> (checksum, rows)
    .flush() -> FlushResult | None; .compact() -> bool; .wants_flush(wal_bytes=0) -> float; .wants_compaction() -> bool
    .hold() -> context manager yielding the Superblock whose block files stay on disk meanwhile
    .block_files() -> list[(path, length_bytes, crc)]
    .applied_opid .applied_time .safe_time .flush_opid .memory_bytes .rows_estimate .bytes_on_disk .superblock .schema
    .ledger_sources() -> list[SourceState]; .close()
"""

from .results import ApplyResult, FlushResult
from .superblock import BlockInfo, Superblock, block_names, superblock_path, sweep_orphans

__all__ = [
    "ApplyResult",
    "BlockInfo",
    "FlushResult",
    "Superblock",
    "block_names",
    "superblock_path",
    "sweep_orphans",
]
