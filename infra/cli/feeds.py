"""`nyala topic ...` and `nyala schema ...`: what a producer needs before its events can become rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nyala.pipeline import KafkaSecurity, Topics, key_schema_json, row_schema_json
from nyala.replica.client import WriterSchemaInfo
from nyala.schemas import fingerprint64, parse_json

from .context import Json, Masters, client, kafka_of, print_json, print_table
from .letters import Kafka, KafkaProperties, login_of

topic_app = typer.Typer(help="the Kafka topic that feeds a table", no_args_is_help=True)
schema_app = typer.Typer(help="Avro schemas of a table's row events", no_args_is_help=True)
PARTITIONS = 4
Partitions = Annotated[int, typer.Option("--partitions", min=1, max=1000, help="Kafka partitions of a new topic")]


def make_topic(bootstrap: str, topic: str, partitions: int, security: KafkaSecurity) -> int:
    """The topic, created if it is not there; how many partitions it has. QueryRefused or QueryInterrupted."""
    topics = Topics(bootstrap, security=security)
    try:
        # An event that Kafka removes before it was read is lost; the brokers' own retention says when.
        topics.ensure(topic, partitions, configs={"cleanup.policy": "delete"})
        return topics.identity(topic).partitions
    finally:
        topics.close()


@topic_app.command("create")
def create_topic(
    table: str,
    partitions: Partitions = PARTITIONS,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    masters: Masters = "",
) -> None:
    """Create the topic that a table's source declares. One that is there is left as it is."""
    with client(masters) as connected:
        topic = connected.get_table(table).source.topic
    made = make_topic(kafka_of(kafka), topic, partitions, login_of(kafka_properties))
    typer.echo(f"topic {topic} has {made} partitions")


@schema_app.command()
def show(
    table: str,
    key: Annotated[bool, typer.Option("--key", help="of the Kafka key instead")] = False,
    columns: Annotated[str, typer.Option(help="comma-separated: of updates of these columns instead")] = "",
    masters: Masters = "",
) -> None:
    """Print the Avro schema of a table's row events, for producers that are not `nyala.pipeline.RowPublisher`.

    Events of whole rows need no more; other writer schemas, also those of `--columns`, must be registered.
    """
    with client(masters) as connected:
        schema = connected.get_table(table).schema
    names = [c.strip() for c in columns.split(",") if c.strip()]
    if unknown := [name for name in names if not schema.has(name)]:
        raise typer.BadParameter(f"{table} has no column {unknown[0]!r}: there are {', '.join(schema.names)}")
    typer.echo(key_schema_json(schema) if key else row_schema_json(schema, names or None))


@schema_app.command()
def register(
    table: str,
    file: Annotated[Path, typer.Argument(help="Avro JSON of a record", exists=True, dir_okay=False)],
    registry_id: Annotated[int, typer.Option(min=0, help="its id in a schema registry, for Confluent's framing")] = 0,
    masters: Masters = "",
) -> None:
    """Make a writer schema known, so that events written with it become rows. Running queries ask for it."""
    try:
        text = file.read_text()
        fingerprint = fingerprint64(parse_json(text)).hex()
    except Exception as error:  # whatever the parser makes of a file that is no schema
        raise typer.BadParameter(f"{file} is no Avro schema: {error}") from error
    with client(masters) as connected:
        connected.add_writer_schema(table, WriterSchemaInfo(fingerprint, registry_id, text))
    typer.echo(f"events written with schema {fingerprint} become rows of {table}")


@schema_app.command("list")
def list_schemas(table: str, masters: Masters = "", as_json: Json = False) -> None:
    """List the writer schemas of a table: its own of whole rows, which needs no registration, and the registered."""
    with client(masters) as connected:
        handle = connected.get_table(table)
    own = row_schema_json(handle.schema)
    found = [(fingerprint64(parse_json(own)).hex(), 0, own)]
    found += [
        (w.fingerprint, w.registry_id, w.avro_json) for w in handle.writer_schemas if w.fingerprint != found[0][0]
    ]
    if as_json:
        print_json([{"fingerprint": f, "registry_id": r, "avro": parse_json(text)} for f, r, text in found])
        return
    rows = [
        (f, r or "", parse_json(text)["name"], ", ".join(field["name"] for field in parse_json(text)["fields"]))
        for f, r, text in found
    ]
    print_table(f"writer schemas of {table}", ("fingerprint", "registry", "name", "fields"), rows)
