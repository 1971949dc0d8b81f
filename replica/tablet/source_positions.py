"""Reads the position of each Kafka source of a stopped replica from its flushed ledger and its log. Applies nothing."""

from __future__ import annotations

from collections.abc import Iterable

from nyala.replica.rows import OFFSET_COLUMN, WriteMeta, decode_batch
from nyala.replica.types import Entry, EntryKind, Refused

from .entries import schema_of_entry, source_of_entry
from .ledger import Ledger, SourceState
from .superblock import Superblock


def source_positions(superblock: Superblock, entries: Iterable[Entry]) -> list[SourceState]:
    """The ledger's sources after `entries`, in index order, of which those above the flush position count.

    A batch that `apply` would refuse changes nothing here either. `generation`, `last_offset` and `done` are what
    `apply` would reach; errors of rows in the log are not computed.
    """
    ledger = Ledger.from_avro(superblock.ledger)
    known = {schema.schema_id: schema for schema in superblock.table_schemas}
    for entry in entries:
        if entry.opid.index <= superblock.flush_opid.index:
            continue
        if entry.kind is EntryKind.SCHEMA:
            schema = schema_of_entry(entry)
            known[schema.schema_id] = schema
        elif entry.kind is EntryKind.LEDGER:
            ledger.reset_source(*source_of_entry(entry))
        elif entry.kind is EntryKind.WRITE:
            meta = WriteMeta.decode(entry.meta)
            if meta.source is None:
                continue
            try:
                state = ledger.admit_source(meta)
                batch = decode_batch(entry.payload, known[entry.schema_id].wire_schema(meta.column_ids))
                offsets = batch.column(OFFSET_COLUMN)
                last = int(offsets[-1].as_py())
                ledger.check_room(state, last)
            except (Refused, KeyError):
                continue
            ledger.advance_source(state, last, (), offsets.to_numpy())
    return ledger.sources
