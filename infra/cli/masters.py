"""`nyala master list | copy-from`, and beside them those of `master_changes.py`."""

from __future__ import annotations

from typing import Annotated

import typer

from nyala.replica import tools

from . import master_changes
from .bars import shown_copy
from .context import Json, Masters, Yes, ask, client, say, show_list, size_text
from .offline import Root, address_of, changeable

app = typer.Typer(help="the masters: list, add, remove, replace; copy or rebuild their catalog", no_args_is_help=True)
app.command("add")(master_changes.add)
app.command("remove")(master_changes.remove)
app.command("replace")(master_changes.replace)


@app.command("list")
def list_masters(masters: Masters = "", as_json: Json = False) -> None:
    """List the masters of the group's config as each of them answers: address, role, term, position in the log."""
    with client(masters) as connected:
        listing = connected.list_servers()
        addresses = {m.uuid: ",".join(f"{a.host}:{a.port}" for a in m.addresses) for m in listing.masters}
        views = tools.ask_masters(connected, listing)
    found = [_json(view, addresses[view.uuid]) for view in views]
    rows = [tuple(each[name] for name in ("uuid", "address", "role", "term", "last_logged", "error")) for each in found]
    show_list(as_json, found, "masters", ("uuid", "address", "role", "term", "last", "trouble"), rows, ("last",))


def _json(view: tools.MasterView, address: str) -> dict[str, object]:
    """One master as JSON; fields that it does not report itself are None."""
    found: dict[str, object] = {"uuid": view.uuid, "address": address, "role": None, "term": None, "last_logged": None}
    if view.status is None:
        return {**found, "error": view.error}
    replica = view.status.replica
    if view.status.uuid != view.uuid:
        return {**found, "error": f"another master answers there: {view.status.uuid}"}
    last = f"{replica.last_logged.term}.{replica.last_logged.index}"
    return {**found, "role": replica.role, "term": replica.term, "last_logged": last, "error": replica.error}


@app.command("copy-from")
def copy_from(
    root: Root,
    source: Annotated[str, typer.Argument(help="host:port of the leading master")],
    allow_leaderless: Annotated[
        bool,
        typer.Option("--allow-leaderless", help="also from a master that does not lead, to one with a uuid of its own"),
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Copy the masters' catalog into the directory of a stopped master.

    To replace a lost master C of three: make sure that it is dead for good; `nyala fs format --kind master --uuid C's`
    an empty directory on the new machine; point C's name at that machine; copy from the master that leads, `nyala
    master list` shows which; start the new one with the same --peers. Nobody else is restarted. What an earlier copy
    left there goes to quarantine, and a copy that failed is repeated.
    """
    address = address_of(source)
    with changeable(root) as disk:
        own = tools.identity(disk)
        if tools.has_catalog(disk):
            ask(f"replace the catalog of master {own.uuid}? Its data goes to quarantine.", yes)
        with shown_copy(quiet=as_json) as progress:
            ready = tools.copy_catalog(disk, own, address, allow_leaderless=allow_leaderless, progress=progress)
    document = {"master": own.uuid, "flushed": str(ready.flush_opid), "bytes": progress.bytes_done}
    size = size_text(progress.bytes_done)
    say(as_json, document, f"copied the catalog to {own.uuid}: {size}; the master's next start runs it")
