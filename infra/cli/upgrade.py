"""`nyala upgrade status | finalize`: from one build to the next."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from nyala.infra.printing import cell
from nyala.replica import tools

from .context import Json, Masters, Yes, ask, client, console, find_server, print_json, print_table

if TYPE_CHECKING:
    from nyala.replica.client import Client

app = typer.Typer(help="which builds run, and the feature level of the cluster", no_args_is_help=True)
HEAR_S = 60.0
"""The longest wait for processes to hear of the level: heartbeats come about every second."""
POLL_S = 0.2


@app.command()
def status(masters: Masters = "", as_json: Json = False) -> None:
    """Show which build each process runs, and what is left to do."""
    with client(masters) as connected:
        view = tools.gather_builds(connected)
    if as_json:
        print_json(_json(view))
        return
    silent = cell("does not answer", "red")
    rows = [
        (p.kind, p.uuid[:8], p.address or "", p.version or silent, p.level or "", p.finalized or "")
        for p in view.processes
    ]
    print_table("processes", ("kind", "uuid", "address", "version", "highest level", "cluster's level"), rows)
    console.print(tools.upgrade_words(view))


@app.command()
def finalize(
    level: Annotated[int, typer.Option(min=0, help="0: the highest that the masters' build knows")] = 0,
    without: Annotated[
        list[str] | None,
        typer.Option(help="a tablet server that is away, and comes back with a new build only; repeat it"),
    ] = None,
    yes: Yes = False,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Raise the cluster's feature level: no process can go back to a build that does not know it.

    It is refused, and changes nothing, as long as a process runs an earlier build or does not answer.
    """
    with client(masters) as connected:
        away = [find_server(connected, prefix).uuid for prefix in without or ()]
        view = tools.gather_builds(connected)
        if not level and view.newest > view.finalized:
            ask(f"raise the feature level from {view.finalized} to {view.newest}? There is no way back.", yes)
        elif level > view.finalized:
            ask(f"raise the feature level from {view.finalized} to {level}? There is no way back.", yes)
        after, before = connected.finalize_upgrade(level, without=away)
        unheard = _told(connected, after)
    if as_json:
        print_json({"level": after, "before": before, "unheard": [p.uuid for p in unheard]})
        return
    was = "as before" if after == before else f"it was {before}"
    typer.echo(f"the cluster's feature level is {after}, {was}")
    for process in unheard:
        typer.echo(
            f"{process.kind} {process.uuid} has not learned the level within {HEAR_S:g} s: look at its log", err=True
        )


def _told(connected: Client, level: int) -> list[tools.ProcessBuild]:
    """Wait until all answering processes know the level; returns those that do not in time."""
    deadline = time.monotonic() + HEAR_S
    while (unheard := tools.gather_builds(connected).unheard(level)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return unheard


def _json(view: tools.UpgradeView) -> dict[str, object]:
    return {
        "finalized_level": view.finalized,
        "newest_level": view.newest,
        "next": tools.upgrade_words(view),
        "processes": [
            {
                "kind": p.kind,
                "uuid": p.uuid,
                "address": str(p.address) if p.address else None,
                "version": p.version or None,
                "feature_level": p.level,
                "finalized_level": p.finalized,
            }
            for p in view.processes
        ],
    }
