"""Spread replicas over the locations, even out replicas and leaders over the servers, or empty servers: run under
spark-submit. `run_rounds` gives the exit status.
"""

from __future__ import annotations

import argparse
import sys

from nyala.pipeline import RebalanceOptions
from nyala.pipeline.arguments import options_of
from nyala.pipeline.plan_rounds import plan_parser, run_rounds


def options_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    return plan_parser("rebalance", "reports -> a plan for the whole cluster -> proposals")


def main() -> int:
    """Run the job of the command line."""
    return run_rounds(options_parser(), lambda given: options_of(RebalanceOptions, given, drain=tuple(given.drain)))


if __name__ == "__main__":
    sys.exit(main())
