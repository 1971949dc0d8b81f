"""`nyala wal dump | cmeta dump | superblock dump`: what is on a disk, and what is broken in it and where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nyala.replica.disk import RealDisk
from nyala.replica.wal import dump_segment
from nyala.schemas import unframe

from .context import Json, console, print_json

wal_app = typer.Typer(help="write-ahead logs on this machine", no_args_is_help=True)
cmeta_app = typer.Typer(help="consensus metadata files", no_args_is_help=True)
superblock_app = typer.Typer(help="superblock files", no_args_is_help=True)
_COLOURS = {"header": "cyan", "damage": "red", "newer": "red", "tail": "dim"}


@wal_app.command("dump")
def dump_wal(
    path: Annotated[Path, typer.Argument(help="a segment, or the folder of one tablet's log", exists=True)],
    as_json: Json = False,
) -> None:
    """Print every entry; exit status 1 if something is broken that a start would not cut."""
    segments = sorted(path.glob("wal-*")) if path.is_dir() else [path]
    if not segments:
        raise typer.BadParameter(f"{path} holds no segment: a log is <server>/wals/<tablet id>")
    broken = False
    found: list[dict[str, Any]] = []
    for segment in segments:
        for item in dump_segment(RealDisk(segment.parent), segment.name):
            broken |= item["kind"] in ("damage", "newer") and not item.get("torn")
            if as_json:
                found.append({"segment": segment.name, **item})
            else:
                _print_item(segment.name, item)
    if as_json:
        print_json(found)
    if broken:
        raise typer.Exit(1)


def _print_item(segment: str, item: dict[str, Any]) -> None:
    rest = "  ".join(f"{k}={v}" for k, v in item.items() if k not in ("kind", "byte_offset"))
    colour = _COLOURS.get(item["kind"], "white")
    console.print(
        f"{segment} @{item['byte_offset']:<10} [{colour}]{item['kind']:<7}[/] {rest}", highlight=False, soft_wrap=True
    )


def _dump_framed(name: str, path: Path) -> None:
    try:
        value = unframe(name, path.read_bytes())
    except (ValueError, EOFError) as error:
        typer.echo(f"{path}: {error}", err=True)
        raise typer.Exit(1) from error
    print_json(value)


@cmeta_app.command("dump")
def dump_cmeta(
    path: Annotated[Path, typer.Argument(help="<server>/consensus-meta/<tablet id>", exists=True, dir_okay=False)],
) -> None:
    """Print term, vote and committed config."""
    _dump_framed("consensus_metadata", path)


@superblock_app.command("dump")
def dump_superblock(
    path: Annotated[Path, typer.Argument(help="<server>/tablet-meta/<tablet id>", exists=True, dir_okay=False)],
) -> None:
    """Print data state, blocks and ledger."""
    _dump_framed("superblock", path)
