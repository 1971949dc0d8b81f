"""`nyala demo`."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from nyala.infra.jars import JarsMissing
from nyala.infra.local import StackError, StackOptions, prepare, text_of
from nyala.infra.printing import TextConsole, line
from nyala.replica.types import ReplicaError

from .context import Json, console, print_json


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="leave everything up and say what to try next")] = False,
    events: Annotated[int, typer.Option(help="replay only the first N events; 0 is all of them")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="where the stack lives; default: a temporary folder")
    ] = None,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="instead: a table under kills, pauses, lost disks and moves, live")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0.2, max=600, help="of --chaos: how long there are faults")] = 2.0,
    seed: Annotated[int, typer.Option(help="of --chaos: which faults; 0 draws a seed")] = 0,
    as_json: Json = False,
) -> None:
    """Replay a year of real flights into a table, kill a leader and the driver, add a server, and compare.

    With --chaos no flights, no Kafka, no Spark: a strict load on five servers while replicas move and servers die.
    """
    if chaos and (keep or events):
        raise typer.BadParameter("--keep and --events are of the flights, not of --chaos")
    if chaos:
        _chaos(folder, minutes, seed or secrets.randbelow(1 << 31), as_json)
        return
    if as_json:
        raise typer.BadParameter("--json is of --chaos")
    from kafka.errors import KafkaError

    from nyala.infra.demo import board
    from nyala.infra.demo.flights import DemoDataMissing, archive

    try:
        archive()
        prepare(StackOptions(), console.print)
    except (DemoDataMissing, StackError) as error:
        typer.echo(f"nyala: {error}", err=True)
        raise typer.Exit(1) from error
    place = folder or Path(tempfile.mkdtemp(prefix="nyala-demo-"))
    equal, problem = False, ""
    try:
        equal = board.Demo(place, console, events_max=events).run(keep=keep)
    except (board.DemoFailed, JarsMissing, StackError, ReplicaError, KafkaError) as error:
        problem = str(error)
    except OSError as error:
        problem = text_of(error)
    if problem:
        console.print(line(("the demo failed", "red"), f": {problem}"))
    if folder is None and equal:
        shutil.rmtree(place, ignore_errors=True)
    if not equal:
        console.print(f"state and logs are in {place}")
        raise typer.Exit(1)


def _chaos(folder: Path | None, minutes: float, seed: int, as_json: bool) -> None:
    """Run the faults of one seed; the folder stays if something was wrong, and the exit status is 1. A JSON document
    has standard output for itself, and the log of events goes to standard error."""
    from nyala.infra.chaos import ChaosOptions, perform

    place = folder or Path(tempfile.mkdtemp(prefix="nyala-chaos-"))
    try:
        shown = TextConsole(stderr=True) if as_json else console
        report = perform(place, ChaosOptions(seed=seed, duration_s=minutes * 60), shown)
    except (StackError, ReplicaError):
        typer.echo(f"nyala: seed {seed} came to no verdict; everything is kept in {place}", err=True)
        raise
    if as_json:
        print_json(report.json())
    if not report.ok:
        raise typer.Exit(1)
    if folder is None:
        shutil.rmtree(place, ignore_errors=True)
