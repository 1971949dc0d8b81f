"""A module of a few lines stands alone only if a reader looks for it by name; otherwise it joins its neighbour."""

from __future__ import annotations

from pathlib import Path

from tests.tidy.test_layers import ROOT, source_files

LINES_MIN = 45
OPTIONS = "each folder has its options in a module of this name"
PURE = "a pure rule that is read, tried and mutated by itself"
PROTOCOL = "one part of a protocol, named by the pages"
STARTS_ALONE = "runs in a process, or at a time, of its own"
SHARED = "two or more modules of equal rank use it"
ALONE = {
    "infra/bench/options.py": OPTIONS,
    "infra/chaos/refusals.py": PURE,
    "infra/cli/arguments.py": SHARED,
    "infra/cli/run.py": "the process of this command becomes another program",
    "infra/local/parent_death.py": STARTS_ALONE,
    "infra/local/registered.py": SHARED,
    "infra/toplevel/nyala_command.py": STARTS_ALONE,
    "jobs/rebalance.py": STARTS_ALONE,
    "pipeline/kafka_security.py": SHARED,
    "pipeline/toplevel/pyspark_nyala.py": STARTS_ALONE,
    "pipeline/warm.py": STARTS_ALONE,
    "pipeline/worker.py": STARTS_ALONE,
    "replica/consensus_metadata/config_codec.py": "the form of a config in the log, which others read too",
    "replica/decision_executor/outcome.py": PURE,
    "replica/fs/folder_watch.py": SHARED,
    "replica/fs/lengths.py": SHARED,
    "replica/master/group/leaving.py": PROTOCOL,
    "replica/master/requests/confirming.py": PURE,
    "replica/policy/locations.py": PURE,
    "replica/raft/commitment.py": "a rule of the Raft paper",
    "replica/raft/role_changes.py": "a table of the Raft paper",
    "replica/raft/quorum.py": "a rule of the Raft paper",
    "replica/raft/voting.py": "fields of `State` that two rules change",
    "replica/raft_driver/log_cache.py": "the core's view of the log",
    "replica/rows/condition_values.py": SHARED,
    "replica/rows/scan_spec.py": "the one value that callers, servers and tablets hand on",
    "replica/rpc/errors.py": SHARED,
    "replica/rpc/hosts.py": PURE,
    "replica/rpc/request_errors.py": SHARED,
    "replica/rpc/rights.py": PURE,
    "replica/rpc/wire_fields.py": PURE,
    "replica/server/heartbeats/other_masters.py": PURE,
    "replica/server/heartbeats/seeking.py": PURE,
    "replica/server/readiness.py": PURE,
    "replica/server/runtime/channels.py": SHARED,
    "replica/server/runtime/recent_maximum.py": SHARED,
    "replica/server/runtime/tasks.py": SHARED,
    "replica/server/startup/code_version.py": "which code runs: named by errors and by records of failed replays",
    "replica/server/startup/durable_state.py": "one check of a start, named by the page",
    "replica/server/tablets/row_rate.py": PURE,
    "replica/types/freshness.py": PURE,
    "replica/tablet/source_positions.py": SHARED,
    "replica/tablet/results.py": "values that `apply` and `flush` return",
    "replica/tablet_copy/startup.py": PROTOCOL,
    "replica/tablet_copy/wire/source_process.py": PROTOCOL,
    "replica/tools/restart.py": PURE,
    "replica/transport/batch_bounds.py": PURE,
    "replica/transport/options.py": OPTIONS,
    "replica/transport/refusals.py": SHARED,
    "replica/types/allocator.py": SHARED,
    "replica/types/crash_points.py": SHARED,
    "replica/types/generation.py": PURE,
    "replica/types/kafka_reach.py": "the one module of `types` that connects to anything",
    "replica/types/kafka_topics.py": "the names by which masters and jobs meet",
    "replica/types/lazy_imports.py": SHARED,
    "replica/types/log_records.py": SHARED,
    "replica/types/process.py": SHARED,
    "replica/types/quiet_grpc.py": "its import is its effect, which must come before gRPC's",
    "replica/types/resource_use.py": PURE,
    "replica/wal/last_block.py": PROTOCOL,
    "replica/wal/options.py": OPTIONS,
    "schemas/feature_level.py": PURE,
}
"""Module of fewer lines -> the reason why it stands alone."""


def small(paths: list[Path]) -> set[str]:
    """Return those of the modules that are small; packages' own files and entry points do not count."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if not path.name.startswith("__") and len(path.read_text().splitlines()) < LINES_MIN
    }


def test_small_module_stands_alone_for_a_reason() -> None:
    """Goal: a folder has as many modules as it has ideas. Method: every source file of fewer lines is in the table
    above, whose rows name existing files; the check is tried on a file that it must report."""
    assert small([ROOT / "replica/wal/options.py", ROOT / "replica/wal/log.py"]) == {"replica/wal/options.py"}
    assert small(source_files()) - ALONE.keys() == set()
    assert {name for name in ALONE if not (ROOT / name).is_file()} == set()
