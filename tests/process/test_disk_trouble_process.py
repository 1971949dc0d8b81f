"""Disks that go bad under real servers: what they take with them, what goes on beside, and how it is healed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.base import DataState
from nyala.replica.client import TableHandle
from tests.harness.cluster import wait_until
from tests.harness.stack import InsertLoad, Stack, running_stack

pytestmark = pytest.mark.process

COPY_RATE = "1000000"
"""Bytes per second of a server's copies: one of a megabyte is not over before somebody has looked."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Four servers for three replicas of each tablet, and a master that heals: there is always somewhere to go."""
    rate = ("--copy-rate-bytes-per-s", COPY_RATE)
    folder = tmp_path_factory.mktemp("disks")
    with running_stack(folder, servers=4, execute_decisions="master", server_arguments=rate) as made:
        yield made


@pytest.fixture(autouse=True)
def emptied(stack: Stack) -> Iterator[None]:
    """No table of an earlier test."""
    yield
    for table in stack.client.list_tables():
        stack.client.drop_table(table.name)


class Room:
    """One server of the stack, its folder, and its replicas of one table."""

    def __init__(self, stack: Stack, handle: TableHandle, name: str) -> None:
        self.name = name
        self.root = stack.supervisor.folder / name
        self.uuid = stack.info(name).uuid
        self._stack = stack
        self._handle = handle

    @property
    def log(self) -> str:
        return (self._stack.supervisor.folder / "logs" / f"{self.name}.log").read_text()

    def replicas(self) -> dict[str, Any]:
        """Status of each replica here, by tablet."""
        ids = [t.tablet_id for t in self._handle.tablets]
        return {s.tablet_id: s for s in self._stack.client.list_tablets(self._stack.info(self.name), ids)}

    def flush(self, tablet_id: str) -> None:
        self._stack.client.flush(self._stack.info(self.name), tablet_id)

    def block(self, tablet_id: str) -> Path:
        """The file of a block that the replica here has."""
        return sorted((self.root / "data").glob(f"{tablet_id}-*.arrow"))[-1]

    def is_voter(self, tablet_id: str) -> bool:
        return self.uuid in voters(self._stack, self._handle, tablet_id)

    def wait_healed_elsewhere(self, *tablet_ids: str) -> None:
        """Until each of the tablets has three voters on other servers, and a tombstone here."""

        def healed() -> bool:
            elsewhere = all(
                len(v := voters(self._stack, self._handle, t)) == 3 and self.uuid not in v for t in tablet_ids
            )
            states = self.replicas()
            return elsewhere and all(states[t].data_state == DataState.DELETED for t in tablet_ids)

        wait_until(healed, "three other servers vote, and a tombstone is here")


def voters(stack: Stack, handle: TableHandle, tablet_id: str) -> set[str]:
    """The servers that vote by the latest config that the master knows."""
    infos = stack.client.tablet_infos(handle.name)
    return {m.uuid for t in infos if t.tablet_id == tablet_id for m in t.config.members if m.votes}


def a_follower(stack: Stack, handle: TableHandle, tablet_id: str) -> str:
    """The name of a server that votes and does not lead."""
    leader, members = stack.leader(tablet_id), voters(stack, handle, tablet_id)
    return next(n for n in stack.followers(tablet_id) if n != leader and stack.info(n).uuid in members)


def flip(path: Path) -> None:
    """One bit in the middle of a file is another one."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def test_block_that_went_bad_at_rest_costs_one_replica(stack: Stack, tmp_path: Path) -> None:
    """TC-63, TC-51. Goal: a flipped bit costs one replica, which the masters bring to a healthy server. Method: a table
    of four tablets under load; a follower is killed, a bit of one of its blocks flipped, and it starts: that replica
    fails and names the block, no other one there, three other servers vote, a tombstone stays. Every acknowledged row
    is there once, replicas and logs are equal."""
    handle = stack.new_table("rot", buckets=4)
    with InsertLoad(stack, handle) as load:
        load.progress()
        bad = handle.tablets[0].tablet_id
        room = Room(stack, handle, a_follower(stack, handle, bad))
        room.flush(bad)
        stack.supervisor.kill_for_good(room.name)
        block = room.block(bad)
        flip(block)
        stack.supervisor.start_child(room.name)
        load.progress()
        room.wait_healed_elsewhere(bad)
        offline = [line for line in room.log.splitlines() if "stays offline" in line]
        assert len(offline) == 1 and block.name in offline[0] and "CRC-32C" in offline[0], offline
        others = {t: s for t, s in room.replicas().items() if t != bad}
        assert others and {s.phase for s in others.values()} == {"RUNNING"}
        load.finish()
    assert load.unknown == []
    stack.verify_replicas()
    stack.verify_logs(handle, tmp_path)


def test_block_that_goes_bad_under_its_leader_is_found_by_a_copy(stack: Stack, tmp_path: Path) -> None:
    """TC-63, TC-51. Goal: a leader does not offer a bad block for ever. Method: a bit of a block of a running leader is
    flipped, and a follower's replica is to move: the copy finds the damage, the leader's replica fails and becomes a
    tombstone though no process ended, another leads, and three replicas are equal and whole."""
    handle = stack.new_table("rot-of-a-leader", buckets=1)
    (bad,) = (t.tablet_id for t in handle.tablets)
    with InsertLoad(stack, handle, threads=1) as load:
        load.progress()
        room, pids = Room(stack, handle, stack.leader(bad)), stack.pids()
        room.flush(bad)
        block = room.block(bad)
        flip(block)
        leaving = Room(stack, handle, a_follower(stack, handle, bad))
        stack.client.move_replica(bad, leaving.uuid, free_server(stack, handle, bad))
        wait_until(lambda: f"T {bad} deleted" in room.log, "the bad replica is a tombstone")
        assert [line for line in room.log.splitlines() if f" E T {bad} " in line and block.name in line]
        load.progress()
        load.finish()
    assert load.unknown == [] and stack.pids() == pids
    stack.verify_replicas()
    stack.verify_logs(handle, tmp_path)


def free_server(stack: Stack, handle: TableHandle, tablet_id: str) -> str:
    """A server that has no voter of the tablet."""
    members = voters(stack, handle, tablet_id)
    return next(s.uuid for s in stack.client.list_servers().servers if s.uuid not in members)


def failed_copies(room: Room, tablet_id: str) -> list[str]:
    """What the log of a server says of its copies of a tablet that failed."""
    return [line for line in room.log.splitlines() if f" T {tablet_id} " in line and "tablet copy failed" in line]


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
        room = Room(stack, blocks, a_follower(stack, none, whole))
        lost = sorted(room.replicas())
        for tablet_id in lost:
            room.flush(tablet_id)
        stack.supervisor.kill_for_good(room.name)
        data = room.root / "data"
        data.rename(tmp_path / "data")
        data.write_bytes(b"")
        stack.supervisor.start_child(room.name)
        pids = stack.pids()
        room.wait_healed_elsewhere(*lost)
        load.progress()
        other.progress()
        assert Room(stack, none, room.name).replicas()[whole].phase == "RUNNING"

        moved = lost[0]
        leaving = Room(stack, blocks, a_follower(stack, blocks, moved))
        stack.client.move_replica(moved, leaving.uuid, room.uuid)
        wait_until(lambda: len(failed_copies(room, moved)) > 1, "two copies have failed")
        other.progress()
        data.unlink()
        wait_until(lambda: room.is_voter(moved) and not leaving.is_voter(moved), "the replica has moved")
        load.progress()
        load.finish()
        other.finish()
    print(failed_copies(room, moved))
    assert load.unknown == other.unknown == [] and stack.pids() == pids
    stack.verify_replicas()
    for handle in (blocks, none):
        stack.verify_logs(handle, tmp_path)
