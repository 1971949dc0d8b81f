"""`nyala table ...`"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any

import typer

import nyala

from .completion import TableName
from .context import Json, Masters, Yes, ask_for_name, cluster, local_kafka, print_json, print_table, say, show_list
from .interrupted import before_sending
from .letters import Kafka, KafkaProperties
from .producers import PARTITIONS, Partitions
from .row_output import At, Csv, Limit, moment_of, one_form, print_csv, print_json_rows, rows_wanted

if TYPE_CHECKING:
    from nyala.replica.client import TableHandle

app = typer.Typer(help="create, look at and drop tables", no_args_is_help=True)


def _describe(handle: TableHandle) -> dict[str, Any]:
    return {
        "name": handle.name,
        "table_id": handle.table_id,
        "replication_factor": handle.replication_factor,
        "key": list(handle.schema.key),
        "columns": [{"name": c.name, "type": c.type_text, "nullable": c.nullable} for c in handle.schema.columns],
        "hash_columns": list(handle.partition.hash_columns),
        "buckets": handle.partition.buckets,
        "range_column": handle.partition.range_column,
        "range_splits": list(handle.partition.range_splits),
        "history_retention_s": handle.history_retention_us / 1e6,
        "topic": handle.source.topic,
        "framing": handle.source.framing,
        "tablets": [t.tablet_id for t in handle.tablets],
    }


@app.command()
def create(
    name: str,
    column: Annotated[
        list[str], typer.Option("--column", "-c", help="name:type, such as id:int64 or 'note:string not null'")
    ],
    key: Annotated[list[str], typer.Option("--key", "-k", help="primary key column, in order; repeat for several")],
    buckets: Annotated[int, typer.Option(help="hash buckets, each a tablet")] = 3,
    replicas: Annotated[int, typer.Option(help="replication factor")] = 3,
    topic: Annotated[str, typer.Option(help="Kafka topic that feeds it; default writes.NAME")] = "",
    framing: Annotated[
        str, typer.Option(help="single-object or confluent; bare needs Python's create_table(reader_schema=)")
    ] = "single-object",
    partitions: Partitions = PARTITIONS,
    no_topic: Annotated[bool, typer.Option("--no-topic", help="leave the topic to others")] = False,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Create a table, and the topic that feeds it in the Kafka that is named, or that the masters name."""
    columns = []
    for text in column:
        left, colon, kind = text.partition(":")
        if not colon or not left or not kind:
            raise typer.BadParameter(f"--column {text!r}: say name:type, such as id:int64")
        columns.append((left, kind))
    names = [left for left, _ in columns]
    if joined := next((k for k in key if "," in k and k not in names), ""):
        again = " ".join(f"--key {part.strip()}" for part in joined.split(","))
        raise typer.BadParameter(f"--key {joined!r} is no column: repeat --key for each column, as in {again}")
    # Before anything is connected, so that a mistake is told as one, wherever the masters are.
    with before_sending():
        from nyala.definitions import definition_of

        definition_of(name, columns, key=key, hash_buckets=buckets, replication_factor=replicas, topic=topic)
    bootstrap = "" if no_topic else kafka or ("" if masters else local_kafka())
    not_made, made = "", None
    with cluster(masters, bootstrap, kafka_properties) as connected:
        bootstrap = "" if no_topic else connected.kafka
        try:
            made = connected.create_table(
                name,
                columns,
                key=key,
                hash_buckets=buckets,
                replication_factor=replicas,
                topic=topic,
                framing=framing,
                partitions=partitions,
                make_topic=False if no_topic else None,
            )
        except nyala.TopicNotMade as error:
            not_made = str(error)
        handle = connected.client.get_table(name)
    say(as_json, _describe(handle), f"created {name}: {len(handle.tablets)} tablets, {replicas} replicas each")
    if not_made:
        typer.echo(f"nyala: {not_made}", err=True)
        raise typer.Exit(1)
    if made is not None and made.topic_partitions:
        fed = f"fed by topic {handle.source.topic}, {made.topic_partitions} partitions, at {bootstrap}"
        typer.echo(fed, err=as_json)
    else:
        how = f"`nyala topic create {name} --kafka host:port`"
        typer.echo(f"topic {handle.source.topic} feeds it once it is there: {how}", err=True)


@app.command("list")
def list_tables(masters: Masters = "", as_json: Json = False) -> None:
    """List tables."""
    with cluster(masters) as connected:
        handles = connected.client.list_tables()
        if as_json:  # the list of tables has no tablets
            handles = [connected.client.get_table(h.name) for h in handles]
    rows = [
        (h.name, ", ".join(h.schema.key), len(h.schema.columns), h.partition.tablets, h.replication_factor,
         h.source.topic)
        for h in handles
    ]  # fmt: skip
    headings = ("name", "key", "columns", "tablets", "replicas", "topic")
    show_list(as_json, [_describe(h) for h in handles], "tables", headings, rows)


@app.command()
def describe(name: TableName, masters: Masters = "", as_json: Json = False) -> None:
    """Show a table's columns, partitions and source."""
    with cluster(masters) as connected:
        handle = connected.client.get_table(connected.table(name).name)
    if as_json:
        print_json(_describe(handle))
        return
    key = {column: pos for pos, column in enumerate(handle.schema.key, start=1)}
    rows = [(c.name, c.type_text, "yes" if c.nullable else "", key.get(c.name, "")) for c in handle.schema.columns]
    print_table(f"{name} ({handle.table_id})", ("column", "type", "nullable", "key"), rows)
    typer.echo(
        f"{len(handle.tablets)} tablets{_cut(handle)}, {handle.replication_factor} replicas; "
        f"history of {handle.history_retention_us / 1e6:g} s; topic {handle.source.topic} ({handle.source.framing})"
    )


def _cut(handle: TableHandle) -> str:
    """A text on how a table is divided into tablets."""
    spec = handle.partition
    by_hash = f" by hash of {', '.join(spec.hash_columns)} in {spec.buckets} buckets" if spec.buckets > 1 else ""
    if not spec.range_splits:
        return by_hash
    splits = [str(each) for each in spec.range_splits]
    ends = [
        f"below {splits[0]}",
        *(f"{a} to below {b}" for a, b in itertools.pairwise(splits)),
        f"{splits[-1]} and above",
    ]
    joined = " and" if by_hash else ""
    return f"{by_hash}{joined} by range of {spec.range_column} ({'; '.join(ends)})"


@app.command()
def scan(
    name: TableName,
    columns: Annotated[str, typer.Option(help="comma-separated; default all")] = "",
    where: Annotated[str, typer.Option(help="such as \"carrier = 'AA' and dep_delay > 60\"")] = "",
    at: At = "",
    staleness: Annotated[
        float | None,
        typer.Option(help="seconds; any replica may answer whose data is at most so old", show_default=False),
    ] = None,
    limit: Limit = None,
    count: Annotated[bool, typer.Option("--count", help="only the number of rows")] = False,
    csv: Csv = False,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Read rows."""
    moment, names = moment_of(at), _names(columns)
    condition = nyala.parse_condition(where) if where else None
    one_form(csv, as_json)
    limit = rows_wanted(limit, csv or as_json or count)
    with cluster(masters) as connected:
        scanned = connected.table(name).scan(
            columns=names, where=condition, at=moment, limit=limit or None, staleness=staleness
        )
        if count:
            rows = scanned.count()
            say(as_json, {"rows": rows}, f"{rows:,}")
        elif csv:
            print_csv(scanned.schema, scanned)
        elif as_json:
            print_json_rows(scanned)
        else:
            from nyala.replica.rows import python_rows

            result = python_rows(scanned.to_arrow())
            title = f"{name}: {len(result)} row{'' if len(result) == 1 else 's'}"
            print_table(title, scanned.schema.names, [list(row.values()) for row in result])
            if limit and len(result) == limit:
                typer.echo(f"the first {limit} rows; --limit 0 shows all, --count counts")


def _names(columns: str) -> list[str] | None:
    """The names in `--columns`; None is all."""
    names = [c.strip() for c in columns.split(",") if c.strip()]
    if columns and not names:
        raise typer.BadParameter(f"--columns {columns!r} names no column")
    if repeated := sorted({c for c in names if names.count(c) > 1}):
        raise typer.BadParameter(f"--columns names {', '.join(repeated)} twice")
    return names or None


@app.command()
def drop(name: TableName, yes: Yes = False, masters: Masters = "") -> None:
    """Drop a table with all its rows."""
    with cluster(masters) as connected:
        connected.table(name)
        if not yes:
            ask_for_name(name, f"all rows of {name} will be gone; type its name to drop it")
        connected.drop_table(name)
    typer.echo(f"dropped {name}")
