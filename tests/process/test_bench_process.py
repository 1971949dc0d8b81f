"""`nyala bench` as typed, with little work: what a program reads from it, and what it leaves behind."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nyala.infra.bench.masters_at_scale import masters_at_scale_round
from nyala.infra.bench.options import BenchmarkError, ScaleOptions
from nyala.infra.bench.players import Players
from nyala.infra.bench.report import metric_of
from tests.harness.stack import Stack

pytestmark = [pytest.mark.process, pytest.mark.deep]
ROWS, WRITES, MB = 2000, 100, 64


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the JSON of one benchmark that ended well."""
    command = [str(Path(sys.executable).with_name("nyala")), "bench", *arguments, "--rounds", "1", "--json"]
    environment = os.environ | {"TMPDIR": str(folder)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def figures_of(told: dict[str, Any], name: str) -> dict[str, float]:
    """Return the figures of the only round of the only benchmark, which may report nothing but elections besides."""
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
    """Goal: the figures are of work that was done, and nothing of it is left. Method: rows loaded into a running
    cluster and scanned, one-row writes to a stack of its own; a benchmark ends well only if each table holds what was
    written. Each figure is there and not zero; no table and no folder stays."""
    masters = ("--masters", stack.supervisor.masters)
    loaded = figures_of(bench(tmp_path, "load", *masters, "--rows", str(ROWS)), "load")
    scanned = figures_of(bench(tmp_path, "scan", *masters, "--rows", str(ROWS), "--seconds", "0.2"), "scan")
    got = figures_of(bench(tmp_path, "get", *masters, "--rows", str(ROWS), "--reads", "100"), "get")
    wrote = figures_of(bench(tmp_path, "write", "--local", "--writes", str(WRITES)), "write")
    assert min(loaded[name] for name in ("bulk_insert_rows_per_s", "random_upsert_rows_per_s")) > 0
    assert scanned["scan_rows_per_s"] > 0 and got["get_many_keys_per_s"] > 0 and got["key_range_ratio"] > 0
    bare = {"bare_ipc_rows_per_s", "scan_to_ipc_ratio", "bare_flight_rows_per_s", "scan_to_flight_ratio"}
    assert min(scanned[name] for name in bare | {"scan_repeated_rows_per_s"}) > 0
    assert 0 < got["get_p50_ms"] <= got["get_p99_ms"] and got["get_16_clients_per_s"] > 0
    names = ("single_write_ms", "single_write_16_clients_per_s", "single_write_16_clients_in_turn_per_s")
    assert min(wrote[name] for name in (*names, "single_write_in_turn_ms")) > 0
    assert 0 < wrote["single_write_p50_ms"] <= wrote["single_write_p99_ms"]
    print(loaded, scanned, wrote)
    assert stack.client.list_tables() == [] and list(tmp_path.iterdir()) == []


def test_bench_of_copies_and_of_failovers_measures_what_it_adds_and_kills(tmp_path: Path) -> None:
    """Goal: the figures are of a replica that moved and of a leader that died, and of what each process used for it.
    Method: one round of each, on a stack of its own. All figures are there and agree with each other; no folder
    stays."""
    copied = figures_of(bench(tmp_path, "copy", "--local", "--mb", str(MB)), "copy")
    print(copied)
    cpu, peak = "copy_cpu_s_per_million_rows", "copy_server_peak_memory_mb"
    servers = [f"server-{n}" for n in (1, 2, 3, 4)]
    of_each = {f"{name}@{process}" for name in (cpu, peak) for process in ("master-1", *servers)}
    assert set(copied) - {f"{cpu}@clients"} == {
        *of_each, cpu, peak, "copy_mb", "download_s", "copy_mb_per_s", "move_s", "copy_target_memory_mb",
        "copy_source_memory_mb", "copy_beside_writes_cap_mb_per_s", "copy_beside_writes_mb_per_s",
        "copy_beside_writes_cap_ratio", "move_beside_writes_s", "write_alone_p99_ms", "write_beside_copy_p99_ms",
        "write_beside_copy_p99_ratio",
    }  # fmt: skip
    # Memory may grow by no more than what was free before, and who has no part in it may do nothing that a clock of
    # 10 ms sees.
    little = {"copy_target_memory_mb", "copy_source_memory_mb", *(name for name in copied if f"{cpu}@" in name)}
    assert min(v for k, v in copied.items() if k not in little) > 0
    assert copied[cpu] == pytest.approx(sum(copied[f"{cpu}@{each}"] for each in servers))
    assert copied["copy_mb"] >= MB, "all rows of one tablet, in blocks and in what the log still holds"
    assert copied["copy_mb_per_s"] * copied["download_s"] == pytest.approx(copied["copy_mb"])
    assert copied["download_s"] <= copied["move_s"], "a move is more than its download"
    p99s = copied["write_alone_p99_ms"], copied["write_beside_copy_p99_ms"]
    assert copied["write_beside_copy_p99_ratio"] == pytest.approx(p99s[1] / p99s[0])

    failed_over = figures_of(bench(tmp_path, "failover", "--local"), "failover")
    print(failed_over)
    cpu, peak = "failover_cpu_s_per_million_rows", "failover_server_peak_memory_mb"
    servers = servers[:3]
    of_each = {f"{name}@{process}" for name in (cpu, peak) for process in ("master-1", "clients", *servers)}
    assert set(failed_over) == {"failover_s", "failover_wal_bytes_per_row", cpu, peak, *of_each}
    idle = f"{cpu}@master-1"  # which may have done nothing that a clock of 10 ms sees
    assert min(v for k, v in failed_over.items() if k != idle) > 0, "the victim's figures are there too"
    assert failed_over[cpu] == pytest.approx(sum(failed_over[f"{cpu}@{each}"] for each in servers))
    assert failed_over[peak] == max(failed_over[f"{peak}@{each}"] for each in servers)
    # A row has 44 bytes, and nothing that is written for it alone takes more than a few blocks.
    assert 44 < failed_over["failover_wal_bytes_per_row"] < 16_384
    assert list(tmp_path.iterdir()) == []


def test_bench_of_masters_measures_what_they_were_away_and_rows_go_on(tmp_path: Path) -> None:
    """Goal: MF-23: the time in which no master answers while one becomes three is recorded, beside a restart, a
    failover and a replacement; rows are written all the time. Method: one round, which ends well only if each table
    holds what was written. Each figure is there, and no row waited as long as the masters were away."""
    found = figures_of(bench(tmp_path, "masters", "--local"), "masters")
    print(found)
    operations = {
        f"masters_{name}_s" for name in ("restart", "one_to_three", "leader_killed", "replaced", "writes_pause")
    }
    assert set(found) == {*operations, "masters_one_to_three_ratio"} and min(found.values()) > 0
    assert found["masters_one_to_three_ratio"] * found["masters_restart_s"] == pytest.approx(
        found["masters_one_to_three_s"]
    )
    assert found["masters_writes_pause_s"] < found["masters_one_to_three_s"]
    assert list(tmp_path.iterdir()) == []


def test_bench_of_masters_at_scale_measures_a_master_under_played_heartbeats(tmp_path: Path) -> None:
    """Goal: what a master costs is measured on a real one. Method: a round of a small size: the master takes every
    heartbeat, finds the whole table, and decides for every replica of a lost server, or the round fails. A broker
    beside it gets a record of each server and each tablet, within the seconds that the rate allows."""
    small = ("--servers", "6", "--tablets", "60", "--beat-ms", "200", "--watch-s", "2", "--kafka")
    found = figures_of(bench(tmp_path, "masters-at-scale", *small), "masters-at-scale")
    print(found)
    assert (found["scale_servers"], found["scale_tablets"], found["scale_beat_ms"]) == (6, 60, 200)
    assert (found["scale_small_lookup_tablets"], found["scale_large_lookup_tablets"]) == (4, 56)
    assert found["scale_beats_per_s"] > 6 and found["scale_memory_mb"] > 0 and found["scale_rest_cpu_percent"] > 0
    assert 0 < found["scale_call_ms_p99"] <= found["scale_call_ms_max"]
    assert 0 < found["scale_reports_servers_s"] <= found["scale_reports_whole_s"] < 30
    assert found["scale_reports_per_s"] > 0 and found["scale_reports_cpu_percent"] >= 0  # all in one burst
    assert found["scale_reports_server_age_s"] < 60
    assert list(tmp_path.iterdir()) == []


def test_bench_of_masters_at_scale_ends_if_its_master_does() -> None:
    """Goal: the benchmark does not wait for a master that has died, and says so. Method: the master is killed when it
    knows all; and the played servers wait for a process that ends."""
    small = ScaleOptions(servers=6, tablets=60, beat_ms=200, watch_s=2)

    def kill(step: str) -> None:
        if "knows all" in step:
            subprocess.run(["pkill", "-9", "-P", str(os.getpid()), "-f", "nyala.replica.master"], check=True)

    with pytest.raises(BenchmarkError, match="the master has ended: "):
        masters_at_scale_round(small, kill)
    with (
        Players(small.servers, small.tablets, small.replicas, small.beat_ms) as players,
        subprocess.Popen([b"true"]) as ended,
        players.beside(ended),
        pytest.raises(BenchmarkError, match="plays the servers has ended"),
    ):
        players.hear_all("known")
