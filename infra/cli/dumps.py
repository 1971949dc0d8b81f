"""`nyala wal dump | cmeta dump | superblock dump`: what is on a disk, and what is broken in it and where."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from nyala.infra.printing import line
from nyala.replica.types import Corruption, shown

from .context import Json, console, print_json, print_table, size_text
from .offline import members_text

wal_app = typer.Typer(help="write-ahead logs on this machine", no_args_is_help=True)
cmeta_app = typer.Typer(help="consensus metadata files", no_args_is_help=True)
superblock_app = typer.Typer(help="superblock files", no_args_is_help=True)
_NEXT = (
    "give a server's file, <server>/{}/<tablet id>; if this is one, `nyala fs check <server>` names all that is "
    "damaged, and docs/operate/repair.md says how a replica heals"
)
"""The next step if a file cannot be read, with the folder of a server's directory in which such files are."""
_COLOURS = {"header": "cyan", "damage": "red", "newer": "red", "tail": "dim"}


@wal_app.command("dump")
def dump_wal(
    path: Annotated[Path, typer.Argument(help="a segment, or the folder of one tablet's log", exists=True)],
    as_json: Json = False,
) -> None:
    """Print every entry; exit status 1 if something is broken that a start would not cut.

    Also beside a running server: what is collected meanwhile is named, and no failure.
    """
    from nyala.replica.fs import RealDisk
    from nyala.replica.wal import dump_log, dump_settled

    disk = RealDisk(path.parent)
    if path.is_dir():
        items = dump_log(disk, path.name, _pause)
    else:
        items = iter([(path.name, item) for item in dump_settled(disk, path.name, _pause)])
    broken = unreadable = False
    found: list[dict[str, Any]] = []
    for name, item in items:
        broken |= item["kind"] in ("damage", "newer") and item.get("torn") is not True
        unreadable |= item["kind"] == "damage" and item["byte_offset"] == 0 and not path.is_dir()
        found.append(item if name == "log" else {"segment": name, **item})
        if not as_json:
            _print_item(name, item)
    if not found:
        raise typer.BadParameter(f"{path} holds no segment: a log is <server>/wals/<tablet id>")
    if as_json:
        print_json(found)
    if unreadable:
        typer.echo(f"nyala: {path} is no segment, or its beginning is damaged; {_NEXT.format('wals')}", err=True)
    if broken:
        raise typer.Exit(1)


def _pause() -> None:
    time.sleep(0.02)


@contextmanager
def _or_what_to_do(folder: str) -> Iterator[None]:
    """Corruption of what is read within also names the next step; `folder` is where such files are."""
    try:
        yield
    except Corruption as error:
        raise Corruption(f"{error.what}; {_NEXT.format(folder)}", **error.values) from error


def _print_item(segment: str, item: dict[str, Any]) -> None:
    rest = "  ".join(f"{k}={v}" for k, v in item.items() if k not in ("kind", "byte_offset"))
    kind = (f"{item['kind']:<7}", _COLOURS.get(item["kind"], "white"))
    console.print(line(f"{segment} @{item['byte_offset']:<10} ", kind, f" {rest}"), soft_wrap=True)


@cmeta_app.command("dump")
def dump_cmeta(
    path: Annotated[Path, typer.Argument(help="<server>/consensus-meta/<tablet id>", exists=True, dir_okay=False)],
    as_json: Json = False,
) -> None:
    """Print term, vote and committed config of one file; exit status 1 and what is wrong where, if it is damaged."""
    from nyala.replica import tools
    from nyala.replica.consensus_metadata import cmeta_json, read_cmeta

    with _or_what_to_do("consensus-meta"):
        view = read_cmeta(tools.read_file(path), str(path))
    if as_json:
        print_json(cmeta_json(view))
        return
    vote, unsafe = view.voted_for or "not given", ", made by unsafe recovery" if view.config.unsafe else ""
    console.print(f"tablet {view.tablet_id}, of server {view.uuid}")
    console.print(f"term {view.term}, vote {vote}, abstains up to term {view.vote_floor_term}")
    console.print(f"committed config {view.config.opid}{unsafe}")
    rows = [
        (m.uuid, ", ".join(str(a) for a in m.addresses), *("yes" if x else "" for x in (m.votes, m.promote)),
         *("yes" if x else "" for x in (m.holds_data, m.replace)))
        for m in view.config.members
    ]  # fmt: skip
    print_table("members", ("uuid", "addresses", "votes", "promote", "data", "replace"), rows)


@cmeta_app.command("print")
def print_cmeta(
    root: Annotated[Path, typer.Argument(help="directory of a server", exists=True, file_okay=False)],
    tablet: Annotated[str, typer.Argument(help="only this tablet")] = "",
    as_json: Json = False,
) -> None:
    """Print a line for each tablet of a server, running or not; exit status 1 if a file is damaged."""
    from nyala.replica import tools
    from nyala.replica.consensus_metadata import FOLDER, cmeta_json
    from nyala.replica.fs import RealDisk

    files = tools.read_cmeta_files(RealDisk(root), tablet)
    found, damaged = files.found, files.damaged
    if not files:
        what = f"{root} holds no consensus metadata" + (f" of {shown(tablet)}" if tablet else "")
        raise typer.BadParameter(f"{what} (in {root / FOLDER}): give a server's directory, such as .nyala/server-1")
    if as_json:
        print_json([cmeta_json(v) for v in found] + [{"error": str(e), "path": e.values["path"]} for e in damaged])
    else:
        rows = [(v.tablet_id, v.term, (v.voted_for or "")[:8], v.config.opid, members_text(v.config)) for v in found]
        print_table("consensus metadata", ("tablet", "term", "vote", "config", "members"), rows)
    for name in files.gone:
        typer.echo(f"nyala: {name} went away before it was read: its tablet was deleted", err=True)
    for damage in damaged:
        typer.echo(f"nyala: {damage}", err=True)
    if damaged:
        raise typer.Exit(1)


@superblock_app.command("dump")
def dump_superblock(
    path: Annotated[Path, typer.Argument(help="<server>/tablet-meta/<tablet id>", exists=True, dir_okay=False)],
    as_json: Json = False,
) -> None:
    """Print data state, flush, ledger and blocks of one file; exit status 1 and what is wrong where, if damaged.

    --json prints the record as it is stored.
    """
    from nyala.replica import tools
    from nyala.replica.tablet_copy import parse_superblock

    with _or_what_to_do("tablet-meta"):
        superblock = parse_superblock(tools.read_file(path), str(path))
    if as_json:
        print_json(superblock.to_avro())
        return
    sources, clients = superblock.ledger["sources"], superblock.ledger["clients"]
    rows = [
        ("tablet", superblock.tablet_id),
        ("table", f"{superblock.table_name} ({superblock.table_id})"),
        ("data state", superblock.data_state.name + (", a witness: no rows" if superblock.witness else "")),
        ("last logged OpId", superblock.last_logged or ""),
        ("quarantine", superblock.quarantine),
        ("flushed", superblock.flush_opid),
        ("schema versions", ", ".join(str(s.schema_id) for s in superblock.table_schemas)),
        ("ledger", f"{len(sources)} sources, {len(clients)} clients"),
        ("next block", superblock.next_block),
        ("log generation", superblock.wal_generation),
    ]
    print_table("superblock", ("field", "value"), rows)
    blocks = [(b.name, size_text(b.length_bytes), b.rows, b.level, f"{b.crc:08x}") for b in superblock.blocks]
    print_table("blocks", ("file", "size", "rows", "level", "crc32c"), blocks)
