"""Figures of benchmark rounds: medians with spread, rounding for readers, what is parsed from tools and jobs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.console import Console

from nyala.infra.bench import checksums, idle, logs, streams
from nyala.infra.bench.client import upserted_rows
from nyala.infra.bench.copying import ROW_BYTES, TABLETS, rows_for
from nyala.infra.bench.failover import time_without_writes
from nyala.infra.bench.foreground import Write, p99_ms
from nyala.infra.bench.machine import machine, machine_line
from nyala.infra.bench.meter import Meter, WalWatch
from nyala.infra.bench.options import BenchmarkError
from nyala.infra.bench.peers.kudu import KuduMissing, binaries, tablets_listed
from nyala.infra.bench.pipeline import Batches, kafka_pid
from nyala.infra.bench.report import (
    METRICS,
    Figures,
    elections_told,
    interleave,
    metric_of,
    ratios,
    show,
    summary,
    text_of,
    verdicts,
)
from nyala.infra.bench.sides import terms_of
from nyala.infra.bench.suite import BenchOptions, Outcome, run
from nyala.infra.bench.work import SCHEMA, single_figures
from nyala.infra.local import Child, ChildState, StackOptions, Supervisor
from nyala.replica.rpc import pb
from nyala.replica.types import limits
from tests.harness.cluster import wait_until

LISTING = """\
bench_failover
  T 0b3ba5e3e2bb4dd6a6cc1ce1b7a63d1f
    V 5d2b5e1b2fd44e3f9a4f6e2d1c0b9a88 127.0.0.1:17152
    L 6e2b5e1b2fd44e3f9a4f6e2d1c0b9a88 127.0.0.1:17151
    V 7f2b5e1b2fd44e3f9a4f6e2d1c0b9a88 127.0.0.1:17153

other
  T 1c3ba5e3e2bb4dd6a6cc1ce1b7a63d1f
    L 5d2b5e1b2fd44e3f9a4f6e2d1c0b9a88 127.0.0.1:17152

"""


def test_summary_of_rounds_is_median_with_spread() -> None:
    """Goal: a slow round does not move the figure. Method: an outlier, and a figure that one round lacks."""
    found = summary([{"a": 1.0, "b": 5.0}, {"a": 100.0}, {"a": 3.0, "b": 7.0}])
    assert found["a"] == {"median": 3.0, "min": 1.0, "max": 100.0, "rounds": 3.0}
    assert found["b"] == {"median": 6.0, "min": 5.0, "max": 7.0, "rounds": 2.0}


def test_summary_of_no_rounds_is_empty() -> None:
    """Goal: without measurements there is no figure. Method: nothing was measured."""
    assert summary([]) == {}


@pytest.mark.parametrize(
    ("value", "text"), [(0.8249, "0.82"), (12.345, "12.35"), (123.4, "123"), (1234567.8, "1,234,568"), (-0.05, "-0.05")]
)
def test_text_of_figure_has_the_digits_that_readers_need(value: float, text: str) -> None:
    """Goal: figures are printed with as many digits as they are exact to. Method: figures of each size."""
    assert text_of(value) == text


def test_interleave_two_sides_takes_turns() -> None:
    """Goal: two sides are measured in turns, so a machine that slows down favours neither. Method: note the order in
    which two sides are measured."""
    order: list[str] = []

    def side(name: str) -> Callable[[int], Figures]:
        def measure(number: int) -> Figures:
            order.append(f"{name}{number}")
            return {"x": float(number)}

        return measure

    found = interleave(2, [("a", side("a")), ("b", side("b"))])
    assert order == ["a0", "b0", "a1", "b1"]
    assert found == {"a": [{"x": 0.0}, {"x": 1.0}], "b": [{"x": 0.0}, {"x": 1.0}]}


def test_metric_of_process_figure_names_work_and_process() -> None:
    """Goal: figures with built-up names read well. Method: a known one, one server's share, an unknown one."""
    assert metric_of("move_s").more_is_better is False
    share = metric_of("insert_cpu_s_per_million_rows@server-1")
    assert (share.title, share.unit) == ("insert: CPU per million rows of server-1", "s")
    assert metric_of("odd").title == "odd"


def test_show_two_sides_prints_ratio_and_leaves_processes_out() -> None:
    """Goal: the table is what a reader compares. Method: print two sides, one of which lacks a figure."""
    out = io.StringIO()
    ours = [{"scan_rows_per_s": 30.0, "single_write_p50_ms": 1.5, "scan_server_peak_memory_mb@server-1": 9.0}]
    show(Console(file=out, width=150), {"nyala": ours, "kudu": [{"scan_rows_per_s": 60.0}]}, "title")
    text = out.getvalue()
    assert "0.50 ×" in text
    assert "–" in text
    assert "server-1" not in text


def test_tablets_listed_by_kudu_are_those_of_the_table() -> None:
    """Goal: the bench kills a server that has a tablet of its table. Method: a listing of two tables, as the tool
    prints it."""
    found = tablets_listed(LISTING, "bench_failover")
    assert found == {"0b3ba5e3e2bb4dd6a6cc1ce1b7a63d1f": [(False, 2), (True, 1), (False, 3)]}
    assert tablets_listed(LISTING, "none") == {}


def test_kudu_without_maven_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a Kudu that cannot be started is reported in one line. Method: a PATH on which there is nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KuduMissing, match=r"^no Kudu figures: `mvn` is not on the PATH$"):
        binaries(tmp_path / "cache")


def test_failover_counts_every_interruption_after_the_kill() -> None:
    """Goal: all interruptions after the kill are counted. Method: a write every 10 ms, two pauses after the kill, one
    before it."""
    before = [0.0, 0.01, 0.02, 0.52, 0.53, 0.54]
    after = [2.54, 2.55, 3.05, 3.06]
    found = time_without_writes([*before, *after], killed_at=0.545)
    assert found == pytest.approx(2.0 + 0.5 - 2 * 0.01)


def test_failover_without_a_pause_is_zero() -> None:
    """Goal: no figure from nothing. Method: writes that go on, and no writes at all."""
    assert time_without_writes([n / 100 for n in range(100)], killed_at=0.5) == 0.0
    assert time_without_writes([], killed_at=0.5) == 0.0


def test_batches_of_a_job_that_stored_nothing_fail() -> None:
    """Goal: a job that did no work gives no rate. Method: events of other kinds only; then a dead letter."""
    batches = Batches()
    batches.note({"event": "message", "text": "hello"})
    with pytest.raises(BenchmarkError, match="without a micro-batch"):
        batches.figures(10, 5, 1.0)
    batches.note({"event": "micro_batch", "duration_s": 2.0, "dead_letters": 3})
    with pytest.raises(BenchmarkError, match="3 records became dead letters"):
        batches.figures(10, 5, 1.0)


def test_batches_begin_before_the_first_event() -> None:
    """Goal: the rate without start-up counts all micro-batches. Method: an event that says it lasted two seconds."""
    batches = Batches()
    batches.note({"event": "query_starts"})
    batches.note({"event": "micro_batch", "duration_s": 2.0})
    batches.note({"event": "query_ended"})
    figures = batches.figures(10, 5, whole_s=4.0)
    assert (figures["pipeline_rows"], figures["pipeline_rows_per_batch_max"]) == (10, 5)
    assert figures["pipeline_rows_per_s"] == 2.5
    assert figures["pipeline_batches_rows_per_s"] == pytest.approx(5.0, rel=0.01)


def test_pipeline_rate_leads_with_the_query_from_start_to_end() -> None:
    """Goal: the first rate is of `query.start()` to its end, on both sides. Method: events at known times; a query that
    was not said to begin, or not to end, gives no rate; the table shows this rate before the others."""
    batches = Batches()
    batches.note({"event": "micro_batch", "duration_s": 2.0})
    with pytest.raises(BenchmarkError, match="when its query began"):
        batches.figures(10, 5, 4.0)
    batches.note({"event": "query_starts"})
    with pytest.raises(BenchmarkError, match="when its query began"):
        batches.figures(10, 5, 4.0)
    batches.note({"event": "query_ended"})
    batches.query_began, batches.query_ended = batches.ended - 3.0, batches.ended + 1.0
    assert batches.figures(10, 5, 8.0)["pipeline_query_rows_per_s"] == pytest.approx(2.5)
    shown = [m.name for m in METRICS if m.name.startswith("pipeline_") and m.unit == "rows/s"]
    assert shown == ["pipeline_query_rows_per_s", "pipeline_rows_per_s", "pipeline_batches_rows_per_s"]


WRAPPER = """
import os, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(sys.argv[2])
os.read(int(sys.argv[3]), 1)
"""


def test_broker_that_is_metered_is_the_jvm_and_not_its_wrapper(tmp_path: Path) -> None:
    """Goal: the broker's CPU and memory are Kafka's. Method: a child that says of which process it is the wrapper, as
    the broker's does; there is none to be metered before it serves."""

    def command(child: Child, parent_fd: int) -> list[str]:
        said = json.dumps({"address": "127.0.0.1:1", "pid": os.getpid()})
        return [sys.executable, "-c", WRAPPER, str(child.ready_file), said, str(parent_fd)]

    stack = Supervisor(tmp_path, StackOptions())
    child = stack.children["kafka"] = Child("kafka", command, tmp_path / "kafka.ready", tmp_path / "kafka.log")
    watched, kept = os.pipe()
    try:
        assert kafka_pid(stack) == {}
        child.start(watched)
        wait_until(lambda: child.poll(watched) and child.state is ChildState.READY, "the child is ready", 600.0)
        assert child.pid is not None
        assert kafka_pid(stack) == {"kafka": os.getpid()} != {"kafka": child.pid}
    finally:
        stack.stop()
        os.close(watched)
        os.close(kept)


def test_one_row_writes_are_told_as_elapsed_time_by_rows() -> None:
    """Goal: ours is counted as Kudu's tool counts: start and row making included. Method: 100 writes that took less in
    all than the clock says; the percentiles are of the writes."""
    result = {"seconds": 0.5, "writes": 100, "latencies": [n / 1e5 for n in range(100)]}
    assert single_figures(result, 1, 2) == {"single_write_ms": 5.0}
    assert single_figures(result, 1, 1) == {
        "single_write_in_turn_ms": 5.0,
        "single_write_p50_ms": pytest.approx(0.5),
        "single_write_p99_ms": pytest.approx(0.99),
    }
    assert single_figures(result, 16, 2) == {"single_write_16_clients_per_s": 200.0}
    assert single_figures(result, 16, 1) == {"single_write_16_clients_in_turn_per_s": 200.0}


def test_elections_of_a_round_are_told() -> None:
    """Goal: the report tells which rounds had an election. Method: terms of two tablets before and after one election,
    which not every replica has heard of; rounds with elections and without."""
    before = [pb.ReplicaStatus(tablet_id=t, term=1) for t in "aabb"]
    after = [pb.ReplicaStatus(tablet_id=t, term=n) for t, n in (("a", 1), ("a", 2), ("b", 1), ("b", 1))]
    assert terms_of(after) - terms_of(before) == 1
    told = elections_told({"nyala": [{"load_elections": 0.0}, {"load_elections": 2.0}], "kudu": [{"x": 1.0}]})
    assert told == ["nyala, round 2: 2 elections while rows came"]


def test_idle_figures_are_judged_by_their_worst_round() -> None:
    """Goal: idle figures pass or fail by their worst round. Method: a figure over its limit in one of two rounds, one
    at its limit; figures without limits are not judged."""
    rounds = [{"idle_cpu_percent": 9.0, "idle_cold_start_s": 20.0}, {"idle_cpu_percent": 10.5, "x": 1.0}]
    found = verdicts(rounds)
    assert found["idle_cpu_percent"] == {"limit": 10.0, "worst": 10.5, "pass": False}
    assert found["idle_cold_start_s"]["pass"] is True and set(found) == {"idle_cpu_percent", "idle_cold_start_s"}
    assert Outcome("idle", {"nyala": rounds}).as_json()["sides"]["nyala"]["limits"] == found
    out = io.StringIO()
    show(Console(file=out, width=150), {"nyala": rounds}, "title")
    assert "10.00: FAIL" in out.getvalue() and "20.00: pass" in out.getvalue()


def test_ratios_are_judged_by_the_way_that_is_better() -> None:
    """Goal: a ratio to a peer is judged by whether more or less is better. Method: more is better, less is better, at
    the goal and off it; a figure without a goal, one that the peer lacks, and a peer's 0."""
    ours = [{"bulk_insert_rows_per_s": 3.0, "failover_s": 1.1, "single_write_ms": 2.0, "move_s": 1.0, "copy_mb": 1.0}]
    theirs = [
        {"bulk_insert_rows_per_s": 2.0, "failover_s": 1.0, "single_write_ms": 1.0, "move_s": 2.0, "download_s": 0.0}
    ]
    found = ratios(ours, theirs)
    assert {name: (one.goal, one.reached) for name, one in found.items()} == {
        "bulk_insert_rows_per_s": (1.5, True),
        "failover_s": (1.0, False),
        "single_write_ms": (2.0, True),
        "move_s": (None, None),
    }
    assert found["move_s"].value == 0.5
    told = Outcome("x", {"nyala": ours, "kudu": theirs}).as_json()["ratios"]
    assert told["failover_s"] == {"value": 1.1, "goal": 1.0, "reached": False}
    out = io.StringIO()
    show(Console(file=out, width=200), {"nyala": ours, "kudu": theirs}, "title")
    assert "1.50 × (goal 1.5: pass)" in out.getvalue() and "1.10 × (goal 1: FAIL)" in out.getvalue()


def test_upserted_rows_have_values_as_random_as_their_keys() -> None:
    """Goal: what is upserted is like what Kudu's tool upserts. Method: rows of given keys; strings of both lengths."""
    keys = np.array([7, (1 << 62) - 1, 1 << 40])
    rows = upserted_rows(keys, 32)
    assert rows["int_val"].to_pylist() == [7, 0x7FFFFFFF, 0]
    assert rows["string_val"].to_pylist() == [f"{key}.".ljust(32, "x") for key in keys.tolist()]
    assert upserted_rows(keys, 4)["string_val"].to_pylist() == ["7.xx", "4611", "1099"]


def test_rows_for_copy_fill_every_tablet_and_are_even() -> None:
    """Goal: at least the megabytes asked for, two clients with equal shares. Method: several sizes."""
    for mb in (1, 7, 256):
        assert rows_for(mb) * ROW_BYTES >= mb * 1_000_000 * TABLETS
        assert rows_for(mb) % 2 == 0


def test_meter_of_a_process_counts_from_its_construction() -> None:
    """Goal: a round's CPU is its own. Method: measure this process over some work, as if it were a server."""
    meter = Meter({"server-1": os.getpid(), "master-1": os.getpid()})
    sum(n * n for n in range(3_000_000))
    figures = meter.figures("work", 1_000_000)
    assert 0.02 < figures["work_cpu_s_per_million_rows"] < 30
    # The same process, which may have worked between two looks at it, at the beginning as well as at the end.
    assert 0.02 < figures["work_cpu_s_per_million_rows@master-1"] < 30
    assert figures["work_server_peak_memory_mb@server-1"] > 10


def test_meter_counts_the_clients_that_ran_meanwhile() -> None:
    """Goal: the meter includes the CPU time of the clients. Method: a process that computes, started and ended under
    the meter."""
    meter = Meter({"server-1": os.getpid()})
    subprocess.run([sys.executable, "-c", "sum(n * n for n in range(2_000_000))"], check=True)
    assert meter.figures("work", 1_000_000)["work_cpu_s_per_million_rows@clients"] > 0.02


@pytest.mark.deep
def test_meter_keeps_what_a_process_had_used_before_it_was_killed() -> None:
    """Goal: a round with a kill has everybody's figures. Method: a process that computes, is looked at and killed,
    before and after somebody has waited for it; this one, which has done nothing, is the client, and the killed one
    that has ended is not."""
    code = "sum(n * n for n in range(5_000_000)); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        meter = Meter({"server-1": server.pid, "server-2": os.getpid(), "clients": os.getpid()})
        assert server.stdout is not None and server.stdout.readline()
        meter.look()
        server.kill()
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        meter.look()
        server.wait()
    figures = meter.figures("work", 1_000_000)
    assert figures["work_cpu_s_per_million_rows@server-1"] > 0.02
    assert figures["work_server_peak_memory_mb@server-1"] > 1
    both = sum(figures[f"work_cpu_s_per_million_rows@server-{n}"] for n in (1, 2))
    assert figures["work_cpu_s_per_million_rows"] == pytest.approx(both)
    assert figures["work_cpu_s_per_million_rows@clients"] < figures["work_cpu_s_per_million_rows@server-1"]


def test_meter_without_processes_says_nothing() -> None:
    """Goal: a cluster elsewhere has no process figures. Method: no processes, and one that is gone."""
    assert Meter({}).figures("work", 10) == {}
    assert Meter({"server-1": 2**22 + 1}).figures("work", 10) == {}


def test_wal_watch_adds_up_segments_that_were_removed(tmp_path: Path) -> None:
    """Goal: collected segments count as written. Method: a removed segment, one that stays, another file."""
    folder = tmp_path / "wals" / "t1"
    folder.mkdir(parents=True)
    for name, size in (("wal-000000001", 70), ("wal-000000002", 50), ("next", 900)):
        (folder / name).write_bytes(b"x" * size)
    watch = WalWatch([tmp_path], ["t1", "t2"])
    watch.look()
    (folder / "wal-000000001").unlink()
    (folder / "next").unlink()
    assert watch.removed_bytes() == 70


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"rows": 1}, {"writes": 1}, {"mb": 0}, {"peer": "other"}])
def test_options_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    """Goal: an option out of its range is refused before anything starts. Method: each option out of its range."""
    with pytest.raises(ValueError, match=r"asked for|too little|no peer"):
        BenchOptions(**wrong)  # type: ignore[arg-type]


def test_idle_tablets_are_spread_over_tables_that_can_hold_them() -> None:
    """CN-03: the limit on tablets of a server can be measured as it stands. Method: numbers around a table's bound."""
    for tablets in (1, 1024, 1025, 1500, 4096):
        tables = idle.tables_of(tablets)
        assert sum(tables) == tablets and max(tables) <= 1024 and max(tables) - min(tables) <= 1


def test_bench_that_kills_servers_refuses_a_running_cluster() -> None:
    """Goal: a bench that kills servers refuses an existing cluster. Method: name a cluster for each such benchmark."""
    for name in ("pipeline", "copy", "failover"):
        with pytest.raises(BenchmarkError, match="--local"):
            run(name, BenchOptions(masters="127.0.0.1:1"), lambda _: None)


def test_outcome_as_json_keeps_rounds_and_notes() -> None:
    """Goal: programs get every round. Method: one side, one note."""
    found = Outcome("scan", {"nyala": [{"x": 2.0}]}, ["no Kudu figures: no mvn"]).as_json()
    assert found["sides"]["nyala"]["rounds"] == [{"x": 2.0}]
    assert found["sides"]["nyala"]["summary"]["x"]["median"] == 2.0
    assert found["notes"] == ["no Kudu figures: no mvn"]


def test_machine_line_names_what_was_measured_on() -> None:
    """Goal: each report names the machine. Method: this machine's facts in a line."""
    facts = machine()
    line = machine_line(facts)
    assert facts["cores"] >= 1
    assert facts["python"] in line
    assert "nyala" in facts["versions"]


def test_p99_of_a_window_leaves_other_writes_out() -> None:
    """Goal: the 99th percentile of a window counts only the writes in it. Method: slow writes outside of the window,
    one slow one in a hundred inside; a window of too few writes is refused."""
    writes = [Write(9.0, 9.0), *(Write(10 + n / 100, 0.002) for n in range(199)), Write(11.995, 0.5), Write(12.0, 9.0)]
    assert p99_ms(writes, 10.0, 12.0) == 2.0
    slow = [w._replace(took_s=0.03) if n % 50 == 0 else w for n, w in enumerate(writes)]
    assert p99_ms(slow, 10.0, 12.0) == 30.0
    assert p99_ms([*writes[1:30], Write(10.295, 0.7)], 10.0, 10.3) == 700.0, "the slowest of few"
    with pytest.raises(BenchmarkError, match="too few"):
        p99_ms(writes, 10.0, 10.15)


@pytest.mark.deep
def test_logs_that_share_threads_are_measured_beside_logs_with_a_thread_each() -> None:
    """IN-04. Goal: what shared threads cost and save is shown in one run. Method: one short round of each side: every
    figure has a title and a unit, and the idle logs have 68 threads together, or two each."""
    ours, each = (logs.logs_round(40, 0.02, shared=shared) for shared in (True, False))
    assert set(ours) == set(each) and all(metric_of(name).title for name in ours)
    rates = [value for found in (ours, each) for name, value in found.items() if metric_of(name).unit == "blocks/s"]
    assert len(rates) == 12 and min(rates) > 0
    assert (ours["logs_idle_threads"], each["logs_idle_threads"]) == (68, 80)


@pytest.mark.deep
def test_checksums_are_measured_beside_a_read_of_the_same_bytes() -> None:
    """IN-04. Goal: the cost of a checksum by the length of values is shown beside the bare limit, in one run.
    Method: one round over little: every kind of values has its figure on both sides with a title and a unit, and
    the values have the lengths that they are named by, also in 300 columns. A peer is no part of it, and no cluster."""
    outcome = run("checksum", BenchOptions(rounds=1, mb=1), lambda _: None)
    (ours,), (read,) = outcome.results["nyala"], outcome.results[checksums.MEMORY_READ]
    long = {f"checksum_{name}_mb_per_s" for name in checksums.VALUE_BYTES}
    short = {
        f"checksum_{name}_cells_per_s" for name in (*checksums.SHORT_BYTES, "int64", "wide_int64", "wide_1_to_63b")
    }
    assert set(ours) == set(read) == long | short
    assert all(metric_of(name).unit == ("MB/s" if name in long else "cells/s") for name in ours)
    assert min(*ours.values(), *read.values()) > 0 and outcome.notes == []
    for least, most in (checksums.VALUE_BYTES | checksums.SHORT_BYTES).values():
        values = checksums.values_of(least, most, 3)
        lengths = set(pc.binary_length(values).to_pylist())
        assert {min(lengths), max(lengths)} == {least, most} and len(pc.unique(values)) >= 0.9 * len(values)
        assert 2_000_000 < values.buffers()[2].size <= 3_100_000
    numbers = checksums.numbers_of(3)
    batches = checksums.batches_of(numbers, checksums.WIDE_COLUMNS)
    assert {batch.num_columns for batch in batches} == {300} and {batch.num_rows for batch in batches} == {436}
    assert len(pc.unique(pa.concat_arrays([c for batch in batches for c in batch.columns]))) == len(batches) * 300 * 436


@pytest.mark.deep
def test_bare_streams_have_the_rows_of_a_scan_in_batches_of_a_scan() -> None:
    """Goal: the streams that a scan is compared with carry the same rows, in batches as large as a scan's. Method: the
    batches of 50,000 rows, and the rate of each kind of stream of a few of them between real processes."""
    batches = streams.scan_batches(50_000)
    assert pa.Table.from_batches(batches).column("key").to_pylist() == list(range(50_000))
    assert [f.type for f in batches[0].schema] == [f.type for f in SCHEMA.arrow]
    assert limits.SCAN_BATCH_BYTES // 2 < batches[0].nbytes <= limits.SCAN_BATCH_BYTES and len(batches) > 1
    rates = streams.streams_round(2000, 0.1)
    assert set(rates) == {f"bare_{kind}_rows_per_s" for kind in streams.kinds()} and min(rates.values()) > 0
