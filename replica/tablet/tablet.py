"""One data tablet: the replicated state machine that entries change and scans read.

Threads: `apply` runs on one thread at a time; scans, checksums, flushes and compactions run on others meanwhile. Their
shared state and its locks are in `contents.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from nyala.replica.fs import RESERVE
from nyala.replica.rows import (
    NO_ROWS,
    BatchDecoder,
    MessageDecoder,
    Predicate,
    RowError,
    RowSum,
    ScanSpec,
    TableSchema,
    WriteMeta,
    crc32c,
    key_hash,
    never_stop,
    route,
    sum_of_rows,
)
from nyala.replica.types import (
    Code,
    Corruption,
    Disk,
    Entry,
    EntryKind,
    InvariantViolation,
    OpId,
    Refused,
    ResourcesExhausted,
    check,
    limits,
    utc_text,
)

from .block import MAPS_PER_BLOCK, U32, Block
from .combined_writes import combine
from .contents import Contents
from .entries import schema_of_entry, source_of_entry
from .error_runs import PackedErrors
from .hash_index import I64, U64
from .kept_bound import Given
from .ledger import ClientResult, Ledger, SourceState
from .look_up import Keys, LookUp, Rows, keys_of
from .maintenance import Maintenance
from .memstore import unique_by_hash
from .resolve import Belongs, Checked, WireRows, apply_distinct, apply_rows, check_rows
from .results import ApplyResult, FlushResult
from .scan import Scan, View
from .superblock import Superblock
from .write_checks import check_filled, check_kept, check_passes, may_keep_much

_DECODERS_MAX = 64
_CHECKED_BYTES_MAX = 16 << 10
_CHECKED_MAX = 256


class Tablet:
    """The state machine of a data tablet.

    Invariants: the state is a function of the applied entries, whenever it was flushed; times of versions ascend
    strictly from entry to entry; a refused entry changes nothing except the applied position and time. Durability: none
    before `flush`; entries up to `flush_opid` are in synced files, later ones are in the log only. Concurrency: see
    above.
    """

    def __init__(self, disk: Disk, superblock: Superblock, blocks: Sequence[Block]) -> None:
        self._contents = Contents(disk, superblock, blocks)
        self._work = Maintenance(self._contents)
        self._decoders: dict[tuple[int, tuple[int, ...]], BatchDecoder] = {}
        self._keys_decoder: MessageDecoder | None = None
        self._checked: dict[int, tuple[bytes, Any]] = {}
        """Small batches that passed `check_write` and are not applied yet, by the identity of their bytes object."""
        self.rows_written = 0
        """The rows that were applied since it was opened, those of its log included."""
        spec, contents = superblock.partition, self._contents
        self._belongs: Belongs | None = None
        if spec is not None and spec.tablets > 1:
            mine = superblock.range_pos * spec.buckets + superblock.bucket
            self._belongs = lambda keys, hashes: route(keys, contents.schema, spec, hashes) == mine

    # ------------------------------------------------------------------------------------------------- opening

    @classmethod
    def create(cls, disk: Disk, superblock: Superblock) -> Tablet:
        """Create an empty tablet; its superblock is durable on return. InvariantViolation if there is one already."""
        check(not superblock.blocks, "a new tablet has no blocks", tablet=superblock.tablet_id)
        check(not Superblock.exists(disk, superblock.tablet_id), "the tablet exists", tablet=superblock.tablet_id)
        superblock.save(disk)
        return cls(disk, superblock, [])

    @classmethod
    def open(cls, disk: Disk, superblock: Superblock, *, verify: bool = True, new: bool = True) -> Tablet:
        """Open the tablet as of `superblock.flush_opid`; the caller applies later entries again.

        Corruption if a block is missing or damaged; with `verify`, every block is read once to check that.
        ResourcesExhausted if the process would use too many memory maps; a tablet that is `new` to the server leaves
        some to flushes.
        """
        check(not superblock.witness, "a witness has no rows to open", tablet=superblock.tablet_id)
        by_id = {s.schema_id: s for s in superblock.table_schemas}
        exact = unique_by_hash(superblock.schema)
        blocks = []
        for info in superblock.blocks:
            schema = by_id.get(info.schema_id)
            if schema is None:
                raise Corruption("a block is of an unknown schema", block=info.name, schema_id=info.schema_id)
            RESERVE.take(MAPS_PER_BLOCK, limits.MAPS_SHARE_TO_OPEN_MAX if new else limits.MAPS_SHARE_TO_FLUSH_MAX)
            blocks.append(Block(disk, info, schema, exact=exact, verify=verify))
        targets = {b.info.block_id: b for b in blocks}
        for block in blocks:
            for block_id, (positions, times) in block.sidecar.deltas.items():
                if block_id in targets:
                    _end_rows(block, targets[block_id], positions, times)
        return cls(disk, superblock, blocks)

    def close(self) -> None:
        """Release rows and blocks: scans that have begun keep theirs, later ones are refused.

        Waits for a running flush or compaction. A stopped replica's objects refer to each other, so they may stay in
        memory until Python's garbage collection. Its rows must not.
        """
        with self._contents.maintenance, self._contents.resolver.guard, self._contents.lock:
            self._contents.release_memory()
            self._checked.clear()

    @property
    def closed(self) -> bool:
        """Whether `close` was called: the tablet's other properties are then out of date."""
        return self._contents.closed

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold `_lock` while an entry changes rows. After an error in between, the entry is partly applied, and no file
        is made any more."""
        with self._contents.lock:
            try:
                yield
            except BaseException as error:
                answer = isinstance(error, Refused) and not isinstance(error, ResourcesExhausted)
                self._contents.partly_applied = self._contents.partly_applied or not answer
                raise

    # ------------------------------------------------------------------------------------------------- state

    @property
    def tablet_id(self) -> str:
        """The tablet's id."""
        return self._contents.superblock.tablet_id

    @property
    def applied_opid(self) -> OpId:
        """The last applied entry; right after `open` equal to `flush_opid`."""
        return self._contents.applied

    @property
    def applied_time(self) -> int:
        """The highest hybrid time applied."""
        return self._contents.time

    @property
    def safe_time(self) -> int:
        """The hybrid time up to which every row is applied, if no later entry has a lower time."""
        return self._contents.time

    @property
    def flush_opid(self) -> OpId:
        """The last entry whose effect is durable without the log."""
        return self._contents.superblock.flush_opid

    @property
    def superblock(self) -> Superblock:
        """The superblock as last saved."""
        return self._contents.superblock

    @property
    def schema(self) -> TableSchema:
        """The current table schema."""
        return self._contents.schema

    @property
    def ledger(self) -> Ledger:
        """A copy of the ledger as of now."""
        with self._contents.lock:
            return self._contents.ledger.capture()

    @property
    def memory_bytes(self) -> int:
        """Bytes held for rows, and for the ledger."""
        return self.row_bytes + self._contents.ledger.memory_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes that a flush would free, plus those of the supersessions of rows in blocks."""
        return self._contents.stores.memory_bytes

    @property
    def store_bytes(self) -> int:
        """Bytes of the memory stores, of which a flush makes a block."""
        return self._contents.stores.store_bytes

    @property
    def rows_estimate(self) -> int:
        """An estimate of the live rows: upserts that are not resolved yet count as new rows."""
        return max(0, self._contents.stores.live_rows)

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all block files."""
        return sum(length for block in self._contents.superblock.blocks for _, length, _ in block.files)

    @property
    def history_horizon(self) -> int:
        """The hybrid time below which snapshots are refused."""
        return self._contents.history_horizon

    def ledger_sources(self) -> list[SourceState]:
        """The position of every source, sorted by key."""
        with self._contents.lock:
            return self._contents.ledger.sources

    def remembered(self, client_id: str, sequence: int) -> ApplyResult | None:
        """The result of a client's write that was applied; None if it was not, or if the result is forgotten."""
        with self._contents.lock:
            known = self._contents.ledger.client_result(client_id, sequence)
        return None if known is None else _replayed(self._contents.applied, known, 0)

    def block_files(self) -> list[tuple[str, int, int]]:
        """(path, length in bytes, CRC-32C) of each file that the superblock names."""
        return [file for block in self._contents.superblock.blocks for file in block.files]

    @contextmanager
    def hold(self) -> Iterator[Superblock]:
        """The superblock of this moment; the files that it names stay on disk until the context ends.

        Refused NOT_READY once the tablet is closed, because another object may own its files by then.
        """
        with self._contents.lock:
            self._contents.check_open()
            self._contents.holds += 1
            superblock = self._contents.superblock
        try:
            yield superblock
        finally:
            with self._contents.lock:
                self._contents.holds -= 1
            self._work.remove_replaced_files()

    # ------------------------------------------------------------------------------------------------- writing

    def check_write(
        self,
        schema_id: int,
        column_ids: Sequence[int],
        payload: bytes,
        payload_crc: int,
        rows: int,
        ignore_null: bool = False,
    ) -> Any:
        """Check a batch before the leader gives it an index; returns the decoded pa.RecordBatch.

        Refused(TOO_LARGE, INVALID_BATCH or SCHEMA_MISMATCH); nothing is applied. Heavy; any thread.
        """
        if len(payload) > limits.BATCH_SIZE_BYTES_MAX or rows > limits.BATCH_ROWS_MAX:
            raise Refused(Code.TOO_LARGE, "the batch is too large", bytes=len(payload), rows=rows)
        if crc32c(payload) != payload_crc:
            raise Refused(Code.INVALID_BATCH, "the payload is not what its sender summed up", bytes=len(payload))
        batch = self._decode(schema_id, tuple(column_ids), payload, rows)
        check_filled(self._contents.schema, column_ids, batch, ignore_null)
        if len(payload) <= _CHECKED_BYTES_MAX:
            if len(self._checked) >= _CHECKED_MAX:
                self._checked.clear()
            self._checked[id(payload)] = payload, batch
        return batch

    def check_passes(self, meta: WriteMeta, batch: pa.RecordBatch, payload_bytes: int) -> U64 | None:
        """Raise Refused(TOO_LARGE) if a batch that `check_write` has accepted would hold the tablet for too long; see
        `write_checks.check_passes`. Heavy; any thread."""
        schema = self._contents.schema
        return check_passes(schema, meta, batch, partial(self._check, schema, payload_bytes))

    def may_keep_much(self, meta: WriteMeta) -> bool:
        """Whether `check_kept` must be called for a batch."""
        return may_keep_much(self._contents.schema, meta)

    def check_kept(self, meta: WriteMeta, given: Given, payload_bytes: int, under_way: Iterable[Given]) -> None:
        """Raise Refused(TOO_LARGE) if the rows of a batch keep too many stored values; see `write_checks.check_kept`.
        Heavy; any thread."""
        check_kept(self._contents, meta, given, under_way, partial(self._check, self._contents.schema, payload_bytes))

    def _decode(self, schema_id: int, column_ids: tuple[int, ...], payload: bytes, rows: int) -> Any:
        batch = self._decoder(schema_id, column_ids).decode(payload)
        if batch.num_rows != rows:
            raise Refused(Code.INVALID_BATCH, "the batch has another number of rows", rows=batch.num_rows, said=rows)
        return batch

    def _batch_of(self, entry: Entry, meta: WriteMeta) -> Any:
        """The decoded batch of a WRITE entry; for small ones of its own, the leader has it from `check_write`."""
        payload, batch = self._checked.pop(id(entry.payload), (None, None))
        if payload is entry.payload:
            return batch
        return self._decode(entry.schema_id, meta.column_ids, entry.payload, meta.rows)

    def _decoder(self, schema_id: int, column_ids: tuple[int, ...]) -> BatchDecoder:
        """The decoder for batches of these columns; Refused(SCHEMA_MISMATCH) if there can be none."""
        known_decoder = self._decoders.get((schema_id, column_ids))
        if known_decoder is not None:
            return known_decoder
        schema = self._contents.schemas.get(schema_id)
        if schema is None:
            raise Refused(
                Code.SCHEMA_MISMATCH,
                "the batch is of a schema that the tablet does not know",
                detail=str(self._contents.schema.schema_id),
                schema_id=schema_id,
                current=self._contents.schema.schema_id,
            )
        known = {c.id for c in schema.columns}
        if len(set(column_ids)) != len(column_ids) or not known.issuperset(column_ids):
            raise Refused(Code.SCHEMA_MISMATCH, "the batch has columns that its schema has not", column_ids=column_ids)
        if not set(column_ids).issuperset(c.id for c in schema.key_columns):
            raise Refused(Code.SCHEMA_MISMATCH, "the batch lacks key columns", column_ids=column_ids)
        decoder = BatchDecoder(schema.wire_schema(column_ids))
        if len(self._decoders) >= _DECODERS_MAX:
            self._decoders = {}
        self._decoders = {**self._decoders, (schema_id, column_ids): decoder}
        return decoder

    def apply(self, entries: Sequence[Entry]) -> list[ApplyResult]:
        """Apply entries in index order; one result each. Those at or below the applied position are skipped.

        Raises Corruption if a committed entry cannot be applied: then the replica fails. After any error the tablet is
        not used further: `flush` and `compact` refuse if an entry may be partly applied.
        """
        results: list[ApplyResult] = []
        while len(results) < len(entries):
            results += self._apply_combined(entries, len(results)) or [self._apply_one(entries[len(results)])]
        return results

    def _apply_combined(self, entries: Sequence[Entry], first: int) -> list[ApplyResult] | None:
        """Apply a run of small writes from position `first` on in one step; returns None if there is no such run."""
        if len(entries) - first < 2 or entries[first].opid.index != self._contents.applied.index + 1:
            return None
        combined = combine(
            entries,
            first,
            schema_id=self._contents.schema.schema_id,
            last_time=self._contents.time,
            ledger=self._contents.ledger,
            decode=self._batch_of,
        )
        if combined is None:
            return None
        checked = self._check(self._contents.schema, combined.payload_bytes, combined.rows)
        with self._changing():
            # The rows' offsets are their positions, so the times of those that passed the check are found by them.
            times = combined.times[checked.rows.offsets]
            failed = apply_distinct(self._contents.stores, self._contents.schema, checked.rows, checked.hashes, times)
            if failed is None:
                return None
            results = []
            errors_by_write = combined.errors_by_write([*checked.errors, *failed])
            for entry, meta, ts, errors in zip(
                combined.entries, combined.metas, combined.stamps, errors_by_write, strict=True
            ):
                applied = meta.rows - len(errors)
                self._record(meta, ts, applied, errors)
                self.rows_written += applied
                results.append(ApplyResult(entry.opid, ts, None, tuple(errors), applied))
            self._advance(combined.stamps[-1], combined.entries[-1].opid)
        return results

    def _apply_one(self, entry: Entry) -> ApplyResult:
        if entry.opid.index <= self._contents.applied.index:
            return ApplyResult(entry.opid, entry.hybrid_time)
        check(
            entry.opid.index == self._contents.applied.index + 1,
            "entries are applied without holes",
            applied=self._contents.applied,
            entry=entry.opid,
        )
        if entry.kind is EntryKind.WRITE:
            return self._apply_write(entry)
        error: Refused | None = None
        with self._changing():
            try:
                if entry.kind is EntryKind.SCHEMA:
                    self._switch_schema(schema_of_entry(entry))
                elif entry.kind is EntryKind.LEDGER:
                    source, generation, done = source_of_entry(entry)
                    if not self._contents.ledger.reset_source(source, generation, done):
                        raise Refused(
                            Code.STALE_GENERATION, "the source has a higher generation", generation=generation
                        )
                elif entry.kind is EntryKind.CATALOG:
                    raise Corruption("a catalog entry in a data tablet's log", tablet=self.tablet_id, opid=entry.opid)
            except ResourcesExhausted:
                raise  # this is no result of the entry: the replica is opened again, and applies it then
            except Refused as e:
                error = e
            self._advance(max(self._contents.time, entry.hybrid_time), entry.opid)
        return ApplyResult(entry.opid, entry.hybrid_time, error)

    def _advance(self, time: int, opid: OpId) -> None:
        """Record that entries up to this one are applied. Called for entries of every kind."""
        self._contents.time, self._contents.applied = time, opid
        self._contents.ledger.expire(time)

    def _record(self, meta: WriteMeta, ts: int, applied: int, errors: Sequence[RowError]) -> None:
        result = ClientResult(meta.sequence, ts, applied, PackedErrors.of(errors))
        self._contents.ledger.record_client(meta, ts, result)

    def _switch_schema(self, schema: TableSchema) -> None:
        current = self._contents.schema
        if schema.schema_id <= current.schema_id:
            raise Refused(Code.SCHEMA_MISMATCH, "the tablet's schema is as new", schema_id=schema.schema_id)
        keys = [(c.id, c.type, c.precision, c.scale) for c in current.key_columns]
        if keys != [(c.id, c.type, c.precision, c.scale) for c in schema.key_columns]:
            raise Refused(Code.INVALID_ARGUMENT, "a table's key does not change", schema_id=schema.schema_id)
        known = {c.id: c for c in current.columns}
        for column in schema.columns:
            old = known.get(column.id)
            if old is None and not column.nullable and column.default is None:
                raise Refused(Code.INVALID_ARGUMENT, "an added column is nullable or has a default", column=column.name)
            if old is not None and old.arrow_type != column.arrow_type:
                raise Refused(Code.INVALID_ARGUMENT, "a column's type does not change", column=column.name)
        self._contents.schemas = {**self._contents.schemas, schema.schema_id: schema}
        self._contents.schema = schema

    def _apply_write(self, entry: Entry) -> ApplyResult:
        meta = WriteMeta.decode(entry.meta)
        ts = max(entry.hybrid_time, self._contents.time + 1)
        try:
            state = known = None
            if meta.source is not None:
                state = self._contents.ledger.admit_source(meta)
            elif meta.client_id:
                with self._changing():
                    known = self._contents.ledger.admit_client(meta, ts)
            if known is not None:
                with self._changing():
                    self._contents.ledger.record_client(meta, ts, None)
                    self._advance(ts, entry.opid)
                return _replayed(entry.opid, known, meta.rows)
            return self._apply_rows(entry, meta, ts, state)
        except ResourcesExhausted:
            raise  # as above
        except Refused as e:
            if e.code is Code.INVALID_BATCH and crc32c(entry.payload) != entry.payload_crc:
                raise Corruption("a committed batch was damaged", tablet=self.tablet_id, opid=entry.opid) from e
            with self._changing():
                self._advance(ts, entry.opid)
            return ApplyResult(entry.opid, ts, e)

    def _apply_rows(self, entry: Entry, meta: WriteMeta, ts: int, state: SourceState | None) -> ApplyResult:
        batch = self._batch_of(entry, meta)
        rows = WireRows.of_batch(batch, meta)
        schema = self._contents.schema
        last, old_errors, replayed = int(rows.offsets[-1]), [], 0
        if state is not None:
            self._contents.ledger.check_room(state, last)
            replayed = int(np.searchsorted(rows.offsets, state.last_offset, side="right"))
            old_errors = state.errors.of(rows.offsets[:replayed])
            rows = rows.take(np.arange(replayed, len(rows.ops)))
        checked = self._check(schema, len(entry.payload), rows)
        with self._changing():
            failed = apply_rows(self._contents.stores, schema, checked.rows, checked.hashes, ts)
            errors = sorted([*checked.errors, *failed])
            applied = len(rows.ops) - len(errors)
            self.rows_written += applied
            if state is not None:
                self._contents.ledger.advance_source(state, last, errors, rows.offsets)
                last_offset = max(last, state.last_offset)
            elif meta.client_id:
                self._record(meta, ts, applied, errors)
            self._advance(ts, entry.opid)
        return ApplyResult(
            entry.opid,
            ts,
            None,
            (*old_errors, *errors),
            applied,
            replayed,
            last_offset if state is not None else None,
        )

    def _check(self, schema: TableSchema, payload_bytes: int, rows: WireRows, natural: U64 | None = None) -> Checked:
        return check_rows(rows, schema, key_hash, self._belongs, payload_bytes, natural)

    # ------------------------------------------------------------------------------------------------- reading

    def scan(
        self,
        columns: Sequence[str] | None = None,
        predicates: Sequence[Predicate] = (),
        snapshot_time: int | None = None,
        slice: tuple[int, int] = (0, 1),
        limit: int = 0,
        count_only: bool = False,
        stop: Callable[[], None] = never_stop,
    ) -> Scan:
        """The rows visible at `snapshot_time` (None: the latest applied). Slices of one count are disjoint and
        complete.

        Refused(HISTORY_GONE) below the history horizon; INVALID_ARGUMENT for unknown columns, none, or a bad slice;
        NOT_READY once the tablet is closed. For a time above `safe_time` the caller must wait first. `stop` is called
        before each piece of a block, and before each comparison of one; an error that it raises ends the scan.
        """
        pos, count = slice
        if not 0 <= pos < count:
            raise Refused(Code.INVALID_ARGUMENT, "a slice is (pos, count) with pos below count", pos=pos, count=count)
        view, at = self._view(snapshot_time)
        names = None if columns is None else tuple(columns)
        if names is not None and len(set(names)) != len(names):
            raise Refused(Code.INVALID_ARGUMENT, "a scan names each column once", columns=len(names))
        if names == () and not count_only:
            what = "a scan without columns would have no rows: name a column, or ask for all columns, or for the count"
            raise Refused(Code.INVALID_ARGUMENT, what)
        return Scan(view, ScanSpec(names, tuple(predicates), at, limit, pos, count, count_only=count_only), stop)

    def keys(self, payload: bytes) -> Keys:
        """Decode the keys of a Get. Refused(INVALID_BATCH, TOO_LARGE) unless they are whole keys, and not more than one
        call may have."""
        columns = self._contents.schema.key_columns
        if len(payload) > limits.GET_KEYS_BYTES_MAX:
            what = "the keys of one call are too large; ask for fewer at a time"
            raise Refused(Code.TOO_LARGE, what, bytes=len(payload), limit_bytes=limits.GET_KEYS_BYTES_MAX)
        if self._keys_decoder is None:
            self._keys_decoder = MessageDecoder(pa.schema([(c.name, c.arrow_type) for c in columns]))
        batch = self._keys_decoder.decode(payload)
        if batch.num_rows > limits.GET_KEYS_MAX:
            what = "one call asks for too many keys; ask for fewer at a time"
            raise Refused(Code.TOO_LARGE, what, keys=batch.num_rows, limit=limits.GET_KEYS_MAX)
        if any(column.null_count for column in batch.columns):
            raise Refused(Code.INVALID_BATCH, "a key has no nulls; give each column of it a value")
        return keys_of(batch.columns)

    def get(
        self,
        keys: Keys,
        columns: Sequence[str] | None = None,
        bytes_max: int = limits.GET_BYTES_MAX,
        stop: Callable[[], None] = never_stop,
        snapshot_time: int | None = None,
    ) -> tuple[Rows, int]:
        """(the rows of those keys that exist, the time at which they are read: `snapshot_time`, or the latest applied).

        It reads as many keys as fit into about `bytes_max`, at least one. Refused as a scan, and the caller waits for
        the time as for a scan; `stop` is called before each block.
        """
        contents = self._contents
        with contents.lock:
            contents.check_open()
            self._check_history(snapshot_time)
            schema = contents.schema
            wanted = schema.columns if columns is None else [schema.column(name) for name in columns]
            at = contents.time if snapshot_time is None else snapshot_time
            look_up = LookUp(contents.stores, schema, at, keys, contents.superblock.flush_time)
        return look_up.rows(wanted, bytes_max, lambda: self._view(at)[0], stop), at

    def checksum(self, snapshot_time: int | None = None, stop: Callable[[], None] = never_stop) -> RowSum:
        """The sum of the rows visible at that time: equal on every replica, whatever its blocks are."""
        total = NO_ROWS
        scan = self.scan(snapshot_time=snapshot_time, stop=stop)
        for batch in scan:
            total += sum_of_rows(batch, scan.column_ids, stop)
        return total

    def _view(self, snapshot_time: int | None) -> tuple[View, int]:
        with self._contents.lock:
            at = self._contents.time if snapshot_time is None else snapshot_time
        self._contents.resolver.resolve(self._contents.stores)
        with self._contents.lock:
            self._contents.check_open()
            # The time was chosen before, so upserts that came meanwhile and are not resolved have later times and are
            # not seen.
            self._check_history(snapshot_time)
            stores = self._contents.stores
            memory = tuple(s.view() for s in (stores.frozen, stores.active) if s is not None)
            return View(self._contents.schema, memory, tuple((b, b.deltas) for b in stores.blocks)), at

    def _check_history(self, snapshot_time: int | None) -> None:
        if snapshot_time is not None and snapshot_time < self.history_horizon:
            raise Refused(
                Code.HISTORY_GONE,
                f"the table's history reaches back to {utc_text(self.history_horizon)}, and the read is of "
                f"{utc_text(snapshot_time)}: read a later time, or without one; a table that is created with a "
                "longer history_retention_s keeps more",
                detail=str(self.history_horizon),
            )

    # ------------------------------------------------------------------------------------------------- maintenance

    def flush(self) -> FlushResult | None:
        """Make all applied entries durable without the log. Heavy; any thread.

        None if nothing was applied since the last flush, or the tablet is closed: another object may have its files.
        After Refused(NO_SPACE) the tablet is unchanged; the next flush starts over with the same rows. NOT_READY if an
        entry was applied in part, because replay would meet its rows.
        """
        return self._work.flush()

    def repair_superblock(self) -> bool:
        """Write the superblock again if its file is missing, damaged or another one; returns whether it was. Any
        thread."""
        with self._contents.maintenance:
            return not self._contents.closed and self._contents.superblock.repair(self._contents.disk)

    def compact(self) -> bool:
        """Merge some blocks if that is worthwhile; returns whether it did. A closed tablet has none. Heavy; any
        thread."""
        return self._work.compact()

    def wants_flush(self, wal_bytes: int = 0) -> float:
        """A score: from 1.0 on a flush is due, by the memory that is used or by the log that it would free."""
        if self._contents.applied.index == self.flush_opid.index:
            return 0.0
        return self.row_bytes / limits.MEMSTORE_FLUSH_BYTES + wal_bytes / (8 * limits.WAL_SEGMENT_SIZE_BYTES_MAX)

    def wants_compaction(self) -> bool:
        """Whether `compact` would find work."""
        return bool(self._work.choose(self._contents.stores.blocks))


def _end_rows(by: Block, there: Block, positions: U32, times: I64) -> None:
    """End the rows of block `there` that the sidecar of the later block `by` names; Corruption if they cannot have
    ended."""
    try:
        there.supersede(positions.astype(np.int64), times)
    except (InvariantViolation, IndexError) as error:
        what = "a sidecar ends rows that have ended, or that are not there"
        raise Corruption(what, sidecar=by.info.sidecar_name, block=there.info.name, reason=str(error)) from error


def _replayed(opid: OpId, known: ClientResult, rows: int) -> ApplyResult:
    return ApplyResult(opid, known.hybrid_time, None, known.errors.errors(), known.rows_applied, rows)
