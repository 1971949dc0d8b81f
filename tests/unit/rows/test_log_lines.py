"""Lines of logs, and times as people read them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest

from nyala.replica.types import MAX_HYBRID_TIME, hybrid_from_us, utc_text

LINE = re.compile(r"^2001-09-09T01:46:40\.125Z W (nyala\.x )?hello 7$", re.MULTILINE)


@pytest.mark.parametrize("names", [False, True])
def test_log_lines_have_day_and_time_in_utc(names: bool) -> None:
    """IN-71. Goal: log lines have day and time in UTC, so logs of several machines can be compared. Method: a process
    far from Greenwich logs a record of a known second."""
    code = (
        "import logging; from nyala.replica.types.logs import log_to_stderr\n"
        f"log_to_stderr(logging.INFO, names={names})\n"
        "record = logging.LogRecord('nyala.x', logging.WARNING, '', 0, 'hello %d', (7,), None)\n"
        "record.created, record.msecs = 1_000_000_000.125, 125.0\n"
        "logging.getLogger().handle(record)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TZ": "Asia/Kathmandu"}, capture_output=True, text=True
    )
    found = LINE.search(done.stderr)
    assert found and bool(found[1]) == names, done.stderr


@pytest.mark.parametrize(
    "module", ["replica/server/process.py", "replica/master/__main__.py", "infra/local/__main__.py", "jobs/ingest.py",
               "jobs/decisions.py", "pipeline/plan_rounds.py", "jobs/verify.py"]
)  # fmt: skip
def test_every_process_logs_in_that_form(module: str) -> None:
    """IN-71. Goal: all processes use one log format. Method: each main calls one module for
    that, and none configures."""
    from tests.tidy.test_layers import ROOT

    text = (ROOT / module).read_text()
    assert re.search(r"^ +(log_to_stderr|begin_to_log)\(", text, re.MULTILINE) and "basicConfig" not in text


def test_hybrid_time_is_printed_as_day_and_time() -> None:
    """IN-71. Goal: hybrid times are printed as day and time. Method: known moments, and the last one that there is."""
    assert utc_text(hybrid_from_us(1_000_000_000_250_000) | 7) == "2001-09-09T01:46:40.250000Z"
    assert utc_text(0) == "1970-01-01T00:00:00.000000Z"
    assert utc_text(MAX_HYBRID_TIME) == "2041-05-10T11:56:53.685247Z"
    assert utc_text(hybrid_from_us(int(time.time() * 1e6))).startswith("2")
