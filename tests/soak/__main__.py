"""Soak real processes: `python -m tests.soak --minutes 20 --seed 7`, or `make soak`.

The run itself, with its schedule, its strict load and its verifiers, is `infra/chaos`; this is its long form, which
keeps the folder of a failed run and says by which seed it is run again.
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

from nyala.infra.chaos import ChaosOptions, perform

WIDTH_OF_FILES = 180


def main() -> int:
    """Exit status 1 if a verifier found something wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long there is trouble")
    parser.add_argument("--seed", type=int, default=0, help="which trouble; 0 draws one")
    parser.add_argument("--runs", type=int, default=1, help="so many runs, of this seed and those after it")
    parser.add_argument("--dir", type=Path, help="where the stacks live; default: a temporary folder")
    parser.add_argument("--json", action="store_true", help="one JSON document a run")
    given = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_FILES)
    first = given.seed or secrets.randbelow(1 << 31)
    failed = 0
    for seed in range(first, first + given.runs):
        folder = Path(tempfile.mkdtemp(prefix=f"nyala-soak-{seed}-", dir=given.dir))
        options = ChaosOptions(seed=seed, duration_s=given.minutes * 60)
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
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
