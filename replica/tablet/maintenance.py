"""Flush and compaction: background work that changes files and never the rows that a reader gets.

A block contains supersessions by entries up to the superblock's flush position only. Later ones stay in memory, beside
the memory store that caused them, and are carried over when the files to which they refer are replaced, because replay
makes them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa

from nyala.replica.fs import RESERVE
from nyala.replica.rows import TableSchema
from nyala.replica.types import MAX_HYBRID_TIME, DiskFailure, Refused, limits

from .block import MAPS_PER_BLOCK, Block, Deltas, deltas_between
from .block_file import FOLDER, Written, verify_file, write_block
from .columns import conform
from .contents import Contents, FlushedBlock, Frozen
from .hash_index import I64
from .memstore import unique_by_hash
from .merge import Part, merge_parts
from .merge_rule import MERGE_BYTES_MAX, choose_run, flush_runs
from .results import FlushResult
from .superblock import Superblock

COMPACTION_DEAD_SHARE = 0.3


class Maintenance:
    """Flush and compaction of one tablet. Concurrency: one at a time, under the contents' maintenance lock."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self.merge_bytes_max = self.flush_bytes_max = MERGE_BYTES_MAX

    # ------------------------------------------------------------------------------------------------- flush

    def flush(self) -> FlushResult | None:
        """See Tablet.flush."""
        contents = self._contents
        with contents.maintenance:
            frozen = None if contents.closed else contents.freeze()
            if frozen is None:
                return None
            blocks = max(1, len(self._runs(frozen)))
            RESERVE.take(blocks * MAPS_PER_BLOCK, limits.MAPS_SHARE_TO_FLUSH_MAX)  # before one is written in vain
            contents.resolver.resolve(contents.stores)
            superblock = contents.superblock
            written = self._write(superblock, frozen, self._deltas(superblock.flush_time, frozen.time))
            infos = [block.info for _, _, block in written]
            after = replace(
                superblock,
                flush_opid=frozen.opid,
                flush_time=frozen.time,
                history_horizon=max(superblock.history_horizon, frozen.horizon),
                ledger=frozen.ledger.to_avro(),
                table_schemas=frozen.schemas,
                blocks=(*superblock.blocks, *infos),
                next_block=superblock.next_block + len(infos),
            )
            flushed = [FlushedBlock(start, at, self._open(block, frozen.schema)) for start, at, block in written]
            contents.disk.crash_point("tablet.before_superblock_flush")
            after.save(contents.disk, over=superblock)
            contents.disk.crash_point("tablet.after_superblock_flush")
            contents.install_flushed(frozen, flushed, after)
            size_bytes = sum(length for info in infos for _, length, _ in info.files)
            return FlushResult(frozen.opid, sum(i.rows for i in infos), size_bytes, tuple(i.name for i in infos))

    def _deltas(self, after: int, up_to: int) -> dict[str, Deltas]:
        """The rows in existing blocks that entries with after < time <= up_to superseded."""
        blocks = self._contents.superseded()
        found = {b.info.block_id: deltas_between(deltas, after, up_to) for b, deltas in blocks}
        return {block_id: deltas for block_id, deltas in found.items() if len(deltas[0])}

    def _runs(self, frozen: Frozen) -> list[tuple[int, int]]:
        return flush_runs([c.size_bytes for c in frozen.store.chunks], self.flush_bytes_max)

    def _parts(self, frozen: Frozen) -> Iterator[tuple[int, Part]]:
        """The content of each new block, with its first row; the last part has no rows."""
        store = frozen.store
        for first, last in self._runs(frozen):
            batches = [conform(c.batch, c.schema, frozen.schema) for c in store.chunks[first:last]]
            batch = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
            start = store.chunks[first].base
            rows = slice(start, start + batch.num_rows)
            superseded = store.superseded[rows].copy()
            # Entries after the freeze may have ended rows meanwhile; replay does that again.
            superseded[superseded > frozen.time] = MAX_HYBRID_TIME
            yield start, Part(batch, store.ts[rows], superseded, store.rotated_hashes_of(rows))
        nothing = [pa.array([], type=c.arrow_type) for c in frozen.schema.columns]
        batch = pa.RecordBatch.from_arrays(nothing, schema=frozen.schema.arrow)
        yield store.rows, Part(batch, np.empty(0, np.int64), None)

    def _write(
        self, superblock: Superblock, frozen: Frozen, deltas: dict[str, Deltas]
    ) -> list[tuple[int, I64, Written]]:
        """Write blocks of the frozen rows, the first with `deltas`; returns (first row, new positions, block) of each.

        After an error there are no files left.
        """
        contents = self._contents
        done: list[tuple[int, I64, Written]] = []
        try:
            for start, part in self._parts(frozen):
                content, (positions,) = merge_parts([part], frozen.schema, frozen.horizon)
                if not content.batch.num_rows and (not deltas or len(positions)):
                    continue  # the remaining deltas are written with the part that has no rows
                contents.disk.crash_point("tablet.before_block_write")
                stem = f"{FOLDER}/{superblock.tablet_id}-{superblock.next_block + len(done):06d}"
                done.append((start, positions, write_block(contents.disk, stem, content._replace(deltas=deltas), 0)))
                contents.disk.crash_point("tablet.after_block_write")
                deltas = {}
        except Exception:
            for path, _, _ in (file for _, _, block in done for file in block.info.files):
                with suppress(FileNotFoundError, DiskFailure, Refused):
                    contents.disk.remove(path)
            raise
        return done

    def _open(self, written: Written, schema: TableSchema) -> Block:
        info, pages = written
        return Block(self._contents.disk, info, schema, exact=unique_by_hash(schema), verify=False, pages=pages)

    # ------------------------------------------------------------------------------------------------- compaction

    def choose(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks to merge (`merge_rule.py`), or one that is largely superseded; empty if there are none."""
        run = choose_run([b.info.length_bytes for b in blocks], self.merge_bytes_max)
        if run:
            return [blocks[pos] for pos in run]
        by_size = sorted(blocks, key=lambda b: (b.info.length_bytes, b.info.name))
        wasteful = [b for b in by_size if b.collectable(self._horizon()) > COMPACTION_DEAD_SHARE * b.rows]
        return wasteful[:1]

    def _horizon(self) -> int:
        """The time at or before which ended versions may be dropped, because no snapshot sees them and no replay needs
        them."""
        return min(self._contents.history_horizon, self._contents.superblock.flush_time)

    def compact(self) -> bool:
        """See Tablet.compact."""
        contents = self._contents
        with contents.maintenance:
            with contents.lock:
                contents.check_whole()
                inputs = self.choose(contents.stores.blocks)
                horizon = self._horizon()
                ended = [b.deltas for b in inputs]
                superblock = contents.forget_history(horizon)
            if not inputs:
                return False
            for path, length_bytes, crc in (file for b in inputs for file in b.info.files):
                # They were checked when they were opened, perhaps long ago. A merge gives them a new checksum, so
                # damage since then would not be noticed any more.
                verify_file(contents.disk, path, length_bytes, crc)
            schema = superblock.schema
            parts = [
                Part(conform(b.batch, b.schema, schema), b.ts, b.superseded_at(k, superblock.flush_time))
                for b, k in zip(inputs, ended, strict=True)
            ]
            merged = merge_parts(parts, schema, horizon)
            deltas = _inherited_deltas(inputs, superblock)
            written = None
            if merged.content.batch.num_rows or deltas:
                contents.disk.crash_point("tablet.before_block_write")
                stem = f"{FOLDER}/{superblock.tablet_id}-{superblock.next_block:06d}"
                level = 1 + max(b.info.level for b in inputs)
                written = write_block(contents.disk, stem, merged.content._replace(deltas=deltas), level)
                contents.disk.crash_point("tablet.after_block_write")
            gone = {b.info.block_id for b in inputs}
            kept = tuple(b for b in superblock.blocks if b.block_id not in gone)
            after = replace(
                superblock,
                blocks=kept if written is None else (*kept, written.info),
                next_block=superblock.next_block + (written is not None),
            )
            block = None if written is None else self._open(written, schema)
            contents.disk.crash_point("tablet.before_compaction_swap")
            after.save(contents.disk, over=superblock)
            contents.disk.crash_point("tablet.after_compaction_swap")
            contents.install_compacted(inputs, merged, block, after)
        self.remove_replaced_files()
        return True

    def remove_replaced_files(self) -> None:
        """Delete files that compaction replaced, unless a copy session holds them.

        After a crash, or if the folder cannot be changed, the sweep of the next start deletes them.
        """
        contents = self._contents
        for path in contents.take_removable():
            try:
                with suppress(FileNotFoundError, DiskFailure):
                    contents.disk.remove(path)
            except Refused:  # a resource is exhausted: try again with the next ones
                contents.remove_later(path)


def _inherited_deltas(inputs: Sequence[Block], superblock: Superblock) -> dict[str, Deltas]:
    """The deltas in the inputs' sidecars for blocks that stay."""
    gone = {b.info.block_id for b in inputs}
    stay = {b.block_id for b in superblock.blocks} - gone
    found: dict[str, list[tuple[I64, I64]]] = {}
    for block in inputs:
        for block_id, (positions, times) in block.sidecar.deltas.items():
            if block_id in stay:
                found.setdefault(block_id, []).append((positions.astype(np.int64), times))
    return {i: (np.concatenate([p for p, _ in k]), np.concatenate([t for _, t in k])) for i, k in found.items()}
