"""Put load on real processes: `python -m tests.load`, or parts by name: `python -m tests.load scans tables --brief`.

Without `--brief` the parts have their whole size, about an hour together on two cores. Exit status 1 if there was an
error other than overload, if memory was above its bound, or if memory, open files or threads went on growing.
"""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.harness import hand_runs
from tests.load.campaign import Result, perform
from tests.load.judge import Measure
from tests.load.parts import PARTS
from tests.load.world import world

WIDTH_OF_FILES = 180


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(names)}; all of them without one")
    parser.add_argument("--minutes", type=float, default=10.0, help="of steady load (10)")
    parser.add_argument("--brief", action="store_true", help="short parts: 90 s on two idle cores")
    parser.add_argument("--json", action="store_true", help="one JSON document a part instead of the table")
    hand_runs.add_option(parser)
    given = parser.parse_args(words)
    if unknown := sorted(set(given.parts) - set(names)):
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(names)}")
    return given


def table_of(results: list[Result]) -> Table:
    """Return the table that the terminal shows of the parts: time, work, latency, memory and its slope."""
    table = Table("part", "work", "time", "overload", "p99", "memory", "growth of 2nd half", "", title="load")
    for result in results:
        memory = [v for v in result.verdicts if v.measure is Measure.PRIVATE_MB]
        peak = max(memory, key=lambda v: v.peak / v.most)
        grown = max(memory, key=lambda v: v.growth - v.growth_allowed)
        table.add_row(
            result.part.what,
            f"{result.units:,.0f} {result.part.unit}",
            f"{result.seconds:.0f} s",
            str(result.overloaded),
            "\n".join(f"{name} {v['p99_ms']:.0f} ms" for name, v in result.latencies.items()),
            f"{peak.process} {peak.peak:.0f} of {peak.most:.0f} MB",
            f"{grown.process} {grown.growth:+.1f} of {grown.growth_allowed:.1f} MB",
            "[red]FAILED[/]" if result.errors else "[green]ok[/]",
        )
    return table


def main(words: list[str] | None = None) -> int:
    """Run the parts that the words name; returns the exit status."""
    given = _arguments(words)
    console = Console(stderr=True) if sys.stderr.isatty() else Console(stderr=True, width=WIDTH_OF_FILES)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    results = []
    with world(quick_flush=given.brief) as made, Progress(*columns, console=console, transient=True) as bar:
        for part in PARTS:
            if given.parts and part.name not in given.parts:
                continue
            size = part.brief if given.brief else part.full
            if part.name == "steady" and not given.brief:
                size = given.minutes * 60
            task = bar.add_task(part.what, total=1.0)
            result = perform(made, part, size, lambda share, t=task: bar.update(t, completed=min(1.0, share)))  # type: ignore[misc]
            results.append(result)
            if given.json:
                print(json.dumps(result.json()), flush=True)
            for error in result.errors:
                console.print(f"[red]{part.name}[/]: {error}", highlight=False)
        if any(result.errors for result in results):
            console.print(made.processes.logs(), highlight=False, markup=False)
    if given.record:
        failed = [result.part.name for result in results if result.errors]
        said = f"{', '.join(result.part.name for result in results)}: {', '.join(failed) or 'none'} failed"
        hand_runs.record(hand_runs.command_line("tests.load", words), said)
    if not given.json:
        (Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_FILES)).print(table_of(results))
    return 1 if any(result.errors for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
