"""The marks that a run of the simulators must have come across, since without them it proves little; and the table that
shows them."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table

from tests.harness.raft_sim import WITNESS_MARKS
from tests.harness.sim_jams import LOST
from tests.sim.runs import Tally

SEEDS_MIN = 1_500
DELIVERED_MIN = 2_000_000
MARK_MIN = 20

FAULTS = (
    *("drop", "duplicate", "reorder", "one-way cut", "partition", "crash", "power loss", "torn write", "outage"),
    *("pause", "disk full", "clock jump", "slow disk", "slow network"),
    *("EIO of a read", "EIO of a write", "EIO of a sync", "misplaced write", "wipe"),
    *("hung log", "died while its log hung", "hung metadata", "died while its metadata hung"),
    *("append refused", "clogged way", *(f"lost {kind}" for kind in LOST)),
)
EVENTS = (
    *("replay", "tablet copy", "promotion", "lease loss", "torn tail", "torn outage", "transfer", "config change"),
    *("flush during faults", "log GC", "ingest task retry", "zombie attempt", "idle tablet", "offset hole"),
    *("lost checkpoint", "process ended by its disk", "replica failed at its start", "meant for another"),
    *("client write repeated", "majority alone", "hung leader gone", "vote while refusing"),
)
DEMANDED = FAULTS + EVENTS
"""Each must occur at least MARK_MIN times in the simulators that run whole replicas (the cores alone do not count)."""
WHOLE = ("driver", "jam", "stranded", "tablet")
_EVERYWHERE = ("V1", "V2", "V3", "V4", "READ")
_OF_WHOLE = (*_EVERYWHERE, "I2", "V6", "V8", "SNAPSHOT")
_OF_CHANGE = ("I1", "I4", "V7")
WATCHED = {
    "core": (*_EVERYWHERE, "I1", "I4", "ROWS"),
    "driver": (*_OF_WHOLE, *_OF_CHANGE),
    "jam": (*_OF_WHOLE, *_OF_CHANGE),
    "stranded": _OF_WHOLE,
    "tablet": (*_OF_WHOLE, *_OF_CHANGE, "V5"),
}
"""The verifiers of each simulator. Each must have compared something MARK_MIN times in each: one that receives nothing
any more finds nothing wrong, and would be green for ever. In `stranded` nothing restarts and no config changes."""
OF_CORES = ("majority alone", *WITNESS_MARKS)
"""Each must occur at least MARK_MIN times in the simulator of cores; it alone draws witnesses."""


def seen(tally: Tally, mark: str) -> int:
    """Return how often the simulators of whole replicas came across `mark`."""
    return sum(tally.marks[name][mark] for name in WHOLE if name in tally.marks)


def shortfalls(tally: Tally) -> list[str]:
    """Return why the run proves too little; empty if it proves enough."""
    found = [f"{mark}: seen {seen(tally, mark)} times, wanted {MARK_MIN}" for mark in DEMANDED]
    found = [text for mark, text in zip(DEMANDED, found, strict=True) if seen(tally, mark) < MARK_MIN]
    cores: Counter[str] = tally.marks.get("core", Counter())
    found += [f"{mark}: seen {cores[mark]} times, wanted {MARK_MIN}" for mark in OF_CORES if cores[mark] < MARK_MIN]
    for name, verifiers in WATCHED.items():
        marks: Counter[str] = tally.marks.get(name, Counter())
        looked = {v: marks[f"{v} looked"] for v in verifiers}
        found += [f"{v} looked {n} times in {name}, wanted {MARK_MIN}" for v, n in looked.items() if n < MARK_MIN]
    seeds, delivered = tally.seeds.total(), tally.delivered.total()
    if seeds < SEEDS_MIN:
        found.append(f"{seeds:,} seeds, wanted {SEEDS_MIN:,}")
    if delivered < DELIVERED_MIN:
        found.append(f"{delivered:,} delivered messages, wanted {DELIVERED_MIN:,}")
    return found


def show(tally: Tally, console: Console) -> None:
    """Print the table: a row for each mark, a column for each simulator."""
    names = sorted(tally.seeds)
    table = Table(title="what the simulators came across", title_justify="left")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    table.add_row("seeds", *(f"{tally.seeds[n]:,}" for n in names))
    table.add_row("delivered messages", *(f"{tally.delivered[n]:,}" for n in names), end_section=True)
    cores: Counter[str] = tally.marks.get("core", Counter())
    for group in (FAULTS, EVENTS):
        for mark in group:
            lacks = seen(tally, mark) < MARK_MIN or (mark in OF_CORES and cores[mark] < MARK_MIN)
            row = f"[red]{mark}[/red]" if lacks else mark
            table.add_row(row, *(f"{tally.marks[n][mark]:,}" for n in names), end_section=mark == group[-1])
    for mark in (mark for mark in OF_CORES if mark not in DEMANDED):
        row = mark if cores[mark] >= MARK_MIN else f"[red]{mark}[/red]"
        table.add_row(row, *(f"{tally.marks[n][mark]:,}" for n in names), end_section=mark == OF_CORES[-1])
    verifiers = sorted({v for several in WATCHED.values() for v in several})
    for verifier in verifiers:
        mark = f"{verifier} looked"
        cells = (f"{tally.marks[n][mark]:,}" if verifier in WATCHED[n] else "–" for n in names)
        blind = any(verifier in WATCHED[n] and tally.marks[n][mark] < MARK_MIN for n in names)
        table.add_row(f"[red]{mark}[/red]" if blind else mark, *cells, end_section=verifier == verifiers[-1])
    watching = {f"{v} looked" for v in verifiers}
    others = sorted({m for marks in tally.marks.values() for m in marks} - set(DEMANDED) - set(OF_CORES) - watching)
    for mark in others:
        table.add_row(f"[dim]{mark}[/dim]", *(f"{tally.marks[n][mark]:,}" for n in names))
    console.print(table)
