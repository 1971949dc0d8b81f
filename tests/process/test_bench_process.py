"""`nyala bench` as typed, on little work: what a program reads of it, and what is left behind."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nyala.infra.bench.report import metric_of
from tests.harness.stack import Stack

pytestmark = pytest.mark.process
ROWS, WRITES = 2000, 100


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    """The JSON of one benchmark that ended well."""
    command = [str(Path(sys.executable).with_name("nyala")), "bench", *arguments, "--rounds", "1", "--json"]
    environment = os.environ | {"TMPDIR": str(folder)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def figures_of(told: dict[str, Any], name: str) -> dict[str, float]:
    """The figures of the only round of the only benchmark, of which only elections may be told."""
    assert told["failure"] == "" and told["machine"] and told["options"]["rounds"] == 1
    (outcome,) = told["benches"]
    assert (outcome["name"], list(outcome["sides"])) == (name, ["nyala"])
    elected = outcome["sides"]["nyala"]["rounds"][0].get("load_elections")
    assert all("elections while" in text for text in outcome["notes"]) and len(outcome["notes"]) == bool(elected)
    (figures,) = outcome["sides"]["nyala"]["rounds"]
    digest = outcome["sides"]["nyala"]["summary"]
    assert digest == {k: {"median": v, "min": v, "max": v, "rounds": 1.0} for k, v in figures.items()}
    assert all(math.isfinite(v) and metric_of(k).unit for k, v in figures.items()), "each is named for its readers"
    return dict(figures)


def test_bench_of_little_work_counts_its_rows_and_tells_a_program(stack: Stack, tmp_path: Path) -> None:
    """Goal: figures of work that was done, and nothing left of it. Method: rows loaded into a running cluster and
    scanned, one-row writes to a stack of its own; a benchmark ends well only if each table holds what was written.
    Each figure is there and not zero; no table and no folder stays."""
    masters = ("--masters", stack.supervisor.masters)
    loaded = figures_of(bench(tmp_path, "load", *masters, "--rows", str(ROWS)), "load")
    scanned = figures_of(bench(tmp_path, "scan", *masters, "--rows", str(ROWS)), "scan")
    wrote = figures_of(bench(tmp_path, "write", "--local", "--writes", str(WRITES)), "write")
    assert min(loaded[name] for name in ("bulk_insert_rows_per_s", "random_upsert_rows_per_s")) > 0
    assert scanned["scan_rows_per_s"] > 0
    assert wrote["single_write_16_clients_per_s"] > 0
    assert 0 < wrote["single_write_p50_ms"] <= wrote["single_write_p99_ms"]
    print(loaded, scanned, wrote)
    assert stack.client.list_tables() == [] and list(tmp_path.iterdir()) == []
