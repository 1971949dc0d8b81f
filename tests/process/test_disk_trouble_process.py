"""Disks that go bad under real servers: which replicas fail, what goes on beside them, and how the damage is healed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import nyala
from nyala.infra.cli.app import app
from nyala.replica.client import ScanSpec, TableHandle, wire_batches
from nyala.replica.fs import RealDisk
from nyala.replica.rows import RowOp
from nyala.replica.tablet import Superblock
from nyala.replica.types import DataState, Refused
from tests.harness.cluster import wait_until
from tests.harness.rot import flip
from tests.harness.running_server import (
    RunningServer,
    a_follower,
    all_run,
    copied_from,
    failed_copies,
    flush_all,
    voters,
)
from tests.harness.stack import ROWS, InsertLoad, Stack, running_stack

pytestmark = [pytest.mark.process, pytest.mark.deep]

COPY_RATE = "1500000"
"""Bytes per second of a server's copies: a copy of a megabyte is not over before the test has read its state."""
WIDE_BYTES = 3_000_000
"""A size below that of the three blocks of a wide table."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Start four servers for three replicas of each tablet, and a master that heals: there is always a server to move
    to."""
    rate = ("--copy-rate-bytes-per-s", COPY_RATE)
    folder = tmp_path_factory.mktemp("disks")
    with running_stack(folder, servers=4, execute_decisions="master", server_arguments=rate) as made:
        yield made


def wait_all_alive(stack: Stack) -> None:
    wait_until(lambda: sum(s.alive for s in stack.client.list_servers().servers) == 4, "four servers are alive")


@pytest.fixture(autouse=True)
def emptied(stack: Stack) -> Iterator[None]:
    """Start all servers, and drop the tables of earlier tests."""
    wait_all_alive(stack)
    yield
    for table in stack.client.list_tables():
        stack.client.drop_table(table.name)


def verify(stack: Stack, logs: Path, *handles: TableHandle) -> None:
    """Check V1 and V6, once every tablet has its three voters and no member is on the way, or marked to leave."""

    def settled(handle: TableHandle) -> bool:
        members = [t.config.members for t in stack.client.tablet_infos(handle.name)]
        return all(len(m) == 3 and all(one.votes and not one.replace for one in m) for m in members)

    for handle in handles:
        wait_until(lambda h=handle: settled(h), "nobody comes or goes any more")  # type: ignore[misc]
    stack.verify_replicas()
    for handle in handles:
        stack.verify_logs(handle, logs)


def test_block_that_went_bad_at_rest_costs_one_replica(stack: Stack, tmp_path: Path) -> None:
    """TC-63, TC-51. Goal: a flipped bit costs one replica, which the masters bring to a healthy server. Method: a table
    of four tablets under load; a follower is killed, a bit of one of its blocks flipped, and it starts: that replica
    fails and names the block, no other one there, three other servers vote, a tombstone stays. Every acknowledged row
    is there once, replicas and logs are equal; what the tombstone put aside is purged by command, bad block and all."""
    handle = stack.new_table("rot", buckets=4)
    with InsertLoad(stack, handle) as load:
        load.progress()
        bad = handle.tablets[0].tablet_id
        server = RunningServer(stack, handle, a_follower(stack, handle, bad))
        server.flush(bad)
        stack.supervisor.kill_for_good(server.name)
        block = server.block(bad)
        flip(block)
        before = len(server.log)
        stack.supervisor.start_child(server.name)
        load.progress()
        server.wait_healed_elsewhere(bad)
        offline = [line for line in server.log[before:].splitlines() if "stays offline" in line]
        assert len(offline) == 1 and block.name in offline[0] and "CRC-32C" in offline[0], offline
        others = lambda: {s.phase for t, s in server.replicas().items() if t != bad}  # noqa: E731
        wait_until(lambda: others() == {"RUNNING"}, "no other replica there suffers")
        load.finish()
    assert load.unknown == []
    verify(stack, tmp_path, handle)

    purge = ["quarantine", "purge", bad, "--server", server.uuid, "--yes", "--json"]
    line = [*purge, "--masters", stack.supervisor.masters]
    purged = CliRunner().invoke(app, line)
    assert purged.exit_code == 0, purged.output
    told = json.loads(purged.stdout)
    assert (told["server"], told["tablet_id"]) == (server.uuid, bad) and told["bytes_freed"] > 0
    assert any(name.startswith("quarantine/") for name in told["removed"]) and not block.exists()


def test_block_that_goes_bad_under_its_leader_is_found_by_a_copy(stack: Stack, tmp_path: Path) -> None:
    """TC-63, TC-51. Goal: a leader does not offer a bad block for ever. Method: a bit of a block of a running leader is
    flipped, and another replica is to move, again if somebody else led meanwhile: the copy finds the damage, the
    leader's replica fails and becomes a tombstone though no process ended, another leads, and three replicas are equal
    and whole."""
    handle = stack.new_table("rot-of-a-leader", buckets=1)
    (bad,) = (t.tablet_id for t in handle.tablets)
    with InsertLoad(stack, handle, threads=1) as load:
        load.progress()
        server, pids = RunningServer(stack, handle, stack.leader(bad)), stack.pids()
        server.flush(bad)
        block = server.block(bad)
        flip(block)

        def met() -> bool:
            """Return whether a copy met the bad block: that of the first move unless another server leads by chance."""
            if f" E T {bad} " in server.log:
                return True
            if stack.leader(bad) != server.name:
                stack.client.transfer_leadership(handle.name, bad, server.uuid)
            else:
                leaving = min(voters(stack, handle, bad) - {server.uuid})
                stack.client.move_replica(bad, leaving, free_server(stack, handle, bad))
            return False

        wait_until(met, "a copy meets the bad block")
        wait_until(lambda: f"T {bad} deleted" in server.log, "the bad replica is a tombstone")
        assert [line for line in server.log.splitlines() if f" E T {bad} " in line and block.name in line]
        load.progress()
        load.finish()
    assert load.unknown == [] and stack.pids() == pids
    verify(stack, tmp_path, handle)


def test_scan_that_meets_a_block_gone_bad_is_right_all_the_same(stack: Stack, tmp_path: Path) -> None:
    """TC-51, TC-63, scenario 158. Goal: no reader sees damaged data, or an error. Method: a bit of a value is flipped
    in a block of a running leader, under load; one strong scan of all columns then returns every row acknowledged
    before it and none that was never written, from another leader: the first replica has failed, names the page, and
    becomes a tombstone."""
    handle = stack.new_table("rot-and-read", buckets=1)
    (bad,) = (t.tablet_id for t in handle.tablets)
    with InsertLoad(stack, handle, threads=1) as load, nyala.connect(stack.supervisor.masters) as cluster:
        load.progress()
        server, pids = RunningServer(stack, handle, stack.leader(bad)), stack.pids()
        server.flush(bad)
        block = server.block(bad)
        flip(block)

        def met() -> bool:
            """Return whether a scan met the bad block: the first one unless another server leads by chance."""
            if stack.leader(bad) != server.name and f" E T {bad} " not in server.log:
                stack.client.transfer_leadership(handle.name, bad, server.uuid)
            written = {key + n for key in load.acknowledged[0] for n in range(ROWS)}
            try:
                rows = cluster.table(handle.name).scan().to_arrow()
            except Refused as error:
                raise AssertionError("a reader is told of it") from error
            assert set(rows["must"].to_pylist()) == {1}
            keys = rows["k"].to_pylist()
            assert written <= set(keys) and sorted(keys) == list(range(len(keys)))
            return f" E T {bad} " in server.log

        wait_until(met, "the bad block is met")
        wait_until(lambda: f"T {bad} deleted" in server.log, "the bad replica is a tombstone")
        assert [line for line in server.log.splitlines() if f" E T {bad} " in line and "has changed since" in line]
        load.progress()
        load.finish()
    assert load.unknown == [] and stack.pids() == pids
    verify(stack, tmp_path, handle)


def test_log_without_a_middle_segment_costs_one_replica(stack: Stack, tmp_path: Path) -> None:
    """TC-63, scenario 47. Goal: a hole in a log is seen and healed, and never replayed over. Method: wide rows until a
    follower's log has three segments; it is killed, the middle one removed, and it starts: that replica fails and names
    the hole, its neighbour serves, rows are taken meanwhile; the master evicts it, three other servers vote and hold
    every row. Here a tombstone stays and what was put aside as evidence; that is purged, and nothing else is left."""
    handle, other = stack.new_table("holed", buckets=1), stack.new_table("beside-the-hole", buckets=1)
    (holed,), (beside,) = ([t.tablet_id for t in one.tablets] for one in (handle, other))
    name = follower_of_both(stack, (handle, holed), (other, beside))
    server, neighbour = RunningServer(stack, handle, name), RunningServer(stack, other, name)
    segments = lambda: sorted((server.root / "wals" / holed).glob("wal-*"))  # noqa: E731
    rows = 0
    while len(segments()) < 3:
        assert rows < 20_000, "a segment of 256 KB is followed by others"
        insert_wide(stack, handle, rows)
        rows += 1000
    stack.supervisor.kill_for_good(name)
    segments()[1].unlink()
    before = len(server.log)
    stack.supervisor.start_child(name)
    pids = stack.pids()
    insert_wide(stack, handle, rows)
    server.wait_healed_elsewhere(holed)
    offline = [line for line in server.log[before:].splitlines() if "stays offline" in line]
    assert len(offline) == 1 and holed in offline[0] and "segments are missing" in offline[0], offline
    phase = lambda: getattr(neighbour.replicas().get(beside), "phase", "")  # noqa: E731
    wait_until(lambda: phase() == "RUNNING", "its neighbour serves")
    assert neighbour.is_voter(beside) and stack.pids() == pids
    assert stack.count(handle) == rows + 1000
    verify(stack, tmp_path, handle, other)

    (kept,) = stack.client.list_quarantine(stack.info(name), holed)
    assert len(list((server.root / kept.path).rglob("wal-*"))) >= 2, "the segments that were left are evidence"
    stack.client.purge_quarantine(stack.info(name), holed)
    left = {str(path.relative_to(server.root)) for path in server.root.rglob(f"*{holed}*")}
    # Beside the promise stands room for the next one.
    assert left == {f"tablet-meta/{holed}", f"consensus-meta/{holed}", f"consensus-meta/.{holed}.tmp"}


def test_damaged_log_is_failed_beside_others_that_serve_until_the_master_heals_it(stack: Stack) -> None:
    """TC-63. Goal: a startup failure is one replica's and stays, until a master reacts. Method: a follower is killed, a
    bit of a closed segment of one tablet's log flipped, and it starts while the master is stopped: that replica is
    FAILED, names the segment, and nothing touches it; its neighbour takes part in a write and has every row, and so has
    the group of the damaged one. The master goes on: three other servers vote, here is a tombstone, no row is
    missing."""
    handle, other = stack.new_table("bitten", buckets=1), stack.new_table("beside-the-bitten", buckets=1)
    (bad,), (beside,) = ([t.tablet_id for t in one.tablets] for one in (handle, other))
    name = follower_of_both(stack, (handle, bad), (other, beside))
    server, info = RunningServer(stack, handle, name), stack.info(name)
    rows = 0
    while len(list((server.root / "wals" / bad).glob("wal-*"))) < 2:
        assert rows < 20_000, "a segment of 256 KB is followed by another"
        insert_wide(stack, handle, rows)
        rows += 1000
    # An entry in the second segment: without one the first is still the log's end, where damage is cut off.
    insert_wide(stack, handle, rows)
    rows += 1000
    ends = lambda: {(s.last_logged.term, s.last_logged.index) for s in stack.statuses(bad).values()}  # noqa: E731
    wait_until(lambda: len(ends()) == 1, "every replica has every entry")
    segment = server.closed_segment(bad)
    stack.supervisor.kill_for_good(name)
    flip(segment)
    damaged = segment.read_bytes()
    master = stack.pids()["master-1"]
    assert master is not None
    os.kill(master, signal.SIGSTOP)
    try:
        stack.supervisor.start_child(name)
        status = lambda tablet_id: next(iter(stack.client.list_tablets(info, [tablet_id])), None)  # noqa: E731
        over = lambda: (s := status(bad)) and s.phase in ("FAILED", "RUNNING") and s  # noqa: E731
        failed = wait_until(over, "its start has ended")
        assert failed.phase == "FAILED" and segment.name in failed.error, failed
        wait_until(lambda: getattr(status(beside), "phase", "") == "RUNNING", "its neighbour runs")
        insert_wide(stack, handle, rows)
        insert_wide(stack, other, 0)
        at = stack.client.snapshot_time(other)
        told = wait_until(lambda: stack.client.checksum(info, beside, at), "its neighbour tells its rows")
        assert told[1] == 1000
        assert status(bad).phase == "FAILED" and segment.read_bytes() == damaged, "nobody heals it by itself"
    finally:
        os.kill(master, signal.SIGCONT)
    server.wait_healed_elsewhere(bad)
    assert (stack.count(handle), stack.count(other)) == (rows + 1000, 1000)


def follower_of_both(stack: Stack, *tablets: tuple[TableHandle, str]) -> str:
    """Return the name of a server that follows in the first tablet and votes in all, once they have three replicas
    each."""
    wait_until(lambda: all_run(stack, *(handle for handle, _ in tablets)), "three replicas of each tablet run")

    def found() -> str | None:
        common = set.intersection(*(voters(stack, handle, tablet_id) for handle, tablet_id in tablets))
        return next((n for n in stack.followers(tablets[0][1]) if stack.info(n).uuid in common), None)

    return wait_until(found, "a follower has a replica of each")


def free_server(stack: Stack, handle: TableHandle, tablet_id: str) -> str:
    """Return a server that has no voter of the tablet, once the masters know all servers and three voters."""

    def found() -> str | None:
        members, known = voters(stack, handle, tablet_id), stack.client.list_servers().servers
        free = [s.uuid for s in known if s.uuid not in members]
        return free[0] if len(members) == 3 and free else None

    return wait_until(found, f"a server is free for {tablet_id}")


def insert_wide(stack: Stack, handle: TableHandle, first: int) -> None:
    """Insert 1000 rows of a kilobyte, their keys from `first` on, each acknowledged."""
    keys = np.arange(first, first + 1000)
    rows = pa.table({"k": keys, "v": ["x" * 1000] * 1000, "must": np.ones(1000, np.int32)})
    with stack.client.session_writer(handle) as writer:
        for batch in wire_batches(handle, rows, RowOp.INSERT):
            writer.send(batch)
        writer.flush()


def wide_table(stack: Stack, name: str) -> TableHandle:
    """Make one tablet with three blocks of a megabyte, whichever server leads it: a copy takes seconds, and begins with
    those."""
    handle = stack.new_table(name, buckets=1)
    for first in range(0, 3000, 1000):
        insert_wide(stack, handle, first)
        flush_all(stack, handle)
    return handle


@contextmanager
def held_in_the_middle(stack: Stack, target: RunningServer, tablet_id: str) -> Iterator[None]:
    """Stop the target's process while a copy into it has brought some of its blocks and not all of them.

    The process is stopped before its state is read, so the state does not change until it goes on.
    """
    pid, disk = stack.pids()[target.name], RealDisk(target.root)
    assert pid is not None

    def in_the_middle() -> bool:
        if not Superblock.exists(disk, tablet_id):
            return False
        state = Superblock.load(disk, tablet_id).data_state
        here = sum(path.stat().st_size for path in (target.root / "data").glob(f"{tablet_id}-*"))
        return state is DataState.COPYING and 0 < here < WIDE_BYTES

    def held() -> bool:
        os.kill(pid, signal.SIGSTOP)
        if not in_the_middle():
            os.kill(pid, signal.SIGCONT)
            return False
        return True

    wait_until(held, "a copy is in its middle")
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it was killed meanwhile
            os.kill(pid, signal.SIGCONT)


def test_bad_data_folder_takes_its_own_replicas_only_and_a_copy_into_it_fails_in_peace(
    stack: Stack, tmp_path: Path
) -> None:
    """TC-63, TC-72. Goal: a data folder that is gone costs the replicas with blocks in it, not the server. Method: a
    table of four tablets with blocks and one of one tablet with none, both under load; a follower is killed and starts
    with a file in place of its data folder: what has blocks there fails and is brought elsewhere, the other replica
    serves. A replica is moved there: its copies fail, and the server goes on; with a folder again it votes."""
    blocks, none = stack.new_table("with-blocks", buckets=4), stack.new_table("without", buckets=1)
    (whole,) = (t.tablet_id for t in none.tablets)
    with InsertLoad(stack, blocks, threads=1) as load, InsertLoad(stack, none, threads=1) as other:
        load.progress()
        other.progress()
        # A replica that was made by a copy, because its leader was faster than the master's order, takes its time.
        wait_until(lambda: all_run(stack, blocks, none), "three replicas of each tablet run")
        server = RunningServer(stack, blocks, a_follower(stack, none, whole))
        lost = sorted(server.replicas())
        for tablet_id in lost:
            server.flush(tablet_id)
        stack.supervisor.kill_for_good(server.name)
        data = server.root / "data"
        data.rename(tmp_path / "data")
        data.write_bytes(b"")
        stack.supervisor.start_child(server.name)
        pids = stack.pids()
        server.wait_healed_elsewhere(*lost)
        load.progress()
        other.progress()
        other_table = RunningServer(stack, none, server.name)
        phase = lambda: getattr(other_table.replicas().get(whole), "phase", "")  # noqa: E731
        wait_until(lambda: phase() == "RUNNING", "the replica without blocks serves")

        moved = lost[0]
        leaving = RunningServer(stack, blocks, a_follower(stack, blocks, moved))
        stack.client.move_replica(moved, leaving.uuid, server.uuid)
        wait_until(lambda: len(failed_copies(server, moved)) > 1, "two copies have failed")
        other.progress()
        data.unlink()
        wait_until(lambda: server.is_voter(moved) and not leaving.is_voter(moved), "the replica has moved")
        load.progress()
        load.finish()
        other.finish()
    assert load.unknown == other.unknown == [] and stack.pids() == pids
    verify(stack, tmp_path, blocks, none)


def test_folder_of_blocks_that_goes_bad_in_mid_copy_at_either_end(stack: Stack, tmp_path: Path) -> None:
    """TC-12, TC-63. Goal: a copy whose disk fails at either end ends with an error, and later ones heal. Method: in the
    middle of a move's copy a file takes the place of the target's folder of blocks: the copy fails, no process ends;
    with a folder again the next copy begins, and in its middle the source's folder goes: its replica fails and another
    leads, the move ends; then the source's folder is back. Every row is there, all replicas are equal."""
    handle = wide_table(stack, "bad-in-mid-copy")
    (moved,) = (t.tablet_id for t in handle.tablets)
    leaving = RunningServer(stack, handle, a_follower(stack, handle, moved))
    free = free_server(stack, handle, moved)
    target = RunningServer(stack, handle, next(n for n in stack.followers(moved) if stack.info(n).uuid == free))
    pids = stack.pids()
    stack.client.move_replica(moved, leaving.uuid, target.uuid)

    bad = target.root / "data"
    with held_in_the_middle(stack, target, moved):
        bad.rename(tmp_path / "target")
        bad.write_bytes(b"")
    wait_until(lambda: failed_copies(target, moved), "the copy has failed at the target's disk")
    assert not target.is_voter(moved)
    bad.unlink()

    with held_in_the_middle(stack, target, moved):
        source = RunningServer(stack, handle, copied_from(stack, target, moved))  # whoever led when it began
        before, bad = len(source.log), source.root / "data"
        bad.rename(tmp_path / "source")
        bad.write_bytes(b"")
    wait_until(lambda: "FAILED" in source.log[before:], "the source's replica has failed")
    wait_until(lambda: stack.leader(moved) != source.name, "another leads")
    wait_until(lambda: target.is_voter(moved), "the target votes")
    bad.unlink()
    (tmp_path / "source").rename(bad)
    assert stack.pids() == pids
    assert stack.count(handle) == 3000
    verify(stack, tmp_path / "logs", handle)


def test_move_goes_on_after_the_death_of_everything_in_its_middle(stack: Stack, tmp_path: Path) -> None:
    """TC-60, TC-65. Goal: no move is lost, and none is begun twice, whichever process dies. Method: in the middle of
    the copy of a move the master and all servers are killed in turn; when all are back, the target is copied anew and
    promoted, the replica that was to leave is a tombstone, three vote, and every row is there."""
    handle = wide_table(stack, "dead-in-mid-move")
    (moved,) = (t.tablet_id for t in handle.tablets)
    leaving = RunningServer(stack, handle, a_follower(stack, handle, moved))
    free = free_server(stack, handle, moved)
    target = RunningServer(stack, handle, next(n for n in stack.followers(moved) if stack.info(n).uuid == free))
    stack.client.move_replica(moved, leaving.uuid, target.uuid)
    with held_in_the_middle(stack, target, moved):
        before = stack.pids()
        stack.kill(*before)
    stack.wait_replaced(before, *before)
    wait_all_alive(stack)  # a master that was just started knows nobody
    leaving.wait_healed_elsewhere(moved)
    assert target.is_voter(moved)
    assert stack.count(handle) == 3000
    verify(stack, tmp_path, handle)


def test_replica_moved_round_and_round_over_old_tombstones(stack: Stack, tmp_path: Path) -> None:
    """TC-08, TC-13, TC-12. Goal: a tombstone is as good a place for a replica as any. Method: under load the replica of
    one server after the other moves to the server without one, four times over four servers, so that each target but
    the first is an old tombstone; every other target is killed as soon as the move is wanted. Terms never fall, what
    left is a tombstone, rows are exact, replicas and logs equal."""
    handle = stack.new_table("round-and-round", buckets=1)
    (moved,) = (t.tablet_id for t in handle.tablets)
    servers = {r.uuid: r for r in (RunningServer(stack, handle, n) for n in stack.pids() if n.startswith("server"))}
    terms: dict[str, int] = {}
    with InsertLoad(stack, handle, threads=1) as load:
        load.progress()
        for turn in range(4):
            free = free_server(stack, handle, moved)
            leaving = [u for u in sorted(servers) if u != free][turn % 3]
            asked = lambda t=free, f=leaving: stack.client.move_replica(moved, f, t) is None  # noqa: E731
            wait_until(asked, "the move before is settled and the next one wanted")
            before = stack.pids()
            if turn % 2:
                stack.kill(servers[free].name)
                stack.wait_replaced(before, servers[free].name)
            servers[leaving].wait_healed_elsewhere(moved)
            for uuid, server in servers.items():
                term = server.replicas()[moved].term if moved in server.replicas() else 0
                assert term >= terms.get(uuid, 0), (uuid, term, terms)
                terms[uuid] = term
            load.progress()
        load.finish()
    assert load.unknown == [] and all(terms.values())
    verify(stack, tmp_path, handle)


SCRUB = ("--scrub-mb-per-s", "50", "--scrub-interval-s", "0.5")


def scrub_all_the_time(stack: Stack) -> None:
    """Start all servers anew with a scrub that never pauses, until the module's end, to save another start."""
    children = [c for n, c in stack.supervisor.children.items() if n.startswith("server")]
    before = stack.pids()
    for child in children:
        child.command = lambda c, fd, usual=child.command: [*usual(c, fd), *SCRUB]  # type: ignore[misc]
    stack.kill(*(c.name for c in children))
    stack.wait_replaced(before, *(c.name for c in children))
    wait_all_alive(stack)


def test_rot_that_nobody_reads_is_told_by_a_check_and_found_and_healed_by_the_scrub(
    stack: Stack, tmp_path: Path
) -> None:
    """TC-63, TC-51, scenario 158. Goal: damage is found before anybody needs the block, and heals. Method: a bit of a
    value is flipped in a follower's block: `cluster check --checksum` tells it, and that replica fails and is healed.
    Then the servers scrub all the time, and nobody writes or reads: a bit of a follower's block and, each time when
    that has been healed elsewhere, one of the leader's and one of a closed segment of a follower's log is flipped. Each
    replica fails by one line that names the file, no process ends, and three replicas have every row as it was."""
    handle = stack.new_table("unread", buckets=1)
    (bad,) = (t.tablet_id for t in handle.tablets)
    rows = pa.table({"k": np.arange(600), "v": ["x" * 1000] * 600, "must": np.ones(600, np.int32)})
    with stack.client.session_writer(handle) as writer:
        for batch in wire_batches(handle, rows, RowOp.INSERT):
            writer.send(batch)
        writer.flush()
    flush_all(stack, handle)
    rot = RunningServer(stack, handle, a_follower(stack, handle, bad))
    line = ["cluster", "check", "--checksum", "--masters", stack.supervisor.masters]
    flip(rot.block(bad))
    checked = lambda: CliRunner().invoke(app, line)  # noqa: E731
    told = lambda: (c := checked()).exit_code != 0 and "has changed since it was checked" in c.output  # noqa: E731
    wait_until(told, "the check tells of it")
    rot.wait_healed_elsewhere(bad)

    scrub_all_the_time(stack)
    stack.count(handle)
    wait_until(lambda: all_run(stack, handle), "three replicas run again")
    pids = stack.pids()
    for role, what in (("follower", "block"), ("leader", "block"), ("follower", "segment")):
        name = stack.leader(bad) if role == "leader" else a_follower(stack, handle, bad)
        server = RunningServer(stack, handle, name)
        if what == "block":
            path, why = server.block(bad), "CRC-32C"
            flip(path)
        else:
            path, why = server.closed_segment(bad), "a closed segment is not what was written"
            flip(path, len(path.read_bytes().rstrip(b"\0")) - 40)  # an entry; the last bytes are the block's marker
        server.wait_healed_elsewhere(bad)
        place = f"{path.parent.name}/{path.name}"
        lines = [text for text in server.log.splitlines() if f" E T {bad} " in text and place in text]
        assert len(lines) == 1 and why in lines[0], (role, what, lines)
    parts = [b for p in stack.client.scan(handle, ScanSpec(columns=("k", "v"))) for b in p.batches]
    found = pa.Table.from_batches(parts).sort_by("k")
    assert found["k"].to_pylist() == list(range(600)) and set(found["v"].to_pylist()) == {"x" * 1000}
    assert stack.pids() == pids
    verify(stack, tmp_path, handle)
