"""As many servers as replicas: a replica that went bad is copied anew in place."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.client import TableHandle, wire_batches
from nyala.replica.rows import RowOp
from nyala.replica.tools import gather
from tests.harness.cluster import wait_until
from tests.harness.rot import flip
from tests.harness.running_server import RunningServer, a_follower, all_run, failed_copies, flush_all
from tests.harness.stack import Stack, running_stack

pytestmark = pytest.mark.process

SCRUB = ("--scrub-mb-per-s", "50", "--scrub-interval-s", "0.5")
ROWS = 600


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Start three servers that scrub their blocks all the time, and a master that heals."""
    with running_stack(tmp_path / "stack", execute_decisions="master", server_arguments=SCRUB) as made:
        yield made


def insert(stack: Stack, handle: TableHandle, first: int) -> None:
    keys = np.arange(first, first + ROWS)
    rows = pa.table({"k": keys, "v": ["x" * 100] * ROWS, "must": np.ones(ROWS, np.int32)})
    with stack.client.session_writer(handle) as writer:
        for batch in wire_batches(handle, rows, RowOp.INSERT):
            writer.send(batch)
        writer.flush()


def test_replicas_that_go_bad_are_copied_in_their_place_as_no_other_server_is_free(
    stack: Stack, tmp_path: Path
) -> None:
    """TC-63, scenario 112. Goal: damage heals where servers are as many as replicas, and the config never changes.
    Method: three servers that scrub; a bit of a block of one is flipped, then a file takes the place of the folder of
    blocks of another: each replica becomes a tombstone; into the first is copied at once, into the second copies fail
    until the folder is mended. No process ends, rows go in meanwhile, replicas are equal, the config has its OpId."""
    handle = stack.new_table("in-place", buckets=1)
    (bad,) = (t.tablet_id for t in handle.tablets)
    insert(stack, handle, 0)
    flush_all(stack, handle)
    level = lambda: all_run(stack, handle) and len({s.applied_index for s in stack.statuses(bad).values()}) == 1  # noqa: E731
    configs = lambda: {s.committed_config.SerializeToString() for s in stack.statuses(bad).values()}  # noqa: E731
    (config,) = wait_until(lambda: len(found := configs()) == 1 and found, "all know one config")
    pids = stack.pids()

    first = RunningServer(stack, handle, a_follower(stack, handle, bad))
    flip(first.block(bad))
    wait_until(lambda: f"T {bad} deleted" in first.log, "the replica with the bad block is a tombstone")
    wait_until(level, "three replicas run again")
    insert(stack, handle, ROWS)

    second = next(r for n in stack.followers(bad) if (r := RunningServer(stack, handle, n)).name != first.name)
    data = second.root / "data"
    pid = pids[second.name]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # so that no folder is made anew in between
    data.rename(tmp_path / "data")
    data.write_bytes(b"")
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: failed_copies(second, bad), "a copy into the bad folder has failed")
    insert(stack, handle, 2 * ROWS)
    data.unlink()
    wait_until(level, "three replicas run, after the folder was mended")

    assert stack.count(handle) == 3 * ROWS
    stack.verify_replicas()
    wait_until(lambda: configs() == {config}, "all know the config of before")
    assert stack.pids() == pids


@pytest.mark.deep
def test_block_that_is_cut_short_while_it_is_mapped_costs_a_restart_and_no_row(tmp_path: Path) -> None:
    """IN-21. Goal: a read of pages that are gone ends one process, whose log says why, and the replica heals. Method:
    the block of a follower is cut to 100 bytes, and checksums are asked for: the process ends by SIGBUS with the stack
    in its log, is started again, refuses the block, and gets a copy in its place; replicas are equal, with all rows."""
    with running_stack(tmp_path / "stack", execute_decisions="master") as stack:
        handle = stack.new_table("cut", buckets=1)
        (tablet_id,) = (t.tablet_id for t in handle.tablets)
        insert(stack, handle, 0)
        flush_all(stack, handle)
        cut = RunningServer(stack, handle, a_follower(stack, handle, tablet_id))
        before = stack.pids()
        os.truncate(cut.block(tablet_id), 100)

        def ended() -> bool:
            gather(stack.client, checksum=True)
            return "Bus error" in cut.log and "checksum" in cut.log

        wait_until(ended, "a read has met the pages that are gone")
        stack.wait_replaced(before, cut.name)
        wait_until(lambda: f"T {tablet_id} deleted" in cut.log, "the replica with the cut block is a tombstone")
        wait_until(lambda: all_run(stack, handle), "three replicas run again")
        assert stack.count(handle) == ROWS
        stack.verify_replicas()
        assert {n for n, pid in stack.pids().items() if pid != before[n]} == {cut.name}
