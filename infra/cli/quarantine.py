"""`nyala quarantine list | purge`: what deletions and failed copies have put aside on the servers."""

from __future__ import annotations

from typing import Annotated

import typer

from nyala.replica.types import DataState, read_number

from . import completion
from .completion import TabletId
from .context import Json, Masters, Yes, ask, client, find_server, named, say, show_list, size_text

app = typer.Typer(help="data of deleted replicas, kept for a look", no_args_is_help=True)

SPARE = ("path", "was", "log", "blocks")
"""The columns that are left out on a narrow terminal, the least useful first; a path is the tablet's id and a
number."""


@app.command("list")
def list_quarantine(
    server: Annotated[
        str, typer.Option(help="only this server's; uuid, or its beginning", autocompletion=completion.servers)
    ] = "",
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """List quarantines with the tablet each belongs to and the space it takes."""
    with client(masters) as connected:
        only = find_server(connected, server).uuid if server else ""
        servers = [s for s in connected.list_servers().servers if only in ("", s.uuid)]
        found = [(s.uuid, q) for s in servers for q in connected.list_quarantine(s)]
    fields = ("path", "tablet_id", "table_name", "wal_bytes", "block_bytes")
    document = [
        {"server": u, **{f: getattr(q, f) for f in fields}, "data_state": _state(q.data_state)} for u, q in found
    ]
    rows = [
        (u[:8], q.tablet_id, q.table_name, _state(q.data_state), size_text(q.wal_bytes), size_text(q.block_bytes),
         q.path)
        for u, q in found
    ]  # fmt: skip
    headings = ("server", "tablet", "table", "was", "log", "blocks", "path")
    show_list(as_json, document, "quarantine", headings, rows, SPARE)


@app.command()
def purge(
    tablet: TabletId,
    server: Annotated[
        str, typer.Option(help="uuid of the server, or its beginning", autocompletion=completion.servers)
    ],
    yes: Yes = False,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Remove what one tablet's deletions have put aside on one server, 10,000 files at most: then repeat the command.
    Its term, vote and last logged OpId stay."""
    named(tablet, "tablet")
    with client(masters) as connected:
        target = find_server(connected, server)
        kept = [q for q in connected.list_quarantine(target) if q.tablet_id.startswith(tablet)]
        found = sorted({q.tablet_id for q in kept})
        if len(found) != 1:
            what = f"more than one tablet that begins with {tablet!r}" if found else f"nothing of {tablet}"
            raise typer.BadParameter(f"{what} is in quarantine on {target.uuid}: `nyala quarantine list`")
        where, size = target.uuid[:8], size_text(sum(q.wal_bytes + q.block_bytes for q in kept))
        ask(f"remove {len(kept)} quarantines of {found[0]} on {where}, {size}, for good?", yes)
        reply = connected.purge_quarantine(target, found[0])
    answer = {"server": target.uuid, "tablet_id": found[0], "removed": list(reply.removed)}
    text = f"removed {len(reply.removed)} files and folders, {size_text(reply.bytes_freed)}"
    if reply.remaining:
        text += f"; {reply.remaining} remain: repeat the command"
    say(as_json, answer | {"bytes_freed": reply.bytes_freed, "remaining": reply.remaining}, text)


def _state(number: int) -> str:
    return read_number(DataState, number).name if number else ""
