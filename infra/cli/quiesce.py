"""`nyala server quiesce start | stop | status`: one process gives up its leaderships, so that it can end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from .changes import Timeout, Wait, waited
from .completion import ServerUuid
from .context import Json, Masters, client, find_server, print_json

if TYPE_CHECKING:
    from nyala.replica.rpc import pb

app = typer.Typer(help="let a tablet server give up its leaderships, before it is restarted", no_args_is_help=True)


@app.command()
def start(
    server: ServerUuid, wait: Wait = True, timeout_s: Timeout = 60, masters: Masters = "", as_json: Json = False
) -> None:
    """Let a server hand its leaderships to others, and take no new ones, until it is restarted or told to stop.

    It refuses reads of bounded staleness, which clients then send to other replicas; reads under way go on. It waits
    until it leads nothing and no read is under way; exit status 1 if that takes longer.
    """
    with client(masters) as connected:
        found = find_server(connected, server)
        connected.quiesce_server(found, True)

        def ended() -> bool:
            return is_over(connected.quiesce_server(found))

        done = ended() or (wait and waited(ended, lambda: words(connected.quiesce_server(found)), timeout_s))
        _tell(found.uuid, connected.quiesce_server(found), as_json)
    if wait and not done:
        raise typer.Exit(1)


@app.command()
def stop(server: ServerUuid, masters: Masters = "", as_json: Json = False) -> None:
    """Let a server take leaderships and reads again. Those that it gave up stay where they are."""
    with client(masters) as connected:
        found = find_server(connected, server)
        _tell(found.uuid, connected.quiesce_server(found, False), as_json)


@app.command()
def status(server: ServerUuid, masters: Masters = "", as_json: Json = False) -> None:
    """Show whether a server quiesces, how many tablets it leads, and how many reads are under way."""
    with client(masters) as connected:
        found = find_server(connected, server)
        _tell(found.uuid, connected.quiesce_server(found), as_json)


def is_over(found: pb.QuiesceReply) -> bool:
    """Whether the end of the process interrupts nobody."""
    return found.quiescing and not found.leaders and not found.reads


def words(found: pb.QuiesceReply) -> str:
    """The state of a server in words."""
    state = "quiesces" if found.quiescing else "does not quiesce"
    return f"{state}: leads {found.leaders} tablets, {found.reads} reads are under way"


def _tell(uuid: str, found: pb.QuiesceReply, as_json: bool) -> None:
    if as_json:
        values = {"quiescing": found.quiescing, "leaders": found.leaders, "reads": found.reads}
        print_json({"uuid": uuid, **values, "done": is_over(found)})
    else:
        typer.echo(f"{uuid[:8]} {words(found)}")
