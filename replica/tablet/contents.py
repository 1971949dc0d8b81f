"""The content of a tablet in memory, its locks, and the steps by which entries' effects go to files.

`tablet.py`, which applies entries and reads, and `maintenance.py`, which changes files, share it. `lock` guards all of
it, and is held for the in-memory part of one entry or for taking a view. `resolver.guard` keeps blocks from being
replaced during a look-up. `maintenance` lets one flush or compaction run at a time. Lock order: maintenance, guard,
lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nyala.replica.rows import TableSchema
from nyala.replica.types import MAX_HYBRID_TIME, Code, Disk, OpId, Refused, hybrid_from_us, us_of_hybrid

from .block import Block, Deltas, deltas_between
from .hash_index import I64
from .ledger import Ledger
from .memstore import MemStore
from .merge import Merged
from .stores import Resolver, Stores
from .superblock import Superblock

EXPECTED_ROWS_MAX = 4 << 20


class Frozen(NamedTuple):
    """A memory store that accepts no more rows, and everything else as of its last entry."""

    store: MemStore
    opid: OpId
    time: int
    ledger: Ledger
    schema: TableSchema
    schemas: tuple[TableSchema, ...]
    horizon: int


class FlushedBlock(NamedTuple):
    """A new block, and the positions in it of the frozen store's rows from `start` on; -1 for rows that are in no
    block."""

    start: int
    positions: I64
    block: Block


class Contents:
    """One tablet's rows, schemas, ledger and positions, and the superblock that was saved last.

    Concurrency: see above. Each method takes the locks itself, or names those that its caller must hold.
    """

    def __init__(self, disk: Disk, superblock: Superblock, blocks: Sequence[Block]) -> None:
        self.disk = disk
        self.superblock = superblock
        self.schemas = {s.schema_id: s for s in superblock.table_schemas}
        self.schema = superblock.schema
        self.applied = superblock.flush_opid
        self.time = superblock.flush_time
        self.ledger = Ledger.from_avro(superblock.ledger)
        self.lock = threading.Lock()
        self.maintenance = threading.Lock()
        self.resolver = Resolver(self.lock, threading.Lock())
        self.stores = Stores(self.schema, blocks)
        self.closed = self.partly_applied = False
        self.holds = 0
        """The number of copy sessions that read the files of a superblock."""
        self._frozen: Frozen | None = None
        self._to_remove: list[str] = []
        """The files that compaction replaced and that are not deleted yet."""

    @property
    def tablet_id(self) -> str:
        """The tablet's id."""
        return self.superblock.tablet_id

    @property
    def history_horizon(self) -> int:
        """The hybrid time below which snapshots are refused."""
        retention = self.superblock.history_retention_us
        moving = self.time if retention <= 0 else hybrid_from_us(max(0, us_of_hybrid(self.time) - retention))
        return max(self.superblock.history_horizon, moving)

    def check_open(self) -> None:
        """Raise Refused NOT_READY if the tablet is closed."""
        if self.closed:
            raise Refused(Code.NOT_READY, "the replica was stopped here", tablet=self.tablet_id)

    def check_whole(self) -> None:
        """Raise Refused NOT_READY if an entry was applied in part; never for a closed tablet, which makes no file."""
        if self.partly_applied and not self.closed:
            what = "an entry was applied in part, and no part may reach the disk: the replica has to be opened again"
            raise Refused(Code.NOT_READY, what, tablet=self.tablet_id)

    def release_memory(self) -> None:
        """Release rows and blocks. The caller holds all three locks."""
        self.closed = True
        self.stores, self._frozen = Stores(self.schema), None

    # ------------------------------------------------------------------------------------------------- flush

    def freeze(self) -> Frozen | None:
        """Freeze the content that a flush writes; returns the same again until it is installed.

        None if nothing was applied since the last flush. The caller holds `maintenance`.
        """
        with self.lock:
            self.check_whole()
            if self._frozen is None:
                if self.applied == self.superblock.flush_opid:
                    return None
                stores = self.stores
                self._frozen = Frozen(
                    store=stores.active,
                    opid=self.applied,
                    time=self.time,
                    ledger=self.ledger.capture(),
                    schema=self.schema,
                    schemas=tuple(self.schemas[i] for i in sorted(self.schemas)),
                    horizon=self.history_horizon,
                )
                stores.frozen = stores.active
                # As large as the last one, so that a steady load never has to grow it.
                stores.active = MemStore(self.schema, min(stores.frozen.rows, EXPECTED_ROWS_MAX))
            return self._frozen

    def superseded(self) -> list[tuple[Block, tuple[Deltas, ...]]]:
        """Each block, with its rows that entries have superseded so far."""
        with self.lock:
            return [(b, b.deltas) for b in self.stores.blocks]

    def install_flushed(self, frozen: Frozen, flushed: Sequence[FlushedBlock], superblock: Superblock) -> None:
        """Show readers the blocks in the place of the frozen store; `superblock` was saved. Needs `maintenance`."""
        with self.resolver.guard, self.lock:
            stores = self.stores
            for start, positions, block in flushed:
                ended = frozen.store.superseded[start : start + len(positions)]
                rows = np.flatnonzero((ended > frozen.time) & (ended != MAX_HYBRID_TIME))
                block.supersede(positions[rows], ended[rows])
            stores.blocks = (*stores.blocks, *(block for _, _, block in flushed))
            stores.frozen = None
            self._frozen = None
            self.superblock = superblock

    # ------------------------------------------------------------------------------------------------- compaction

    def forget_history(self, horizon: int) -> Superblock:
        """From here on, refuse new snapshot scans below the horizon, even before blocks are replaced.

        The caller holds `lock`.
        """
        self.superblock = replace(self.superblock, history_horizon=max(self.superblock.history_horizon, horizon))
        return self.superblock

    def install_compacted(
        self, inputs: Sequence[Block], merged: Merged, block: Block | None, superblock: Superblock
    ) -> None:
        """Show readers `block` in the place of `inputs`; `superblock` was saved. Needs `maintenance`."""
        with self.resolver.guard, self.lock:
            stores = self.stores
            for old, positions in zip(inputs, merged.positions, strict=True):
                # Versions that entries after the flush position ended, before the merge or during it.
                rows, times = deltas_between(old.deltas, superblock.flush_time, MAX_HYBRID_TIME)
                if block is not None:
                    block.supersede(positions[rows], times)
            rest = tuple(b for b in stores.blocks if b not in inputs)
            stores.blocks = rest if block is None else (*rest, block)
            self.superblock = superblock
            self._to_remove += [path for b in inputs for path, _, _ in b.info.files]

    def take_removable(self) -> list[str]:
        """The files that may be deleted now: none while a copy session may read them."""
        with self.lock:
            if self.holds:
                return []
            removable, self._to_remove = self._to_remove, []
            return removable

    def remove_later(self, path: str) -> None:
        """Keep a file that could not be deleted now, to delete it with the next ones."""
        with self.lock:
            self._to_remove.append(path)
