"""One server of a stack for tests: its folder, its log, and its replicas of one table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nyala.replica.client import TableHandle
from nyala.replica.types import DataState

from .cluster import wait_until
from .stack import Stack


class RunningServer:
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
        """Return the status of each replica here, by tablet."""
        ids = [t.tablet_id for t in self._handle.tablets]
        return {s.tablet_id: s for s in self._stack.client.list_tablets(self._stack.info(self.name), ids)}

    def flush(self, tablet_id: str) -> None:
        """Flush the replica here until it has a block: a follower may not have applied a row yet."""

        def flushed() -> bool:
            self._stack.client.flush(self._stack.info(self.name), tablet_id)
            return bool(self._blocks(tablet_id))

        wait_until(flushed, f"{self.name} has a block of {tablet_id}")

    def block(self, tablet_id: str) -> Path:
        """Return the file of a block that the replica here has."""
        return self._blocks(tablet_id)[-1]

    def _blocks(self, tablet_id: str) -> list[Path]:
        return sorted((self.root / "data").glob(f"{tablet_id}-*.arrow"))

    def closed_segment(self, tablet_id: str) -> Path:
        """Return the oldest file of the log that the replica here has, once there is another."""
        folder = self.root / "wals" / tablet_id
        listed = lambda: sorted(folder.glob("wal-*"))  # noqa: E731
        wait_until(lambda: len(listed()) > 1, "the log has a closed segment")
        return listed()[0]

    def is_voter(self, tablet_id: str) -> bool:
        return self.uuid in voters(self._stack, self._handle, tablet_id)

    def wait_healed_elsewhere(self, *tablet_ids: str) -> None:
        """Wait until each of the tablets has three voters on other servers, and a tombstone here."""

        def healed() -> bool:
            elsewhere = all(
                len(v := voters(self._stack, self._handle, t)) == 3 and self.uuid not in v for t in tablet_ids
            )
            states = self.replicas()
            return elsewhere and all(t in states and states[t].data_state == DataState.DELETED for t in tablet_ids)

        wait_until(healed, "three other servers vote, and a tombstone is here")


def voters(stack: Stack, handle: TableHandle, tablet_id: str) -> set[str]:
    """Return the servers that vote by the latest config that the master knows."""
    infos = stack.client.tablet_infos(handle.name)
    return {m.uuid for t in infos if t.tablet_id == tablet_id for m in t.config.members if m.votes}


def a_follower(stack: Stack, handle: TableHandle, tablet_id: str) -> str:
    """Return the name of a server that votes and does not lead, once the masters know of one."""

    def found() -> str | None:
        members = voters(stack, handle, tablet_id)
        return next((n for n in stack.followers(tablet_id) if stack.info(n).uuid in members), None)

    return wait_until(found, f"{tablet_id} has a follower")


def all_run(stack: Stack, *handles: TableHandle) -> bool:
    """Return whether three replicas of each tablet are running."""
    found = [stack.statuses(t.tablet_id).values() for handle in handles for t in handle.tablets]
    return all(sum(s.phase == "RUNNING" for s in statuses) == 3 for statuses in found)


def flush_all(stack: Stack, handle: TableHandle) -> None:
    """Flush the three replicas of each tablet of a new table once they have applied the same: whichever leads then, its
    blocks are there."""

    def level(tablet_id: str) -> dict[str, Any] | None:
        found = stack.statuses(tablet_id)
        same = len({s.applied_index for s in found.values()}) == 1
        return found if len(found) == 3 and same and all(s.phase == "RUNNING" for s in found.values()) else None

    for tablet in handle.tablets:
        where = wait_until(lambda t=tablet: level(t.tablet_id), "three replicas have applied the same")  # type: ignore[misc]
        for name in where:
            RunningServer(stack, handle, name).flush(tablet.tablet_id)


def copied_from(stack: Stack, server: RunningServer, tablet_id: str) -> str:
    """Return the name of the server from which the last copy of a tablet into this server was begun, by its log."""
    source = re.findall(rf" T {tablet_id} .*tablet copy from (\w+) begins", server.log)[-1]
    return next(n for n, child in stack.supervisor.children.items() if child.ready.get("uuid") == source)


def failed_copies(server: RunningServer, tablet_id: str) -> list[str]:
    """Return the lines in a server's log about its copies of a tablet that failed."""
    return [line for line in server.log.splitlines() if f" T {tablet_id} " in line and "tablet copy failed" in line]
