"""kill -9 of every kind of process under load; rows are counted exactly, and the disks are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from nyala.infra.local import ChildState, StackOptions, Supervisor, read_state
from nyala.replica.types import Refused
from tests.harness.cluster import wait_until
from tests.harness.stack import ROWS, InsertLoad, Stack

pytestmark = pytest.mark.process


def test_acknowledged_rows_survive_kills_of_leader_follower_and_master(stack: Stack, tmp_path: Path) -> None:
    """Goal: kill -9 of any one process under load loses no acknowledged row and doubles none (V1, V4, V6).
    Method: two writers insert disjoint keys while, in turn, the leader of a tablet, a follower and the master are
    killed and restarted by the supervisor; then rows are counted, replicas and logs compared."""
    handle = stack.new_table("kills")
    first = handle.tablets[0].tablet_id
    with InsertLoad(stack, handle) as load:
        load.progress()
        for victim in (stack.leader(first), stack.followers(first)[0], "master-1"):
            before = stack.pids()
            stack.kill(victim)
            load.progress()
            stack.wait_replaced(before, victim)
            load.progress()
        load.finish()
    assert load.unknown == []
    stack.verify_replicas()
    stack.verify_logs(handle, tmp_path)


def test_acknowledged_rows_survive_the_death_of_everything_at_once(stack: Stack, tmp_path: Path) -> None:
    """Goal: what was acknowledged is on a majority's disks. Method: kill -9 the master and all servers in one
    turn, under load; writers go on by themselves when the supervisor has started all of them again."""
    handle = stack.new_table("all-at-once")
    with InsertLoad(stack, handle) as load:
        load.progress()
        before = stack.pids()
        stack.kill(*before)
        stack.wait_replaced(before, *before)
        load.progress()
        load.finish()
    stack.verify_replicas()
    stack.verify_logs(handle, tmp_path)


@pytest.mark.deep
def test_known_tables_are_read_and_written_while_the_master_is_dead(stack: Stack) -> None:
    """Goal: reads and writes do not need the master. Method: kill it for good; writes go on and every scan is complete,
    even over the death of a leader; a table cannot be created until it is back."""
    handle = stack.new_table("without-a-master")
    with InsertLoad(stack, handle, threads=1) as load:
        load.progress()
        leader = stack.leader(handle.tablets[0].tablet_id)
        stack.kill("master-1", again=False)
        load.progress()
        acknowledged = load.batches * ROWS
        assert stack.count(handle) >= acknowledged
        before = stack.pids()
        stack.kill(leader)
        load.progress()
        stack.wait_replaced(before, leader)
        load.progress()
        with pytest.raises(Refused):
            stack.client.create_table("later", handle.schema, handle.partition, timeout_s=1.0)
        stack.supervisor.start_child("master-1")
        load.finish()
    wait_until(
        lambda: sum(s.alive for s in stack.client.list_servers().servers) == 3, "the master knows its servers again"
    )
    stack.new_table("later", 1)


def test_quiet_tablets_outlive_the_server_of_their_leaders(stack: Stack, tmp_path: Path) -> None:
    """CN-24, CN-28: tablets without heartbeats notice that their leader's server is gone, and that it is back. Method:
    tablets that have gone quiet on three real servers; kill -9 a leader's server, which stays away: the others elect,
    accept rows and go quiet without it; it comes back, all replicas hold the same, and all rest."""
    handle = stack.new_table("quiet")

    def resting(replicas: int) -> bool:
        found = [s for t in handle.tablets for s in stack.statuses(t.tablet_id).values()]
        return len(found) == replicas * len(handle.tablets) and all(s.quiet for s in found)

    with InsertLoad(stack, handle, threads=1) as load:
        load.progress()
        load.finish()
    wait_until(lambda: resting(3), "all tablets are quiet")
    victim = stack.leader(handle.tablets[0].tablet_id)
    stack.supervisor.kill_for_good(victim)
    with InsertLoad(stack, handle, threads=1, first=1) as load:
        load.progress()
    wait_until(lambda: resting(2), "the tablets are quiet without one")
    stack.supervisor.start_child(victim)
    wait_until(lambda: resting(3), "all tablets are quiet again")
    stack.verify_replicas()
    stack.verify_logs(handle, tmp_path)


def test_checksum_of_an_idle_follower_answers_for_a_fresh_time(stack: Stack) -> None:
    """Goal: safe time advances while no client writes. Method: a table without a write; each follower alone is called
    for its checksum at a time of now, never the leader before it."""
    handle = stack.new_table("idle", 1)
    tablet = handle.tablets[0].tablet_id
    # A new tablet has a leader while the slowest of its replicas may still be made, or copied.
    wait_until(lambda: [r.phase for r in stack.statuses(tablet).values()] == ["RUNNING"] * 3, "every replica runs")
    for name in stack.followers(tablet):
        at = stack.client.snapshot_time(handle)
        assert stack.client.checksum(stack.info(name), tablet, at, timeout_s=90) == (0, 0)


def test_supervision_goes_on_over_a_full_disk(tmp_path: Path) -> None:
    """Goal: a full disk does not end supervision. Method: a stack whose state and whose server's log have become
    /dev/full; the server is killed. Both are noted in the status; with room again, all is ready and written."""
    with Supervisor(tmp_path, StackOptions(servers=1, kafka=False)) as supervisor:
        child = supervisor.children["server-1"]
        child.log_file.rename(tmp_path / "kept.log")
        full, before = [child.log_file, tmp_path / "state.tmp"], child.pid
        supervisor.call(lambda: [path.symlink_to("/dev/full") for path in full])
        supervisor.kill("server-1")
        wait_until(lambda: child.problem and supervisor.status()["problem"], "noted")
        assert (child.problem, child.state) == ("No space left on device", ChildState.BACKING_OFF)
        assert supervisor.status()["problem"] == "state.json is not up to date: No space left on device"
        supervisor.call(lambda: [path.unlink() for path in full])

        def written() -> bool:
            state = read_state(tmp_path) or {}
            row = next(c for c in state["children"] if c["name"] == "server-1")
            return bool(row["state"] == "READY" and row["pid"] not in (None, before) and not state["problem"])

        wait_until(written, "back, and in the state")
