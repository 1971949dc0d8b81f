"""`nyala topic ...` and `nyala schema ...`: what a producer needs before its events can become rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from nyala import pipeline
from nyala.replica.types import shown

from .completion import TableName
from .context import Json, Masters, cluster, local_kafka, show_list
from .letters import Kafka, KafkaProperties

topic_app = typer.Typer(help="the Kafka topic that feeds a table", no_args_is_help=True)
schema_app = typer.Typer(help="Avro schemas of a table's row events", no_args_is_help=True)
PARTITIONS = 4
Partitions = Annotated[int, typer.Option("--partitions", min=1, max=1000, help="Kafka partitions of a new topic")]


@topic_app.command("create")
def create_topic(
    table: TableName,
    partitions: Partitions = PARTITIONS,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    masters: Masters = "",
) -> None:
    """Create the topic that a table's source declares. One that is there is left as it is."""
    with cluster(masters, kafka or ("" if masters else local_kafka()), kafka_properties) as connected:
        made = connected.create_topic(table, partitions=partitions)
        topic = connected.table(table).handle.source.topic
    typer.echo(f"topic {topic} has {made} partitions")


@schema_app.command()
def show(
    table: TableName,
    key: Annotated[bool, typer.Option("--key", help="of the Kafka key instead")] = False,
    columns: Annotated[str, typer.Option(help="comma-separated: of updates of these columns instead")] = "",
    masters: Masters = "",
) -> None:
    """Print the Avro schema of a table's row events, for producers that are not `nyala.pipeline.RowPublisher`.

    Events of whole rows need no more; other writer schemas, also those of `--columns`, must be registered.
    """
    with cluster(masters) as connected:
        schema = connected.table(table).handle.schema
    names = [c.strip() for c in columns.split(",") if c.strip()]
    if unknown := [name for name in names if not schema.has(name)]:
        raise typer.BadParameter(f"{table} has no column {unknown[0]!r}: there are {', '.join(schema.names)}")
    typer.echo(pipeline.key_schema_json(schema) if key else pipeline.row_schema_json(schema, names or None))


@schema_app.command()
def register(
    table: TableName,
    file: Annotated[Path, typer.Argument(help="Avro JSON of a record", exists=True, dir_okay=False)],
    registry_id: Annotated[int, typer.Option(min=0, help="its id in a schema registry, for Confluent's framing")] = 0,
    masters: Masters = "",
) -> None:
    """Make a writer schema known, so that events written with it become rows. Running queries ask for it."""
    from nyala.replica.client import WriterSchemaInfo
    from nyala.schemas import parse_writer_schema

    try:
        text = file.read_text()
        fingerprint = parse_writer_schema(text)[1].hex()
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file} is no Avro schema: {error}") from error
    with cluster(masters) as connected:
        connected.table(table)
        connected.client.add_writer_schema(table, WriterSchemaInfo(fingerprint, registry_id, text))
    typer.echo(f"events written with schema {fingerprint} become rows of {table}")


@schema_app.command()
def forget(
    table: TableName,
    fingerprint: Annotated[str, typer.Argument(help="as `nyala schema list` shows it")],
    masters: Masters = "",
) -> None:
    """Make a registered writer schema unknown again, which makes room for another one.

    Rows stay. Events written with it that are not rows yet become dead letters: register it again, and replay them.
    """
    with cluster(masters) as connected:
        known = {w.fingerprint for w in connected.table(table).handle.writer_schemas}
        if fingerprint not in known:
            listed = ", ".join(sorted(known)[:10]) or "none"
            raise typer.BadParameter(f"{table} has no registered schema {shown(fingerprint)!r}: there are {listed}")
        connected.client.forget_writer_schema(table, fingerprint)
    typer.echo(f"events written with schema {fingerprint} become dead letters of {table}")


def _told(avro_json: str) -> tuple[str, str]:
    """(name, fields) of a stored schema. One that is no record of Avro makes no rows, and says so."""
    from nyala.schemas import parse_writer_schema

    try:
        parsed, _ = parse_writer_schema(avro_json)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict) and parsed["type"] == "record":
        return parsed["name"], ", ".join(field["name"] for field in parsed["fields"])
    return shown(avro_json), "(no Avro record: its events become dead letters)"


@schema_app.command("list")
def list_schemas(table: TableName, masters: Masters = "", as_json: Json = False) -> None:
    """List the writer schemas of a table: its own of whole rows, which needs no registration, and the registered."""
    from nyala.schemas import fingerprint64, parse_json

    with cluster(masters) as connected:
        handle = connected.table(table).handle
    own = pipeline.row_schema_json(handle.schema)
    found = [(fingerprint64(parse_json(own)).hex(), 0, own)]
    found += [
        (w.fingerprint, w.registry_id, w.avro_json) for w in handle.writer_schemas if w.fingerprint != found[0][0]
    ]
    document = [{"fingerprint": f, "registry_id": r, "avro": json.loads(text)} for f, r, text in found]
    rows = [(f, r or "", *_told(text)) for f, r, text in found]
    show_list(as_json, document, f"writer schemas of {table}", ("fingerprint", "registry", "name", "fields"), rows)
