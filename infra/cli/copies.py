"""`nyala copy ...`"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

import typer

from nyala.replica import tools
from nyala.replica.types import Code, DataState, Refused, read_number

from . import completion
from .bars import copy_bar
from .completion import TabletId
from .context import Json, Masters, client, find_server, find_tablet, show_list, size_text

if TYPE_CHECKING:
    from nyala.replica.client import Client
    from nyala.replica.rpc import pb

app = typer.Typer(help="tablet copies under way", no_args_is_help=True)
LOOK_PERIOD_S = 0.3
_FIELDS = (
    "tablet_id", "source_uuid", "target_uuid", "phase", "bytes_done", "bytes_total", "started_us", "error", "idle_us",
    "ttl_us",
)  # fmt: skip


@app.command()
def start(
    tablet: TabletId,
    server: Annotated[
        str,
        typer.Option(
            help="uuid of the server that is to have a copy, or its beginning", autocompletion=completion.servers
        ),
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="return when the copy has ended; exit status 1 if it failed")
    ] = False,
    masters: Masters = "",
) -> None:
    """Copy a tablet from its leader to a server that is no member yet, ahead of `tablet change-config add`.

    Nobody needs this: a server that is added is copied to. It moves the copying out of the change. Add the server soon:
    the source keeps its log for it for 30 s after the copy, so one that is added later may have to be copied to again
    if much was written since. A copy whose server is not added within the masters' --abandoned-copy-grace-ms, ten
    minutes by default, is deleted again.
    """
    with client(masters) as connected:
        tablet_id, target = find_tablet(connected, tablet)[1], find_server(connected, server)
        source = tools.start_copy(connected, tablet_id, target)
        where = f"{tablet_id[:8]} from {source.uuid[:8]} to {target.uuid[:8]}"
        then = f"add it by `nyala tablet change-config add {tablet_id[:8]} {target.uuid[:8]}`"
        if not wait:
            typer.echo(f"copying {where}: `nyala copy list` shows how far it is; then {then}")
            return
        job = _waited(connected, tablet_id, source, target)
    if job.phase != "DONE":
        typer.echo(f"the copy of {where} is {job.phase}: {job.error}; the same command begins a new one", err=True)
        raise typer.Exit(1)
    typer.echo(f"copied {where}, {size_text(job.bytes_done)}; {then}")


def _waited(connected: Client, tablet_id: str, source: pb.ServerInfo, target: pb.ServerInfo) -> pb.CopyJob:
    """The copy that was begun last, when it has ended; Refused if the target does not know it any more, or is in a
    phase that only a newer program knows."""
    tick = threading.Event()
    with copy_bar() as draw:
        while True:
            jobs = [
                job
                for job in connected.list_copies(target)
                if (job.tablet_id, job.source_uuid, job.target_uuid) == (tablet_id, source.uuid, target.uuid)
            ]
            if not jobs:
                raise Refused(Code.NOT_FOUND, "the server has forgotten the copy, as by a restart: `nyala copy list`")
            job = max(jobs, key=lambda one: one.started_us)
            if tools.is_copy_over(job):
                return job
            draw(job)
            tick.wait(LOOK_PERIOD_S)


@app.command("cancel")
def cancel_copy(
    tablet: TabletId,
    server: Annotated[
        str,
        typer.Option(help="uuid of the server that is copied to, or its beginning", autocompletion=completion.servers),
    ],
    masters: Masters = "",
) -> None:
    """End a tablet copy. While the server is a member of the tablet, its leader will ask for a new one."""
    with client(masters) as connected:
        tablet_id, target = find_tablet(connected, tablet)[1], find_server(connected, server)
        reply = connected.cancel_copy(target, tablet_id)
    left = f"{tablet_id[:8]} on {target.uuid[:8]} is {read_number(DataState, reply.data_state).name}"
    if reply.job.phase == "DONE":
        typer.echo(f"too late, the copy was complete: {left}", err=True)
        raise typer.Exit(1)
    typer.echo(f"cancelled after {size_text(reply.job.bytes_done)} of {size_text(reply.job.bytes_total)}: {left}")


@app.command("list")
def list_copies(masters: Masters = "", as_json: Json = False) -> None:
    """List tablet copies under way and lately ended, with their progress in bytes.

    SERVING is the source's side of a copy: idle for as long as its target asks for nothing, it ends by itself.
    """
    with client(masters) as connected:
        jobs = tools.list_copies(connected)
    rows = [
        (j.tablet_id[:8], j.source_uuid[:8], j.target_uuid[:8], j.phase, size_text(j.bytes_done),
         size_text(j.bytes_total), f"{100 * j.bytes_done / j.bytes_total:.0f} %" if j.bytes_total else "",
         idle_text(j), j.error)
        for j in jobs
    ]  # fmt: skip
    headings = ("tablet", "from", "to", "phase", "done", "of", "", "idle", "error")
    document = [{name: getattr(j, name) for name in _FIELDS} for j in jobs]
    show_list(as_json, document, "tablet copies", headings, rows, ("of", "idle"))


def idle_text(job: pb.CopyJob) -> str:
    """A text on how long a source's session was idle, and when it will end because of that; empty for the target's
    side."""
    return f"{job.idle_us / 1e6:.0f} s of {job.ttl_us / 1e6:.0f} s" if job.phase == "SERVING" else ""
