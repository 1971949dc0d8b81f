"""Seven real replicas whose leaders die between the sync of a write and its messages, or right after it was sent."""

from __future__ import annotations

from collections import Counter
from typing import Any

import grpc
import pytest

from nyala.replica.rows import RowOp
from nyala.replica.types import CRASH_EXIT_CODE, RowCode
from tests.harness.cluster import local_cluster, wait_until
from tests.harness.one_tablet import TABLET, create_under_doomed, flush, scan_leader, wait_equal, write
from tests.harness.rows import batch, write_request

pytestmark = [pytest.mark.process, pytest.mark.deep]

SPACED, RIVALS, FLICKERING = range(40), range(40, 80), range(80, 120)
"""The numbers of writes with keys of their own, with three keys, and with one key that is inserted and deleted."""
DOOMED = (60, 95)


def row_of(number: int) -> tuple[RowOp, int]:
    """Return the operation and the key of one write."""
    if number in SPACED:
        return RowOp.INSERT, 1000 + number
    if number in RIVALS:
        return RowOp.INSERT, number % 3
    return (RowOp.INSERT, RowOp.DELETE, RowOp.DELETE)[number % 3], 500


def test_rows_are_exact_and_seven_replicas_equal_though_leaders_die_before_they_send() -> None:
    """Goal: scenarios 9 and 10 on real processes (their slow log: `test_driver_scenarios.py`). Method: the first leader
    dies as its log is synced and nothing is sent, two more by kill -9 as a write was sent to them; all come back.
    Inserts of fresh keys, of three keys, and inserts and deletes of one key between flushes that collect rows which
    are gone: each answer is what a model says, and in the end all seven hold the model's rows."""
    held: dict[int, str] = {}
    with local_cluster() as cluster:
        create_under_doomed(cluster, 7, "wal.after_sync:30")
        exits: list[int] = []

        def say(number: int) -> Any:
            """Return the reply to the write, by whichever server leads."""
            leader, (op, key) = cluster.leader(TABLET), row_of(number)
            rows = batch([key], [f"by {number}"], op)
            call = leader.tablets.Write.future(
                write_request(leader.uuid, TABLET, rows, client_id="one", sequence=number + 1), timeout=10
            )
            if number in DOOMED and len(exits) <= DOOMED.index(number) + 1 and not call.done():
                leader.kill()
            try:
                reply = call.result()
            except (grpc.RpcError, grpc.FutureCancelledError):
                reply = None
            for dead in [s for s in cluster.servers if not s.alive]:
                exits.append(dead.wait_exit())
                dead.env.clear()
                dead.start(wait=False)
            return reply if reply is not None and not reply.error.code else None

        for number in (*SPACED, *RIVALS, *FLICKERING):
            op, key = row_of(number)
            reply = wait_until(lambda n=number: say(n), f"write {number} is answered")  # type: ignore[misc]
            wrong = (key in held) == (op is RowOp.INSERT)
            code = RowCode.ALREADY_PRESENT if op is RowOp.INSERT else RowCode.NOT_FOUND
            assert [e.code for e in reply.row_errors] == [code] * wrong, (number, reply)
            if not wrong and op is RowOp.INSERT:
                held[key] = f"by {number}"
            elif not wrong:
                del held[key]
            if number in FLICKERING and number % 8 == 0:
                flush(cluster.leader(TABLET))
        for server in cluster.servers:
            server.wait_ready()
        time = write(cluster, 5000, 1, size=1)
        held[5000] = "x"
        assert scan_leader(cluster) == held
        assert wait_equal(cluster.servers, time)[1] == len(held)
        assert Counter(exits)[CRASH_EXIT_CODE] == 1 and len(exits) >= 2, exits
