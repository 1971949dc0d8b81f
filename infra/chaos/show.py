"""Shows a run to people: a live picture of servers and replicas, the log of events, the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nyala.infra.printing import as_text, cell, line

from .run import Chaos, ChaosOptions, Happened, Report, Show
from .scene import Scene, ServerScene, TabletScene
from .schedule import Kind

STORY_LINES = 12
_ROLES = {
    "LEADER": "bold green",
    "FOLLOWER": "cyan",
    "CANDIDATE": "yellow",
    "LEARNER": "magenta",
    "copying": "magenta",
    "tombstone": "dim",
    "FAILED": "bold red",
}


def perform(folder: Path, options: ChaosOptions, console: Console, *, quiet: bool = False) -> Report:
    """Run and show it: a live picture on a terminal, one line per event elsewhere, nothing if `quiet`."""
    if quiet:
        return Chaos(folder, options).run()
    console.print(f"seed {options.seed}, {options.duration_s / 60:.1f} minutes of faults, in {folder}")
    follow = _live(console, options) if console.is_terminal else _lines(console)
    with follow as tick:
        report = Chaos(folder, options, tick).run()
    for part in summary(report):
        console.print(part)
    return report


@contextmanager
def _live(console: Console, options: ChaosOptions) -> Iterator[Callable[[Show], None]]:
    with Live("starting a stack", console=console, refresh_per_second=4) as live:
        yield lambda show: live.update(screen(show, options))


@contextmanager
def _lines(console: Console) -> Iterator[Callable[[Show], None]]:
    told = 0

    def tick(show: Show) -> None:
        nonlocal told
        for happened in show.report.story[told:]:
            console.print(line(f"{_line(happened)}  [{show.workload.rows:,} row writes]"), soft_wrap=True)
            told += 1

    yield tick


def _line(happened: Happened) -> str:
    return f"{happened.at_s:7.1f} s  {happened.kind + ': ' if happened.kind else ''}{happened.what}"


def screen(show: Show, options: ChaosOptions) -> Group:
    """The picture of the present state."""
    scene = show.watcher.scene
    faults = [*show.workload.faults, *show.watcher.checker.faults]
    passed = time.monotonic() - show.began_s
    numbers = Text.assemble(
        f"{passed:.0f} s, faults for {options.duration_s:.0f} s   ",
        (f"{show.workload.rows:,}", "bold"),
        " row writes acknowledged   ",
        (f"{show.workload.reader.reads}", "bold"),
        " scans compared with them: ",
        ("all right", "bold green") if not faults else (as_text(f"WRONG: {faults[0]}"), "bold red"),
    )
    told = (as_text(_line(h)) for h in show.report.story[-STORY_LINES:])
    story = Text("\n".join(told), no_wrap=True, overflow="ellipsis")
    return Group(picture(scene), numbers, story)


def picture(scene: Scene) -> Table:
    """A table of servers by tablets, with the role of each replica."""
    table = Table(title="servers and their replicas", title_justify="left")
    for heading in ("server", "identity", "state", *(t.tablet_id[:8] for t in scene.tablets)):
        table.add_column(heading, no_wrap=True)
    table.add_row("master-1", "", _state(scene.master_state), *("" for _ in scene.tablets))
    for server in scene.servers:
        cells = (_cell(scene, server, tablet) for tablet in scene.tablets)
        table.add_row(cell(server.name), server.uuid[:8], _state(server.away or server.state), *cells)
    return table


def _state(state: str) -> Text:
    return cell(state.lower().replace("_", " "), "green" if state == "READY" else "red")


def _cell(scene: Scene, server: ServerScene, tablet: TabletScene) -> Text:
    state = tablet.state_of(server.name)
    if not state:
        config = tablet.config
        member = config.member(server.uuid) if config else None
        return cell("?", "red") if member else cell("")
    if state == "copying":
        running = [j for j in scene.copies if (j.tablet_id, j.target_uuid) == (tablet.tablet_id, server.uuid)]
        if running and running[-1].bytes_total:
            return cell(f"copying {100 * running[-1].bytes_done // running[-1].bytes_total} %", "magenta")
    return cell(state.lower(), _ROLES.get(state, "white"))


def summary(report: Report) -> Iterator[Table | Text | str]:
    """The table of events, the table of verifiers, and one line."""
    events = Table(title="events", title_justify="left")
    for heading in ("at", "what", "what came of it"):
        events.add_column(heading, overflow="fold")
    for happened in report.story:
        events.add_row(f"{happened.at_s:.1f} s", cell(happened.kind), cell(happened.what))
    yield events
    verdicts = Table(title="verifiers", title_justify="left")
    for heading in ("", "verifier", "looked at", "wrong"):
        verdicts.add_column(heading, overflow="fold")
    for verdict in report.verdicts:
        mark = cell("ok", "green") if verdict.ok else cell("WRONG", "bold red")
        wrong = Text("\n").join(map(cell, verdict.wrong))
        verdicts.add_row(mark, cell(verdict.name), cell(verdict.looked_at), wrong)
    yield verdicts
    yield "done: " + ", ".join(f"{kind} {report.done[kind]}" for kind in Kind)
    yield ", ".join(f"{name.replace('_', ' ')}: {value:,g}" for name, value in report.figures.items())
    if report.ok:
        yield line(("VERDICT: every acknowledged row is right", "bold green"), f" (seed {report.seed})")
    else:
        where = f"; seed {report.seed}, everything is kept in {report.folder}"
        yield line(("VERDICT: WRONG", "bold red"), where)
