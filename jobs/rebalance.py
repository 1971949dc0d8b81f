"""Even replicas and leaders out over the servers, or empty some of them: run under spark-submit.

Exit status: 0 planned, proposed or, with --wait, all done; 2 some moves were refused, failed or are still waiting;
1 the job could not run.
"""

from __future__ import annotations

import argparse
import json
import sys

from nyala.pipeline import QueryInterrupted, QueryRefused, RebalanceOptions, Rebalancer, kafka_options, spark_session
from nyala.pipeline.rebalance import all_done, describe, proposal_of, summary
from nyala.replica.base import ReplicaError


def main() -> int:
    """Plan, show, propose, wait."""
    parser = argparse.ArgumentParser(prog="nyala rebalance", description="reports -> a plan -> proposals")
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and change nothing")
    parser.add_argument("--wait", action="store_true", help="until every move has ended")
    parser.add_argument("--wait-s", type=float, default=600.0, help="how long --wait waits")
    parser.add_argument("--moves-max", type=int, default=10)
    parser.add_argument("--moves-per-server-max", type=int, default=2)
    parser.add_argument("--deadline-s", type=float, default=600.0)
    parser.add_argument(
        "--drain", action="append", default=[], metavar="UUID", help="empty this server; or its beginning"
    )
    parser.add_argument("--topic-prefix", default="", help="of the masters' topics")
    parser.add_argument("--kafka-timeout-s", type=float, default=60.0, help="patience with a broker")
    parser.add_argument("--kafka-option", action="append", default=[], metavar="NAME=VALUE", help="for Spark's source")
    parser.add_argument("--kafka-properties", default="", metavar="FILE", help="Java client properties: how to log in")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    try:
        options = RebalanceOptions(
            bootstrap=given.kafka,
            topic_prefix=given.topic_prefix,
            moves_max=given.moves_max,
            moves_per_server_max=given.moves_per_server_max,
            deadline_s=given.deadline_s,
            drain=tuple(given.drain),
            kafka_timeout_s=given.kafka_timeout_s,
            kafka=kafka_options(given.kafka_option, given.kafka_properties),
        )
        rebalancer = Rebalancer(spark_session("nyala rebalance"), options)
        plan = rebalancer.plan()
        if not given.json:
            print(describe(plan), flush=True)
        state: dict[str, str] = {}
        if not given.dry_run and plan.moves:
            rebalancer.propose(plan)
            if given.wait:
                tell = (lambda _: None) if given.json else (lambda text: print(text, flush=True))
                state = rebalancer.wait(plan, given.wait_s, tell)
        if given.json:
            moves = [proposal_of(plan.plan_id, move, 0) | {"reserved": ""} for move in plan.moves]
            print(json.dumps({"plan_id": plan.plan_id, "moves": moves, "state": state, "dry_run": given.dry_run}))
        elif state:
            print(summary(state), flush=True)
    except (QueryRefused, QueryInterrupted, ReplicaError) as error:
        print(f"nyala rebalance: {error}", file=sys.stderr)
        return 1
    return 0 if all_done(state.values()) else 2


if __name__ == "__main__":
    sys.exit(main())
