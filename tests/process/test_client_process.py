"""The client against real servers that die, stop and change their identity while it works."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import grpc
import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.client import Client, ClientOptions, NotApplied, ScanSpec, TableHandle, wire_batches
from nyala.replica.client.writes import write_request
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, SourceKey, TableSchema, WriteMeta
from nyala.replica.types import Address, Code, RowCode
from tests.harness.cluster import LocalCluster, local_cluster, wait_until

pytestmark = pytest.mark.process

SCHEMA = TableSchema(
    1,
    (Column(id=1, name="k", type=ColumnType.INT64, nullable=False), Column(id=2, name="v", type=ColumnType.STRING)),
    ("k",),
)
SOURCE = SourceKey("cluster", "topic", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster() as made:
        made.add_master("--execute-decisions=none")
        for _ in range(3):
            made.add_server()
        yield made


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    for server in cluster.servers:
        if not server.alive:
            server.start()
    with Client([cluster.masters[0].address]) as made:
        wait_until(lambda: sum(s.alive for s in made.list_servers().servers) >= 3, "three servers are alive")
        yield made


def new_table(client: Client, name: str, buckets: int = 2) -> TableHandle:
    return client.create_table(name, SCHEMA, PartitionSpec(("k",), buckets))


def rows(first: int, count: int) -> tuple[pa.Table, np.ndarray]:
    """Return rows and their offsets: every other offset, as transaction markers leave them."""
    return pa.table({"k": np.arange(first, first + count), "v": ["x" * 20] * count}), np.arange(
        2 * first, 2 * (first + count), 2, dtype=np.int64
    )


def leader_of(client: Client, cluster: LocalCluster, handle: TableHandle) -> int:
    """Return the position in the cluster of the server that leads the first tablet."""
    return cluster.servers.index(cluster.leader(handle.tablets[0].tablet_id))


def wait_until_all_run(cluster: LocalCluster, handle: TableHandle) -> None:
    """Wait until each server has a replica of each tablet that runs, as before the death of a leader: one that is still
    being copied is no majority with another."""
    for tablet in handle.tablets:
        runs = lambda s, t=tablet: (found := cluster.status(s, t.tablet_id)) and found.phase == "RUNNING"  # noqa: E731
        wait_until(lambda runs=runs: all(map(runs, cluster.servers)), "every replica runs")  # type: ignore[misc]


def test_source_writer_survives_the_kill_of_a_leader_and_a_replay_doubles_nothing(
    client: Client, cluster: LocalCluster
) -> None:
    """Goal: pipelined writes arrive exactly once, in order, over a failover; replayed by a cold writer, nothing moves.
    Method: inserts, so that a doubled row would be an error; kill -9 half-way; then all again with no memory."""
    handle = new_table(client, "killed")
    wait_until_all_run(cluster, handle)
    writer = client.source_writer(handle, SOURCE, generation=1, done=0)
    victim = leader_of(client, cluster, handle)
    for part in range(40):
        columns, offsets = rows(part * 250, 250)
        for batch in wire_batches(handle, columns, RowOp.INSERT, offsets):
            writer.send(batch)
        if part == 20:
            cluster.servers[victim].kill()
    writer.flush()
    assert (writer.rows_applied + writer.rows_replayed, writer.row_errors) == (10_000, [])
    assert client.count(handle, ScanSpec()) == 10_000

    again = client.source_writer(handle, SOURCE, generation=1, done=0)
    columns, offsets = rows(0, 10_000)
    for batch in wire_batches(handle, columns, RowOp.INSERT, offsets):
        again.send(batch)
    again.flush()
    assert (again.rows_applied, again.rows_replayed, again.row_errors) == (0, 10_000, [])
    assert again.acknowledged == writer.acknowledged


def test_batch_whose_rows_keep_too_much_is_halved_by_sessions_and_sources(
    client: Client, cluster: LocalCluster
) -> None:
    """IN-60, CN-24. Goal: an honest writer does not meet the bound of what one batch keeps; its rows arrive once and in
    order. Method: a row of a megabyte; then 140 numbers for it in one batch, by a session, and by a source with
    batches behind it. The servers refuse the whole batch to a client that sends it as it is."""
    schema = TableSchema(1, (*SCHEMA.columns, Column(id=3, name="n", type=ColumnType.INT64)), ("k",))
    handle = client.create_table("halved", schema, PartitionSpec(("k",), 1), replication_factor=1)
    long, count = "x" * 1_000_000, 140
    whole = pa.table({"k": [1], "v": [long]})
    many = pa.table({"k": pa.array([1] * count, pa.int64()), "n": np.arange(count)})
    # An attempt that times out may yet be applied, and then a session does not halve.
    patient = ClientOptions(attempt_timeout_s=60.0)
    with Client([cluster.masters[0].address], patient) as sender, sender.session_writer(handle) as session:
        for batch in wire_batches(handle, whole, RowOp.UPSERT):
            session.write(batch)
        (batch,) = wire_batches(handle, many, RowOp.UPDATE)
        with pytest.raises(NotApplied, match="in two batches") as refused:
            sender.write_batch(handle, batch, WriteMeta(batch.column_ids, batch.rows, client_id="plain", sequence=1))
        assert refused.value.code is Code.TOO_LARGE
        session.write(batch)
        assert session.rows_applied == 1 + count
    source = client.source_writer(handle, SOURCE, generation=1, done=0)
    for first in (0, 200, 400):
        numbers = many.slice(0, count if first < 400 else 1)
        offsets = np.arange(first, first + numbers.num_rows, dtype=np.int64)
        for batch in wire_batches(handle, numbers, RowOp.UPDATE, offsets):
            source.send(batch)
    source.flush()
    assert (source.rows_applied + source.rows_replayed, source.row_errors) == (2 * count + 1, [])
    assert source.acknowledged == {handle.tablets[0].tablet_id: 400}
    (part,) = client.scan(handle, ScanSpec(("k", "v", "n")))
    (found,) = (row for rows in part.batches for row in rows.to_pylist())
    assert (found["k"], len(found["v"]), found["n"]) == (1, len(long), 0)


def test_batch_that_writes_one_key_too_often_is_halved_by_sessions_and_sources(
    client: Client, cluster: LocalCluster
) -> None:
    """IN-60, CN-24. Goal: an honest writer does not meet the bound of how often one batch writes a key; the last of its
    rows stands. Method: 2,500 inserts of one key by a session, then as many numbers for it by a source, with a batch
    behind them. The servers refuse the whole batch to a client that sends it as it is."""
    handle = new_table(client, "often", 1)
    count = 2500
    many = pa.table({"k": pa.array([1] * count, pa.int64()), "v": [f"{n}" for n in range(count)]})
    # An attempt that times out may yet be applied, and then a session does not halve.
    patient = ClientOptions(attempt_timeout_s=60.0)
    with Client([cluster.masters[0].address], patient) as sender:
        (batch,) = wire_batches(handle, many, RowOp.INSERT)
        with pytest.raises(NotApplied, match="in two batches") as refused:
            sender.write_batch(handle, batch, WriteMeta(batch.column_ids, batch.rows, client_id="plain", sequence=1))
        assert refused.value.code is Code.TOO_LARGE
        with sender.session_writer(handle, on_error="return") as session:
            session.write(batch)
            assert session.rows_applied == 1
            assert [error.offset for error in session.row_errors] == list(range(1, count))
        source = sender.source_writer(handle, SOURCE, generation=1, done=0)
        for first, rows_of_batch in ((0, many), (count, many.slice(0, 5))):
            offsets = np.arange(first, first + rows_of_batch.num_rows, dtype=np.int64)
            for batch in wire_batches(handle, rows_of_batch, RowOp.UPDATE, offsets):
                source.send(batch)
        source.flush()
    # A half that a busy server answers late is sent again, and is then replayed.
    assert (source.rows_applied + source.rows_replayed, source.row_errors) == (count + 5, [])
    (part,) = client.scan(handle, ScanSpec(("k", "v")))
    assert [row for rows in part.batches for row in rows.to_pylist()] == [{"k": 1, "v": "4"}]


def test_source_writer_that_skips_a_batch_is_told_of_the_gap(client: Client) -> None:
    """Goal: never silently short. Method: claim an offset that the tablet has not acknowledged."""
    handle = new_table(client, "gap", 1)
    writer = client.source_writer(handle, SOURCE, generation=1, done=0, acknowledged={handle.tablets[0].tablet_id: 99})
    columns, offsets = rows(100, 3)
    with pytest.raises(NotApplied) as caught:
        for batch in wire_batches(handle, columns, RowOp.INSERT, offsets):
            writer.send(batch)
        writer.flush()
    assert caught.value.code is Code.GAP
    assert client.count(handle, ScanSpec()) == 0


def test_write_batch_repeated_with_its_sequence_returns_the_remembered_result(client: Client) -> None:
    """Goal: a retry after a lost answer is safe for plain inserts. Method: one (client id, sequence) twice, then the
    same rows under a new sequence."""
    handle = new_table(client, "sequence", 1)
    (batch,) = wire_batches(handle, rows(0, 5)[0], RowOp.INSERT)
    first = client.write_batch(handle, batch, WriteMeta((), 5, client_id="one", sequence=1))
    second = client.write_batch(handle, batch, WriteMeta((), 5, client_id="one", sequence=1))
    third = client.write_batch(handle, batch, WriteMeta((), 5, client_id="one", sequence=2))
    assert (first.rows_applied, first.row_errors, second.row_errors) == (5, (), ())
    assert second.hybrid_time == first.hybrid_time
    assert {e.code for e in third.row_errors} == {RowCode.ALREADY_PRESENT} and len(third.row_errors) == 5


def test_write_that_timed_out_and_was_applied_is_answered_by_the_next_leader_as_done(
    client: Client, cluster: LocalCluster
) -> None:
    """Goal: scenario 66: whose answer did not come in time gets it from the next leader: done, not that his own rows
    are there already. Method: both followers are held up, so that an insert times out, again until it had its index
    by then; they go on, it is applied; kill -9 of the leader; the client says the same again."""
    handle = new_table(client, "late", 1)
    tablet, meta = handle.tablets[0].tablet_id, WriteMeta((), 5, client_id="late", sequence=1)
    (batch,) = wire_batches(handle, rows(0, 5)[0], RowOp.INSERT)
    request = write_request(handle, batch, meta)
    wait_until_all_run(cluster, handle)
    (mark,) = wire_batches(handle, rows(100, 1)[0], RowOp.UPSERT)
    marks, timed_out = itertools.count(1), threading.Event()

    def timed_out_and_applied() -> bool:
        """Whether a write that timed out at a leader without followers is applied, as a later write shows."""
        leader = cluster.leader(tablet)
        request.dest_uuid = leader.uuid
        followers = [s for s in cluster.servers if s is not leader]
        for follower in followers:
            follower.signal(signal.SIGSTOP)
        try:
            refused = leader.tablets.Write(request, timeout=0.25).error
            # One that timed out may have been applied after the count that missed it: then this is its answer.
            assert refused.code in (Code.NOT_LEADER, Code.NOT_READY) or (timed_out.is_set() and not refused.code)
            if refused.code:
                return False
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, error
            timed_out.set()
        finally:
            for follower in followers:
                follower.signal(signal.SIGCONT)
        client.write_batch(handle, mark, WriteMeta((), 1, client_id="mark", sequence=next(marks)))
        return client.count(handle, ScanSpec()) == 6

    wait_until(timed_out_and_applied, "a write whose caller heard nothing in time is applied")
    wait_until(lambda: all(cluster.status(s, tablet).rows == 6 for s in cluster.servers), "it is applied everywhere")
    leader = cluster.leader(tablet)
    leader.kill()
    answer = client.write_batch(handle, batch, meta)
    assert (answer.rows_applied, answer.row_errors) == (5, ())
    assert client.locator.leader(tablet)[0] != leader.uuid
    assert client.write_batch(handle, batch, meta) == answer and client.count(handle, ScanSpec()) == 6


def test_one_row_writes_of_many_threads_share_a_stream_and_survive_its_server(
    client: Client, cluster: LocalCluster
) -> None:
    """Goal: threads that each wait for their own row get their own answer, exactly once, also when the server at the
    other end of their link is killed. Method: 8 threads, 40 rows each, every 8th a duplicate; kill -9 half-way."""
    handle = new_table(client, "streamed", 1)
    wait_until_all_run(cluster, handle)
    written, answers, half = 40, [[] for _ in range(8)], threading.Event()  # type: ignore[var-annotated]

    def write(number: int) -> None:
        with client.session_writer(handle, on_error="return") as writer:
            for row in range(written):
                key = 1000 * number + (row if row % 8 else 0)
                failed = len(writer.row_errors)
                (batch,) = wire_batches(handle, rows(key, 1)[0], RowOp.INSERT)
                writer.write(batch)
                answers[number].append([e.code for e in writer.row_errors[failed:]])
                if row == written // 2:
                    half.set()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    assert half.wait(120)
    victim = cluster.servers[leader_of(client, cluster, handle)]
    victim.kill()
    for thread in threads:
        thread.join(120)
    expected = [[RowCode.ALREADY_PRESENT] if row and row % 8 == 0 else [] for row in range(written)]
    assert answers == [expected] * 8
    assert client.count(handle, ScanSpec()) == 8 * (written - written // 8 + 1)
    links = [client.calls.channels.small_writes(Address.parse(s.address)) for s in cluster.servers]
    assert sum(link.linked for link in links) >= 8 * written
    wait_until(lambda: sum(link.under_way for link in links) == 0, "nothing is under way")


def test_small_writes_under_way_are_bounded_and_each_counts_once_over_a_kill(
    client: Client, cluster: LocalCluster
) -> None:
    """Goal: one thread that sends small batches one after the other has some under way, no more than it was told, and
    each is applied once. Method: 400 inserts of one row into four tablets, three under way at most, every 8th of a key
    that is there; kill -9 of a leader half-way."""
    handle, bound = new_table(client, "ahead", 4), 3
    wait_until_all_run(cluster, handle)
    with Client([cluster.masters[0].address], ClientOptions(writes_inflight_max=bound)) as ahead:
        links = [ahead.calls.channels.small_writes(Address.parse(s.address)) for s in cluster.servers]
        most = 0
        with ahead.session_writer(handle, on_error="return") as writer:
            for row in range(400):
                if row == 200:
                    cluster.servers[leader_of(client, cluster, handle)].kill()
                (batch,) = wire_batches(handle, rows(row if row % 8 else 0, 1)[0], RowOp.INSERT)
                writer.send(batch)
                under_way = sum(link.under_way for link in links)
                assert under_way <= bound
                most = max(most, under_way)
            writer.flush()
            assert [error.code for error in writer.row_errors] == [RowCode.ALREADY_PRESENT] * 49
            assert writer.rows_applied == 351 and client.count(handle, ScanSpec()) == 351
        assert most == bound and sum(link.under_way for link in links) == 0
        assert sum(link.linked for link in links) >= 350


def test_scans_return_every_row_once_while_servers_die(client: Client, cluster: LocalCluster) -> None:
    """Goal: a scan survives a server's death without a row missing or doubled. Method: scans in a loop over two
    kills and restarts of leaders; every one of them must be complete."""
    handle = new_table(client, "scanned", 4)
    wait_until_all_run(cluster, handle)
    writer = client.session_writer(handle)
    for batch in wire_batches(handle, rows(0, 60_000)[0], RowOp.INSERT):
        writer.send(batch)
    writer.flush()
    stop, wrong, done = threading.Event(), [], 0

    def scan() -> None:
        nonlocal done
        while not stop.is_set():
            parts = [b["k"] for p in client.scan(handle, ScanSpec(columns=("k",))) for b in p.batches]
            keys = np.sort(pa.chunked_array(parts).to_numpy())
            if not np.array_equal(keys, np.arange(60_000)):
                wrong.append(len(keys))
            done += 1

    reader = threading.Thread(target=scan)
    reader.start()
    for _ in range(2):
        before = done
        wait_until(lambda before=before: done > before, "a scan is complete")  # type: ignore[misc]
        victim = cluster.servers[leader_of(client, cluster, handle)]
        victim.kill()
        before = done
        wait_until(lambda before=before: done > before + 1, "scans go on after a kill")  # type: ignore[misc]
        victim.start()
    stop.set()
    reader.join(120)
    assert not reader.is_alive() and wrong == []


def test_write_to_a_stopped_leader_goes_to_its_successor(client: Client, cluster: LocalCluster) -> None:
    """Goal: a leader that hangs without dying costs one attempt. Method: SIGSTOP; the write must be acknowledged by
    another server, which now leads in a higher term."""
    handle = new_table(client, "stopped", 1)
    (batch,) = wire_batches(handle, rows(0, 5)[0], RowOp.UPSERT)
    client.write_batch(handle, batch, WriteMeta((), 5, client_id="c", sequence=1))
    wait_until_all_run(cluster, handle)
    victim = cluster.servers[leader_of(client, cluster, handle)]
    victim.signal(signal.SIGSTOP)
    try:
        client.write_batch(handle, batch, WriteMeta((), 5, client_id="c", sequence=2))
        assert client.locator.leader(handle.tablets[0].tablet_id)[0] != victim.uuid
    finally:
        victim.signal(signal.SIGCONT)


def test_client_asks_anew_when_another_server_answers_at_a_known_address(client: Client, cluster: LocalCluster) -> None:
    """Goal: nothing is taken from or given to a server of another uuid. Method: the leader's directory is wiped and a
    new server starts at its address; the write must end at a replica of the tablet."""
    handle = new_table(client, "renamed", 1)
    (batch,) = wire_batches(handle, rows(0, 5)[0], RowOp.UPSERT)
    client.write_batch(handle, batch, WriteMeta((), 5, client_id="c", sequence=1))
    wait_until_all_run(cluster, handle)
    victim = cluster.servers[leader_of(client, cluster, handle)]
    old_uuid = victim.uuid
    victim.kill()
    shutil.rmtree(victim.root)
    victim.start()
    assert victim.uuid != old_uuid
    client.write_batch(handle, batch, WriteMeta((), 5, client_id="c", sequence=2))
    assert client.locator.leader(handle.tablets[0].tablet_id)[0] not in (old_uuid, victim.uuid)
    assert client.count(handle, ScanSpec()) == 5


FORK = """
import os, sys
from nyala.replica.client import ScanSpec, shared_client
def count():
    client = shared_client(sys.argv[1])
    assert shared_client(sys.argv[1]) is client
    return client.count(client.get_table("forked"), ScanSpec())
assert count() == 5
child = os.fork()
if child == 0:
    os._exit(0 if count() == 5 else 1)
assert os.waitpid(child, 0)[1] == 0
assert count() == 5
print("both")
"""


def test_shared_client_works_in_a_forked_child_and_still_in_its_parent(client: Client, cluster: LocalCluster) -> None:
    """Goal: Spark's forked workers may inherit a process that used the client. Method: fork after use, use in both."""
    handle = new_table(client, "forked", 1)
    (batch,) = wire_batches(handle, rows(0, 5)[0], RowOp.UPSERT)
    client.write_batch(handle, batch, WriteMeta((), 5, client_id="c", sequence=1))
    command = [sys.executable, "-c", FORK, cluster.masters[0].address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.stdout == "both\n", done.stderr[-3000:]
