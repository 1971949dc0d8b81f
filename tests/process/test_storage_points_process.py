"""A server at work dies at each crash point of flush, compaction, the change of segments and log GC."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.rows import RowOp
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import named_blocks, wal_folder
from nyala.replica.tools import check_directory
from nyala.replica.types import CRASH_EXIT_CODE, Code
from nyala.replica.types.crash_points import CRASH_VARIABLE
from tests.harness.cluster import CALL_TIMEOUT_S, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import TABLET, create, rows_of, scan_leader
from tests.harness.rows import batch, write_request

pytestmark = [pytest.mark.process, pytest.mark.deep]

ROWS = 10
UPDATED_EACH = 3
"""One write of so many updates the rows of the one before it; the others insert rows of their own."""


class Life(NamedTuple):
    """One start of the server, and the crash point at which it dies."""

    point: str
    flushes: int = 1
    """How many flushes lead to the point, under load: none, one, or as many as it takes."""
    at_any_time: bool = False
    """Whether background work may pass the point at once: then the result of the death before is checked in the life
    after."""


LIVES = (
    # The first pass is the first entry of a life; the second is under load, in a log that has filled its segment.
    Life("wal.before_rename_segment:2", flushes=0),
    Life("wal.after_rename_segment:2", flushes=0),
    Life("tablet.before_block_write"),
    Life("tablet.after_block_write"),
    Life("tablet.before_superblock_flush"),
    # Nothing was flushed before, so that only this life's flush lets the log go.
    Life("wal.before_remove_segment"),
    Life("wal.after_remove_segment", at_any_time=True),
    Life("tablet.after_superblock_flush"),
    # There are at most three blocks. With the fourth, maintenance merges them; after the death, as soon as it starts.
    Life("tablet.before_compaction_swap", flushes=4),
    Life("tablet.after_compaction_swap", flushes=0, at_any_time=True),
)


class Load:
    """One writer of known rows. A write that a death left unanswered is repeated, under its number.

    A repetition that did not count as the same write would find its own rows, which is a row error.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.acknowledged = 0
        self.rows: dict[int, str] = {}
        self._server = server

    def _next(self) -> tuple[dict[int, str], RowOp]:
        number = self.acknowledged + 1
        updates = number % UPDATED_EACH == 0
        first, values = (number - updates) * ROWS, random.Random(number)
        rows = {key: f"{number} {values.randbytes(500).hex()}" for key in range(first, first + ROWS)}
        return rows, RowOp.UPDATE if updates else RowOp.INSERT

    def may_be(self) -> tuple[dict[int, str], ...]:
        """Return what may be there after a death: all without the write that is unanswered, or with it."""
        return self.rows, self.rows | self._next()[0]

    def say(self, stub: Any) -> int:
        """Make the next write, once; returns its hybrid time if it was acknowledged, else 0."""
        (rows, op), number = self._next(), self.acknowledged + 1
        wire = batch(list(rows), list(rows.values()), op)
        fields = {"client_id": "load", "sequence": number, "first_incomplete": number}
        reply = stub.Write(write_request(self._server.uuid, TABLET, wire, **fields), timeout=CALL_TIMEOUT_S)
        if reply.error.code in (Code.NOT_LEADER, Code.NOT_READY, Code.TABLET_NOT_FOUND):
            return 0
        assert not reply.error.code and not reply.row_errors, (number, reply)
        self.acknowledged, self.rows = number, self.rows | rows
        return int(reply.hybrid_time)

    def run(self) -> None:
        """Write until the server is dead."""
        with grpc.insecure_channel(self._server.address, [("grpc.max_reconnect_backoff_ms", 200)]) as channel:
            stub = pb_grpc.TabletServiceStub(channel)
            while self._server.alive:
                with suppress(grpc.RpcError):
                    self.say(stub)


def look(cluster: LocalCluster, load: Load) -> None:
    """Check that every acknowledged row is there once, and that every file belongs to something."""
    (server,) = cluster.servers
    found = scan_leader(cluster)
    assert found in load.may_be(), (load.acknowledged, len(found), len(load.rows))
    at = wait_until(lambda: load.say(server.tablets), "what nobody had answered is acknowledged")
    assert scan_leader(cluster) == load.rows
    told = wait_until(lambda: rows_of(server, at), "it counts its rows")
    assert told[1] == len(load.rows), "a row stands there twice"
    disk = RealDisk(server.root)
    wait_until(lambda: {f"data/{name}" for name in disk.listdir("data")} == named_blocks(disk), "no block is nobody's")


def die(server: ServerProcess, load: Load, life: Life) -> None:
    """Run the load, and flushes beside it, until the server has died at the point."""
    before = load.acknowledged

    def flushed() -> bool:
        request = pb.FlushRequest(dest_uuid=server.uuid, tablet_id=TABLET)
        with suppress(grpc.RpcError):
            server.tablets.Flush(request, timeout=CALL_TIMEOUT_S)
        return life.flushes == 1 or not server.alive

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(load.run)
        try:
            if life.flushes:
                wait_until(lambda: load.acknowledged > before + UPDATED_EACH or not server.alive, "there is a load")
                wait_until(flushed, f"it dies: {life}")
            assert server.wait_exit() == CRASH_EXIT_CODE, life
        finally:
            server.kill()
            writer.result()


def test_server_that_dies_at_each_point_of_flush_compaction_and_log_keeps_every_row_once() -> None:
    """CN-02, CN-20, CN-22. Goal: wherever a server at work dies in a flush, a compaction, the change to the next log
    segment or log GC, its next start has every acknowledged row once, and no file is left over. Method: one server dies
    at one named point after the other, under a writer of inserts and updates, which repeats every unanswered write."""
    with local_cluster(1, "--log-retain-entries", "1") as cluster:
        (server,) = cluster.servers
        load = Load(server)
        create(cluster)
        server.kill()
        for life in LIVES:
            server.start(wait=not life.at_any_time, env={CRASH_VARIABLE: life.point})
            if not life.at_any_time:
                look(cluster, load)
            die(server, load, life)
        server.start()
        look(cluster, load)
        assert server.stop() == 0
        disk = RealDisk(server.root)
        assert not check_directory(disk).all_findings
        assert any(block.level for block in Superblock.load(disk, TABLET).blocks), "it was merged"
        left = sorted(path.name for path in (server.root / wal_folder(TABLET)).iterdir() if path.name[0] != ".")
        assert left and all(name.startswith("wal-") for name in left) and left[0] != "wal-000000001", left
