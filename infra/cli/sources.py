"""`nyala source ...`: where each Kafka partition of a table begins, how far it is complete, and how to begin anew."""

from __future__ import annotations

from typing import Annotated

import typer

from nyala.replica.rows import SourceKey

from .context import Json, Masters, client, print_json, print_table

app = typer.Typer(help="source positions: what of Kafka is in the tables", no_args_is_help=True)
_FIELDS = ("table", "topic", "generation", "start", "done", "owner_run", "owner_deadline_us")


@app.command("list")
def list_sources(
    table: Annotated[str, typer.Argument(help="only this table's")] = "", masters: Masters = "", as_json: Json = False
) -> None:
    """List source positions. Everything below `done` is in the table or in its dead letters."""
    with client(masters) as connected:
        positions = connected.list_sources(table)
    if as_json:
        print_json(
            [
                {
                    **{f: getattr(p, f) for f in _FIELDS},
                    "kafka_partition": p.source.kafka_partition,
                    "topic_id": p.source.topic_id,
                }
                for p in positions
            ]
        )
        return
    rows = [
        (
            p.table,
            p.topic,
            p.source.kafka_partition,
            p.generation,
            p.start,
            p.done,
            p.owner_run or "-",
            p.source.topic_id,
        )
        for p in positions
    ]
    print_table("sources", ("table", "topic", "partition", "generation", "start", "done", "owner", "topic id"), rows)


@app.command()
def reset(
    table: str,
    to: Annotated[int, typer.Option("--to", help="Kafka offset at which the source begins anew")],
    partition: Annotated[int, typer.Option(help="Kafka partition; -1: all of the table")] = -1,
    topic_id: Annotated[str, typer.Option(help="only sources of this topic id")] = "",
    force: Annotated[bool, typer.Option("--force", help="even while a query owns the source")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    masters: Masters = "",
) -> None:
    """Begin a new generation of a source at another offset: tablets start it anew and refuse the older generation.

    Rows between the old `done` and a lower new offset are applied again; rows below a higher new offset are left out.
    """
    with client(masters) as connected:
        positions = [
            p
            for p in connected.list_sources(table)
            if partition in (-1, p.source.kafka_partition) and topic_id in ("", p.source.topic_id)
        ]
        if not positions:
            raise typer.BadParameter(f"table {table!r} has no such source: `nyala source list`")
        for position in positions:
            where = f"{position.topic}[{position.source.kafka_partition}]"
            change = f"done {position.done} -> {to}, generation {position.generation} -> {position.generation + 1}"
            if not yes and not typer.confirm(f"reset {where} of {table}: {change}?"):
                typer.echo("nothing was changed", err=True)
                raise typer.Exit(1)
            source = SourceKey(position.source.cluster_id, position.source.topic_id, position.source.kafka_partition)
            made = connected.reset_source(table, source, to, force=force)
            typer.echo(f"{where}: generation {made.generation} begins at {made.done}")
