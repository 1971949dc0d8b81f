"""Break each proven behaviour and see its test turn red: `python -m tests.mutants`.

The mutants are rows of the tables beside this file. A mutant fails if it does not apply, if it is no valid Python, or
if its test stays green. It fails, too, if its test is red without it, or if the test does not end in time: a slow
machine does that to any test. A test that would wait for ever under its mutant gets a bound of its own.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from tests.harness.green_tests import Green, known_green
from tests.mutants.in_place import SLIP, caught_in_place
from tests.mutants.mutant import Mutant, Stale, all_mutants, mutated
from tests.mutants.runs import CORES, PATIENCE_S, Ended, Run, Runner, in_files, patience_s, runner

WAIT_S = 300
IN_PLACE_AT_A_TIME = 3 * CORES
"""Those that are caught run for milliseconds, and many of the others wait until their time is over."""
WAIT_EACH_S = 20
"""More for each test that is run together with others."""
SAID_CHARS = 300
NOTHING_KNOWN = Green()
Test = tuple[str, bool]
"""A test's id, and whether it is run in a copy."""


def judge(ended: Ended, mutant: Mutant) -> str:
    """Empty if pytest's end under a mutant means that it was caught; otherwise what is wrong."""
    if ended.status is None:
        return f"{mutant.test} did not end within {WAIT_S} s, which is no catch"
    if ended.status == 0:
        return f"not noticed by {mutant.test}"
    if ended.status != 1:
        return f"pytest ended with status {ended.status}: {ended.said[-SAID_CHARS:]}"
    slip = SLIP.search(ended.said)
    return f"the row is broken, which is no catch: {slip[0]}" if slip else ""


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


def without(tests: Iterable[Test]) -> list[Run]:
    """All that tests are run in without a mutant: those of a file together, which costs one start; the file with the
    most tests first, for it takes longest."""
    found = [
        Run(together, {}, copied, WAIT_S + len(together) * WAIT_EACH_S)
        for copied in (False, True)
        for together in in_files(test for test, of_a_copy in tests if of_a_copy is copied)
    ]
    return sorted(found, key=lambda run: -len(run.tests))


def check(runs: Runner, mutants: Sequence[Mutant], green: Green = NOTHING_KNOWN) -> Iterator[tuple[Mutant, str, float]]:
    """Each mutant with what is wrong, empty if it was caught, and what it took in s: as soon as its tests are known to
    be green without it. First those that are caught in place; then the others, each in a pytest of its own. Where a
    file is not green without any, its tests are run again, one by one. `green`: what is known to pass already."""
    caught = set[int]()
    for pos, took_s in caught_in_place(mutants, IN_PLACE_AT_A_TIME, PATIENCE_S):
        caught.add(pos)
        yield mutants[pos], "", took_s
    mutants = [mutant for pos, mutant in enumerate(mutants) if pos not in caught]
    plans = [(mutant, prepared(mutant)) for mutant in mutants]
    yield from ((mutant, plan, 0.0) for mutant, plan in plans if isinstance(plan, str))
    good = [(mutant, plan) for mutant, plan in plans if isinstance(plan, Run)]
    tests = {(test, mutant.needs_a_copy) for mutant, _ in good for test in mutant.tests}
    red = {(test, copied): "" for test, copied in tests if green.has(test, patience_s(test))}
    """What is wrong with a test without a mutant; empty if nothing is. A test that has just passed, in less time than
    any of its waits may take here, needs no run of its own."""
    files = without(tests - red.keys())
    held: list[tuple[Mutant, Ended]] = []

    def judged() -> Iterator[tuple[Mutant, str, float]]:
        for mutant, ended in list(held):
            tests = [(test, mutant.needs_a_copy) for test in mutant.tests]
            if red.keys() >= set(tests):
                held.remove((mutant, ended))
                wrong = next((f"{test[0]}: {red[test]}" for test in tests if red[test]), "")
                yield mutant, f"its test is red without it: {wrong}" if wrong else judge(ended, mutant), ended.took_s

    for pos, ended in runs.run([*files, *(plan for _, plan in good)]):
        if pos < len(files):
            run = files[pos]
            red |= {(test, run.copied): "" for test in run.tests if ended.status == 0}
            told = "green" if ended.status == 0 else "not green, its tests are run one by one at the end"
            file = run.tests[0].partition("::")[0]
            print(f"     {ended.took_s:9.1f} s  without a mutant: {file}: {told}", file=sys.stderr, flush=True)
        else:
            held.append((good[pos - len(files)][0], ended))
        yield from judged()
    alone = [
        Run((test,), {}, run.copied, WAIT_S) for run in files for test in run.tests if (test, run.copied) not in red
    ]
    for pos, ended in runs.run(alone):
        [test] = alone[pos].tests
        said = "not over in time" if ended.status is None else ended.said[-SAID_CHARS:]
        red[test, alone[pos].copied] = said if ended.status != 0 else ""
        yield from judged()


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


def third(mutants: Sequence[Mutant], number: int) -> list[Mutant]:
    """One third of the mutants; `number` counts modulo three, and the thirds are of about the same length. All rows of
    a test file are in one third, so that no test is run without a mutant in two of them."""
    files: dict[tuple[bool, str], list[Mutant]] = {}
    for mutant in mutants:
        files.setdefault((mutant.needs_a_copy, mutant.tests[0].partition("::")[0]), []).append(mutant)
    longest_first = sorted(files.items(), key=lambda item: (item[0][0], len(item[1])), reverse=True)
    turns = (0, 1, 2, 2, 1, 0)  # back and forth, so that no third has the longest each time
    return [
        mutant
        for pos, (_, rows) in enumerate(longest_first)
        if turns[pos % len(turns)] == number % 3
        for mutant in rows
    ]


def main() -> int:
    """Exit status 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--third", type=int, metavar="N", help="only a third of the mutants, N modulo three")
    parser.add_argument("words", nargs="*", help="names, rows, tests or changed files; all without")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended, and copies are removed
    begun_s = time.monotonic()
    mutants = chosen(all_mutants(), arguments.words)
    if arguments.third is not None:
        mutants = third(mutants, arguments.third)
    survived: list[str] = []
    with runner() as runs:
        for done, (mutant, problem, took_s) in enumerate(check(runs, mutants, known_green()), 1):
            told = f"SURVIVED {mutant.name}: {problem}" if problem else f"caught   {mutant.name}"
            print(f"{done:4d}/{len(mutants)} {took_s:5.1f} s  {told}", flush=True)
            if problem:
                survived.append(told)
    took_s = time.monotonic() - begun_s
    print(*survived, sep="\n", end="\n" if survived else "")  # once more, where whoever reads only the end sees them
    caught = len(mutants) - len(survived)
    print(f"{caught} of {len(mutants)} mutants caught in {took_s // 60:.0f} min {took_s % 60:.0f} s")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
