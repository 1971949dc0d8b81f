"""`nyala unsafe recover`: lets tablets whose majority is lost for good go on from their best remaining replica."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nyala.infra.printing import line
from nyala.replica import tools
from nyala.replica.types import Address, Code, Corruption, DiskFailure, RaftConfig, Refused, us_of_hybrid

from .context import Confirmed, Json, Masters, Tablets, Yes, ask, client, console, not_yet, print_json, print_table, say
from .offline import reading, stopped

if TYPE_CHECKING:
    from rich.text import Text

    from nyala.replica.client import Client
    from nyala.replica.fs import RealDisk

app = typer.Typer(help="tablets that lost a majority for good: no guarantee holds for them", no_args_is_help=True)
WARNING = (
    "A majority of these tablets' replicas is given up for good. What only they have is lost, reads may go back\n"
    "in time, and there is no way back. Do this only if they will never return; if they may, wait for them."
)


@dataclass(frozen=True)
class _Root:
    """A stopped server's directory, locked."""

    path: Path
    disk: RealDisk
    cluster_id: str


@app.command()
def recover(
    root: Annotated[list[Path], typer.Option(help="directory of a stopped server that may hold a survivor; repeat it")],
    tablet: Tablets = [],  # noqa: B006
    table: Annotated[list[str], typer.Option(help="all tablets of this table that need it; repeat it")] = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="all tablets in the directories that need it")] = False,
    copy_to: Annotated[
        list[Path], typer.Option(help="directory of a stopped server that becomes a member, with a copy; repeat it")
    ] = [],  # noqa: B006
    yes_i_lose_data: Confirmed = "",
    no_masters: Annotated[
        bool,
        typer.Option("--no-masters", help="unsafe: do not ask running servers, leave source positions as they are"),
    ] = False,
    abandon: Annotated[
        str,
        typer.Option(metavar="FINGERPRINT", help="give this unfinished recovery up, as long as no config is rewritten"),
    ] = "",
    despite_majority: Annotated[
        bool, typer.Option("--despite-majority", help="unsafe: also tablets whose majority is whole and can go on")
    ] = False,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Print, or carry out, a plan for tablets that lost the majority of their replicas for good.

    Looks at stopped servers' directories and at running servers, builds on the most up-to-date survivor of each tablet,
    and says what may be lost. Run it once to see the plan and again with its fingerprint; if that is cut off, run the
    same command again. Afterwards start the servers: the masters bring the number of replicas back.
    """
    if abandon:
        if yes_i_lose_data:
            raise typer.BadParameter(
                "--abandon gives a recovery up, --yes-i-lose-data carries one out: name one of them"
            )
        _abandon([*root, *copy_to], abandon, as_json=as_json)
        return
    if not (tablet or table or every):
        raise typer.BadParameter("say which tablets: --tablet ID, --table NAME or --all")
    if every and (tablet or table):
        raise typer.BadParameter("--all is every tablet: leave out --tablet and --table, or --all")
    with ExitStack() as held:
        roots = _open_all(held, [*root, *copy_to])
        connected = held.enter_context(nullcontext(None) if no_masters else client(masters))
        unfinished = _unfinished(roots)
        if unfinished is not None:
            plan = unfinished
        else:
            targets = [p.resolve() for p in copy_to]
            plan = _plan(roots, connected, tablet, table, targets, despite_majority=despite_majority, quiet=as_json)
        if as_json and not yes_i_lose_data:
            print_json({"carried_out": False, "unfinished": unfinished is not None, **tools.plan_json(plan)})
        elif not as_json:
            _print_plan(plan, unfinished=unfinished is not None)
        failed = any(a.tablet_id.startswith(tuple(tablet)) or a.why is not tools.Why.MAJORITY for a in plan.left_alone)
        if not yes_i_lose_data:
            if plan.tablets and not as_json:
                not_yet(plan.fingerprint)
            raise typer.Exit(1 if failed else 0)
        _carry_out(plan, roots, connected, yes_i_lose_data, quiet=as_json)
    if as_json:
        print_json({"carried_out": True, "unfinished": False, **tools.plan_json(plan)})
    if failed:
        raise typer.Exit(1)


def _abandon(paths: Sequence[Path], fingerprint: str, *, as_json: bool) -> None:
    with ExitStack() as held:
        roots = _open_all(held, paths)
        plan = _unfinished(roots)
        if plan is None:
            raise Refused(Code.NOT_FOUND, "no recovery is unfinished in these directories; nothing was changed")
        if plan.fingerprint != fingerprint:
            what = "another recovery is unfinished in these directories; nothing was changed"
            raise Refused(Code.CAS_FAILED, what, given=fingerprint, unfinished=plan.fingerprint)
        freed = tools.abandon(plan, {uuid: opened.disk for uuid, opened in roots.items()})
    if as_json:
        print_json({"abandoned": fingerprint, "servers": freed})
        return
    for uuid in freed:
        console.print(f"{roots[uuid].path} is free again: no config was rewritten, copies stay")


def _open_all(held: ExitStack, paths: Sequence[Path]) -> dict[str, _Root]:
    """The directories by server uuid, each locked once; Refused unless all are tablet servers' directories of one
    cluster."""
    from nyala.replica.fs import TABLET_SERVER

    roots: dict[str, _Root] = {}
    for path in dict.fromkeys(p.resolve() for p in paths):
        disk = held.enter_context(_readable(path))
        instance = tools.identity(disk)
        if instance.kind != TABLET_SERVER:
            raise Refused(
                Code.INVALID_ARGUMENT, "this is no tablet server's directory", root=str(path), kind=instance.kind
            )
        if instance.uuid in roots:
            what = "two directories of one server: one of them is a copy, and they may not both go on"
            raise Refused(Code.INVALID_ARGUMENT, what, uuid=instance.uuid, roots=f"{roots[instance.uuid].path}, {path}")
        roots[instance.uuid] = _Root(path, disk, instance.cluster_id)
    clusters = sorted({r.cluster_id for r in roots.values() if r.cluster_id})
    if len(clusters) > 1:
        raise Refused(Code.WRONG_CLUSTER, "these directories belong to several clusters", clusters=", ".join(clusters))
    return roots


@contextmanager
def _readable(path: Path) -> Iterator[RealDisk]:
    try:
        with stopped(path) as disk:
            yield disk
    except PermissionError as error:
        raise DiskFailure("the directory cannot be opened", action="open", path=str(path), cause=str(error)) from error


def _unfinished(roots: Mapping[str, _Root]) -> tools.RecoveryPlan | None:
    found = (tools.load_journal(r.disk) for r in roots.values())
    return tools.plans_agree([plan for plan in found if plan is not None])


def _plan(
    roots: Mapping[str, _Root],
    connected: Client | None,
    tablets: Sequence[str],
    tables: Sequence[str],
    targets: Sequence[Path],
    *,
    despite_majority: bool,
    quiet: bool,
) -> tools.RecoveryPlan:
    from nyala.replica.rpc import addresses_from_pb

    with reading(quiet=quiet) as step:
        found = [
            evidence
            for uuid, r in roots.items()
            for evidence in tools.of_directory(r.disk, uuid, str(r.path), blocks=False, progress=step)
        ]
    addresses: dict[str, tuple[Address, ...]] = {}
    positions = []
    catalog: dict[str, list[str]] = {}
    if connected is not None:
        listing = connected.list_servers()
        _check_cluster(roots, listing.cluster_id)
        addresses = {s.uuid: addresses_from_pb(s.addresses) for s in listing.servers}
        running, silent = tools.of_running(connected)
        found += running
        positions = connected.list_sources()
        catalog = _catalog(connected, tables)
        for uuid in sorted(silent.keys() - roots.keys()):
            typer.echo(f"not seen: server {uuid} does not answer, and no --root is its directory", err=True)
    wanted = tools.chosen_tablets(found, catalog, tablets=tablets, tables=tables)
    members = []
    for uuid, opened in roots.items():
        if opened.path in targets:
            where = addresses.get(uuid) or _address_in(found, uuid)
            if not where:
                what = "nobody knows this server's address: start it once, so that the masters know it, and stop it"
                raise Refused(Code.NOT_FOUND, what, server=uuid, root=str(opened.path))
            members.append(tools.Target(uuid=uuid, addresses=where))
    return tools.make_plan(
        _whole_evidence(roots, found, wanted, quiet=quiet),
        wanted,
        targets=members,
        positions=positions,
        despite_majority=despite_majority,
    )


def _catalog(connected: Client, tables: Sequence[str]) -> dict[str, list[str]]:
    """Tablet ids by table name, for the named tables that the masters know, or for all."""
    names = [t.name for t in connected.list_tables() if not tables or t.name in tables]
    return {name: [t.tablet_id for t in connected.get_table(name).tablets] for name in names}


def _whole_evidence(
    roots: Mapping[str, _Root], found: Sequence[tools.ReplicaEvidence], wanted: Collection[str], *, quiet: bool
) -> dict[str, list[tools.ReplicaEvidence]]:
    """The evidence on the wanted tablets only, because every byte of their blocks is read."""
    running = [e for e in found if e.running]
    here = {
        uuid: [f.tablet_id for f in found if not f.running and f.server_uuid == uuid and f.tablet_id in wanted]
        for uuid in roots
    }
    total = sum(tools.block_bytes(r.disk, here[uuid]) for uuid, r in roots.items())
    with reading(quiet=quiet, total_bytes=total) as step:
        resting = [
            evidence
            for uuid, r in roots.items()
            if here[uuid]
            for evidence in tools.of_directory(r.disk, uuid, str(r.path), here[uuid], progress=step)
        ]
    return tools.by_tablet([*resting, *running])


def _address_in(found: Sequence[tools.ReplicaEvidence], uuid: str) -> tuple[Address, ...]:
    members = (config.member(uuid) for e in found for config in e.configs)
    return next((m.addresses for m in members if m is not None and m.addresses), ())


def _check_cluster(roots: Mapping[str, _Root], cluster_id: str) -> None:
    for opened in roots.values():
        if opened.cluster_id not in ("", cluster_id):
            raise Refused(
                Code.WRONG_CLUSTER,
                "the masters that were asked are another cluster's",
                root=str(opened.path),
                directory=opened.cluster_id,
                masters=cluster_id,
            )


def _print_plan(plan: tools.RecoveryPlan, *, unfinished: bool) -> None:
    if plan.tablets:
        title = f"unfinished recovery {plan.fingerprint}" if unfinished else f"recovery plan {plan.fingerprint}"
        rows = [
            (
                t.tablet_id,
                t.table_name,
                t.survivor[:8],
                t.last,
                f"after index {t.last.index}, {_when(t.time)}",
                f"{t.entries_lost} (up to {t.known})" if t.entries_lost else "none",
                " ".join(u[:8] for u in t.given_up) or "-",
                " ".join(m.uuid[:8] for m in t.config.members),
            )
            for t in plan.tablets
        ]
        headings = ("tablet", "table", "survivor", "last", "may be lost", "known lost", "given up", "new config")
        print_table(title, headings, rows, ("last", "new config", "given up", "table"))
    for tablet in plan.tablets:
        if tablet.stuck:
            text = f" tablet {tablet.tablet_id}: {tablet.stuck}. If a lost server with rows may return, wait for it"
            console.print(line(("cannot go on by itself", "red"), text))
    for uuid in sorted({u for t in plan.tablets for u in t.unseen}):
        count = sum(uuid in t.unseen for t in plan.tablets)
        text = (
            f": {uuid}, a member of {count} of these tablets. It may live (masters that were just started do not know "
            "every server): if it does, wait for it, or name its directory with --root"
        )
        console.print(line(("not seen", "red"), text))
    print_lowerings(plan.lowerings)
    for alone in plan.left_alone:
        colour = "green" if alone.why is tools.Why.MAJORITY else "red"
        name = f" of {alone.table_name}" if alone.table_name else ""
        console.print(line(("left alone", colour), f" tablet {alone.tablet_id}{name}: {alone.what}"))
    if plan.tablets:
        console.print(line((WARNING, "red")))
    else:
        console.print("nothing to recover")


def print_lowerings(lowerings: Sequence[tools.SourceLowering]) -> None:
    """The source positions that a plan moves back, one line each."""
    for one in lowerings:
        place = f"{one.topic}[{one.source.kafka_partition}]"
        text = f"source {place} of {one.table}: done goes back from {one.done} to {one.to}, to be read again"
        console.print(text)


def _when(hybrid_time: int) -> str:
    return datetime.fromtimestamp(us_of_hybrid(hybrid_time) / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _carry_out(
    plan: tools.RecoveryPlan, roots: Mapping[str, _Root], connected: Client | None, confirmed: str, *, quiet: bool
) -> None:
    if confirmed != plan.fingerprint:
        what = "that is not this plan's fingerprint: read the plan again; nothing was changed"
        raise Refused(Code.CAS_FAILED, what, given=confirmed, plan=plan.fingerprint)
    if not plan.tablets:
        return
    if plan.lowerings and connected is None:
        raise Refused(
            Code.INVALID_ARGUMENT, "the plan lowers source positions, which the masters keep: leave --no-masters out"
        )

    def lower(lowering: tools.SourceLowering) -> None:
        if connected is not None:
            connected.lower_source(lowering.table, lowering.source, lowering.to)

    def confirm(tablet_id: str, config: RaftConfig) -> None:
        if connected is not None:
            connected.confirm_config(tablet_id, config)

    def say(text: str | Text) -> None:
        if not quiet:
            console.print(text)

    disks = {uuid: opened.disk for uuid, opened in roots.items()}
    try:
        tools.Recovery(plan, disks, lower=lower, confirm=confirm, say=say).run()
    except (Refused, Corruption, DiskFailure):
        say("not finished: run the same command again once the cause is gone; until then these servers do not start.")
        say(f"If it never will be: the same directories with --abandon={plan.fingerprint}, until a config is rewritten")
        raise
    names = ", ".join(str(roots[u].path) for u in tools.involved(plan) if u in roots)
    say(line(("done", "green"), f": {len(plan.tablets)} tablets recovered, their files read back."))
    say(f"Start the servers of {names}, then look with")
    say("  nyala cluster check --checksum")
    say("and write a row to each table: that they elect, agree and commit is not seen from files")


@app.command("confirm-config")
def confirm_config(
    tablet: Annotated[str, typer.Option(help="id of the tablet")],
    server: Annotated[str, typer.Option(help="uuid of a running server that holds the config, or its beginning")],
    yes: Yes = False,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Tell the masters that what a server holds as a tablet's committed config is right.

    After `cmeta rewrite`, or `unsafe recover --no-masters`: the members that the masters know cannot confirm a config
    that was forced, so replicas of former members are kept, and the new members are not believed. Or if one of two
    voters was lost for good while a third one joined: the other one alone proves nothing. From now on the config is
    believed, and what former members have may be deleted. `nyala cluster check` shows what is not proven, and the
    command.
    """
    from nyala.replica.rpc import config_from_pb

    with client(masters) as connected:
        known = [s for s in connected.list_servers().servers if s.uuid.startswith(server)]
        if len(known) != 1:
            raise Refused(
                Code.NOT_FOUND, "name one tablet server that the masters know", server=server, known=len(known)
            )
        found = [s for s in connected.list_tablets(known[0]) if s.tablet_id == tablet and s.committed_config.members]
        if not found:
            raise Refused(Code.TABLET_NOT_FOUND, "that server holds no replica of the tablet", server=known[0].uuid)
        config = config_from_pb(found[0].committed_config)
        voters = ", ".join(config.voters)
        ask(f"tablet {tablet}: config {config.opid}, voters {voters}? What others hold may be deleted.", yes)
        connected.confirm_config(tablet, config)
    document = {"tablet_id": tablet, "config": str(config.opid), "voters": list(config.voters)}
    say(as_json, document, f"config {config.opid} of tablet {tablet} is confirmed: {voters}")
