"""What a tablet holds in memory, the locks that guard it, and the steps between an entry's memory and the files.

`tablet.py`, which applies entries and reads, and `maintenance.py`, which changes files, share it. `lock` guards all of
it, and is held for the in-memory part of one entry or for taking a view; `resolver.guard` keeps blocks from being
replaced during a look-up; `maintenance` lets one flush or compaction run at a time. Lock order: maintenance, guard,
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

from .block import Block, Deltas
from .hash_index import I64
from .ledger import Ledger
from .memstore import MemStore
from .merge import Merged
from .stores import Resolver, Stores
from .superblock import Superblock

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


class FlushedBlock(NamedTuple):
    """A new block, and where the rows of the frozen store from `start` on are in it: -1 for those that are in none."""

    start: int
    positions: I64
    block: Block


class Contents:
    """One tablet's rows, schemas, ledger and positions, and the superblock that was saved last.

    Concurrency: see above; each method says which locks its caller holds, or takes them itself.
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
        """Copy sessions that read files of the superblock of their moment."""
        self._frozen: Frozen | None = None
        self._doomed: list[str] = []
        """Files that compaction replaced."""

    @property
    def tablet_id(self) -> str:
        """The tablet's id."""
        return self.superblock.tablet_id

    @property
    def history_horizon(self) -> int:
        """Snapshots below this hybrid time are refused."""
        retention = self.superblock.history_retention_us
        moving = self.time if retention <= 0 else hybrid_from_us(max(0, us_of_hybrid(self.time) - retention))
        return max(self.superblock.history_horizon, moving)

    def check_open(self) -> None:
        """Refused NOT_READY once the tablet is closed."""
        if self.closed:
            raise Refused(Code.NOT_READY, "the replica was stopped here", tablet=self.tablet_id)

    def check_whole(self) -> None:
        """Refused NOT_READY if an entry was applied in part; never for a closed tablet, which makes no file."""
        if self.partly_applied and not self.closed:
            what = "an entry was applied in part, and no part may reach the disk: the replica has to be opened again"
            raise Refused(Code.NOT_READY, what, tablet=self.tablet_id)

    def let_go(self) -> None:
        """Release rows and blocks. The caller holds all three locks."""
        self.closed = True
        self.stores, self._frozen = Stores(self.schema), None

    # ------------------------------------------------------------------------------------------------- flush

    def freeze(self) -> Frozen | None:
        """Freeze the content that a flush writes; the same again until it is installed. None if nothing was applied
        since.

        The caller holds `maintenance`.
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
                # As large as the last one, so that a steady load never pays for growing.
                stores.active = MemStore(self.schema, min(stores.frozen.rows, EXPECTED_ROWS_MAX))
            return self._frozen

    def superseded(self) -> list[tuple[Block, tuple[Deltas, ...]]]:
        """Each block, with the rows of it that entries have superseded so far."""
        with self.lock:
            return [(b, b.deltas) for b in self.stores.blocks]

    def install_flushed(self, frozen: Frozen, flushed: Sequence[FlushedBlock], superblock: Superblock) -> None:
        """Readers see the blocks in the place of the frozen store; `superblock` was saved. Needs `maintenance`."""
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
        """A snapshot scan that starts from here on is refused below the horizon, even before blocks are replaced.

        The caller holds `lock`.
        """
        self.superblock = replace(self.superblock, history_horizon=max(self.superblock.history_horizon, horizon))
        return self.superblock

    def install_compacted(
        self, inputs: Sequence[Block], merged: Merged, block: Block | None, superblock: Superblock
    ) -> None:
        """Readers see `block` in the place of `inputs`; `superblock` was saved. Needs `maintenance`."""
        with self.resolver.guard, self.lock:
            stores = self.stores
            for old, positions in zip(inputs, merged.positions, strict=True):
                # What entries after the flush position ended, before the merge began or while it ran.
                rows, times = old.deltas_between(superblock.flush_time, MAX_HYBRID_TIME)
                if block is not None:
                    block.supersede(positions[rows], times)
            rest = tuple(b for b in stores.blocks if b not in inputs)
            stores.blocks = rest if block is None else (*rest, block)
            self.superblock = superblock
            self._doomed += [path for b in inputs for path, _, _ in b.info.files]

    def take_doomed(self) -> list[str]:
        """Files that may be deleted now: none while a copy session may read them."""
        with self.lock:
            if self.holds:
                return []
            doomed, self._doomed = self._doomed, []
            return doomed

    def doom(self, path: str) -> None:
        """A file that could not be deleted now: with the next ones."""
        with self.lock:
            self._doomed.append(path)
