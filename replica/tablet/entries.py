"""Decodes entries other than writes."""

from __future__ import annotations

import struct

from nyala import schemas
from nyala.replica.rows import SourceKey, TableSchema, WriteMeta
from nyala.replica.types import Corruption, Entry, EntryKind, Refused, limits

_UNDECODABLE = (
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RecursionError,
    struct.error,
)


def schema_of_entry(entry: Entry) -> TableSchema:
    """The table schema that a SCHEMA entry sets; Corruption if it holds none."""
    try:
        return TableSchema.from_json(schemas.decode("schema_change", entry.meta)["schema_json"])
    except (*_UNDECODABLE, Refused) as e:
        raise Corruption("a SCHEMA entry cannot be decoded", opid=entry.opid, reason=str(e)) from e


def source_of_entry(entry: Entry) -> tuple[SourceKey, int, int]:
    """(source, generation, done) of a LEDGER entry; Corruption if it holds none."""
    try:
        raw = schemas.decode("ledger_change", entry.meta)
        return SourceKey(**raw["source"]), raw["generation"], raw["done"]
    except _UNDECODABLE as e:
        raise Corruption("a LEDGER entry cannot be decoded", opid=entry.opid, reason=str(e)) from e


def unfit_entry(entry: Entry) -> str:
    """Why a data tablet could not apply `entry`, by its bytes alone; empty if it could.

    Other errors of a write, in its rows or its schema's id, are an outcome that is the same on all replicas. A witness
    calls this, too: the other replicas must be able to apply what it acknowledges.
    """
    try:
        if entry.kind is EntryKind.WRITE:
            WriteMeta.decode(entry.meta)
            size, most = len(entry.payload), limits.BATCH_SIZE_BYTES_MAX
            return f"{size} bytes of rows, more than {most}" if size > most else ""
        if entry.payload:
            return "an entry without rows has a payload"
        if entry.kind is EntryKind.SCHEMA:
            schema_of_entry(entry)
        elif entry.kind is EntryKind.LEDGER:
            source_of_entry(entry)
        elif entry.kind is EntryKind.CATALOG:
            return "a data tablet has no catalog"
    except Corruption as error:
        return str(error)
    return ""
