"""`nyala source ...`: where each Kafka partition of a table begins, how far it is complete, and how to begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nyala import pipeline

from . import completion
from .completion import TableName
from .context import Json, Masters, Yes, ask, client, kafka_of, local_kafka, show_list
from .letters import Kafka, KafkaProperties, login_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nyala.replica.rows import SourceKey

app = typer.Typer(help="source positions: what of Kafka is in the tables", no_args_is_help=True)
_FIELDS = ("table", "topic", "generation", "start", "done", "owner_run", "owner_deadline_us")


@app.command("list")
def list_sources(
    table: Annotated[str, typer.Argument(help="only this table's", autocompletion=completion.tables)] = "",
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """List source positions. Everything below `done` is in the table or in its dead letters.

    records behind: what Kafka has from `done` on, transaction markers among it. seconds behind: the age of the oldest
    of these, by the time in the record. Both are unknown (`?`, in JSON null) where Kafka does not answer, or has
    another topic of the name by now.
    """
    with client(masters) as connected:
        positions = connected.list_sources(table)
        bootstrap = kafka or ("" if masters else local_kafka()) or connected.kafka_of_masters()
    lags = _lags(positions, bootstrap, kafka_properties)
    document = [
        {
            **{f: getattr(p, f) for f in _FIELDS},
            "kafka_partition": p.source.kafka_partition,
            "topic_id": p.source.topic_id,
            "cluster_id": p.source.cluster_id,
            "records_behind": lags[_key(p)].records if _key(p) in lags else None,
            "seconds_behind": lags[_key(p)].seconds if _key(p) in lags else None,
        }
        for p in positions
    ]
    rows = [
        (p.table, p.topic, p.source.kafka_partition, p.generation, p.start, p.done, *_lag_words(lags.get(_key(p))),
         p.owner_run or "-", p.source.topic_id, p.source.cluster_id)
        for p in positions
    ]  # fmt: skip
    headings = (
        "table", "topic", "partition", "generation", "start", "done", "records behind", "seconds behind", "owner",
        "topic id", "kafka cluster",
    )  # fmt: skip
    show_list(as_json, document, "sources", headings, rows, ("kafka cluster", "topic id", "start", "generation"))


def _lag_words(lag: pipeline.SourceLag | None) -> tuple[str, str]:
    """Records and seconds as cells of a table."""
    if lag is None:
        return "?", "?"
    return f"{lag.records:,}", "?" if lag.seconds is None else f"{lag.seconds:,.0f}"


def _lags(positions: Sequence[Any], bootstrap: str, properties: str) -> dict[SourceKey, pipeline.SourceLag]:
    """The lag of each source, as far as Kafka answers; errors of Kafka go to standard error."""
    found: dict[SourceKey, pipeline.SourceLag] = {}
    if not positions:
        return found
    if not bootstrap:
        typer.echo("how far behind is unknown: no Kafka is named, --kafka host:port names one", err=True)
        return found
    topics = pipeline.Topics(bootstrap, pipeline.LAG_TIMEOUT_S, login_of(properties))
    try:
        for topic in sorted({p.topic for p in positions}):
            try:
                now = topics.identity(topic)
                mine = [p for p in positions if p.topic == topic and _key(p)[:2] == (now.cluster_id, now.topic_id)]
                done = {p.source.kafka_partition: p.done for p in mine if p.source.kafka_partition < now.partitions}
                lags = pipeline.source_lags(bootstrap, topic, done, security=login_of(properties)) if done else {}
            except (pipeline.QueryRefused, pipeline.QueryInterrupted) as error:
                typer.echo(f"how far behind topic {topic} is unknown: {error}", err=True)
                continue
            found |= {_key(p): lags[p.source.kafka_partition] for p in mine if p.source.kafka_partition in lags}
    finally:
        topics.close()
    return found


@app.command()
def release(
    table: TableName,
    owner: Annotated[str, typer.Option(help="only what this run holds")] = "",
    yes: Yes = False,
    masters: Masters = "",
) -> None:
    """Take a table's sources from a query that died, without waiting for its lease. A living query is ended by it."""
    with client(masters) as connected:
        held: dict[str, list[Any]] = {}
        for position in connected.list_sources(table):
            if position.owner_run and owner in ("", position.owner_run):
                held.setdefault(position.owner_run, []).append(position)
        if not held:
            typer.echo(f"no query holds a source of {table}")
        for run, positions in held.items():
            places = ", ".join(f"{p.topic}[{p.source.kafka_partition}]" for p in positions)
            ask(f"take {places} of {table} from {run}?", yes)
            pipeline.release_run(connected, positions)
            typer.echo(f"{places}: released, was held by {run}")


@app.command()
def reset(
    table: TableName,
    to: Annotated[str, typer.Option("--to", help="where the source begins anew: a Kafka offset, earliest or latest")],
    partition: Annotated[int, typer.Option(help="Kafka partition; -1: all of the table")] = -1,
    topic: Annotated[
        str, typer.Option(help="only this topic's, as Kafka has it now: recreated, or in another cluster, or not")
    ] = "",
    topic_id: Annotated[str, typer.Option(help="only sources of this topic id")] = "",
    force: Annotated[bool, typer.Option("--force", help="even while a query owns the source")] = False,
    yes: Yes = False,
    kafka: Kafka = "",
    kafka_properties: KafkaProperties = "",
    masters: Masters = "",
) -> None:
    """Begin a new generation of a source at another offset: tablets start it anew and refuse the older generation.

    Rows between the old `done` and a lower new offset are applied again; rows below a higher new offset are left out.
    """
    if not to.isdigit() and to not in ("earliest", "latest"):
        raise typer.BadParameter(f"--to is an offset, earliest or latest, not {to!r}")
    with client(masters) as connected:
        positions = [
            p
            for p in connected.list_sources(table)
            if partition in (-1, p.source.kafka_partition)
            and topic in ("", p.topic)
            and topic_id in ("", p.source.topic_id)
        ]
        if not positions:
            raise typer.BadParameter(f"table {table!r} has no such source: `nyala source list`")
        chosen = [(p, *_target(p, to, kafka, kafka_properties, current=bool(topic))) for p in positions]
        for position, source, offset in chosen:
            where = f"{position.topic}[{position.source.kafka_partition}]"
            change = f"done {position.done} -> {offset}, generation {position.generation} -> {position.generation + 1}"
            for name, before, after in zip(("Kafka cluster", "topic id"), _key(position), source, strict=False):
                change += f", {name} {before} -> {after}" if before != after else ""
            ask(f"reset {where} of {table}: {change}?", yes)
            made = connected.reset_source(
                table, source, offset, force=force, topic=position.topic, generation=position.generation
            )
            typer.echo(
                f"{where}: generation {made.generation} begins at {made.done}{_left_out(position, source, offset)}"
            )


def _left_out(position: Any, source: SourceKey, offset: int) -> str:
    """A text on the records that a reset skips for good, if any."""
    if source != _key(position):
        return f"; what topic id {position.source.topic_id} had from offset {position.done} on is left out"
    return f"; offsets {position.done} to {offset - 1} are left out" if offset > position.done else ""


def _key(position: Any) -> SourceKey:
    from nyala.replica.rows import SourceKey

    return SourceKey(position.source.cluster_id, position.source.topic_id, position.source.kafka_partition)


def _target(position: Any, to: str, kafka: str, properties: str, *, current: bool) -> tuple[SourceKey, int]:
    """The source to reset and its new offset; Kafka is asked only if needed."""
    old = _key(position)
    if to.isdigit() and not current:
        return old, int(to)
    topics = pipeline.Topics(kafka_of(kafka), security=login_of(properties))
    try:
        now = topics.identity(position.topic)
        if not current and (now.cluster_id, now.topic_id) != old[:2]:
            raise typer.BadParameter(
                f"topic {now.topic} at this broker is another one than this source's (Kafka cluster {now.cluster_id}, "
                f"topic id {now.topic_id}): say --topic {now.topic} to go on in it"
            )
        if old.kafka_partition >= now.partitions:
            raise typer.BadParameter(f"topic {now.topic} has {now.partitions} partitions now: choose with --partition")
        offset = int(to) if to.isdigit() else 0
        if not to.isdigit():
            offset = topics.offsets(now.topic, now.partitions, latest=to == "latest")[old.kafka_partition]
    except (pipeline.QueryRefused, pipeline.QueryInterrupted) as error:
        raise typer.BadParameter(str(error)) from error
    finally:
        topics.close()
    return (old._replace(cluster_id=now.cluster_id, topic_id=now.topic_id) if current else old), offset
