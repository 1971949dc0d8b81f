"""`nyala tablet change-config ... | table set-replication | server retire, enter-maintenance ...`: desired state.

Each command states what is wanted. The masters store it, and the policy brings it about, so it goes on even if the
command or a master is interrupted. `--no-wait` returns at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer

from nyala.infra.printing import line
from nyala.replica import tools
from nyala.replica.types import Code, RaftConfig, Refused, is_uuid

from . import completion
from .cancel_change import cancel_change
from .completion import ServerUuid, TableName, TabletId
from .context import Json, Masters, client, console, find_server, find_tablet, print_json, say, size_text

if TYPE_CHECKING:
    from nyala.replica.client import Client
    from nyala.replica.rpc import pb

app = typer.Typer(help="change who is a member of a tablet", no_args_is_help=True)

Wait = Annotated[bool, typer.Option(help="wait until it holds")]
Timeout = Annotated[float, typer.Option(help="how long to wait")]
POLL_S = 0.2


@app.command()
def add(
    tablet: TabletId,
    server: ServerUuid,
    non_voter: Annotated[bool, typer.Option("--non-voter", help="a copy that never votes")] = False,
    witness: Annotated[
        bool, typer.Option("--witness", help="votes at once, without data, which is copied after")
    ] = False,
    wait: Wait = True,
    timeout_s: Timeout = 300,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Add a replica: it copies first, and votes once it has caught up.

    With --witness it votes first: it holds only a log, leads nobody and serves no reads until its data is copied. It is
    for a tablet that has lost a voter; where nobody is lost, one voter too many leaves once its data is there.
    """
    if witness and non_voter:
        raise Refused(Code.INVALID_ARGUMENT, "a witness votes: give --witness or --non-voter")
    with client(masters) as connected:
        (table, seen), uuid = _look(connected, tablet), find_server(connected, server).uuid
        role = "NON_VOTER" if non_voter else "WITNESS" if witness else "VOTER"
        connected.add_replica(seen.tablet_id, uuid, role, seen=seen)
        holds = partial(_is_member if non_voter else _votes, uuid)
        _follow(connected, table, seen, f"add {uuid[:8]}", holds, wait, timeout_s, as_json)


@app.command()
def remove(
    tablet: TabletId,
    server: ServerUuid,
    wait: Wait = True,
    timeout_s: Timeout = 300,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Remove a replica; a voter that is needed goes when its replacement votes."""
    with client(masters) as connected:
        (table, seen), uuid = _look(connected, tablet), find_server(connected, server).uuid
        connected.remove_replica(seen.tablet_id, uuid, seen=seen)
        what = f"remove {uuid[:8]}"
        _follow(connected, table, seen, what, lambda c: not _is_member(uuid, c), wait, timeout_s, as_json)


@app.command()
def promote(
    tablet: TabletId,
    server: ServerUuid,
    wait: Wait = True,
    timeout_s: Timeout = 300,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Give a non-voter a vote, once it has caught up; if more vote than are wanted, another one leaves."""
    with client(masters) as connected:
        (table, seen), uuid = _look(connected, tablet), find_server(connected, server).uuid
        connected.change_role(seen.tablet_id, uuid, "VOTER", seen=seen)
        _follow(connected, table, seen, f"promote {uuid[:8]}", partial(_votes, uuid), wait, timeout_s, as_json)


@app.command()
def demote(
    tablet: TabletId,
    server: ServerUuid,
    wait: Wait = True,
    timeout_s: Timeout = 300,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Take a voter's vote and keep its copy, once another one votes in its place."""
    with client(masters) as connected:
        (table, seen), uuid = _look(connected, tablet), find_server(connected, server).uuid
        connected.change_role(seen.tablet_id, uuid, "NON_VOTER", seen=seen)
        what = f"demote {uuid[:8]}"
        _follow(connected, table, seen, what, lambda c: not _votes(uuid, c), wait, timeout_s, as_json)


@app.command()
def move(
    tablet: TabletId,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM", help="server uuid, its beginning, or address", autocompletion=completion.servers
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TO", help="server uuid, its beginning, or address", autocompletion=completion.servers),
    ],
    wait: Wait = True,
    timeout_s: Timeout = 300,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Move one replica: add, wait until it votes, then remove the old one."""
    with client(masters) as connected:
        table, seen = _look(connected, tablet)
        from_uuid, to_uuid = find_server(connected, source).uuid, find_server(connected, target).uuid
        connected.move_replica(seen.tablet_id, from_uuid, to_uuid, reason="nyala tablet move", seen=seen)

        def moved(config: RaftConfig) -> bool:
            return _votes(to_uuid, config) and not _is_member(from_uuid, config)

        what = f"move {from_uuid[:8]} to {to_uuid[:8]}"
        _follow(connected, table, seen, what, moved, wait, timeout_s, as_json)


@app.command()
def cancel(tablet: TabletId, masters: Masters = "", as_json: Json = False) -> None:
    """Give up what is wanted of a tablet, and a config change that its leader could not commit.

    A replica that does not vote yet, and marks, are taken back. Too late once a move's new replica votes. Each half is
    tried whatever becomes of the other; exit status 1 if one could not be done.
    """
    with client(masters) as connected:
        table, seen = _look(connected, tablet)
        tablet_id = seen.tablet_id
        cancelled = cancel_change(
            lambda: connected.cancel_change(tablet_id, seen=seen), lambda: connected.abort_change(table, tablet_id)
        )
    if cancelled.nothing_there:
        what = "nothing is wanted of this tablet, and no config change is under way"
        raise Refused(Code.NOT_FOUND, what, tablet=tablet_id)
    if as_json:
        print_json({"tablet_id": tablet_id, **cancelled.json()})
    else:
        for line in cancelled.lines():
            typer.echo(f"{tablet_id[:8]}: {line}", err=bool(cancelled.left))
    if cancelled.left:
        raise typer.Exit(1)


def set_replication(
    table: TableName,
    replicas: Annotated[int, typer.Argument(help="1, 3, 5 or 7; with --tablet also 0: as the table has it")],
    tablet: Annotated[
        str, typer.Option(help="of this tablet only; its id, or its beginning", autocompletion=completion.tablets)
    ] = "",
    wait: Wait = True,
    timeout_s: Timeout = 600,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Want another number of voting replicas; replicas come and go one at a time, under load, until it holds."""
    with client(masters) as connected:
        tablet_id = find_tablet(connected, tablet)[1] if tablet else ""
        connected.set_replication(table, replicas, tablet_id=tablet_id)

        def left() -> int:
            infos = [t for t in connected.tablet_infos(table) if not tablet_id or t.tablet_id == tablet_id]
            return sum(not t.running or sum(m.votes for m in t.config.members) != t.replication_factor for t in infos)

        begun = left()
        done = begun == 0 or (wait and waited(lambda: left() == 0, lambda: f"{left()} of {begun} tablets", timeout_s))
    _tell(done, wait, f"{table}: {replicas} voting replicas", {"table": table, "tablet_id": tablet_id}, as_json)


def retire(
    server: ServerUuid,
    reason: Annotated[str, typer.Option(help="shown beside it")] = "",
    wait: Wait = True,
    timeout_s: Timeout = 3600,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Empty a server: every replica moves off, and it gets no new ones. `server unretire` takes it back."""
    with client(masters) as connected:
        uuid = find_server(connected, server).uuid
        connected.retire_server(uuid, reason=reason)

        info = partial(find_server, connected, uuid)
        done = info().drained or (wait and waited(lambda: info().drained, lambda: tools.drain_words(info()), timeout_s))
        found = info()
    words = tools.drain_words(found)
    _tell(done, wait, f"{uuid[:8]} {words}", {"uuid": uuid, **(tools.drain_json(found) or {})}, as_json)


def unretire(server: ServerUuid, masters: Masters = "", as_json: Json = False) -> None:
    """Use a server like the others again; what has moved off it stays where it is."""
    with client(masters) as connected:
        found = find_server(connected, server)
        connected.retire_server(found.uuid, undo=True)
    text = f"{found.uuid[:8]} is used again" if found.draining else f"{found.uuid[:8]} was not being retired"
    say(as_json, {"uuid": found.uuid, "was_retired": found.draining}, text)


def enter_maintenance(
    server: ServerUuid,
    minutes: Annotated[float, typer.Option(help="how long, from now on")] = 60,
    reason: Annotated[str, typer.Option(help="shown beside it")] = "",
    owner: Annotated[str, typer.Option(help="whom to ask; default: the user of this command")] = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Say that you work on a server: nothing replaces its replicas for a while, whether it runs or not, and it gets no
    new ones. Its replicas serve as before; repeat the command to set another end."""
    if not minutes * 60 >= 1:
        raise Refused(
            Code.INVALID_ARGUMENT, "maintenance lasts a second at least: nothing was changed", minutes=minutes
        )
    with client(masters) as connected:
        uuid = find_server(connected, server).uuid
        connected.maintain_server(uuid, round(minutes * 60), owner=owner or getuser(), reason=reason)
        found = find_server(connected, uuid)
    text = f"{uuid[:8]} is {tools.maintenance_words(found)}; `nyala server exit-maintenance {uuid[:8]}` ends it"
    say(as_json, {"uuid": uuid, "maintenance": tools.maintenance_json(found)}, text)


def exit_maintenance(server: ServerUuid, masters: Masters = "", as_json: Json = False) -> None:
    """Use a server like the others again. If it is silent, its replicas are replaced as soon as it has been silent for
    long enough, the time of the maintenance included."""
    with client(masters) as connected:
        found = find_server(connected, server)
        was = bool(found.maintenance_until_us)
        connected.maintain_server(found.uuid, 0)
    text = f"{found.uuid[:8]} is used again" if was else f"{found.uuid[:8]} was not in maintenance"
    say(as_json, {"uuid": found.uuid, "was_in_maintenance": was}, text)


def forget(server: ServerUuid, masters: Masters = "", as_json: Json = False) -> None:
    """Remove a server that is gone for good from the masters' lists, with what is wanted of it. Refused while it
    answers, or is a member of a tablet. If it comes back, it counts like a new server."""
    with client(masters) as connected:
        listed = {s.uuid for s in connected.list_servers().servers}
        uuid = server if is_uuid(server) else find_server(connected, server).uuid
        connected.forget_server(uuid)
    text = f"{uuid[:8]} is forgotten" if uuid in listed else f"{uuid[:8]} was not listed; nothing is kept of it"
    say(as_json, {"uuid": uuid, "was_listed": uuid in listed}, text)


def _look(connected: Client, tablet: str) -> tuple[str, pb.TabletInfo]:
    """(table name, tablet) as the masters know it now: the request is valid for that state only."""
    table, tablet_id = find_tablet(connected, tablet)
    return table, _info(connected, table, tablet_id)


def _info(connected: Client, table: str, tablet_id: str) -> pb.TabletInfo:
    info = next((t for t in connected.tablet_infos(table) if t.tablet_id == tablet_id), None)
    if info is None:
        raise Refused(Code.TABLET_NOT_FOUND, "the tablet was dropped meanwhile", tablet=tablet_id)
    return info


def _votes(uuid: str, config: RaftConfig) -> bool:
    return uuid in config.voters


def _is_member(uuid: str, config: RaftConfig) -> bool:
    return config.member(uuid) is not None


def _follow(
    connected: Client,
    table: str,
    tablet: pb.TabletInfo,
    what: str,
    holds: Callable[[RaftConfig], bool],
    wait: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Wait until the tablet's committed config is as wanted, and report that; exit status 1 if the masters gave it
    up."""
    from nyala.replica.rpc import config_from_pb

    tablet_id = tablet.tablet_id

    def ended() -> bool:
        info = _info(connected, table, tablet_id)
        if info.running and holds(config_from_pb(info.config)):
            return True
        if info.running and not info.HasField("wish"):
            raise Refused(
                Code.ILLEGAL_STATE, "given up: cancelled, past its deadline, or the member is gone", what=what
            )
        return False

    def progress() -> str:
        jobs = [j for j in tools.list_copies(connected) if j.tablet_id == tablet_id]
        return f"{what}: copied {size_text(jobs[0].bytes_done)} of {size_text(jobs[0].bytes_total)}" if jobs else what

    done = wait and waited(ended, progress, timeout_s)
    _tell(done, wait, f"{tablet_id[:8]}: {what}", {"tablet_id": tablet_id, "wanted": what}, as_json)


def waited(done: Callable[[], bool], progress: Callable[[], str], timeout_s: float) -> bool:
    """Whether it is done within that time; meanwhile the progress is shown."""
    deadline = time.monotonic() + timeout_s
    with console.status("wanted") as shown:
        while not done():
            if time.monotonic() > deadline:
                return False
            shown.update(line(progress()))
            time.sleep(POLL_S)
    return True


def _tell(done: bool, waited: bool, what: str, values: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json({**values, "done": done})
    elif done:
        typer.echo(f"done: {what}")
    elif not waited:
        typer.echo(f"wanted: {what}")
    if waited and not done:
        if not as_json:
            typer.echo(f"not done in time, the masters go on: {what}; `nyala tablet list`", err=True)
        raise typer.Exit(1)
