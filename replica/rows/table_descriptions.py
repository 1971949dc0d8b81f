"""The description of a table: as the masters keep it, as servers get it, and as clients see it."""

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
    """Everything that is fixed for a table, except the places of its tablets.

    `history_retention_us`: the time for which former values of rows can be read. `created_us`: the wall-clock time of
    the master that created it. Before a table is created, it has no id and `created_us` is 0.
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
    """The writer schemas with which events of its topic may be written; the one that follows from the table's columns
    is not listed."""
    older_schemas: tuple[TableSchema, ...] = ()
    """Former versions of `schema`, which blocks on disk may still have."""
