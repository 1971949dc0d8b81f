"""`nyala fs format | uuid | check | wipe`: the directory of a stopped server as a whole."""

from __future__ import annotations

from typing import Annotated

import typer

from nyala.replica import tools

from .context import Json, Yes, ask, console, print_json, print_table, say, size_text
from .offline import Root, changeable, print_findings, reading, replica_cells, stopped

app = typer.Typer(help="directories of stopped servers", no_args_is_help=True)


@app.command("format")
def format_directory(
    root: Root,
    kind: Annotated[str, typer.Option(help="tablet-server or master")] = "tablet-server",
    uuid: Annotated[
        str, typer.Option(help="take this uuid instead of a fresh one: for a master that replaces one")
    ] = "",
    as_json: Json = False,
) -> None:
    """Give an empty directory its identity. A server that starts on an empty directory does so itself."""
    from nyala.replica.fs import LOCK_NAME, lock_root

    if kind not in tools.KINDS:
        raise typer.BadParameter(f"--kind is one of {', '.join(tools.KINDS)}, not {kind!r}")
    if root.exists() and not root.is_dir():
        raise typer.BadParameter(f"{root} is no directory")
    if not (root / LOCK_NAME).exists():  # a lock would leave a file in a directory that is not a server's
        tools.need_formattable(root, kind=tools.KINDS[kind], uuid=uuid)
    with lock_root(root):
        made = tools.format_root(root, kind=tools.KINDS[kind], uuid=uuid)
    say(as_json, {"root": str(root), "uuid": made.uuid, "kind": made.kind}, made.uuid)


@app.command("uuid")
def print_uuid(root: Root, as_json: Json = False) -> None:
    """Print whose directory it is. Reads one file that never changes: also while a server runs."""
    from nyala.replica.fs import RealDisk

    if not root.is_dir():
        raise typer.BadParameter(f"there is no directory {root}")
    found = tools.identity(RealDisk(root))
    say(as_json, {"uuid": found.uuid, "kind": found.kind, "cluster_id": found.cluster_id or None}, found.uuid)


@app.command("check")
def check(
    root: Root,
    blocks: Annotated[bool, typer.Option("--blocks/--no-blocks", help="read every byte of every block, too")] = True,
    repair: Annotated[bool, typer.Option("--repair", help="remove files in data/ that nobody names")] = False,
    as_json: Json = False,
) -> None:
    """Check every superblock, metadata file, log segment and block; exit status 1 if something is lost or damaged.

    What the next start puts in order by itself is a WARNING, and no failure. Nothing is changed without --repair, and
    with it nothing either while an unsafe recovery of the directory is unfinished: files that nobody names may be its.
    """
    with changeable(root) if repair else stopped(root) as disk:
        with reading(quiet=as_json) as step:
            view = tools.check_directory(disk, blocks=blocks, progress=step)
        removed = tools.remove_orphans(disk) if repair else []
    if as_json:
        print_json({**tools.directory_json(view), "removed": removed})
    else:
        _print_view(view)
        if removed:
            typer.echo(f"removed {len(removed)} files that no superblock names")
    if not view.healthy:
        raise typer.Exit(1)


def _print_view(view: tools.DirectoryView) -> None:
    if view.instance is not None:
        console.print(f"{view.instance.kind} {view.instance.uuid}")
    rows = [
        (*replica_cells(t), t.files_checked, size_text(t.log.size_bytes if t.log else 0), size_text(t.block_bytes))
        for t in view.tablets
    ]
    print_table(
        "tablets",
        ("tablet", "table", "state", "term", "last", "files", "log", "blocks"),
        rows,
        ("files", "log", "blocks"),
    )
    print_findings(view.all_findings)


@app.command("wipe")
def wipe(root: Root, yes: Yes = False, as_json: Json = False) -> None:
    """Remove everything a server keeps, its identity first. The next start has a new uuid: it is another server then.

    For a server that lost a disk with metadata or logs: it may have forgotten votes and acknowledged entries, so
    it must not come back under its uuid. Files that no server made stay.
    """
    with stopped(root) as disk:
        plan = tools.plan_wipe(root)
        whose = f"server {plan.uuid}" if plan.uuid else "an identity that cannot be read"
        ask(f"remove {plan.tablets} tablets, {size_text(plan.size_bytes)}, and end {whose} for good?", yes)
        tools.wipe(disk, plan.names)
    if as_json:
        print_json({"uuid": plan.uuid or None, "tablets": plan.tablets, "bytes": plan.size_bytes, "kept": plan.kept})
        return
    typer.echo(f"wiped {root}: {whose} is gone with {plan.tablets} tablets; the next start makes a new uuid")
    if plan.kept:
        typer.echo(f"kept what no server made: {', '.join(plan.kept)}")
