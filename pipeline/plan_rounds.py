"""The common parts of the jobs that plan: their options, and the rounds of planning, proposing and waiting."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable

from nyala.replica.types import ReplicaError
from nyala.replica.types.logs import log_to_stderr
from nyala.schemas import to_avro

from .arguments import add_kafka_options, count, parsed, seconds
from .errors import QueryInterrupted, QueryRefused
from .rebalance import POLL_S, Plan, RebalanceOptions, Rebalancer, all_done, describe, summary
from .session import spark_session


def plan_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all of these jobs have."""
    parser = argparse.ArgumentParser(prog=f"nyala {name}", description=description)
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and change nothing")
    parser.add_argument("--wait", action="store_true", help="until every move has ended")
    parser.add_argument("--wait-s", type=seconds("--wait-s"), default=600.0, help="how long --wait waits")
    parser.add_argument(
        "--rounds-max",
        type=count("--rounds-max", 1),
        default=1,
        help="with --wait: plan again, so many times, until nothing is left to move",
    )
    parser.add_argument(
        "--moves-max", type=count("--moves-max", 1), default=10, help="at most so many replicas move in a plan"
    )
    parser.add_argument(
        "--moves-per-server-max",
        type=count("--moves-per-server-max", 1),
        default=2,
        help="at most so many of them to or from one server",
    )
    parser.add_argument(
        "--leader-moves-max",
        type=count("--leader-moves-max", 1),
        default=200,
        help="at most so many leaderships move in a plan",
    )
    parser.add_argument(
        "--leader-moves-per-server-max",
        type=count("--leader-moves-per-server-max", 1),
        default=50,
        help="at most so many of them to or from one server",
    )
    parser.add_argument(
        "--deadline-s",
        type=seconds("--deadline-s", 0.1),
        default=600.0,
        help="a move that is not done by then is given up",
    )
    parser.add_argument(
        "--inputs-wait-s",
        type=seconds("--inputs-wait-s"),
        default=30.0,
        help="how long a plan waits for reports that are missing or out of date, before it is refused",
    )
    parser.add_argument(
        "--drain", action="append", default=[], metavar="UUID", help="empty this server; or its beginning"
    )
    add_kafka_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a plan")
    return parser


def say(text: str) -> None:
    """Print one line, without buffering."""
    print(text, flush=True)


def run_rounds(parser: argparse.ArgumentParser, options: Callable[[argparse.Namespace], RebalanceOptions]) -> int:
    """Run one or several rounds, each with a plan of its own; return the job's exit status.

    0: the moves are planned and proposed, and with --wait all are done. 1: the job could not run. 2: with --wait, not
    all is done: some moves were refused, failed or still wait; the caps left moves out; some tablets are not settled,
    or no other server can take them; or the last of several rounds still had moves to propose.
    """
    log_to_stderr(logging.WARNING)
    given = parsed(parser)
    if given.rounds_max > 1 and not given.wait:
        parser.error("--rounds-max is more than 1 only with --wait")
    try:
        wanted = options(given)
        rebalancer = Rebalancer(spark_session(parser.prog), wanted)
        deadline = time.monotonic() + given.wait_s
        state: dict[str, str] = {}
        for _ in range(given.rounds_max):
            if not all_done(state.values()):
                time.sleep(POLL_S)
            settle_s = deadline - time.monotonic() if given.rounds_max > 1 else 0.0
            plan = rebalancer.plan_when_settled(settle_s, (lambda _: None) if given.json else say)
            state = _carry_out(rebalancer, plan, given, max(0.0, deadline - time.monotonic()))
            if not state or time.monotonic() >= deadline:
                break
    except (QueryRefused, QueryInterrupted, ReplicaError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    done = not plan.moves or (given.rounds_max == 1 and all_done(state.values()))
    return 0 if given.dry_run or not given.wait or (done and plan.complete) else 2


def _carry_out(rebalancer: Rebalancer, plan: Plan, given: argparse.Namespace, wait_s: float) -> dict[str, str]:
    """Print the plan, propose it, and wait; returns the result of each move, or an empty dict without a wait."""
    if not given.json:
        say(describe(plan))
    state: dict[str, str] = {}
    if not given.dry_run and plan.moves:
        rebalancer.propose(plan)
        if given.wait:
            state = rebalancer.wait(plan, wait_s, (lambda _: None) if given.json else say)
    if given.json:
        both = zip(plan.moves, plan.proposals(), strict=True)
        moves = [to_avro(proposal) | {"reserved": "", "bytes": move.bytes} for move, proposal in both]
        told = {
            "plan_id": plan.plan_id,
            "moves": moves,
            "state": state,
            "unsettled": plan.unsettled,
            "stuck": plan.stuck,
            "left_out_by_caps": plan.left_out,
            "leader_moves_left_out_by_caps": plan.leaders_left_out,
            "replica_moves_bound": plan.replica_bound,
            "leader_moves_bound": plan.leader_bound,
        }
        newest, oldest = plan.ages_s
        say(json.dumps(told | {"dry_run": given.dry_run, "newest_input_age_s": newest, "oldest_input_age_s": oldest}))
    elif state:
        say(summary(state))
    return state
