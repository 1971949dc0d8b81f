"""`nyala master unsafe-rebuild`: a new catalog of what the tablet servers hold, after all masters were lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from nyala import pipeline
from nyala.infra.printing import line
from nyala.replica import tools
from nyala.replica.types import Address, kafka_topics

from .context import Json, Yes, ask, console, print_json, print_table
from .interrupted import before_sending
from .letters import KafkaProperties, login_of
from .offline import Root, address_of

if TYPE_CHECKING:
    from nyala.replica.rows import SourceFormat, SourceKey

NEXT = (
    "Start the new master: python -m nyala.replica.master --root {root} --listen {address}",
    "Start servers and clients with --masters={address}, unless they know that address already",
    "Look at the cluster: nyala cluster check --masters {address} --wait 60",
    "Remove the checkpoints of the ingests, register the writer schemas again, then start the ingests",
    "Add masters: nyala master add ADDRESS, after each was started with --join {address}",
)
Source = Annotated[
    list[str],
    typer.Option(
        "--source",
        metavar="TABLE=TOPIC[:FRAMING[:FILE]]",
        help="what feeds a table, if not writes.TABLE in single-object framing; FILE has the schema of bare values",
    ),
]
Servers = Annotated[str, typer.Option("--servers", help="host:port[,...] of all tablet servers of the cluster")]
Former = Annotated[
    str,
    typer.Option("--masters", envvar="NYALA_MASTERS", help="host:port[,...] of the lost masters; none may answer"),
]
Lost = Annotated[list[str], typer.Option("--lost-server", help="uuid or host:port of a server that is lost; repeat it")]
LeftOut = Annotated[
    list[str], typer.Option("--leave-out", help="id of a table or tablet that the catalog is not to have; repeat it")
]


def unsafe_rebuild(
    root: Root,
    servers: Servers,
    address: Annotated[str, typer.Option(help="host:port of the new master, as servers and clients reach it")],
    masters: Former = "",
    lost_server: Lost = [],  # noqa: B006
    leave_out: LeftOut = [],  # noqa: B006
    source: Source = [],  # noqa: B006
    accept_missing: Annotated[
        bool, typer.Option("--accept-missing", help="go on although tablets of a table were not found")
    ] = False,
    wait_s: Annotated[float, typer.Option("--wait", help="how long to wait for tablets to have leaders")] = 30,
    kafka: Annotated[str, typer.Option(help="host:port of the Kafka that feeds the tables")] = "",
    kafka_properties: KafkaProperties = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would be made, and write nothing")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make the directory of a new master from what the tablet servers hold. For a cluster that lost all masters.

    ROOT is a new directory. Every server has to be named and to answer, and every tablet to have a leader: first
    recover those that lost their majority (`nyala unsafe recover --no-masters`). What no server knows is lost, and the
    command lists it. Nothing is changed on the servers. With --kafka, source positions get the names of their topics,
    and go back no further than Kafka does.
    """
    if not masters:
        raise typer.BadParameter("say --masters: the addresses of the lost masters, of which none may answer")
    with before_sending():
        named, former, own = _addresses(servers), _addresses(masters), address_of(address)
        tools.need_new_directory(root)
        allowed = tools.Allowed(
            lost_servers=frozenset(lost_server),
            left_out=frozenset(leave_out),
            missing=accept_missing,
            declared=dict(map(_declared, source)),
        )
        tools.refuse_living_masters(list(dict.fromkeys((*former, own))))
        topics, first_kept = _of_kafka(kafka, kafka_properties)
        allowed = replace(allowed, topics=topics, first_kept=first_kept)
        with _reading(quiet=as_json) as step:
            found, term = _read(named, allowed, wait_s, step)
        rebuilt = tools.rebuild_catalog(found, allowed, time.time_ns() // 1000)
    document: dict[str, object] = {"cluster_id": found.cluster_id, "term": term, **tools.rebuilt_json(rebuilt)}
    if not as_json:
        _print(rebuilt)
    written = None
    if not rebuilt.problems and not dry_run:
        ask(f"make {root} the only master of cluster {found.cluster_id}?", yes)
        written = tools.write_directory(root, own, found.cluster_id, found.feature_level, rebuilt, term)
    steps = [text.format(root=root, address=own) for text in NEXT]
    if as_json:
        print_json(
            {**document, "written": written is not None, "uuid": written.uuid if written else None, "next": steps}
        )
    elif written is not None:
        console.print(line(("done", "green"), f": {root} is the directory of master {written.uuid}. Next:"))
        for number, text in enumerate(steps, 1):
            console.print(f"{number}. {text}", soft_wrap=True)
    else:
        console.print("nothing was written")
    if rebuilt.problems:
        raise typer.Exit(1)


def _addresses(text: str) -> list[Address]:
    return [address_of(each.strip()) for each in text.split(",") if each.strip()]


def _declared(text: str) -> tuple[str, SourceFormat]:
    """(table, what feeds it) of TABLE=TOPIC[:FRAMING[:FILE]]."""
    from nyala.replica.rows import SourceFormat
    from nyala.schemas import parse_writer_schema

    table, _, rest = text.partition("=")
    topic, _, rest = rest.partition(":")
    framing, _, path = rest.partition(":")
    framing = framing or "single-object"
    if not table or not topic or framing not in kafka_topics.FRAMINGS or bool(path) != (framing == "bare"):
        raise typer.BadParameter(f"--source {text!r}: say TABLE=TOPIC, TABLE=TOPIC:confluent or TABLE=TOPIC:bare:FILE")
    schema = Path(path).read_text() if path else ""
    try:
        if schema:
            parse_writer_schema(schema)
    except ValueError as error:
        raise typer.BadParameter(f"--source {text!r}: {path} has no Avro schema: {error}") from None
    return table, SourceFormat(topic, framing, schema)


def _read(
    named: Sequence[Address], allowed: tools.Allowed, wait_s: float, step: Callable[[int, int], None]
) -> tuple[tools.FoundCluster, int]:
    """(what the servers hold, the term of the new catalog)."""
    answers = tools.ask_servers(named)
    there = [a for a in answers if not a.error]
    places = {a.uuid: a.address for a in there}
    if problems := tools.server_problems(answers, allowed.lost_servers):
        return tools.FoundCluster(cluster_id="", servers=places, tablets=(), problems=tuple(problems)), 0
    evidence = tools.read_tablets(places, allowed.left_out, patience_s=wait_s, step=step)
    found = tools.FoundCluster(
        cluster_id=max(a.cluster_id for a in there),
        feature_level=max(a.feature_level for a in there),
        servers=places,
        tablets=tuple(evidence.tablets.values()),
        unread=evidence.unread,
        ids=evidence.ids,
    )
    return found, tools.first_term(evidence.decision_term, time.time_ns() // 1000)


def _of_kafka(kafka: str, properties: str) -> tuple[dict[tuple[str, str], str], dict[SourceKey, int]]:
    """The names of Kafka's topics, by cluster and id, and the first offsets that it has; nothing without a broker."""
    if not kafka:
        return {}, {}
    from nyala.replica.rows import SourceKey

    topics = pipeline.Topics(kafka, security=login_of(properties))
    try:
        found = topics.all()
        first = {t.topic_id: topics.offsets(t.topic, t.partitions) for t in found}
    except (pipeline.QueryRefused, pipeline.QueryInterrupted) as error:
        raise typer.BadParameter(f"{error}; nothing was written. Without it: leave --kafka out") from error
    finally:
        topics.close()
    kept = {SourceKey(t.cluster_id, t.topic_id, n): at for t in found for n, at in first[t.topic_id].items()}
    return {(t.cluster_id, t.topic_id): t.topic for t in found}, kept


@contextmanager
def _reading(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """`step(tablets read, all)`, which draws a progress bar on a terminal; elsewhere, or with `quiet`, nothing."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("tablets", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print(rebuilt: tools.Rebuilt) -> None:
    tables = [
        (
            t.description.name,
            t.description.table_id,
            t.tablets,
            len(t.missing),
            t.description.replication_factor,
            t.description.schema.schema_id,
        )
        for t in rebuilt.tables
    ]
    print_table("tables", ("table", "id", "tablets", "missing", "replicas", "schema"), tables, ("id", "schema"))
    sources = [
        (
            s.position.table,
            f"{s.position.topic}[{s.position.kafka_partition}]",
            s.position.generation,
            s.position.done,
            len(s.without),
        )
        for s in rebuilt.sources
    ]
    if sources:
        headings = ("table", "source", "generation", "done", "tablets without it")
        print_table("source positions, to be read again from done on", headings, sources)
    for text in tools.LOST:
        console.print(line(("lost", "yellow"), f": {text}"), soft_wrap=True)
    for text in rebuilt.problems:
        console.print(line(("problem", "red"), f": {text}"), soft_wrap=True)
