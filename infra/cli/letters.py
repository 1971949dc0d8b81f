"""`nyala dead-letter ...`: records that did not become rows."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nyala import pipeline
from nyala.replica.types import Code, Refused, shown

from .completion import TableName
from .context import Json, Masters, Yes, ask, cluster, console, kafka_of, print_table

if TYPE_CHECKING:
    from nyala.pipeline import KafkaSecurity, StoredDeadLetter

app = typer.Typer(help="records that did not become rows", no_args_is_help=True)
Kafka = Annotated[
    str, typer.Option("--kafka", envvar="NYALA_KAFKA", help="host:port; default: the local stack (`nyala up`)")
]
KafkaProperties = Annotated[
    str, typer.Option("--kafka-properties", help="file of Java client properties: how to log in to Kafka")
]
Reason = Annotated[str, typer.Option(help="only letters with this reason, such as KEY_MISMATCH")]
ROWS_SHOWN = 50


def _chosen(kafka: str, properties: str, table: str, reason: str) -> Iterator[StoredDeadLetter]:
    letters = pipeline.iterate_letters(kafka_of(kafka), table, security=login_of(properties))
    return (one for one in letters if not reason or one.record["reason"] == reason.upper())


def login_of(properties: str) -> KafkaSecurity:
    """The login to Kafka by a file of properties; without a file, plaintext."""
    return pipeline.security_of(pipeline.kafka_options([], properties))


def _shown(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


@app.command("list")
def list_letters(
    table: TableName,
    reason: Reason = "",
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help=f"letters to show; 0 is all; default {ROWS_SHOWN}, with --json all", show_default=False
        ),
    ] = None,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """List a table's dead letters, oldest first, each record once. With --json keys and values are base64.

    FOREIGN is what somebody else wrote to the topic: no dead letter, shown with its own place, key and value.
    """
    there = _has_topic(kafka_of(kafka), table, login_of(kafka_properties))
    if not there:
        _need_table(table, masters)
    letters = _chosen(kafka, kafka_properties, table, reason)
    if as_json:
        _print_json(islice(letters, limit) if limit else letters)
        return
    limit = ROWS_SHOWN if limit is None else limit
    rows: list[tuple[object, ...]] = []
    total = 0
    for one in letters:
        total += 1
        if not limit or total <= limit:
            r, value = one.record, one.record["value"] or b""
            rows.append((one.place, r["reason"], r["column"], len(value), value[:24].hex(" ")))
    print_table(f"dead letters of {table}", ("record", "reason", "column", "bytes", "begins"), rows)
    if len(rows) < total:
        console.print(f"{len(rows)} of {total}; --limit 0 shows all")
    if not there:
        topic = pipeline.dead_letter_topic(table)
        typer.echo(f"there is no topic {topic}: no record was refused yet, or no table is called {table}", err=True)


def _need_table(table: str, masters: str) -> None:
    """Refuse a table that the masters do not know; say so if no cluster is named, or its masters do not answer."""
    try:
        with cluster(masters) as connected:
            connected.table(table)
    except typer.BadParameter:
        typer.echo(f"whether there is a table {shown(table)} is not known: say --masters host:port", err=True)
    except Refused as error:
        if error.code is Code.NOT_FOUND:
            raise
        typer.echo(f"whether there is a table {shown(table)} is not known: {error}", err=True)


def _has_topic(kafka: str, table: str, security: KafkaSecurity) -> bool:
    topics = pipeline.Topics(kafka, security=security)
    try:
        return topics.is_there(pipeline.dead_letter_topic(table))
    finally:
        topics.close()


def _print_json(letters: Iterator[StoredDeadLetter]) -> None:
    """Print one JSON array, one letter at a time, because all of them may not fit in memory."""
    between = "["
    for one in letters:
        typer.echo(between + json.dumps({k: _shown(v) for k, v in one.record.items()}), nl=False)
        between = ",\n"
    typer.echo("[]" if between == "[" else "]")


@app.command()
def replay(
    table: TableName,
    reason: Reason = "",
    to: Annotated[str, typer.Option(help="publish to this topic instead of the one each record came from")] = "",
    yes: Yes = False,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
) -> None:
    """Publish dead letters' records again, after what was wrong with them was mended. FOREIGN ones are left out."""
    first = ""
    count = 0
    for one in _chosen(kafka, kafka_properties, table, reason):
        if not one.foreign:
            first = first or str(one.record["topic"])
            count += 1
    if not count:
        typer.echo("no such dead letters")
        return
    ask(f"publish {count} records again to {to or first}?", yes)
    # Letters that come back as new ones meanwhile are not among the first `count`.
    letters = islice((one for one in _chosen(kafka, kafka_properties, table, reason) if not one.foreign), count)
    published = pipeline.replay_letters(kafka_of(kafka), letters, to, security=login_of(kafka_properties))
    typer.echo(f"published {published} records")
