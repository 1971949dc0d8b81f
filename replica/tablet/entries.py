"""Entries other than writes, decoded."""

from __future__ import annotations

import struct

from nyala import schemas
from nyala.replica.base import Corruption, Entry, Refused
from nyala.replica.rows import SourceKey, TableSchema

_UNDECODABLE = (EOFError, ValueError, KeyError, IndexError, TypeError, struct.error)


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
        key = SourceKey(raw["source"]["cluster_id"], raw["source"]["topic_id"], raw["source"]["kafka_partition"])
        return key, raw["generation"], raw["done"]
    except _UNDECODABLE as e:
        raise Corruption("a LEDGER entry cannot be decoded", opid=entry.opid, reason=str(e)) from e
