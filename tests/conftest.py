"""What a terminal, a build service or somebody's shell says of itself is nothing that a test may depend on.

Done before anything of ours is imported: widths and colours are settled at imports, and children inherit the rest.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.earlier_loops import is_news
from tests.harness.green_tests import GreenTests
from tests.harness.suite_times import suite_lines, suite_of
from tests.harness.worker_shares import others_of_thirds, part_of, scheduler

WIDTHS_AND_COLOURS = (
    "COLUMNS", "LINES", "TERMINAL_WIDTH", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PY_COLORS",
    "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "GITHUB_ACTIONS", "TERM",
)  # fmt: skip
CLUSTERS = ("NYALA_MASTERS", "NYALA_KAFKA", "NYALA_DIR", "NYALA_CRASH_POINT", "NYALA_PAUSE_POINT")

REAL = [Path(__file__).parent / name for name in ("process", "e2e")]
LEFT_OUT = "not (process or spark or e2e)"
"""Of `-m`, as the Makefile has it."""

for name in (*WIDTHS_AND_COLOURS, *CLUSTERS):
    os.environ.pop(name, None)
logging.getLogger("asyncio").addFilter(is_news)


# How long it takes to draw examples says something of the machine only. A suite gives the same verdict each time; to
# look for what its examples leave out, name a number of new ones, drawn by chance, for the tests that name none.
EXAMPLES = int(os.environ.get("NYALA_TEST_EXAMPLES", "0"))
settings.register_profile(
    "nyala",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not EXAMPLES,
    max_examples=EXAMPLES or settings.default.max_examples,
    print_blob=True,
)
settings.load_profile("nyala")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--part NUMBER/PARTS`: of the tests that the other options choose, run one part."""
    parser.addoption("--part", help="NUMBER/PARTS: run each PARTS-th test of every file, NUMBER says from which on")


def pytest_configure(config: pytest.Config) -> None:
    """Runs in several processes keep a record of what passed."""
    if config.getoption("numprocesses", None) or hasattr(config, "workeroutput"):
        config.pluginmanager.register(GreenTests(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The folders of the tests with real processes are not read by a run that leaves all of these out: Spark and Kafka
    alone take a fourth of the time of collecting."""
    return True if collection_path in REAL and LEFT_OUT in config.option.markexpr else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark the cases that are deep, before `-m` is looked at; then keep the part that `--part` names, of what `-m` and
    `-k` have left."""
    for item in others_of_thirds(items):
        item.add_marker("deep")
    yield
    if (part := config.getoption("part")) is not None:
        number, parts = map(int, part.split("/"))
        chosen = part_of([item.nodeid for item in items], number, parts)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        items[:] = [item for item in items if item.nodeid in chosen]


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay until the end, so no garbage collection need visit them. Others that stay are
    what tests keep for each other, such as the parsed code: full collections, which visit these, are seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 100)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup`, tests that share something run in one process."""
    return scheduler(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Time per suite, over all processes."""
    reports = [r for kind in ("passed", "failed", "error", "") for r in terminalreporter.stats.get(kind, ())]
    took = [(r.nodeid, r.duration) for r in reports if isinstance(r, pytest.TestReport)]
    if len({suite_of(nodeid) for nodeid, _ in took}) > 1 or len(took) > 100:
        terminalreporter.section("time per suite")
        for line in suite_lines(took):
            terminalreporter.write_line(line)
