"""Soak real processes: `python -m tests.soak --minutes 20 --seed 7`, or `make soak`.

The run itself, with its schedule, its strict load and its verifiers, is `infra/chaos`; this is its long form, which
keeps the folder of a failed run and says by which seed it is run again. With `--cycles`, members of one tablet are
removed and replaced instead, so often: `tests/harness/replace_cycle.py`.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from nyala.infra.chaos import USUAL_DEMANDS, ChaosOptions, Kind, perform
from tests.harness import hand_runs
from tests.harness.cluster import local_cluster
from tests.harness.replace_cycle import Cycle, start_servers

WIDTH_OF_FILES = 180
LONG_MINUTES = 10.0
"""A run of so long has room for every kind of trouble, and must have had each."""


def main() -> int:
    """Exit status 1 if a verifier found something wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long there is trouble")
    parser.add_argument("--seed", type=int, default=0, help="which trouble; 0 draws one")
    parser.add_argument("--runs", type=int, default=1, help="so many runs, of this seed and those after it")
    parser.add_argument("--dir", type=Path, help="where the stacks live; default: a temporary folder")
    parser.add_argument("--json", action="store_true", help="one JSON document a run")
    parser.add_argument("--cycles", type=int, default=0, help="so many members replaced, and no other trouble")
    hand_runs.add_option(parser)
    given = parser.parse_args()
    if given.cycles:
        status = replace_in_cycle(given.cycles, given.seed or secrets.randbelow(1 << 31))
        if given.record:
            hand_runs.record(hand_runs.command_line("tests.soak"), f"{given.cycles} cycles, {status} failed")
        return status
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_FILES)
    first = given.seed or secrets.randbelow(1 << 31)
    failed = 0
    for seed in range(first, first + given.runs):
        folder = Path(tempfile.mkdtemp(prefix=f"nyala-soak-{seed}-", dir=given.dir))
        demands = tuple(frozenset({kind}) for kind in Kind) if given.minutes >= LONG_MINUTES else USUAL_DEMANDS
        options = ChaosOptions(seed=seed, duration_s=given.minutes * 60, demands=demands)
        try:
            report = perform(folder, options, console, quiet=given.json)
        except BaseException:
            print(f"seed {seed} did not come to a verdict; everything is kept in {folder}", file=sys.stderr)
            raise
        if given.json:
            print(json.dumps(report.json()), flush=True)
        if report.ok:
            shutil.rmtree(folder)
        else:
            failed += 1
            print(
                f"seed {seed} failed; again: python -m tests.soak --minutes {given.minutes:g} --seed {seed}; "
                f"logs and data: {folder}",
                file=sys.stderr,
            )
    if given.record:
        said = f"{given.runs} runs from seed {first}, {failed} failed"
        hand_runs.record(hand_runs.command_line("tests.soak"), said)
    return 1 if failed else 0


def replace_in_cycle(cycles: int, seed: int) -> int:
    """Exit status 1 if a verifier found something wrong; what happens is printed."""
    print(f"again: python -m tests.soak --cycles {cycles} --seed {seed}", flush=True)
    with local_cluster() as cluster:
        start_servers(cluster)
        cycle = Cycle(cluster, seed)
        try:
            cycle.run(cycles)
            verdicts = list(cycle.verdicts())
        finally:
            cycle.close()
    for verdict in verdicts:
        print(f"{'ok' if verdict.ok else 'WRONG'}: {verdict.name}: {verdict.looked_at}", *verdict.wrong, sep="\n    ")
    return 0 if all(v.ok for v in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
