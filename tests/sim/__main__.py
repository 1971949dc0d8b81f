"""Run the simulators: `python -m tests.sim`, `python -m tests.sim driver:17 core:0-99`, `--overnight`.

Without arguments it runs what CI runs, on two processes, and is red if a seed fails or the run came across too few
marks (tests/sim/coverage.py). A failing seed is printed as the command that runs it again.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from rich.console import Console

from tests.harness.orphans import end_with
from tests.sim.coverage import shortfalls, show
from tests.sim.runs import SIMULATORS, Job, Outcome, Tally, command, run, run_all

CI_SEEDS = {"core": 2_600, "driver": 1_200, "jam": 450, "stranded": 30, "tablet": 420}
"""How many seeds of each simulator CI runs."""
SEEDS_FILE = Path(__file__).with_name("seeds.txt")
FAILURES_SHOWN = 10
CHUNK = 4
"""How many seeds a process receives at once."""


def parse(words: Iterable[str]) -> list[Job]:
    """Return the jobs that `driver:17`, `core:0-99` or `core:3,17` name."""
    jobs: list[Job] = []
    for word in words:
        simulator, _, text = word.partition(":")
        if simulator not in SIMULATORS or not text:
            raise SystemExit(f"{word!r}: write SIMULATOR:SEEDS, of {', '.join(SIMULATORS)}; seeds as 17, 3,17 or 0-99")
        for part in text.split(","):
            low, _, high = part.partition("-")
            jobs += [(simulator, seed) for seed in range(int(low), int(high or low) + 1)]
    return jobs


def kept() -> list[Job]:
    """Return the seeds that once failed, which run for ever."""
    return parse(line.split()[0] for line in SEEDS_FILE.read_text().splitlines() if line and line[0] != "#")


def ci_jobs(share: float) -> list[Job]:
    """Return the kept seeds, then CI's, with the simulators mixed, so that a run of any length has some of each."""
    counts = {name: max(1, round(count * share)) for name, count in CI_SEEDS.items()}
    jobs = [((seed + 0.5) / counts[name], name, seed) for name in counts for seed in range(counts[name])]
    return kept() + [(name, seed) for _, name, seed in sorted(jobs)]


def endless(first: int) -> Iterator[Job]:
    """Yield new seeds for ever, each simulator in the proportions of CI."""
    for turn in itertools.count():
        for name, count in CI_SEEDS.items():
            lump = max(1, count // 40)
            yield from ((name, first + turn * lump + seed) for seed in range(lump))


def outcomes(jobs: Iterable[Job], processes: int) -> Iterator[Outcome]:
    """Yield each job's outcome as it comes; few are under way at any time."""
    jobs = iter(jobs)
    if processes == 1:
        yield from (run(*job) for job in jobs)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, initializer=end_with, initargs=(os.getpid(),)) as pool:
        running: set[Future[list[Outcome]]] = set()
        while True:
            while len(running) < 3 * processes and (chunk := list(itertools.islice(jobs, CHUNK))):
                running.add(pool.submit(run_all, chunk))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()


def report(outcome: Outcome, console: Console, *, traced: bool) -> None:
    """Print a failing seed: the complaint, and how to run it again."""
    console.print(f"[red]seed {outcome.seed} of {outcome.simulator}[/red]: ", end="")
    console.print(outcome.failure[:2_000], markup=False, highlight=False)
    console.print(f"  run it again: {command(outcome.simulator, outcome.seed)}", highlight=False, soft_wrap=True)
    if traced:
        console.print(outcome.trace, markup=False, highlight=False, soft_wrap=True)


def main() -> int:
    """Run the simulators; returns exit status 1 if a seed failed or, without named seeds, too few marks occurred."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="*", help="SIMULATOR:SEEDS, for instance driver:17 or core:0-99")
    parser.add_argument("--share", type=float, default=1.0, help="of CI's number of seeds (default 1.0)")
    parser.add_argument("--minutes", type=float, default=20.0, help="begin no seed after so long (default 20)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--overnight", action="store_true", help="new seeds until stopped; failing ones go to --found")
    parser.add_argument("--first", type=int, default=100_000, help="first seed of --overnight")
    parser.add_argument("--found", type=Path, default=Path("found_seeds.txt"), help="where --overnight writes")
    options = parser.parse_args()
    console, tally, begun = Console(width=160 if not sys.stdout.isatty() else None), Tally(), time.monotonic()
    if options.seeds:
        jobs: Iterable[Job] = parse(options.seeds)
        options.jobs = min(options.jobs, len(list(jobs)))
    else:
        jobs = endless(options.first) if options.overnight else ci_jobs(options.share)
    timely = itertools.takewhile(
        lambda _: options.overnight or options.seeds or time.monotonic() - begun < options.minutes * 60, jobs
    )
    try:
        for outcome in outcomes(timely, options.jobs):
            tally.add(outcome)
            if outcome.failure and len(tally.failures) <= FAILURES_SHOWN:
                report(outcome, console, traced=bool(options.seeds))
            if outcome.failure and options.overnight:
                with options.found.open("a") as found:
                    found.write(f"{outcome.simulator}:{outcome.seed} # {outcome.failure.splitlines()[0][:100]}\n")
    except KeyboardInterrupt:
        console.print("stopped")
    return finish(tally, console, whole=not options.seeds and not options.overnight and options.share >= 1.0, t=begun)


def finish(tally: Tally, console: Console, *, whole: bool, t: float) -> int:
    """Print the table, the time, and the verdict."""
    if tally.seeds.total() > 1:
        show(tally, console)
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    console.print(
        f"{tally.seeds.total():,} seeds, {tally.delivered.total():,} messages delivered, {len(tally.failures)} seeds "
        f"failed; {time.monotonic() - t:.0f} s, {cpu:.0f} s of CPU"
    )
    short = shortfalls(tally) if whole else []
    for text in short:
        console.print(f"[red]too little: {text}[/red]")
    return 1 if tally.failures or short else 0


if __name__ == "__main__":
    sys.exit(main())
