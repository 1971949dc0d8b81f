"""`nyala cluster ... | server ... | tablet ...`: looking at a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nyala import pipeline
from nyala.infra.printing import cell, line
from nyala.replica import tools
from nyala.replica.types import DataState, read_number

from . import completion
from .completion import TabletId
from .context import (
    Json,
    Masters,
    client,
    console,
    find_server,
    find_tablet,
    print_json,
    print_table,
    show_list,
    size_text,
)
from .letters import KafkaProperties, login_of

if TYPE_CHECKING:
    from rich.text import Text

    from nyala.replica.rpc import pb

cluster_app = typer.Typer(help="the whole cluster", no_args_is_help=True)
server_app = typer.Typer(help="tablet servers", no_args_is_help=True)
tablet_app = typer.Typer(help="tablets and their replicas", no_args_is_help=True)

REPLICA_HEADINGS = ("table", "tablet", "server", "role", "phase", "state", "term", "commit", "lag", "~rows", "disk")
SPARE = ("commit", "term", "~rows", "disk", "phase")
HOLDER = "tablet server"
COUNTED = ("master", HOLDER)
NOTHING = ("", "", "", "")
"""The cells for fields that only tablet servers report: for a master they are unknown, not 0."""
_HOLDS = (
    "replicas", "leaders", "bytes_on_disk", "memory_bytes", "tablets_max", "loop_lag_ms_max", "gil_hold_ms_max",
)  # fmt: skip
"""Numbers of a tablet server alone."""
SERVERS_SPARE = ("location", "wanted of it", "counted memory", "leaders", "disk", "kind")
"""The columns that are left out on a narrow terminal, the least useful first."""


def _replica_rows(view: tools.ClusterView, *, tombstones: bool = False) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    names = {t.tablet_id: table.name for table in view.tables for t in table.tablets}
    for tablet_id, replicas in sorted(view.replicas.items(), key=lambda item: (names.get(item[0], "~"), item[0])):
        committed = tools.committed_index(replicas)
        for replica in sorted(replicas, key=lambda r: r.server_uuid):
            s = replica.status
            tombstone = s.data_state == DataState.DELETED
            if tombstone and not tombstones:
                continue
            lag: object = "" if tombstone else tools.lag(s, committed)
            commit: object = "" if tombstone else s.commit_index
            phase = f"{s.phase}, end lost" if s.HasField("withheld") else s.phase
            rows.append(
                (names.get(tablet_id, s.table_name or "?"), tablet_id[:8], replica.server_uuid[:8],
                 "WITNESS" if s.witness else s.role, phase,
                 read_number(DataState, s.data_state).name, s.term, commit, lag, s.rows,
                 size_text(tools.bytes_on_disk(s)))
            )  # fmt: skip
    return rows


@cluster_app.command()
def check(
    checksum: Annotated[
        bool, typer.Option("--checksum", help="compare all replicas' rows as of one hybrid time")
    ] = False,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait", min=0, help="seconds; look again for so long while something is found, or no master answers"
        ),
    ] = 0.0,
    servers: Annotated[int, typer.Option("--servers", min=0, help="fewer tablet servers that are alive are wrong")] = 0,
    kafka: Annotated[str, typer.Option("--kafka", envvar="NYALA_KAFKA", help="default: the Kafka of the masters")] = "",
    kafka_properties: KafkaProperties = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Look at every master, and every replica on every server; exit status 1 when something is wrong.

    Too few replicas are wrong too, and voters that take no part. Only what is untidy, such as a replica that nobody
    needs, or late, such as one that is far behind, is a warning, status 0. A voter that --checksum could not compare
    is wrong.
    """
    deadline = time.monotonic() + wait_s
    with client(masters, wait_s) as connected:
        left_s = max(0.0, deadline - time.monotonic())
        view, findings = tools.checked(connected, checksum=checksum, wait_s=left_s, servers=servers)
        bootstrap = kafka or connected.kafka_of_masters()
    findings += _refused_records([table.name for table in view.tables], bootstrap, kafka_properties)
    if as_json:
        print_json(tools.as_json(view, findings))
    else:
        print_table(f"cluster {view.cluster_id}", REPLICA_HEADINGS, _replica_rows(view), SPARE)
        for finding in findings:
            colour = "red" if finding.severity is tools.Severity.ERROR else "yellow"
            console.print(line((finding.severity, colour), f" {finding.subject}: {finding.what}"))
        live = [r for found in view.replicas.values() for r in found if r.status.data_state != DataState.DELETED]
        left_out = tools.left_out(view) if checksum else []
        if left_out:
            console.print(f"not compared: {', '.join(left_out)}")
        if not findings:
            which = "the compared" if left_out else "all"
            same = f", {which} replicas of a tablet hold the same rows" if checksum else ""
            console.print(line(("OK", "green"), f" {len(view.servers)} servers, {len(live)} replicas{same}"))
    if any(f.severity is tools.Severity.ERROR for f in findings):
        raise typer.Exit(1)


def _refused_records(tables: list[str], bootstrap: str, properties: str) -> list[tools.Finding]:
    """Findings for the tables with records that did not become rows. If Kafka does not answer, standard error says
    so."""
    if not tables or not bootstrap:
        return []
    try:
        held = pipeline.letters_held(bootstrap, tables, security=login_of(properties))
    except (pipeline.QueryRefused, pipeline.QueryInterrupted) as error:
        typer.echo(f"how many records did not become rows is unknown: {error}", err=True)
        return []
    return [
        tools.Finding(tools.Severity.WARNING, f"table {table}", tools.letters_text(table, count))
        for table, count in sorted(held.items())
    ]


@server_app.command("list")
def list_servers(masters: Masters = "", as_json: Json = False) -> None:
    """List masters and tablet servers with what they hold."""
    with client(masters) as connected:
        listing = connected.list_servers()
        serve = {m.uuid for m in tools.ask_masters(connected, listing) if m.serves}
    for master in listing.masters:
        master.alive = master.uuid in serve
    everyone = [("master", s) for s in listing.masters] + [(HOLDER, s) for s in listing.servers]
    everyone += [("of another cluster", s) for s in listing.foreign]
    everyone += [("does not count", s) for s in listing.candidates]
    holds = [
        (s.replicas, s.leaders, size_text(s.bytes_on_disk), size_text(s.memory_bytes)) if kind == HOLDER else NOTHING
        for kind, s in everyone
    ]
    rows = [
        (kind, s.uuid[:8], _address(s), _state(kind, s), *held, s.location,
         ", ".join(filter(None, (tools.drain_words(s), tools.maintenance_words(s), "quiescing" * s.quiescing))))
        for (kind, s), held in zip(everyone, holds, strict=True)
    ]  # fmt: skip
    headings = (
        "kind", "uuid", "address", "", "replicas", "leaders", "disk", "counted memory", "location", "wanted of it",
    )  # fmt: skip
    document = [{"kind": kind, **_server_json(s, known=kind == HOLDER, counts=kind in COUNTED)} for kind, s in everyone]
    show_list(as_json, document, "servers", headings, rows, SERVERS_SPARE)


def _state(kind: str, server: pb.ServerInfo) -> Text:
    if kind not in COUNTED:
        # Its heartbeats come, and may come of another process than the one at its address.
        return cell("heard", "yellow")
    return cell("alive", "green") if server.alive else cell("silent", "red")


def _address(server: pb.ServerInfo) -> str:
    return f"{server.addresses[0].host}:{server.addresses[0].port}" if server.addresses else ""


def _server_json(server: pb.ServerInfo, *, known: bool, counts: bool) -> dict[str, Any]:
    """One server as JSON. `known`: whether its contents are known; for masters, and servers that do not count, they are
    null, not 0. Whether a server that does not count is alive is null, too."""
    holds: dict[str, Any] = {name: getattr(server, name) for name in _HOLDS}
    for name in ("open_files", "memory_maps"):
        use = getattr(server, name)
        holds |= {name: use.used or None, f"{name}_max": use.limit or None}
    return {
        "uuid": server.uuid,
        "address": _address(server),
        "alive": server.alive if counts else None,
        "not_counted": server.not_counted,
        **(holds if known else dict.fromkeys(holds)),
        "last_heartbeat_us_ago": server.last_heartbeat_us_ago,
        "location": server.location,
        "retire": tools.drain_json(server),
        "maintenance": tools.maintenance_json(server),
        "quiescing": server.quiescing,
    }


@tablet_app.command("list")
def list_tablets(
    table: Annotated[str, typer.Option(help="only this table's", autocompletion=completion.tables)] = "",
    everything: Annotated[bool, typer.Option("--all", help="tombstones of deleted replicas too")] = False,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """List every replica of every tablet.

    ~rows is an estimate: an upsert of a key that exists may count as a new row until the tablet is flushed; `nyala
    table scan TABLE --count` counts. disk: blocks and log.
    """
    with client(masters) as connected:
        view = tools.gather(connected)
    if table:
        wanted = {t.tablet_id for handle in view.tables if handle.name == table for t in handle.tablets}
        if not wanted:
            raise typer.BadParameter(
                f"no table named {table!r}: there are {', '.join(h.name for h in view.tables) or 'none'}"
            )
        view.replicas = {k: v for k, v in view.replicas.items() if k in wanted}
        view.tables = [h for h in view.tables if h.name == table]
    if as_json:
        print_json(tools.as_json(view, [])["tablets"])
        return
    print_table("tablets", REPLICA_HEADINGS, _replica_rows(view, tombstones=everything), SPARE)
    draining = frozenset(s.uuid for s in view.servers if s.draining)
    names = {t.tablet_id: handle.name for handle in view.tables for t in handle.tablets}
    changes = [
        (names[w.tablet_id], w.tablet_id[:8], w.voters, w.voters_wanted, w.change)
        for w in tools.unsettled((view.wanted[t] for t in names if t in view.wanted), draining)
    ]
    if changes:
        print_table("wanted changes", ("table", "tablet", "voters", "wanted", "change"), changes)


@tablet_app.command("leader-step-down")
def leader_step_down(
    tablet: TabletId,
    to: Annotated[
        str, typer.Option(help="server uuid, its beginning, or address; default: the most up-to-date follower")
    ] = "",
    masters: Masters = "",
) -> None:
    """Hand a tablet's leadership to another replica."""
    with client(masters) as connected:
        table, tablet_id = find_tablet(connected, tablet)
        target = find_server(connected, to).uuid if to else ""
        leader = connected.transfer_leadership(table, tablet_id, target)
    typer.echo(f"{leader} leads {tablet_id}")
