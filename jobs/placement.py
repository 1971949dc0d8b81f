"""Compute places for replicas and propose the moves there: run under spark-submit. `run_rounds` gives the exit status.

The rebalance job evens the whole cluster out. This one plans only for what its options name: replicas lost with their
servers, servers to empty, locations in which replicas are crowded, or the replicas of single tables.
"""

from __future__ import annotations

import argparse
import sys

from nyala.pipeline import PlacementOptions
from nyala.pipeline.arguments import options_of
from nyala.pipeline.plan_rounds import plan_parser, run_rounds


def options_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = plan_parser("placement", "reports -> a plan for the replicas that the options choose -> proposals")
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME",
        help="spread this table's replicas and even them out; nothing of other tables is moved",
    )
    parser.add_argument(
        "--under-replicated",
        action="store_true",
        help="place replicas that failed, first of the tablets that can lose the fewest more",
    )
    parser.add_argument(
        "--spread", action="store_true", help="move replicas of a tablet out of locations in which they are crowded"
    )
    return parser


def options(given: argparse.Namespace) -> PlacementOptions:
    """Return the options of the command line; QueryRefused if nothing is to be placed."""
    return options_of(PlacementOptions, given, drain=tuple(given.drain), tables=tuple(given.table))


def main() -> int:
    """Run the job of the command line."""
    return run_rounds(options_parser(), options)


if __name__ == "__main__":
    sys.exit(main())
