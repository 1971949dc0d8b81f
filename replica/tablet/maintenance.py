"""Flush and compaction: background work that changes files, never what a reader sees.

A block holds supersessions by entries up to the superblock's flush position only. Later ones stay in memory, beside the
memory store that caused them, and are carried over when the files they refer to are replaced: replay makes them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nyala.replica.base import MAX_HYBRID_TIME, DiskFailure, OpId
from nyala.replica.rows import TableSchema

from .block import Block, Kills, kills_between
from .block_file import FOLDER, Written, verify_file, write_block
from .columns import conform
from .hash_index import I64
from .ledger import Ledger
from .memstore import MemStore, unique_by_hash
from .merge import Merged, Part, merge_parts
from .results import FlushResult
from .superblock import Superblock

if TYPE_CHECKING:
    from .tablet import Tablet

COMPACTION_INPUT_BYTES_MAX = 192 << 20
COMPACTION_FAN_IN_MIN = 4
COMPACTION_FAN_IN_MAX = 16
COMPACTION_DEAD_SHARE = 0.3
_SIMILAR = 4
EXPECTED_ROWS_MAX = 4 << 20


class Frozen(NamedTuple):
    """A memory store that takes no more rows, and everything else as of its last entry."""

    store: MemStore
    opid: OpId
    time: int
    ledger: Ledger
    schema: TableSchema
    schemas: tuple[TableSchema, ...]
    horizon: int


class Maintenance:
    """Flush and compaction of one tablet. Concurrency: one at a time, by the tablet's maintenance lock."""

    def __init__(self, tablet: Tablet) -> None:
        self._tablet = tablet

    # ------------------------------------------------------------------------------------------------- flush

    def flush(self) -> FlushResult | None:
        """See Tablet.flush."""
        tablet = self._tablet
        with tablet._maintenance:
            frozen = None if tablet.closed else self._freeze()
            if frozen is None:
                return None
            tablet._resolver.resolve(tablet._stores)
            superblock = tablet._superblock
            deltas = self._deltas(superblock.flush_time, frozen.time)
            merged, written = None, None
            if frozen.store.rows:
                merged = merge_parts(self._parts(frozen), frozen.schema, frozen.horizon)
            if deltas or (merged is not None and merged.content.batch.num_rows):
                written, merged = self._write(superblock, frozen, merged, deltas)
            info = None if written is None else written.info
            after = replace(
                superblock,
                flush_opid=frozen.opid,
                flush_time=frozen.time,
                history_horizon=max(superblock.history_horizon, frozen.horizon),
                ledger=frozen.ledger.to_avro(),
                table_schemas=frozen.schemas,
                blocks=superblock.blocks if info is None else (*superblock.blocks, info),
                next_block=superblock.next_block + (info is not None),
            )
            block = self._open(written, frozen.schema)
            self._save(after)
            self._install_flushed(frozen, merged, block, after)
            if info is None:
                return FlushResult(frozen.opid, 0, 0, "")
            return FlushResult(frozen.opid, info.rows, info.length_bytes + info.sidecar_length_bytes, info.name)

    def _freeze(self) -> Frozen | None:
        tablet = self._tablet
        with tablet._lock:
            if tablet._frozen is None:
                if tablet._applied == tablet._superblock.flush_opid:
                    return None
                stores = tablet._stores
                tablet._frozen = Frozen(
                    store=stores.active,
                    opid=tablet._applied,
                    time=tablet._time,
                    ledger=tablet._ledger.capture(),
                    schema=tablet._schema,
                    schemas=tuple(tablet._schemas[i] for i in sorted(tablet._schemas)),
                    horizon=tablet.history_horizon,
                )
                stores.frozen = stores.active
                # As large as the last one, so that a steady load never pays for growing.
                stores.active = MemStore(tablet._schema, min(stores.frozen.rows, EXPECTED_ROWS_MAX))
            return tablet._frozen

    def _deltas(self, after: int, up_to: int) -> dict[str, Kills]:
        """What entries with after < time <= up_to superseded in the blocks there are."""
        tablet = self._tablet
        with tablet._lock:
            blocks = [(b, b.kills) for b in tablet._stores.blocks]
        found = {b.info.block_id: kills_between(kills, after, up_to) for b, kills in blocks}
        return {block_id: kills for block_id, kills in found.items() if len(kills[0])}

    def _parts(self, frozen: Frozen) -> list[Part]:
        store = frozen.store
        rows = store.rows
        superseded = store.superseded[:rows].copy()
        # Entries after the freeze may have ended rows meanwhile; replay does that again.
        superseded[superseded > frozen.time] = MAX_HYBRID_TIME
        batches = [conform(c.batch, c.schema, frozen.schema) for c in store.chunks]
        batch = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        return [Part(batch, store.ts[:rows], superseded, store.natural_hashes_of(slice(0, rows)))]

    def _write(
        self, superblock: Superblock, frozen: Frozen, merged: Merged | None, deltas: dict[str, Kills]
    ) -> tuple[Written, Merged]:
        tablet = self._tablet
        if merged is None:
            nothing = pa.RecordBatch.from_arrays(
                [pa.array([], type=c.arrow_type) for c in frozen.schema.columns], schema=frozen.schema.arrow
            )
            merged = merge_parts([Part(nothing, np.empty(0, np.int64), None)], frozen.schema, 0)
        tablet._disk.crash_point("tablet.before_block_write")
        stem = f"{FOLDER}/{superblock.tablet_id}-{superblock.next_block:06d}"
        written = write_block(tablet._disk, stem, merged.content._replace(deltas=deltas), 0)
        tablet._disk.crash_point("tablet.after_block_write")
        return written, merged

    def _open(self, written: Written | None, schema: TableSchema) -> Block | None:
        if written is None:
            return None
        info, pages = written
        return Block(self._tablet._disk, info, schema, exact=unique_by_hash(schema), verify=False, pages=pages)

    def _save(self, superblock: Superblock) -> None:
        tablet = self._tablet
        tablet._disk.crash_point("tablet.before_superblock_flush")
        superblock.save(tablet._disk)
        tablet._disk.crash_point("tablet.after_superblock_flush")

    def _install_flushed(
        self, frozen: Frozen, merged: Merged | None, block: Block | None, superblock: Superblock
    ) -> None:
        tablet = self._tablet
        with tablet._resolver.guard, tablet._lock:
            stores = tablet._stores
            if block is not None and merged is not None:
                if frozen.store.rows:
                    ended = frozen.store.superseded[: frozen.store.rows]
                    rows = np.flatnonzero((ended > frozen.time) & (ended != MAX_HYBRID_TIME))
                    block.kill(merged.positions[0][rows], ended[rows])
                stores.blocks = (*stores.blocks, block)
            stores.frozen = None
            tablet._frozen = None
            tablet._superblock = superblock

    # ------------------------------------------------------------------------------------------------- compaction

    def choose(self, blocks: Sequence[Block]) -> list[Block]:
        """Blocks worth merging: several of similar size, or one that is largely superseded; empty if none."""
        by_size = sorted(blocks, key=lambda b: (b.info.length_bytes, b.info.name))
        for start in range(len(by_size)):
            run, size = [], 0
            for block in by_size[start : start + COMPACTION_FAN_IN_MAX]:
                length = block.info.length_bytes
                if size + length > COMPACTION_INPUT_BYTES_MAX:
                    break
                if length > _SIMILAR * max(by_size[start].info.length_bytes, 1 << 20):
                    break
                run.append(block)
                size += length
            if len(run) >= COMPACTION_FAN_IN_MIN:
                return run
        wasteful = [b for b in by_size if b.rows and b.collectable(self._horizon()) > COMPACTION_DEAD_SHARE * b.rows]
        return wasteful[:1]

    def _horizon(self) -> int:
        """Versions that ended up to here may go: no snapshot sees them, and no replay needs them."""
        return min(self._tablet.history_horizon, self._tablet._superblock.flush_time)

    def compact(self) -> bool:
        """See Tablet.compact."""
        tablet = self._tablet
        with tablet._maintenance:
            with tablet._lock:
                inputs = self.choose(tablet._stores.blocks)
                superblock, horizon = tablet._superblock, self._horizon()
                kills = [b.kills for b in inputs]
                # A snapshot scan that starts from here on is refused below the horizon, even before the swap.
                tablet._superblock = superblock = replace(
                    superblock, history_horizon=max(superblock.history_horizon, horizon)
                )
            if not inputs:
                return False
            for path, length_bytes, crc in (file for b in inputs for file in b.info.files):
                # They were checked when they were opened, long ago perhaps. A merge gives them a new checksum, and what
                # had gone bad meanwhile would then be taken for right.
                verify_file(tablet._disk, path, length_bytes, crc)
            schema = superblock.schema
            parts = [
                Part(conform(b.batch, b.schema, schema), b.ts, b.superseded_at(k, superblock.flush_time))
                for b, k in zip(inputs, kills, strict=True)
            ]
            merged = merge_parts(parts, schema, horizon)
            deltas = _inherited_deltas(inputs, superblock)
            written = None
            if merged.content.batch.num_rows or deltas:
                tablet._disk.crash_point("tablet.before_block_write")
                stem = f"{FOLDER}/{superblock.tablet_id}-{superblock.next_block:06d}"
                level = 1 + max(b.info.level for b in inputs)
                written = write_block(tablet._disk, stem, merged.content._replace(deltas=deltas), level)
                tablet._disk.crash_point("tablet.after_block_write")
            gone = {b.info.block_id for b in inputs}
            kept = tuple(b for b in superblock.blocks if b.block_id not in gone)
            after = replace(
                superblock,
                blocks=kept if written is None else (*kept, written.info),
                next_block=superblock.next_block + (written is not None),
            )
            block = self._open(written, schema)
            tablet._disk.crash_point("tablet.before_compaction_swap")
            after.save(tablet._disk)
            tablet._disk.crash_point("tablet.after_compaction_swap")
            self._install_compacted(inputs, merged, block, after)
        self.remove_doomed()
        return True

    def _install_compacted(
        self, inputs: Sequence[Block], merged: Merged, block: Block | None, superblock: Superblock
    ) -> None:
        tablet = self._tablet
        with tablet._resolver.guard, tablet._lock:
            stores = tablet._stores
            for old, positions in zip(inputs, merged.positions, strict=True):
                # What entries after the flush position ended, before the merge began or while it ran.
                rows, times = old.kills_between(superblock.flush_time, MAX_HYBRID_TIME)
                if block is not None:
                    block.kill(positions[rows], times)
            rest = tuple(b for b in stores.blocks if b not in inputs)
            stores.blocks = rest if block is None else (*rest, block)
            tablet._superblock = superblock
            tablet._doomed += [path for b in inputs for path, _, _ in b.info.files]

    def remove_doomed(self) -> None:
        """Delete files that compaction replaced, unless a copy session holds them.

        A crash leaves them to the sweep of the next start, and so does a folder that lets nothing go.
        """
        tablet = self._tablet
        with tablet._lock:
            if tablet._holds:
                return
            doomed, tablet._doomed = tablet._doomed, []
        for path in doomed:
            with suppress(FileNotFoundError, DiskFailure):
                tablet._disk.remove(path)


def _inherited_deltas(inputs: Sequence[Block], superblock: Superblock) -> dict[str, Kills]:
    """What the inputs' sidecars say about blocks that stay."""
    gone = {b.info.block_id for b in inputs}
    stay = {b.block_id for b in superblock.blocks} - gone
    found: dict[str, list[tuple[I64, I64]]] = {}
    for block in inputs:
        for block_id, (positions, times) in block.sidecar.deltas.items():
            if block_id in stay:
                found.setdefault(block_id, []).append((positions.astype(np.int64), times))
    return {i: (np.concatenate([p for p, _ in k]), np.concatenate([t for _, t in k])) for i, k in found.items()}
