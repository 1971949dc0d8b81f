"""A table as the masters keep it, as servers are told of it, and as clients see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .partition import PartitionSpec
from .schema import TableSchema


@dataclass(frozen=True)
class SourceFormat:
    """How records of the table's topic are framed. `reader_schema`: Avro JSON of the bare framing's writer."""

    topic: str = ""
    framing: str = "single-object"
    reader_schema: str = ""


@dataclass(frozen=True)
class WriterSchemaInfo:
    """One writer schema of a table: Avro fingerprint (hex), registry id or 0, Avro JSON."""

    fingerprint: str
    registry_id: int
    avro_json: str


@dataclass(frozen=True)
class TableDescription:
    """What is decided about a table, apart from where its tablets are.

    `history_retention_us`: for how long former values of rows can be read. `created_us`: of the wall clock of the
    master that created it. Before a table is created, it has no id and `created_us` is 0.
    """

    table_id: str
    name: str
    schema: TableSchema
    partition: PartitionSpec
    replication_factor: int
    history_retention_us: int
    created_us: int
    source: SourceFormat = field(default_factory=SourceFormat)
    writer_schemas: tuple[WriterSchemaInfo, ...] = ()
    """With which events of its topic may be written; the writer schema that the table's columns imply is not listed."""
    older_schemas: tuple[TableSchema, ...] = ()
    """Former versions of `schema`, which blocks on disk may still have."""
