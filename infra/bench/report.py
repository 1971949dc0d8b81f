"""Summarises rounds of figures: medians with spread, as a table for people and as JSON for programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console
from rich.table import Table

from nyala.infra.printing import cell

Figures = dict[str, float]
"""The figures of one round: name with its unit -> value."""


@dataclass(frozen=True)
class Metric:
    """The meaning of a figure. `more_is_better` decides how a ratio is read."""

    name: str
    title: str
    unit: str
    more_is_better: bool = True


METRICS = [
    Metric("bulk_insert_rows_per_s", "bulk insert, 2 clients", "rows/s"),
    Metric("random_upsert_rows_per_s", "random upsert, 2 clients", "rows/s"),
    Metric("load_elections", "both: elections while rows came", "elections", False),
    Metric("load_loop_lag_ms", "both: longest lag of a server's event loop", "ms", False),
    Metric("load_gil_hold_ms", "both: longest hold of a server's interpreter lock", "ms", False),
    Metric("single_write_ms", "one row per write, 1 client with two under way, elapsed / rows", "ms", False),
    Metric("single_write_in_turn_ms", "the same, each acknowledged before the next", "ms", False),
    Metric("single_write_p50_ms", "each acknowledged before the next, p50", "ms", False),
    Metric("single_write_p99_ms", "each acknowledged before the next, p99", "ms", False),
    Metric("single_write_16_clients_per_s", "one row per write, 16 clients with two under way each", "writes/s"),
    Metric("single_write_16_clients_in_turn_per_s", "the same, each acknowledged before the next", "writes/s"),
    Metric("scan_rows_per_s", "scan of 3 columns, 2 clients", "rows/s"),
    Metric("scan_repeated_rows_per_s", "the same scan, repeated", "rows/s"),
    Metric("bare_ipc_rows_per_s", "the same rows as a bare Arrow IPC stream over sockets, 2 receivers", "rows/s"),
    Metric("scan_to_ipc_ratio", "repeated scan, to that stream", "×"),
    Metric("bare_flight_rows_per_s", "the same rows by bare Arrow Flight, 2 receivers", "rows/s"),
    Metric("scan_to_flight_ratio", "repeated scan, to that", "×"),
    Metric("get_p50_ms", "read of one key, 1 client, p50", "ms", False),
    Metric("get_p99_ms", "the same, p99", "ms", False),
    Metric("get_16_clients_per_s", "read of one key, 16 clients of one process", "reads/s"),
    Metric("get_many_keys_per_s", "read of 10,000 keys at once", "keys/s"),
    Metric("key_range_ms", "scan of 1 % of the keys", "ms", False),
    Metric("key_range_full_ms", "scan of all keys", "ms", False),
    Metric("key_range_ratio", "scan of 1 % of the keys, to one of all", "×", False),
    Metric("pipeline_rows", "Kafka → Spark → table, records", "records"),
    Metric("pipeline_rows_per_batch_max", "Kafka → Spark → table, records of a micro-batch at most", "records"),
    Metric("pipeline_query_rows_per_s", "Kafka → Spark → table, from `query.start()` to its end", "rows/s"),
    Metric("pipeline_rows_per_s", "Kafka → Spark → table, from submit to end", "rows/s"),
    Metric("pipeline_batches_rows_per_s", "Kafka → Spark → table, micro-batches alone", "rows/s"),
    Metric("copy_mb", "tablet copy, size", "MB"),
    Metric("copy_mb_per_s", "tablet copy, download", "MB/s"),
    Metric("download_s", "tablet copy, download", "s", False),
    Metric("move_s", "tablet copy, whole move", "s", False),
    Metric("copy_target_memory_mb", "tablet copy, what the target's memory grew by until all was there", "MB", False),
    Metric("copy_source_memory_mb", "tablet copy, what the source's memory grew by until all was there", "MB", False),
    Metric("copy_beside_writes_cap_mb_per_s", "tablet copy beside one-row writes, cap", "MB/s"),
    Metric("copy_beside_writes_mb_per_s", "tablet copy beside one-row writes, download", "MB/s"),
    Metric("copy_beside_writes_cap_ratio", "the same, to the cap", "×", False),
    Metric("move_beside_writes_s", "tablet copy beside one-row writes, whole move", "s", False),
    Metric("write_alone_p99_ms", "one row per write, no copy, p99", "ms", False),
    Metric("write_beside_copy_p99_ms", "one row per write beside a copy, p99", "ms", False),
    Metric("write_beside_copy_p99_ratio", "the same, to that without a copy", "×", False),
    Metric("checksum_64b_mb_per_s", "checksum of rows, values of 64 bytes", "MB/s"),
    Metric("checksum_64_to_128b_mb_per_s", "checksum of rows, values of 64 to 128 bytes", "MB/s"),
    Metric("checksum_1kb_mb_per_s", "checksum of rows, values of 1 KiB", "MB/s"),
    Metric("checksum_1mb_mb_per_s", "checksum of rows, values of 1 MiB", "MB/s"),
    Metric("checksum_16b_cells_per_s", "checksum of rows, values of 16 bytes", "cells/s"),
    Metric("checksum_32b_cells_per_s", "checksum of rows, values of 32 bytes", "cells/s"),
    Metric("checksum_63b_cells_per_s", "checksum of rows, values of 63 bytes", "cells/s"),
    Metric("checksum_1_to_63b_cells_per_s", "checksum of rows, values of 1 to 63 bytes", "cells/s"),
    Metric("checksum_int64_cells_per_s", "checksum of rows, int64", "cells/s"),
    Metric("checksum_wide_int64_cells_per_s", "checksum of rows, 300 columns of int64", "cells/s"),
    Metric("checksum_wide_1_to_63b_cells_per_s", "checksum of rows, 300 columns of 1 to 63 bytes", "cells/s"),
    Metric("logs_1_blocks_per_s", "1 busy log", "blocks/s"),
    Metric("logs_slow_1_blocks_per_s", "1 busy log, syncs of 5 ms", "blocks/s"),
    Metric("logs_8_blocks_per_s", "8 busy logs", "blocks/s"),
    Metric("logs_slow_8_blocks_per_s", "8 busy logs, syncs of 5 ms", "blocks/s"),
    Metric("logs_64_blocks_per_s", "64 busy logs", "blocks/s"),
    Metric("logs_slow_64_blocks_per_s", "64 busy logs, syncs of 5 ms", "blocks/s"),
    Metric("logs_idle_threads", "threads of idle logs", "threads", False),
    Metric("logs_idle_memory_mb", "memory of idle logs", "MB", False),
    Metric("failover_s", "leader killed -9: time without a write", "s", False),
    Metric("masters_restart_s", "one master restarted: time in which no table can be made", "s", False),
    Metric("masters_one_to_three_s", "one master becomes three: the same", "s", False),
    Metric("masters_one_to_three_ratio", "the same, to a restart", "×", False),
    Metric("masters_leader_killed_s", "leading master of three killed -9: the same", "s", False),
    Metric("masters_replaced_s", "lost master of three replaced: longest time between two tables", "s", False),
    Metric("masters_writes_pause_s", "all of these: longest time between two rows of one client", "s", False),
    Metric("scale_servers", "played servers", "servers"),
    Metric("scale_tablets", "their tablets", "tablets"),
    Metric("scale_beat_ms", "time between two heartbeats of a server", "ms"),
    Metric("scale_start_s", "a master starts on the catalog: until it leads", "s", False),
    Metric("scale_known_s", "from then on, until it has the reports of all", "s", False),
    Metric("scale_reports_servers_s", "reports: until each server has a record", "s", False),
    Metric("scale_reports_whole_s", "reports: until each server and each tablet has one", "s", False),
    Metric("scale_reports_per_s", "reports: published until then", "records/s"),
    Metric("scale_reports_kb_per_s", "reports: their keys and values", "KB/s"),
    Metric("scale_reports_cpu_percent", "reports: the master's CPU meanwhile", "% of a core", False),
    Metric("scale_reports_server_age_s", "reports: the oldest of a server, after the look-ups", "s", False),
    Metric("scale_reports_tablet_age_s", "reports: the oldest of a tablet, after the look-ups", "s", False),
    Metric("scale_rest_cpu_percent", "its CPU under heartbeats alone", "% of a core", False),
    Metric("scale_beats_per_s", "heartbeats that it takes", "heartbeats/s"),
    Metric("scale_beat_ms_max", "longest heartbeat", "ms", False),
    Metric("scale_call_ms_p99", "look-up of a small table every 50 ms meanwhile, p99", "ms", False),
    Metric("scale_call_ms_max", "the same, longest", "ms", False),
    Metric("scale_small_lookup_tablets", "small table", "tablets"),
    Metric("scale_small_lookup_cpu_us", "look-up of the small table: the master's CPU", "µs", False),
    Metric("scale_small_lookups_per_s", "the same, by one client in turn", "look-ups/s"),
    Metric("scale_large_lookup_tablets", "large table", "tablets"),
    Metric("scale_large_lookup_cpu_us", "look-up of the large table: the master's CPU", "µs", False),
    Metric("scale_large_lookups_per_s", "the same, by one client in turn", "look-ups/s"),
    Metric("scale_memory_mb", "the master's memory", "MB", False),
    Metric("scale_decided_s", "a server is lost: from the delay's end until each replica has its decision", "s", False),
    Metric("decisions_count", "decisions in the topic", "decisions"),
    Metric("decisions_servers", "played servers that take them", "servers"),
    Metric("decisions_at_once_max", "decisions under way at one of them, most", "decisions", False),
    Metric("decisions_batches_per_s", "decisions carried out, micro-batches alone", "decisions/s"),
    Metric("decisions_batches_s", "the same, all of them", "s", False),
    Metric("decisions_s", "the same, from `spark-submit` to its end", "s", False),
    Metric("plan_replicas", "replicas in the reports", "replicas"),
    Metric("plan_tables", "their tables", "tables"),
    Metric("plan_servers", "servers", "servers"),
    Metric("plan_s", "from reading the reports to the plan", "s", False),
    Metric("plan_memory_mb", "driver, Spark and its workers, peak memory", "MB", False),
    Metric("plan_replica_moves", "replica moves of the plan", "moves"),
    Metric("plan_replica_bound", "replica moves that are needed at least until numbers are even", "moves"),
    Metric("plan_leader_moves", "leader moves of the plan", "moves"),
    Metric("plan_leader_bound", "leader moves that are needed at least", "moves"),
    Metric("plan_skew_before", "replicas of the fullest server less those of the emptiest", "replicas", False),
    Metric("plan_skew_after", "the same after the plan", "replicas", False),
    Metric("idle_tablets", "idle tablets", "tablets"),
    Metric("idle_cpu_percent", "idle: CPU of the busiest server", "% of a core", False),
    Metric("idle_memory_mb", "idle: memory of the largest server", "MB", False),
    Metric("idle_disk_mb_per_replica", "idle: disk of a replica", "MB", False),
    Metric("idle_create_s", "create the table until all tablets are led", "s", False),
    Metric("idle_cold_start_s", "all servers killed: until all tablets are led", "s", False),
    Metric("idle_cold_start_cpu_s", "the same, CPU of all servers", "s", False),
    Metric("idle_restart_s", "one server killed: until all its replicas run", "s", False),
    Metric("idle_restart_cpu_s", "the same, CPU of all servers", "s", False),
    Metric(
        "idle_cpu_percent_after_restarts", "idle, after the restarts: CPU of the busiest server", "% of a core", False
    ),
    Metric("idle_memory_mb_after_restarts", "idle, after the restarts: memory of the largest server", "MB", False),
]
"""The figures in the order of the report; SUFFIXES has the names of the others."""
SUFFIXES = [
    Metric("_server_peak_memory_mb", "peak memory of a tablet server", "MB", False),
    Metric("_cpu_s_per_million_rows", "CPU of all tablet servers per million rows", "s", False),
    Metric("_wal_bytes_per_row", "WAL bytes per row and replica", "B", False),
]


def metric_of(name: str) -> Metric:
    """The meaning of the figure `name`; `<work><suffix>@<process>` is the share of one process."""
    base, _, process = name.partition("@")
    for metric in METRICS:
        if metric.name == base:
            return metric
    for suffix in SUFFIXES:
        if base.endswith(suffix.name):
            title = {"MB": "peak memory", "s": "CPU per million rows"}.get(suffix.unit, suffix.title)
            what = f"{title} of {process}" if process else suffix.title
            return Metric(name, f"{base.removesuffix(suffix.name)}: {what}", suffix.unit, suffix.more_is_better)
    return Metric(name, name, "")


def interleave(
    rounds: int, sides: Sequence[tuple[str, Callable[[int], Figures]]], note: Callable[[str], None] = lambda _: None
) -> dict[str, list[Figures]]:
    """Run rounds in the order A B A B …, so that a machine whose speed drifts favours no side; returns side -> figures
    of each round."""
    results: dict[str, list[Figures]] = {name: [] for name, _ in sides}
    for number in range(rounds):
        for name, measure in sides:
            note(f"round {number + 1} of {rounds}: {name}")
            results[name].append(measure(number))
    return results


def summary(rounds: Sequence[Figures]) -> dict[str, dict[str, float]]:
    """Median, min, max and number of rounds, by figure."""
    names = sorted({name for figures in rounds for name in figures})
    out = {}
    for name in names:
        values = [figures[name] for figures in rounds if name in figures]
        out[name] = {
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "rounds": float(len(values)),
        }
    return out


LIMITS = {
    "idle_cpu_percent": 10.0,
    "idle_memory_mb": 400.0,
    "idle_disk_mb_per_replica": 2.0,
    "idle_cold_start_s": 20.0,
    "idle_cpu_percent_after_restarts": 10.0,
    "idle_memory_mb_after_restarts": 400.0,
    "insert_server_peak_memory_mb": 600.0,
    "upsert_server_peak_memory_mb": 600.0,
    "copy_target_memory_mb": 64.0,
    "copy_source_memory_mb": 64.0,
    "copy_beside_writes_cap_ratio": 1.1,
    "write_beside_copy_p99_ratio": 3.0,
}
"""The upper limit of a figure in every round. Those of idleness are for 1,000 tablets on three servers."""
FACTS = (
    "scale_servers", "scale_tablets", "scale_beat_ms", "scale_small_lookup_tablets", "scale_large_lookup_tablets",
    "plan_replica", "plan_tables", "plan_servers", "plan_leader", "plan_skew",
)  # fmt: skip
"""What a benchmark was told, so that it has no slope."""
GOALS = {
    "bulk_insert_rows_per_s": 1.5,
    "random_upsert_rows_per_s": 2.0,
    "single_write_ms": 2.0,
    "single_write_in_turn_ms": 2.0,
    "single_write_16_clients_per_s": 0.7,
    "single_write_16_clients_in_turn_per_s": 0.7,
    "scan_rows_per_s": 0.3,
    "pipeline_query_rows_per_s": 2.0,
    "copy_mb_per_s": 1.0,
    "failover_s": 1.0,
}
"""The goal for the ratio of medians to the peer's: a lower bound where more is better, an upper bound where less is."""


def verdicts(rounds: Sequence[Figures]) -> dict[str, dict[str, float | bool]]:
    """By limited figure that was measured: its limit, its worst round, and whether that is within the limit."""
    worst = {name: max(f[name] for f in rounds if name in f) for name in LIMITS if any(name in f for f in rounds)}
    return {n: {"limit": LIMITS[n], "worst": value, "pass": value <= LIMITS[n]} for n, value in worst.items()}


@dataclass(frozen=True)
class Ratio:
    """A median compared with a peer's. `goal` and `reached` are None for a figure without a goal."""

    value: float
    goal: float | None
    reached: bool | None


def ratios(ours: Sequence[Figures], theirs: Sequence[Figures]) -> dict[str, Ratio]:
    """Our figure divided by theirs, for each figure that both sides have and whose peer's value is not 0."""
    mine, other = summary(ours), summary(theirs)
    found = {}
    for name in mine.keys() & other.keys():
        if not other[name]["median"]:
            continue
        value, goal = mine[name]["median"] / other[name]["median"], GOALS.get(name)
        reached = None
        if goal is not None:
            reached = value >= goal if metric_of(name).more_is_better else value <= goal
        found[name] = Ratio(value, goal, reached)
    return found


def percentile_ms(durations_s: Iterable[float], share: float) -> float:
    """The duration, in ms, that this share of all is below: 0.5 for the median, 0.99 for the 99th percentile."""
    ordered = sorted(durations_s)
    return 1000 * ordered[int(share * len(ordered))]


def slopes_told(curve: Mapping[int, Sequence[Figures]]) -> list[str]:
    """A line for each figure of a curve, by number of tablets: the power of that number with which the median grows
    from each size to the next. 0: it is flat; 1: it is proportional."""
    points = [(size, summary(rounds)) for size, rounds in curve.items()]
    told = []
    for name in sorted(points[0][1] if len(points) > 1 else ()):
        values = [(size, figures[name]["median"]) for size, figures in points if name in figures]
        if name.startswith(FACTS) or any(value <= 0 for _, value in values):
            continue
        powers = (math.log(b / a) / math.log(m / n) for (n, a), (m, b) in pairwise(values))
        told.append(f"slope of {metric_of(name).title}: {', '.join(f'{power:.2f}' for power in powers)}")
    return told


def elections_told(results: Mapping[str, Sequence[Figures]]) -> list[str]:
    """A line for each round in which tablets changed their leaders, because it did not measure writing alone."""
    return [
        f"{side}, round {number}: {figures['load_elections']:.0f} elections while rows came"
        for side, rounds in results.items()
        for number, figures in enumerate(rounds, 1)
        if figures.get("load_elections")
    ]


def text_of(value: float) -> str:
    """A figure with as many digits as a reader needs."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _ratio_text(ratio: Ratio) -> str:
    if ratio.goal is None:
        return f"{ratio.value:.2f} ×"
    return f"{ratio.value:.2f} × (goal {ratio.goal:g}: {'pass' if ratio.reached else 'FAIL'})"


def show(console: Console, results: dict[str, list[Figures]], title: str) -> None:
    """Print a table with one row per figure and one column per side: medians with the spread, and the ratio to the
    peer.

    Figures of single processes (after an @) and of single rounds are in the JSON only.
    """
    table = Table(title=cell(title, "table.title"), title_justify="left", caption="--json: every round, every process")
    table.add_column("work")
    sides = list(results)
    for side in sides:
        table.add_column(cell(f"{side} (min to max)"), justify="right")
    if len(sides) == 2:
        table.add_column("ratio", justify="right")
    judged = verdicts(next(iter(results.values()), []))
    if judged:
        table.add_column("at most", justify="right")
    beside = ratios(*results.values()) if len(sides) == 2 else {}
    digests = {side: summary(rounds) for side, rounds in results.items()}
    known = [m.name for m in METRICS]
    for name in known + sorted({n for d in digests.values() for n in d} - set(known)):
        if "@" in name or not any(name in d for d in digests.values()):
            continue
        metric = metric_of(name)
        cells = []
        for side in sides:
            figure = digests[side].get(name)
            spread = (
                f"{text_of(figure['median'])} {metric.unit} ({text_of(figure['min'])} to {text_of(figure['max'])})"
                if figure
                else "–"
            )
            cells.append(spread)
        if len(sides) == 2:
            cells.append(_ratio_text(beside[name]) if name in beside else "")
        if judged and (one := judged.get(name)):
            cells.append(f"{text_of(one['limit'])}: {'pass' if one['pass'] else 'FAIL'}")
        table.add_row(*map(cell, (metric.title, *cells)))
    console.print(table)
