"""`nyala local-replica list | dump | delete | copy-from`: single replicas in the directory of a stopped server."""

from __future__ import annotations

from typing import Annotated

import typer

from nyala.replica import tools
from nyala.replica.types import DataState, Disk

from .bars import shown_copy
from .context import Json, Yes, ask, console, print_json, print_table, say, show_list, size_text
from .offline import Root, Tablet, address_of, changeable, members_text, print_findings, replica_cells, stopped

app = typer.Typer(help="replicas of a stopped server", no_args_is_help=True)
SPARE = ("log", "blocks", "term")
"""The columns that are left out on a narrow terminal, the least useful first."""


@app.command("list")
def list_replicas(root: Root, as_json: Json = False) -> None:
    """List the tablets of a directory, with term and last OpId. Reads logs; `nyala fs check` reads blocks, too."""
    from nyala.replica.tablet import Superblock

    with stopped(root) as disk:
        found = [tools.read_tablet(disk, t, blocks=False) for t in Superblock.list_tablets(disk)]
    rows = [
        (*replica_cells(t), size_text(t.log.size_bytes if t.log else 0), size_text(t.block_bytes),
         "; ".join(f.what for f in t.findings))
        for t in found
    ]  # fmt: skip
    headings = ("tablet", "table", "state", "term", "last", "log", "blocks", "trouble")
    show_list(as_json, [tools.tablet_json(t) for t in found], "replicas", headings, rows, SPARE)


@app.command("dump")
def dump_replica(root: Root, tablet: Tablet, as_json: Json = False) -> None:
    """Print one replica: state, term and vote, log segments, blocks; exit status 1 if a part of it is damaged."""
    with stopped(root) as disk:
        _need(disk, tablet)
        found = tools.read_tablet(disk, tablet)
    if as_json:
        print_json(tools.tablet_json(found))
    else:
        _print_replica(found)
    if any(f.severity is tools.Severity.ERROR for f in found.findings):
        raise typer.Exit(1)


def _print_replica(found: tools.TabletFiles) -> None:
    superblock, cmeta, log = found.superblock, found.cmeta, found.log
    if superblock is not None:
        console.print(
            f"{superblock.data_state.name} {'witness' if superblock.witness else 'replica'} of "
            f"{superblock.table_name}, {'log from' if superblock.witness else 'flushed to'} {superblock.flush_opid}, "
            f"last logged {found.last_opid or '?'}"
            + (f", earlier data in {superblock.quarantine}" if superblock.quarantine else "")
        )
    if cmeta is not None:
        members = members_text(cmeta.config)
        vote = cmeta.voted_for or "not given"
        console.print(f"term {cmeta.term}, vote {vote}, config {cmeta.config.opid}: {members}")
    if log is not None:
        segments = [(s.name, s.first_index, s.last_index, size_text(s.length_bytes)) for s in log.segments]
        print_table("log", ("segment", "first", "last", "size"), segments)
    if superblock is not None and superblock.blocks:
        rows = [
            (path, size_text(length), b.rows if path == b.name else "", b.level, f"{crc:08x}")
            for b in superblock.blocks
            for path, length, crc in b.files
        ]
        print_table("blocks", ("file", "size", "rows", "level", "crc32c"), rows)
    print_findings(found.findings)


@app.command("delete")
def delete_replica(
    root: Root,
    tablet: Tablet,
    clean_unsafe: Annotated[
        bool,
        typer.Option("--clean-unsafe", help="forget term, vote and last logged OpId too: the server may vote twice"),
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make a replica a tombstone: its data goes to quarantine, term, vote and last logged OpId stay for ever.

    With --clean-unsafe nothing stays. A group that counts on what this server acknowledged or voted may then lose data.
    """
    with changeable(root) as disk:
        if clean_unsafe:
            whose = tools.identity(disk).uuid
            ask(f"erase {tablet} with the term, vote and log of server {whose}, for good?", yes)
            removed = tools.erase(disk, tablet)
            document = {"tablet_id": tablet, "removed": removed}
            say(as_json, document, f"erased {tablet}: {len(removed)} files and folders")
            return
        _need(disk, tablet)
        ask(f"make the replica of {tablet} a tombstone? Its data goes to quarantine.", yes)
        tombstone = tools.make_tombstone(disk, tablet)
    state, last, kept = tombstone.data_state.name, str(tombstone.last_logged), tombstone.quarantine
    document = {"tablet_id": tablet, "data_state": state, "last_logged": last, "quarantine": kept}
    where = f", data in {kept}" if kept else ""
    say(as_json, document, f"{tablet} is {state}: last logged OpId {last}{where}")


@app.command("copy-from")
def copy_from(
    root: Root,
    tablet: Tablet,
    source: Annotated[str, typer.Argument(help="host:port of the tablet server that leads the tablet")],
    allow_leaderless: Annotated[
        bool, typer.Option("--allow-leaderless", help="unsafe: also from a source that does not lead")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Copy a tablet from a live server into a stopped server's directory. What is there goes to quarantine first.

    Damaged consensus metadata are replaced, too, but from the leader only: this server then abstains from every term up
    to the leader's, in which it may have voted.
    """
    from nyala.replica.fs import MASTER
    from nyala.replica.tablet import Superblock

    address = address_of(source)
    with changeable(root) as disk:
        own = tools.identity(disk)
        if own.kind == MASTER:
            raise typer.BadParameter(
                f"{root} is a master's: `nyala master copy-from {root} {source}` copies its catalog"
            )
        uuid = own.uuid
        if Superblock.exists(disk, tablet) and Superblock.load(disk, tablet).data_state is DataState.READY:
            ask(f"replace the replica of {tablet} on {uuid}? Its data goes to quarantine.", yes)
        remote = tools.connect_source(address)
        try:
            with shown_copy(quiet=as_json) as progress:
                ready = tools.copy_replica(
                    disk, tablet, uuid, remote, allow_leaderless=allow_leaderless, progress=progress
                )
        finally:
            remote.close()
    document = {"tablet_id": tablet, "server": uuid, "flushed": str(ready.flush_opid), "bytes": progress.bytes_done}
    size = size_text(progress.bytes_done)
    say(as_json, document, f"copied {tablet} to {uuid}: {size}; the server's next start runs it")


def _need(disk: Disk, tablet: str) -> None:
    from nyala.replica.tablet import Superblock

    if not Superblock.exists(disk, tablet):
        raise typer.BadParameter(f"{tablet} has no superblock here: `nyala local-replica list` shows what is here")
