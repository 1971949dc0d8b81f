"""Three real servers that die, over and over, where entries and votes become promises, under clients that retry."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import NamedTuple

import grpc
import pyarrow as pa
import pytest

from nyala.replica.client import Client, ClientOptions, ScanSpec, TableHandle, wire_batches
from nyala.replica.consensus_metadata import CmetaView, path_of, read_cmeta
from nyala.replica.fs import RealDisk
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, TableSchema
from nyala.replica.rpc import pb
from nyala.replica.tools import check_directory
from nyala.replica.types import CRASH_EXIT_CODE
from nyala.replica.types.crash_points import CRASH_VARIABLE
from tests.harness.cluster import CALL_TIMEOUT_S, PATIENCE_S, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import leaders_by_term, wait_equal

pytestmark = [pytest.mark.process, pytest.mark.deep]

SEED = int(os.environ.get("NYALA_SOAK_SEED", "85"))
SCHEMA = TableSchema(
    1,
    (Column(id=1, name="k", type=ColumnType.INT64, nullable=False), Column(id=2, name="v", type=ColumnType.STRING)),
    ("k",),
)
WRITERS, KEYS_EACH = 6, 1_000_000
DEATHS = 20
LOG = ("before_append", "after_write_before_sync", "after_sync")
VOTE = ("before_flush", "after_flush")
FILE = ("written", "exchanged")


class Life(NamedTuple):
    """The point at which a server is started to die, and in which role."""

    point: str
    role: str


LIVES = (
    *(Life(f"wal.{point}", role) for point in LOG for role in ("LEADER", "FOLLOWER")),
    *(Life(f"cmeta.{point}", role) for point in VOTE for role in ("CANDIDATE", "FOLLOWER")),
    *(Life(f"spare.{point}", "FOLLOWER") for point in FILE),
)
ASKS = Life("cmeta.before_flush", "CANDIDATE")
"""It dies as it begins to ask, and what it asks may die with it: wanted so often, if it is told, or so many tries."""
ASKS_DEATHS, ASKS_TRIES = 3, 9


def kept(server: ServerProcess, tablet_id: str) -> CmetaView:
    """Return the terms and votes in its file now."""
    path = server.root / path_of(tablet_id)
    return read_cmeta(path.read_bytes(), str(path))


class Votes:
    """The terms and votes in the files of all servers, whenever they are read. Concurrency: one thread."""

    def __init__(self, cluster: LocalCluster, tablet_id: str) -> None:
        self._cluster, self._tablet = cluster, tablet_id
        self._terms: Counter[str] = Counter()
        self._given: dict[tuple[str, int], str] = {}

    def look(self) -> None:
        """Check that no term falls, no vote changes within its term, and that a server that received a vote knew the
        term before it asked."""
        for server in self._cluster.servers:
            found = kept(server, self._tablet)
            assert found.term >= self._terms[server.uuid], (server.uuid, self._terms[server.uuid], found)
            self._terms[server.uuid] = found.term
            if found.voted_for:
                assert self._given.setdefault((server.uuid, found.term), found.voted_for) == found.voted_for, found
                asked = kept(self._cluster.server(found.voted_for), self._tablet)
                assert asked.term >= found.term, ("it asked before it had kept the term", found)

    def watch(self, over: Event) -> None:
        """Check all the time: a vote stays less than a second until there is another."""
        while not over.wait(0.01):
            self.look()


class Deaths:
    """The servers, each of which is started again to die at the next point."""

    def __init__(self, cluster: LocalCluster, tablet_id: str, rng: random.Random) -> None:
        self.died: Counter[Life] = Counter()
        self._cluster, self._tablet, self._rng = cluster, tablet_id, rng
        self._lives: dict[str, Life] = {}
        self._begun: Counter[Life] = Counter()
        self._log_bytes: dict[str, int] = {}
        self._until_it_leads = 150

    def begin(self, server: ServerProcess) -> None:
        """Start the server with the kind of life of which there were the fewest."""
        under_way = Counter(self._lives.values())
        seen = lambda one: (self.died[one] + under_way[one]) // (ASKS_DEATHS if one == ASKS else 1)  # noqa: E731
        life = min(self._rng.sample(LIVES, len(LIVES)), key=seen)
        if life.role == "CANDIDATE":  # its first flush but for that of the term in which the others are
            own, *terms = (kept(s, self._tablet).term for s in (server, *self._cluster.servers))
            countdown = 1 + (own < max(terms))
        elif not life.point.startswith("wal"):
            countdown = self._rng.randint(1, 3)
        else:
            countdown = self._rng.randint(3, 100) + (life.role == "LEADER") * self._until_it_leads
        self._lives[server.uuid] = life
        self._begun[life] += 1
        self._log_bytes[server.uuid] = server.log_path.stat().st_size
        server.start(wait=False, env={CRASH_VARIABLE: f"{life.point}:{countdown}"})

    def bury(self, server: ServerProcess) -> None:
        """Note the point at which it died."""
        assert server.wait_exit() == CRASH_EXIT_CODE, server.log_tail()
        life = self._lives.pop(server.uuid)
        said = server.log_path.read_bytes()[self._log_bytes[server.uuid] :].decode()
        roles = re.findall(rf"T {self._tablet} P \w+ \[term \d+ (\w+)\]", said)
        if life.role == "LEADER" and roles[-1:] != ["LEADER"]:  # on this machine it takes longer to be elected
            self._until_it_leads *= 2
        life = life._replace(role=roles[-1] if roles else "")
        self.died[life] += 1

    @property
    def enough(self) -> bool:
        asked = self.died[ASKS] >= ASKS_DEATHS or self._begun[ASKS] >= ASKS_TRIES
        return asked and self.died.total() >= DEATHS and all(self.died[life] for life in LIVES if life != ASKS)

    def step(self) -> bool:
        """Return whether there were enough deaths; otherwise start the dead servers, and make the chosen one lead."""
        for server in self._cluster.servers:
            if not server.alive:
                self.bury(server)
                self.begin(server)
        leader = self._leader()
        if leader is not None and (target := self._target(leader)) is not leader:
            over = pb.TransferRequest(dest_uuid=leader.uuid, tablet_id=self._tablet, target_uuid=target.uuid)
            leader.tablets.TransferLeadership(over, timeout=CALL_TIMEOUT_S)
        return self.enough

    def _leader(self) -> ServerProcess | None:
        leaders: dict[int, ServerProcess] = {}
        for server in self._cluster.servers:
            with suppress(grpc.RpcError):
                status = self._cluster.status(server, self._tablet)
                if status and status.role == "LEADER":
                    leaders[status.term] = server
        return leaders[max(leaders)] if leaders else None

    def _target(self, leader: ServerProcess) -> ServerProcess:
        """Return the server that is to die as the leader and leads until it does; otherwise move leadership around, so
        that there are votes."""
        servers = self._cluster.servers
        to_lead = [s for s in servers if self._lives[s.uuid].role == "LEADER"]
        to_ask = [s for s in servers if self._lives[s.uuid].role == "CANDIDATE" and s is not leader]
        return to_lead[0] if to_lead else self._rng.choice(to_ask or servers)


def runs(cluster: LocalCluster, server: ServerProcess, tablet_id: str) -> bool:
    """Return whether its replica is a member that knows its leader."""
    status = cluster.status(server, tablet_id)
    return status is not None and status.phase == "RUNNING" and status.role in ("LEADER", "FOLLOWER")


def insert(client: Client, handle: TableHandle, first: int, over: Event) -> tuple[int, int]:
    """Insert one row after the other, each acknowledged without a row error; returns how many, and the time of the
    last."""
    with client.session_writer(handle) as writer:
        count = 0
        while not over.is_set():
            columns = pa.table({"k": [first + count], "v": [f"{count}"]})
            for batch in wire_batches(handle, columns, RowOp.INSERT):
                writer.write(batch)
            count += 1
            assert not writer.row_errors and writer.rows_applied == count, (first, count, writer.row_errors)
        return count, writer.last_time


def test_rows_are_exact_and_no_promise_is_broken_though_servers_die_where_promises_are_made() -> None:
    """CN-02, CN-22, TC-14. Goal: scenario 9 at every point where an entry or a vote becomes a promise: before it is
    written, before it is synced, and when it is on disk and nobody was told. Method: six clients insert rows of their
    own. All three servers are started to die of one of seven points, and again whenever they did, until each point of
    the log has killed a leader and a follower, and each of the metadata a server that is asked for a vote, and the two
    around their write also one that asks.
    Meanwhile no file takes back a term or a vote, and nobody votes for who may forget the term. In the end each row is
    there once, all replicas have all of them, each term had one leader, and no directory has a finding."""
    print(f"again: NYALA_SOAK_SEED={SEED}")
    with local_cluster() as cluster:
        master, over = cluster.add_master("--execute-decisions=none"), Event()
        for _ in range(3):
            cluster.add_server()
        with (
            Client([master.address], ClientOptions(write_timeout_s=2 * PATIENCE_S)) as client,
            ThreadPoolExecutor(WRITERS + 1) as pool,
        ):
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "three servers are alive")
            handle = client.create_table("t", SCHEMA, PartitionSpec(("k",), 1))
            tablet_id = handle.tablets[0].tablet_id
            wait_until(lambda: all(runs(cluster, s, tablet_id) for s in cluster.servers), "each server has a replica")
            votes = Votes(cluster, tablet_id)
            deaths = Deaths(cluster, tablet_id, random.Random(SEED))
            for server in cluster.servers:
                server.kill()
                deaths.begin(server)
            watched = pool.submit(votes.watch, over)
            writers = [pool.submit(insert, client, handle, n * KEYS_EACH, over) for n in range(WRITERS)]
            try:
                wait_until(lambda: deaths.step() or watched.done(), "each life has ended as it was to", 4 * PATIENCE_S)
            finally:
                over.set()
                for server in cluster.servers:
                    server.kill()
                    server.start(wait=False)
            watched.result()
            told = [writer.result() for writer in writers]
            print(f"{deaths.died.total()} deaths, {sum(count for count, _ in told)} rows, {deaths.died}")
            votes.look()

            expected = {n * KEYS_EACH + row: f"{row}" for n, (count, _) in enumerate(told) for row in range(count)}
            (part,) = client.scan(handle, ScanSpec())
            found = pa.Table.from_batches(part.batches)
            assert found.num_rows == len(expected), "each row once"
            assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
            at = max(time for _, time in told)
            assert wait_equal(cluster.servers, at, tablet_id=tablet_id)[1] == len(expected)
        leaders = leaders_by_term(cluster, tablet_id)
        assert all(len(uuids) == 1 for uuids in leaders.values()), leaders
        for server in cluster.servers:
            assert server.stop() == 0
            assert not check_directory(RealDisk(server.root)).all_findings
