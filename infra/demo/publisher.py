"""Publishes the airport board's events, in event-time order, as any application would.

Prints the number of events given to Kafka so far, one number a line; exits with 0 when all are acknowledged. With
`--hold-at N` it pauses after N events until its standard input ends.
"""

from __future__ import annotations

import argparse
import sys

from nyala.pipeline import RowPublisher
from nyala.replica.rows import RowOp, TableSchema

from .flights import COLUMNS, events, raw_flights

REPORT_EVERY = 20_000


def main() -> int:
    """Publish everything, or the first `--limit` events."""
    parser = argparse.ArgumentParser(description="publish the airport board's events")
    parser.add_argument("--kafka", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--schema", required=True, help="JSON of the table's schema")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--hold-at", type=int, default=0)
    arguments = parser.parse_args()
    stream = events(raw_flights())
    if arguments.limit:
        stream = stream.head(arguments.limit)
    ops = {"insert": RowOp.INSERT, "upsert": RowOp.UPSERT, "delete": RowOp.DELETE}
    schema = TableSchema.from_json(arguments.schema)
    with RowPublisher(arguments.kafka, arguments.topic, schema, bulk=True) as publisher:
        for number, (op, *values) in enumerate(stream.iter_rows(), start=1):
            publisher.publish(dict(zip(COLUMNS, values, strict=True)), ops[op])
            if number % REPORT_EVERY == 0:
                print(number, flush=True)
            if number == arguments.hold_at:
                publisher.flush()
                print(number, flush=True)
                sys.stdin.read()
    print(stream.height, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
