"""One write sent many times: to every replica, by many threads, over deaths, restarts and a copy, with other bodies."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from nyala.replica.rows import RowOp, crc32c
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.types import CRASH_EXIT_CODE, Code, RowCode
from tests.harness.cluster import PATIENCE_S, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import (
    TABLET,
    by_leader,
    change,
    collect,
    create,
    create_under_doomed,
    flush,
    lead,
    scan_leader,
    wait_equal,
    write,
)
from tests.harness.rows import batch, write_request

pytestmark = pytest.mark.process

THREADS, WRITES = 4, 90
DOOMED = (45, 75)
RIVALS = 5
"""The number of writes that use the same key."""


def as_bytes(reply: Any) -> bytes:
    return bytes(reply.SerializeToString(deterministic=True))


def contested(number: int) -> Any:
    """Return the rows of one write. A third of the writes finds no row, so that only the ledger distinguishes two
    attempts; the others insert a key of their own, twice, and one that their rivals use."""
    if number % 3 == 0:
        return batch([-number], [""], RowOp.DELETE_IGNORE)
    own = 1000 + number
    return batch([own, number // RIVALS, own], [f"by {number}"] * 3, RowOp.INSERT)


class Sayers:
    """Threads that send the same writes, each in an order of its own, each to all replicas at once until one answers.

    The thread that sends a doomed write first kills the leader before it has any answer.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self.answers: dict[int, Counter[bytes]] = defaultdict(Counter)
        self._cluster = cluster
        self._lock = threading.Lock()
        self._doomed = set(DOOMED)
        self._answered_last = cluster.servers[0].process

    def run(self, seed: int) -> None:
        """Send every write until it is answered."""
        # Channels of its own: those of the cluster end with a server.
        options = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.use_local_subchannel_pool", 1)]
        servers = self._cluster.servers
        channels = [grpc.insecure_channel(server.address, options) for server in servers]
        roads = list(zip(servers, map(pb_grpc.TabletServiceStub, channels), strict=True))
        rng = random.Random(seed)
        for first in range(1, WRITES + 1, 10):
            numbers = list(range(first, first + 10))
            rng.shuffle(numbers)
            for number in numbers:
                wait_until(lambda n=number: self._say(roads, n), f"write {number} is answered")  # type: ignore[misc]
        for channel in channels:
            channel.close()

    def _say(self, roads: list[tuple[ServerProcess, Any]], number: int) -> bool:
        rows = contested(number)
        request = lambda uuid: write_request(uuid, TABLET, rows, client_id="one", sequence=number)  # noqa: E731
        calls = [(s.process, stub.Write.future(request(s.uuid), timeout=10)) for s, stub in roads]
        with self._lock:
            leader = self._answered_last
            if number in self._doomed and leader is not None and leader.poll() is None:
                self._doomed.discard(number)
                leader.kill()
        answered = False
        for process, call in calls:
            if call.exception() is None and not call.result().error.code:
                answered = True
                with self._lock:
                    self._answered_last = process
                    self.answers[number][as_bytes(call.result())] += 1
        return answered


def start_those_that_died(cluster: LocalCluster) -> list[int]:
    """Start the dead servers again; returns their exit codes."""
    codes = []
    for server in cluster.servers:
        if not server.alive:
            codes.append(server.wait_exit())
            server.env.clear()
            server.start()
    return codes


@pytest.mark.deep
def test_write_said_by_many_threads_to_every_replica_over_dying_leaders_is_done_once() -> None:
    """Goal: scenario 53: every reply that is no refusal to one (client id, sequence) has the same bytes, row errors
    included, and its rows are stored once. Method: four threads say 90 writes to all three replicas, in different
    orders; the first leader dies between its sync and its messages, the next ones by kill -9 right after a write was
    sent. Keys are inserted twice and by rivals, so errors depend on the order; a third of the writes has no effect."""
    with local_cluster() as cluster:
        # A sync has at most one write of each thread: the tenth comes before the first doomed write.
        create_under_doomed(cluster, 3, "wal.after_sync:10")
        sayers, exits = Sayers(cluster), []
        with ThreadPoolExecutor(THREADS) as pool:
            threads = [pool.submit(sayers.run, seed) for seed in range(THREADS)]

            def over() -> bool:
                exits.extend(start_those_that_died(cluster))
                return all(thread.done() for thread in threads)

            wait_until(over, "every write is answered to every thread", 4 * PATIENCE_S)
            for thread in threads:
                thread.result()
        exits += start_those_that_died(cluster)
        assert Counter(exits) == {CRASH_EXIT_CODE: 1, -signal.SIGKILL: len(DOOMED)}

        assert sorted(sayers.answers) == list(range(1, WRITES + 1))
        expected: dict[int, str] = {}
        for number, replies in sayers.answers.items():
            assert len(replies) == 1 and replies.total() >= THREADS, (number, replies)
            reply = pb.WriteReply.FromString(next(iter(replies)))
            rows, errors = contested(number), {e.offset: e.code for e in reply.row_errors}
            assert set(errors.values()) <= {RowCode.ALREADY_PRESENT} and reply.rows_applied == rows.num_rows - len(
                errors
            )
            if number % 3:
                assert 2 in errors and 0 not in errors
                for offset in {0, 1} - errors.keys():
                    key = rows.column("k")[offset].as_py()
                    assert key not in expected, "two rivals were told that they have it"
                    expected[key] = f"by {number}"
        time = write(cluster, 5000, 1, size=1)
        expected[5000] = "x"
        assert scan_leader(cluster) == expected
        assert set(range(WRITES // RIVALS)) <= expected.keys()
        assert wait_equal(cluster.servers, time)[1] == len(expected)


def bodies(server: ServerProcess, sequence: int) -> Iterator[Any]:
    """Yield the number with other rows, with none that can be read, with a wrong sum, of no schema: small and large."""
    fields = {"client_id": "one", "sequence": sequence}
    yield write_request(server.uuid, TABLET, batch([77, 78], ["other", "rows"]), **fields)
    for size in (1, 100_000):
        good = write_request(server.uuid, TABLET, batch([77], ["x" * size]), **fields)
        for wrong in (
            {"payload_crc": good.payload_crc ^ 1},
            {"payload": good.payload[:-9], "payload_crc": crc32c(good.payload[:-9])},
            {"payload": b"\xff" * size, "payload_crc": crc32c(b"\xff" * size)},
            {"rows": 3},
            {"schema_id": 99},
        ):
            request = pb.WriteRequest()
            request.CopyFrom(good)
            for name, value in wrong.items():
                setattr(request, name, value)
            yield request


def of_source(server: ServerProcess, first: int, count: int, after: int | None) -> Any:
    """Return records of a Kafka partition that insert keys [100, 104) in turn: only the first four can be inserted."""
    keys = [100 + offset % 4 for offset in range(first, first + count)]
    source = pb.SourceKey(cluster_id="c", topic_id="t", kafka_partition=0)
    rows = batch(keys, [f"at {first}"] * count, RowOp.INSERT, first)
    return write_request(server.uuid, TABLET, rows, source=source, has_after=after is not None, after=after or 0)


def test_first_answer_outlives_restarts_and_travels_with_a_copy_whatever_body_comes() -> None:
    """Goal: scenario 54: a write's result is remembered, not only its number. Method: inserts of keys that are there,
    in whole and in part, flushed and not; after each of five restarts, by kill -9 and in order, the same numbers come
    with the same, with other and with broken bodies: each reply has the bytes of the first. The same at a replica that
    was copied, log and blocks, and leads. A number that nobody used is refused for its broken body all the time.

    Scenario 63: the same for records of a Kafka partition, whose offset is stored with what they did: all read again is
    a replay with its errors, and what skips an offset is refused."""
    with local_cluster(1, "--log-retain-entries", "0", "--log-retain-bytes", "0") as cluster:
        (server,) = cluster.servers
        create(cluster)
        firsts: dict[int, tuple[Any, bytes]] = {}

        def insert(sequence: int, *keys: int) -> set[int]:
            rows = batch(keys, [f"by {sequence}"] * len(keys), RowOp.INSERT)
            request = write_request(server.uuid, TABLET, rows, client_id="one", sequence=sequence)
            reply = server.tablets.Write(request, timeout=30)
            assert not reply.error.code, reply.error
            firsts[sequence] = request, as_bytes(reply)
            assert {e.code for e in reply.row_errors} <= {RowCode.ALREADY_PRESENT}
            return {e.offset for e in reply.row_errors}

        def say_again(leader: ServerProcess) -> None:
            def say(request: Any) -> Any:
                return by_leader(cluster, leader, lambda: leader.tablets.Write(request, timeout=30))

            for sequence, (request, first) in firsts.items():
                request.dest_uuid = leader.uuid
                for again in (request, *bodies(leader, sequence)):
                    assert as_bytes(say(again)) == first, again
            again = say(of_source(leader, 0, 10, None))
            assert (again.error.code, again.rows_applied, again.rows_replayed, again.last_offset) == (0, 0, 10, 9)
            assert [e.offset for e in again.row_errors] == [4, 5, 6, 7, 8, 9]
            ahead = say(of_source(leader, 11, 1, 10))
            assert (ahead.error.code, ahead.error.detail) == (Code.GAP, "9")
            for unknown in list(bodies(leader, 1_000_000))[1:]:
                code = say(unknown).error.code
                assert code == (Code.SCHEMA_MISMATCH if unknown.schema_id == 99 else Code.INVALID_BATCH)

        assert (insert(1, 1, 2), insert(2, 1), insert(3, 2, 3)) == (set(), {0}, {0})
        assert not server.tablets.Write(of_source(server, 0, 6, None), timeout=30).error.code
        assert not server.tablets.Write(of_source(server, 6, 4, 5), timeout=30).error.code
        say_again(server)
        for restart in range(5):
            if restart == 2:
                flush(server)
                assert insert(4, 3, 4, 1) == {0, 2}
            (server.kill if restart % 2 else server.stop)()
            server.start()
            say_again(cluster.leader(TABLET))

        collect(server)
        assert insert(5, 4) == {0}
        copied = cluster.add_server()
        change(cluster, "add", copied.member(votes=False, promote=True))

        def votes() -> bool:
            members = cluster.status(cluster.leader(TABLET), TABLET).committed_config.members
            return any(m.uuid == copied.uuid and m.votes for m in members)

        wait_until(votes, "the copy votes")
        assert cluster.status(copied, TABLET).flush_index > 0
        lead(cluster, copied)
        say_again(copied)
        found = scan_leader(cluster, leading=copied)
        assert found == {1: "by 1", 2: "by 1", 3: "by 3", 4: "by 4", **dict.fromkeys(range(100, 104), "at 0")}
