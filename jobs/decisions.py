"""Carries out the masters' decisions: run under spark-submit.

Exit status: 0 ended orderly, 1 gave up (one line names the reason).
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from nyala.pipeline import (
    DecisionsOptions,
    DecisionsProgress,
    QueryInterrupted,
    QueryRefused,
    end_in_order,
    restart_options,
    run_decisions,
    spark_session,
)
from nyala.pipeline.arguments import add_kafka_options, add_masters_options, add_restart_options, options_of, parsed
from nyala.replica.types import ReplicaError
from nyala.replica.types.logs import log_to_stderr


def options_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="nyala decisions", description="Kafka decisions -> config changes at leaders")
    add_masters_options(parser, "an operator's")
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--checkpoint", required=True, help="folder for Spark's checkpoint")
    parser.add_argument(
        "--available-now", action="store_true", help="end when the decisions that Kafka has now are done"
    )
    add_restart_options(parser)
    add_kafka_options(parser, then="; then start again")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    return parser


def main() -> int:
    """Run the query, and again as long as it ends for temporary causes."""
    log_to_stderr(logging.WARNING)
    given = parsed(options_parser())

    def tell(text: str) -> None:
        print(json.dumps({"event": "message", "text": text}) if given.json else text, flush=True)

    def show(progress: DecisionsProgress) -> None:
        print(progress.json() if given.json else progress.line(), flush=True)

    try:
        options = options_of(DecisionsOptions, given)
        restarts = restart_options(given.patience_s, given.restarts_max, catches_up=given.available_now)
        end_in_order()
        spark = spark_session("nyala decisions")
        run_decisions(spark, options, restarts, tell=tell, show=show)
    except (QueryRefused, QueryInterrupted, ReplicaError) as error:
        tell(f"nyala decisions: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
