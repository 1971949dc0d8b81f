"""Three real replicas that depose each other several times a second, under writers that need every answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from nyala.replica.rows import RowOp
from nyala.replica.types import RowCode
from tests.harness.cluster import LocalCluster, local_cluster, wait_until
from tests.harness.one_tablet import TABLET, create, leaders_by_term, scan_leader, wait_equal, write
from tests.harness.rows import batch, write_request
from tests.harness.told import tell

pytestmark = [pytest.mark.process, pytest.mark.deep]

CAMPAIGNS = 0.03
"""The probability that a follower campaigns at a tick of 50 ms: two followers depose a leader after a second or
less."""
NOTICES_S = 0.05
TERMS = 6
"""The least number of leaders seen in each phase."""
WRITES = 25
"""The writes of each writer, in each phase."""
RIVAL_KEYS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(3, module="tests.harness.churny_server") as made:
        yield made


class Writer:
    """One client: each write is repeated, under one sequence number, until a server answers it. With `rivals`, it
    inserts a few keys of its own and deletes them, in turn, whether they are there or not; else each key is new."""

    def __init__(self, cluster: LocalCluster, number: int, *, rivals: bool) -> None:
        self.held: dict[int, str] = {}
        self.answered = 0
        self._servers = itertools.cycle(cluster.servers)
        self._at = next(self._servers)
        self._name, self._first, self._rivals = f"writer {number}", number * 10_000, rivals

    def write(self, count: int) -> None:
        for _ in range(count):
            self.answered += 1
            n = self.answered
            op = RowOp.DELETE if self._rivals and n % 4 == 0 else RowOp.INSERT
            key = self._first + (n % RIVAL_KEYS if self._rivals else n)
            reply = wait_until(lambda: self._ask(op, key, n), f"write {n} of {self._name} is answered")  # noqa: B023
            wrong = (key in self.held) == (op is RowOp.INSERT)
            code = RowCode.ALREADY_PRESENT if op is RowOp.INSERT else RowCode.NOT_FOUND
            assert [e.code for e in reply.row_errors] == [code] * wrong, (self._name, n, reply)
            if not wrong and op is RowOp.INSERT:
                self.held[key] = f"by {n}"
            elif not wrong:
                del self.held[key]

    def _ask(self, op: RowOp, key: int, n: int) -> Any:
        rows = batch([key], [f"by {n}"], op)
        try:
            request = write_request(self._at.uuid, TABLET, rows, client_id=self._name, sequence=n)
            reply = self._at.tablets.Write(request, timeout=10)
            if not reply.error.code:
                return reply
        except grpc.RpcError:
            pass
        self._at = next(self._servers)
        return None


def test_every_write_is_answered_once_while_leaders_are_deposed_all_the_time(cluster: LocalCluster) -> None:
    """CN-24. Goal: scenario 92. Method: timers that run out after two ticks, and followers that ask, at random, for
    votes that nobody withholds. Two writers insert rows of their own keys, two insert and delete a few keys, on and on;
    first with news in time, then with all news to the replicas late at random. Each write gets the one answer that a
    model gives, while leaders change again and again, one in each term; then three replicas hold exactly the model's
    rows."""
    create(cluster)
    writers = [Writer(cluster, n, rivals=n >= 2) for n in range(4)]
    for notices_s in (0.0, NOTICES_S):
        for server in cluster.servers:
            tell(server, "notices", notices_s)
            tell(server, "campaigns", CAMPAIGNS)
        goal = len(leaders_by_term(cluster)) + TERMS
        with ThreadPoolExecutor(len(writers)) as pool:
            while True:
                list(pool.map(lambda w: w.write(WRITES), writers))
                if len(leaders_by_term(cluster)) >= goal:
                    break
    for server in cluster.servers:
        tell(server, "campaigns", 0)
        tell(server, "notices", 0)
    held = {key: value for writer in writers for key, value in writer.held.items()}
    time = write(cluster, 900_000, 1, size=1)
    held[900_000] = "x"
    assert scan_leader(cluster) == held
    assert wait_equal(cluster.servers, time)[1] == len(held)
    found = leaders_by_term(cluster)
    assert all(len(uuids) == 1 for uuids in found.values()), found
