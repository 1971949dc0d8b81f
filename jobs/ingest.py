"""Ingest a table's topic: run under spark-submit, until it is stopped or, with --available-now, until it has caught up.

Exit status: 0 ended orderly, 1 refused or gave up (one line says why and what to do).
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading

from nyala.pipeline import (
    DecisionsOptions,
    IngestOptions,
    Progress,
    QueryInterrupted,
    QueryRefused,
    end_in_order,
    restart_options,
    run_ingest,
    security_of,
    spark_session,
)
from nyala.pipeline.arguments import (
    DAY_S,
    LEASE_S_MAX,
    add_kafka_options,
    add_masters_options,
    add_restart_options,
    count,
    options_of,
    parsed,
    seconds,
)
from nyala.replica.types import ReplicaError
from nyala.replica.types.logs import log_to_stderr


def options_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="nyala ingest", description="Kafka topic -> table, exactly once")
    parser.add_argument("--table", required=True, help="the table that the rows go to")
    add_masters_options(parser, "a client's")
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--checkpoint", required=True, help="folder for Spark's checkpoint")
    parser.add_argument("--topic", default="", help="default: what the table's source declares, else writes.<table>")
    parser.add_argument(
        "--starting",
        choices=["earliest", "latest"],
        default="earliest",
        help="where to begin in a topic of which the table has no rows yet",
    )
    parser.add_argument("--available-now", action="store_true", help="end when all records that Kafka has now are read")
    trigger_s = seconds("--trigger-s", 0, DAY_S)
    parser.add_argument("--trigger-s", type=trigger_s, default=0.0, help="between micro-batches; 0: the next at once")
    offsets = count("--offsets-per-trigger-max", 1)
    parser.add_argument("--offsets-per-trigger-max", type=offsets, default=400_000, help="offsets of one micro-batch")
    letters = count("--dead-letters-max")
    parser.add_argument("--dead-letters-max", type=letters, help="end after more dead letters than this in one run")
    partitions = count("--accept-partitions")
    parser.add_argument(
        "--accept-partitions", type=partitions, default=0, help="go on with a topic that grew to this number"
    )
    parser.add_argument(
        "--ignore-null", action="store_true", help="a null in an upsert or update leaves the column as it is"
    )
    parser.add_argument(
        "--isolation",
        choices=["read_committed", "read_uncommitted"],
        default="read_committed",
        help="whether events of Kafka transactions that are not committed count",
    )
    lease_s = seconds("--lease-s", 1, LEASE_S_MAX)
    parser.add_argument(
        "--lease-s", type=lease_s, default=30.0, help="for which this run owns the topic, unless renewed"
    )
    wait_s = seconds("--owner-wait-s")
    parser.add_argument("--owner-wait-s", type=wait_s, default=40.0, help="wait for the lease of another run to end")
    add_restart_options(parser)
    add_kafka_options(parser, then="; then start again")
    parser.add_argument("--decisions-checkpoint", default="", help="also carry out decisions, with this checkpoint")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    return parser


def decisions_options(given: argparse.Namespace, ingest: IngestOptions) -> DecisionsOptions:
    """Return the options of the decisions query beside this ingest query: the same cluster, the same Kafka."""
    return DecisionsOptions(
        masters=ingest.masters,
        bootstrap=ingest.bootstrap,
        checkpoint=given.decisions_checkpoint,
        topic_prefix=given.topic_prefix,
        kafka_timeout_s=ingest.kafka_timeout_s,
        kafka=security_of(ingest.kafka).spark(),
        tls=ingest.tls,
    )


def main() -> int:
    """Run the query, and again as long as it ends for temporary causes."""
    log_to_stderr(logging.WARNING)
    given = parsed(options_parser())
    lock = threading.Lock()

    def tell(text: str) -> None:
        with lock:
            print(json.dumps({"event": "message", "text": text}) if given.json else text, flush=True)

    def show(progress: Progress) -> None:
        with lock:
            print(progress.json() if given.json else progress.line(), flush=True)

    def live(event: str) -> None:
        if given.json:
            with lock:
                print(json.dumps({"event": event}), flush=True)

    try:
        options = options_of(IngestOptions, given)
        restarts = restart_options(given.patience_s, given.restarts_max, catches_up=given.available_now)
        end_in_order()
        spark = spark_session(f"nyala ingest {given.table}")
        decisions = decisions_options(given, options) if given.decisions_checkpoint else None
        run_ingest(spark, options, restarts, tell=tell, show=show, life=live, decisions=decisions)
    except (QueryRefused, QueryInterrupted, ReplicaError, ValueError) as error:
        tell(f"nyala ingest: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
