"""Break each proven behaviour and see its test turn red: `python -m tests.mutants`.

The mutants are rows of the tables beside this file. A mutant fails if it does not apply, if it is no valid Python, or
if its test stays green. It fails, too, if its test is red without it, or if the test does not end in time: a slow
machine does that to any test. A test that would wait for ever under its mutant gets a bound of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence

from tests.mutants.mutant import Mutant, Stale, all_mutants, mutated
from tests.mutants.runs import Ended, Run, Runner, in_files, runner

WAIT_S = 300
WAIT_EACH_S = 20
"""More for each test that is run together with others."""
SAID_CHARS = 300


def judge(ended: Ended, mutant: Mutant) -> str:
    """Empty if pytest's end under a mutant means that it was caught; otherwise what is wrong."""
    if ended.status is None:
        return f"{mutant.test} did not end within {WAIT_S} s, which is no catch"
    if ended.status == 0:
        return f"not noticed by {mutant.test}"
    if ended.status != 1:
        return f"pytest ended with status {ended.status}: {ended.said[-SAID_CHARS:]}"
    slip = re.search(r"^E +((?:NameError|SyntaxError|IndentationError): .*)", ended.said, re.MULTILINE)
    return f"the row is broken, which is no catch: {slip[1]}" if slip else ""


def prepared(mutant: Mutant) -> Run | str:
    """How it is run; a text says why it cannot be."""
    try:
        sources = mutated(mutant)
    except Stale as stale:
        return f"does not apply: {stale}"
    for file, source in sources.items():
        if file.endswith(".py"):
            try:
                compile(source, file, "exec")
            except SyntaxError as error:
                return f"the row is broken, which is no catch: {file}: {error}"
    return Run(tuple(mutant.tests), sources, mutant.needs_a_copy, WAIT_S)


def at_a_time(copied: bool) -> int:
    """How many are run together. Under its mutant, many a test does nothing until its time is over, so in memory there
    are more than cores; servers of several copies would slow one another down."""
    cores = os.cpu_count() or 1
    return cores + 1 if copied else 2 * cores


def ends(runs: Runner, wanted: Sequence[Run]) -> Iterator[tuple[int, Ended]]:
    """Position of each and how it ended; those in memory before those in a copy."""
    for copied in (False, True):
        positions = [pos for pos, run in enumerate(wanted) if run.copied is copied]
        for pos, ended in runs.run([wanted[pos] for pos in positions], at_a_time(copied)):
            yield positions[pos], ended


def red_without(runs: Runner, mutants: Sequence[Mutant]) -> dict[str, str]:
    """Those tests of the mutants that are not green without any, with what is wrong.

    All of a file are run together, which costs one start; one by one only if that is not green.
    """
    together = [
        Run(tests, {}, copied, WAIT_S + len(tests) * WAIT_EACH_S)
        for copied in (False, True)
        for tests in in_files(test for m in mutants if m.needs_a_copy is copied for test in m.tests)
    ]
    wrong = []
    for done, (pos, ended) in enumerate(ends(runs, together), 1):
        if ended.status != 0:
            wrong.append(together[pos])
        file = together[pos].tests[0].partition("::")[0]
        told = "green" if ended.status == 0 else "not green, its tests are run one by one"
        print(f"{done:4d}/{len(together)} {ended.took_s:5.1f} s  without a mutant: {file}: {told}", file=sys.stderr)
    alone = [Run((test,), {}, run.copied, WAIT_S) for run in wrong for test in run.tests]
    return {
        alone[pos].tests[0]: "not over in time" if ended.status is None else ended.said[-SAID_CHARS:]
        for pos, ended in ends(runs, alone)
        if ended.status != 0
    }


def check(runs: Runner, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str, float]]:
    """Each mutant with what is wrong, empty if it was caught, and what it took in s; those that are at once first."""
    plans = [(mutant, prepared(mutant)) for mutant in mutants]
    yield from ((mutant, plan, 0.0) for mutant, plan in plans if isinstance(plan, str))
    good = [(mutant, plan) for mutant, plan in plans if isinstance(plan, Run)]
    red = red_without(runs, [mutant for mutant, _ in good])
    for mutant, _ in good:
        if said := next((f"{test}: {red[test]}" for test in mutant.tests if test in red), ""):
            yield mutant, f"its test is red without it: {said}", 0.0
    good = [(mutant, plan) for mutant, plan in good if not red.keys() & set(mutant.tests)]
    for pos, ended in ends(runs, [plan for _, plan in good]):
        yield good[pos][0], judge(ended, good[pos][0]), ended.took_s


def chosen(mutants: Sequence[Mutant], words: Sequence[str]) -> list[Mutant]:
    """Those that a word means: a name, a row, a test or the beginning of its id, or the file that is changed.

    SystemExit if a word means none.
    """

    def means(word: str, mutant: Mutant) -> bool:
        return (
            word.replace("_", " ") == mutant.name.replace("_", " ")
            or word in re.split(r"[,\s]+", mutant.rows)
            or any(test.startswith(word) for test in mutant.tests)
            or any(edit.file == word for edit in mutant.edits)
        )

    for word in words:
        if not any(means(word, mutant) for mutant in mutants):
            raise SystemExit(f"{word!r} is no mutant's name, row, test or file")
    return [mutant for mutant in mutants if not words or any(means(word, mutant) for word in words)]


def main() -> int:
    """Exit status 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenth", type=int, metavar="N", help="only the mutants whose position is N modulo ten")
    parser.add_argument("--third", type=int, metavar="N", help="only the mutants whose position is N modulo three")
    parser.add_argument("words", nargs="*", help="names, rows, tests or changed files; all without")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended, and copies are removed
    begun_s = time.monotonic()
    # Those that need a copy take longest: last, so that they are spread evenly over the parts.
    mutants = sorted(chosen(all_mutants(), arguments.words), key=lambda mutant: mutant.needs_a_copy)
    for part, parts in ((arguments.third, 3), (arguments.tenth, 10)):
        if part is not None:
            mutants = mutants[part % parts :: parts]
    survivors = 0
    with runner() as runs:
        for done, (mutant, problem, took_s) in enumerate(check(runs, mutants), 1):
            survivors += bool(problem)
            told = f"SURVIVED {mutant.name}: {problem}" if problem else f"caught   {mutant.name}"
            print(f"{done:4d}/{len(mutants)} {took_s:5.1f} s  {told}", flush=True)
    took_s = time.monotonic() - begun_s
    print(f"{len(mutants) - survivors} of {len(mutants)} mutants caught in {took_s // 60:.0f} min {took_s % 60:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
