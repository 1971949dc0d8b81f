"""Generated mutants: `python -m tests.mutants.generated [ROOM or FILE …]`.

Every usual small change of a function of the named folders (those in `FINISHED` without a name) is run with those tests
that run the changed line, the quickest first, until one is red. A survivor is printed as file, function, the lines
before and after. It needs a test, simpler code, or a row in `equivalent.py`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.forks import QUIETLY, Forks, Seen, quick
from tests.mutants.mutant import ROOT, source_of
from tests.mutants.operators import Change, changes_of

NEAR: Mapping[str, tuple[str, ...]] = {
    "replica/consensus_metadata/": (
        "unit/consensus_metadata",
        "unit/tablet_copy",
        "unit/server/test_server_file_check.py",
        "unit/tools/test_forced_config.py",
        "unit/tools/test_recover_offline.py",
        "unit/raft/test_raft_forced_config.py",
    ),
    "replica/policy/": ("unit/policy",),
    "replica/raft/": ("unit/raft", "paper", "raft_scripts"),
    "replica/raft/message_checks.py": (
        "unit/raft",
        "unit/transport/test_transport_forged_messages.py",
        "unit/transport/test_transport_senders.py",
    ),
    "replica/wal/": ("unit/wal", "unit/raft_driver", "formats"),
    "replica/tablet_copy/": ("unit/tablet_copy", "unit/server"),
    "replica/tablet/": ("unit/tablet", "unit/raft_driver", "formats"),
    "replica/tablet/block.py": ("unit/tablet/test_tablet_block.py",),
    "replica/tablet/block_file.py": (
        "unit/tablet/test_tablet_block_file.py",
        "unit/tablet/test_tablet_contents.py",
        "unit/tablet/test_tablet_crash.py",
        "unit/tablet/test_tablet_rot.py",
        "unit/tablet/test_tablet_sweep.py",
        "unit/tablet/test_tablet_want.py",
    ),
    "replica/tablet/columns.py": ("unit/tablet/test_columns.py",),
    "replica/tablet/combined_writes.py": ("unit/tablet/test_tablet_combined_writes.py",),
    "replica/tablet/contents.py": (
        "unit/tablet/test_tablet_contents.py",
        "unit/tablet/test_tablet_crash.py",
        "unit/tablet/test_tablet_rows.py",
        "unit/tablet/test_tablet_stores.py",
    ),
    "replica/tablet/cuts.py": ("unit/tablet/test_tablet_cuts.py",),
    "replica/tablet/entries.py": ("unit/tablet/test_tablet_entries.py",),
    "replica/tablet/error_runs.py": ("unit/tablet/test_error_runs.py", "unit/tablet/test_ledger_rules.py"),
    "replica/tablet/hash_index.py": ("unit/tablet/test_hash_index.py", "unit/tablet/test_tablet_collisions.py"),
    "replica/tablet/kept.py": ("unit/tablet/test_tablet_kept_bound.py", "unit/tablet/test_tablet_row_bound.py"),
    "replica/tablet/kept_bound.py": ("unit/tablet/test_tablet_kept_bound.py",),
    "replica/tablet/key_ranges.py": ("unit/tablet/test_tablet_key_ranges.py",),
    "replica/tablet/ledger.py": ("unit/tablet/test_ledger_rules.py", "unit/tablet/test_tablet_ledger.py"),
    "replica/tablet/look_up.py": ("unit/tablet/test_tablet_look_up.py",),
    "replica/tablet/maintenance.py": (
        "unit/tablet/test_tablet_contents.py",
        "unit/tablet/test_tablet_crash.py",
        "unit/tablet/test_tablet_maintenance.py",
        "unit/tablet/test_tablet_maps.py",
    ),
    "replica/tablet/memstore.py": (
        "unit/tablet/test_tablet_collisions.py",
        "unit/tablet/test_tablet_memstore.py",
        "unit/tablet/test_tablet_rows.py",
    ),
    "replica/tablet/merge.py": ("unit/tablet/test_tablet_merge.py",),
    "replica/tablet/merge_rule.py": ("unit/tablet/test_tablet_merge_rule.py",),
    "replica/tablet/page_crcs.py": ("unit/tablet/test_page_crcs.py", "unit/tablet/test_tablet_rot.py"),
    "replica/tablet/resolve.py": (
        "model",
        "unit/tablet/test_tablet_collisions.py",
        "unit/tablet/test_tablet_resolve.py",
        "unit/tablet/test_tablet_row_bound.py",
        "unit/tablet/test_tablet_rows.py",
        "unit/tablet/test_tablet_stores.py",
        "unit/tablet/test_tablet_write_checks.py",
    ),
    "replica/tablet/scan.py": (
        "unit/tablet/test_tablet_rot.py",
        "unit/tablet/test_tablet_rows.py",
        "unit/tablet/test_tablet_scan.py",
    ),
    "replica/tablet/source_positions.py": ("unit/tablet/test_tablet_positions.py",),
    "replica/tablet/stores.py": (
        "unit/tablet/test_tablet_collisions.py",
        "unit/tablet/test_tablet_look_up.py",
        "unit/tablet/test_tablet_row_bound.py",
        "unit/tablet/test_tablet_rows.py",
        "unit/tablet/test_tablet_stores.py",
    ),
    "replica/tablet/superblock.py": (
        "formats",
        "unit/tablet/test_tablet_rows.py",
        "unit/tablet/test_tablet_superblock.py",
        "unit/tablet_copy/test_copy_deletion.py",
        "unit/tablet_copy/test_copy_quarantine.py",
        "unit/tablet_copy/test_copy_witness.py",
    ),
    "replica/tablet/tablet.py": (
        "unit/tablet/test_tablet_changes.py",
        "unit/tablet/test_tablet_contents.py",
        "unit/tablet/test_tablet_rows.py",
        "unit/tablet/test_tablet_sweep.py",
        "unit/tablet/test_tablet_want.py",
    ),
    "replica/tablet/witness.py": ("unit/tablet_copy/test_copy_witness.py",),
    "replica/tablet/write_checks.py": (
        "unit/tablet/test_tablet_filled.py",
        "unit/tablet/test_tablet_kept_bound.py",
        "unit/tablet/test_tablet_write_checks.py",
    ),
    "replica/tablet_copy/startup.py": ("unit/tablet_copy", "unit/tablet/test_tablet_superblock.py"),
    "replica/tablet_copy/checks.py": ("unit/tablet_copy/test_copy_checks.py",),
    "replica/tablet_copy/source.py": ("unit/tablet_copy",),
    "replica/tablet_copy/target.py": ("unit/tablet_copy",),
    "replica/wal/appender.py": (
        "unit/wal/test_wal_append.py",
        "unit/wal/test_wal_end.py",
        "unit/wal/test_wal_recovery.py",
        "unit/wal/test_wal_segments.py",
        "unit/wal/test_wal_threads.py",
        "unit/wal/test_wal_want.py",
    ),
    "replica/wal/format.py": ("unit/wal/test_wal_format.py",),
    "replica/wal/index.py": ("unit/wal/test_wal_index.py",),
    "replica/wal/recovery.py": ("unit/wal",),
    "replica/wal/retention.py": ("unit/wal/test_wal_retention.py", "unit/wal/test_wal_segments.py"),
    "replica/wal/scan.py": ("unit/wal",),
    "replica/wal/zeros.py": ("unit/wal/test_wal_zeros.py",),
    "pipeline/": ("unit/pipeline", "unit/client", "formats"),
    "pipeline/decode.py": ("unit/pipeline/test_decode_rows.py", "unit/pipeline/test_decode_twin.py"),
    "pipeline/task.py": ("unit/pipeline/test_task_records.py",),
}
"""Where the tests of a folder are, below `tests/`; of a file only those that have a name of their own here."""
FINISHED: tuple[str, ...] = (
    "pipeline/decode.py",
    "pipeline/lease.py",
    "pipeline/task.py",
    "replica/consensus_metadata",
    "replica/policy",
    "replica/raft",
    "replica/tablet",
    "replica/tablet_copy",
    "replica/wal",
)
"""Folders and files without an unexplained survivor."""
HARMLESS = {"jemalloc_bg_thd", "polars-ooc-clea"}
"""Threads that libraries start when they are imported. The allocator frees its locks at a fork; the other one removes
spilled files."""
NICE = 15
"""Others on the machine go first: the limits are of processor time."""
HERE = "(not deep or a_third) and not (process or spark or e2e)"
"""All cases of a table of which `make test` runs a third: what kills a mutant may be any of them."""


def files_of(words: Sequence[str]) -> list[str]:
    """The files that these words name: files themselves, or folders. SystemExit if a word names none."""
    found: list[str] = []
    for word in words:
        path = ROOT / word
        here = [path] if path.is_file() else sorted(path.glob("*.py"))
        if not here or not any(str(here[0].relative_to(ROOT)).startswith(folder) for folder in NEAR):
            raise SystemExit(f"{word!r} is no folder or file of {', '.join(NEAR)}")
        found += [str(each.relative_to(ROOT)) for each in here]
    return sorted(set(found))


def near(files: Sequence[str]) -> list[str]:
    """Folders and files of the tests that may run these files."""
    folders = {max((folder for folder in NEAR if file.startswith(folder)), key=len) for file in files}
    return sorted({f"tests/{test}" for folder in folders for test in NEAR[folder]})


def _threads() -> set[str]:
    """Names of this process's threads but the one that runs this."""
    others = [task for task in Path("/proc/self/task").iterdir() if task.name != str(threading.get_native_id())]
    return {(task / "comm").read_text().strip() for task in others}


class _Session:
    """A plugin of pytest that has mutants run in place of tests."""

    def __init__(self, changes: Sequence[Change], files: Sequence[str], folder: Path, workers: int) -> None:
        self._changes = changes
        self._files = files
        self._folder = folder
        self._workers = workers
        self.caught = 0
        self.survivors: list[Change] = []
        self.wrong: list[str] = []

    def pytest_sessionstart(self) -> None:
        quick()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        forks = Forks(session, self._folder, self._files, self._workers)
        begun_s = time.monotonic()
        if threads := _threads() - HARMLESS:
            told = f"threads {', '.join(sorted(threads))} after the import of the tests: a fork may wait for ever"
            print(told, file=sys.stderr)
        seen = dict(forks.seen())
        self.wrong = [f"{name}: {test.red}" for name, test in seen.items() if test.red]
        for text in self.wrong:
            print(f"red without a mutant: {text}", flush=True)
        took_s = time.monotonic() - begun_s
        print(f"{len(seen)} tests in {took_s:.0f} s without a mutant; {len(self._changes)} mutants", flush=True)
        self._judge(forks, {name: test for name, test in seen.items() if not test.red})
        return True

    def _judge(self, forks: Forks, seen: Mapping[str, Seen]) -> None:
        quickest = sorted(seen, key=lambda name: seen[name].took_s)
        tests = []
        for change in self._changes:
            lines = range(change.first, change.last + 1)
            tests.append(
                {
                    name: seen[name].took_s
                    for name in quickest
                    if not seen[name].lines.get(change.file, frozenset()).isdisjoint(lines)
                }
            )
        run = [
            pos
            for pos, names in enumerate(tests)
            if names and forks.reaches((self._changes[pos].file, self._changes[pos].unit))
        ]
        silent = sorted(set(range(len(tests))) - set(run))
        for pos in silent:
            self._survives(pos, "no test runs it")
        begun_s, ends = time.monotonic(), Counter[str]()
        plans = forks.verdicts([self._changes[pos] for pos in run], [tests[pos] for pos in run])
        for done, (pos, verdict) in enumerate(plans, 1):
            ends["a limit" if verdict.over else "a test" if verdict.by else ""] += 1
            self.caught += bool(verdict.by or verdict.over)
            if not verdict.by and not verdict.over:
                self._survives(run[pos], f"{len(tests[run[pos]])} tests in {verdict.took_s:.1f} s")
            if done % 200 == 0 or done == len(run):
                told = f"{done:5d}/{len(run)} {time.monotonic() - begun_s:5.0f} s  {len(self.survivors)} survivors"
                print(told, file=sys.stderr, flush=True)
        told = f"caught by a test: {ends['a test']}, by a limit of time: {ends['a limit']}"
        print(f"{told}; run by no test: {len(silent)}; survived: {ends['']}", flush=True)

    def _survives(self, pos: int, why: str) -> None:
        change = self._changes[pos]
        self.survivors.append(change)
        where = f"{change.file}:{change.first} {change.function}"
        print(f"SURVIVED {where} ({why})\n  - {change.before}\n  + {change.after}", flush=True)


def main() -> int:
    """Exit status 1 if a mutant survives, or if a test is red without one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, metavar="N", help="only N of them")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--function", default="", help="only those in functions whose name contains this")
    parser.add_argument("--tests", nargs="*", help="paths of tests in place of those near the folders")
    parser.add_argument("words", nargs="*", help="folders or files; all that are finished without")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun_s = time.monotonic()
    os.chdir(ROOT)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    files = files_of(arguments.words or FINISHED)
    equivalent = {row.key for row in EQUIVALENT}
    every = [
        change
        for file in files
        for change in changes_of(file, source_of(file))
        if arguments.function in change.function
    ]
    changes = [change for change in every if change.key not in equivalent]
    print(f"{len(every)} mutants of {len(files)} files, {len(every) - len(changes)} of them equivalent", flush=True)
    if arguments.sample is not None and arguments.sample < len(changes):
        changes = random.Random(arguments.seed).sample(changes, arguments.sample)
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as name:
        sys.pycache_prefix, sys.dont_write_bytecode = f"{name}/compiled", False
        session = _Session(changes, files, Path(name), arguments.workers)
        status = pytest.main([*QUIETLY, "-m", HERE, *(arguments.tests or near(files))], plugins=[session])
    took_s = time.monotonic() - begun_s
    print(f"{session.caught} of {len(changes)} generated mutants caught in {took_s // 60:.0f} min {took_s % 60:.0f} s")
    return 1 if session.survivors or session.wrong or status not in (0, pytest.ExitCode.NO_TESTS_COLLECTED) else 0


if __name__ == "__main__":
    sys.exit(main())
