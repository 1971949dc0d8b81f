"""Compares every replica of the chosen tables at one hybrid time: run under spark-submit.

Exit status: 0 all replicas of each tablet hold the same rows, or --dry-run; 2 some differ or could not be read; 1 the
job could not run.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence

from nyala.pipeline import QueryInterrupted, end_in_order, read_checksums, spark_session
from nyala.pipeline.arguments import DAY_S, add_masters_options, parsed, seconds
from nyala.replica.client import Client, credentials_in, parse_masters
from nyala.replica.tools import (
    ClusterView,
    ReplicaSum,
    Severity,
    as_json,
    gather,
    judge_compared,
    next_reads,
    only_tables,
    plan_text,
    table_lines,
    to_read,
    with_sums,
)
from nyala.replica.types import Refused, ReplicaError
from nyala.replica.types.logs import log_to_stderr

ROUNDS_MAX = 3
"""The most attempts. If not all replicas of a tablet could be read, the tablet is looked up and read again, because one
may just have moved."""


def options_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="nyala verify", description="checksum of every replica as of one hybrid time")
    add_masters_options(parser, "a client's")
    parser.add_argument("--table", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    timeout_s = seconds("--timeout-s", 0.1, DAY_S)
    parser.add_argument("--timeout-s", type=timeout_s, help="for one replica; default: by the bytes to read")
    parser.add_argument("--dry-run", action="store_true", help="show what would be read, and read nothing")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the checksums of all replicas, compare them, and print the findings; returns the exit status."""
    log_to_stderr(logging.WARNING)
    given = parsed(options_parser(), arguments)
    try:
        with Client(parse_masters(given.masters), credentials=credentials_in(given.tls)) as client:
            view = only_tables(gather(client), given.table)
            if given.dry_run:
                print(json.dumps(as_json(view, []) | {"dry_run": True}) if given.json else plan_text(view), flush=True)
                return 0
            view = compare(client, view, given)
    except (QueryInterrupted, ReplicaError) as error:
        print(f"nyala verify: {error}", file=sys.stderr)
        return 1
    findings = judge_compared(view)
    if given.json:
        print(json.dumps(as_json(view, findings) | {"dry_run": False, "hybrid_time": view.checksum_time}), flush=True)
    else:
        for line in [*table_lines(view), *(f"{f.severity}  {f.subject}: {f.what}" for f in findings)]:
            print(line, flush=True)
    return 2 if any(f.severity is Severity.ERROR for f in findings) else 0


def compare(client: Client, view: ClusterView, given: argparse.Namespace) -> ClusterView:
    """Return the view with a checksum of each replica, as of one hybrid time, not below any acknowledged write."""
    at = latest_time(client, view)
    if not at:
        return view
    spark = spark_session("nyala verify")
    sums: dict[tuple[str, str], ReplicaSum] = {}
    for number in range(ROUNDS_MAX):
        if number:
            view = with_sums(only_tables(gather(client), given.table), sums.values(), at)
        asked = next_reads(view, spark.sparkContext.defaultParallelism, given.timeout_s)
        for one in read_checksums(spark, given.masters, asked, at, given.tls):
            uuid, tablet_id, found, error = one
            sums[uuid, tablet_id] = ReplicaSum(uuid, tablet_id, found, error)
        view = with_sums(view, sums.values(), at)
        if not to_read(view):
            break
    return view


def latest_time(client: Client, view: ClusterView) -> int:
    """Return a hybrid time at or above every acknowledged write of all tables that have leaders; 0 if none has."""
    times = [0]
    for table in view.tables:
        try:
            times.append(client.snapshot_time(table))
        except Refused:
            # The report names the tablet that has no leader.
            continue
    return max(times)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
