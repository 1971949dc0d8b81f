"""`nyala demo`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from nyala.infra.demo import board
from nyala.infra.demo.flights import DemoDataMissing
from nyala.infra.jars import JarsMissing
from nyala.infra.local import StackError
from nyala.replica.base import ReplicaError

from .context import console


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="leave everything up and say what to try next")] = False,
    events: Annotated[int, typer.Option(help="replay only the first N events; 0 is all of them")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="where the stack lives; default: a temporary folder")
    ] = None,
) -> None:
    """Replay a year of real flights into a table, kill a leader and the driver, add a server, and compare."""
    place = folder or Path(tempfile.mkdtemp(prefix="nyala-demo-"))
    equal = False
    try:
        equal = board.Demo(place, console, events_max=events).run(keep=keep)
    except (board.DemoFailed, DemoDataMissing, JarsMissing, StackError, ReplicaError) as error:
        console.print(f"[red]the demo failed[/]: {error}", highlight=False)
    if folder is None and equal:
        shutil.rmtree(place, ignore_errors=True)
    if not equal:
        console.print(f"state and logs are in {place}", highlight=False)
        raise typer.Exit(1)
