"""A cache of each tablet's leader and members, filled from the master and corrected by hints."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from nyala.replica.types import Address, Code, Refused, Rng

from .masters import leader_hint
from .tables import Location

LookUp = Callable[[str], list[Location]]
"""Requests all locations of a table from the master, by name."""
ROUNDS_WITHOUT_LEADER = 3
"""If a member knows no leader, each other member is asked so often before the silent server is asked again, because an
election will come soon."""


@dataclass
class _LeaderSearch:
    """The search for a tablet's leader, after the server `suspect` did not answer as the leader.

    `silent_uuid`: the last server that gave no answer in its time. `asked`: the number of members asked since then.
    `leaderless`: one of them replied that it knows no leader. `suspect_asked`: the suspect itself was asked again.
    """

    suspect: str
    silent_uuid: str = ""
    asked: int = 0
    leaderless: bool = False
    suspect_asked: bool = False


class Locator:
    """Locations by tablet id.

    Invariants: at most one look-up of a table is under way; a thread that waited for it does not start another.
    Concurrency: any thread.
    """

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._lock = threading.Lock()
        self._tablets: dict[str, Location] = {}
        self._versions: dict[str, int] = {}
        self._table_locks: dict[str, threading.Lock] = {}
        self._searches: dict[str, _LeaderSearch] = {}

    def remember(self, locations: list[Location]) -> None:
        """Store the locations that the master returned."""
        with self._lock:
            for location in locations:
                self._tablets[location.tablet_id] = location

    def forget_table(self, table_name: str) -> None:
        """Remove the locations of a table's tablets from the cache."""
        with self._lock:
            self._tablets = {k: v for k, v in self._tablets.items() if v.table_name != table_name}

    def location(self, tablet_id: str) -> Location | None:
        """Return the cached location; nothing is sent."""
        with self._lock:
            return self._tablets.get(tablet_id)

    def leader(self, tablet_id: str) -> tuple[str, Address]:
        """Return (uuid, address) of the server to call next: the leader, as far as it is known.

        Otherwise each call returns another member (`_next_member`). Refused(NOT_READY) if no member is known.
        """
        with self._lock:
            location = _with_members(self._tablets.get(tablet_id), tablet_id)
            uuid = location.leader_uuid
            if uuid not in location.members:
                uuid = self._next_member(location)
            return uuid, location.members[uuid]

    def replicas(self, tablet_id: str, rng: Rng) -> list[tuple[str, Address]]:
        """Return (uuid, address) of all members, for a read that any may answer: those on this machine first, the
        leader last, the rest in random order. Refused(NOT_READY) if none is known."""
        location = _with_members(self.location(tablet_id), tablet_id)
        near = {"localhost", "127.0.0.1", "[::1]", socket.gethostname()}
        order = sorted(
            (uuid == location.leader_uuid, address.host not in near, rng.random(), uuid)
            for uuid, address in location.members.items()
        )
        return [(uuid, location.members[uuid]) for *_, uuid in order]

    def _next_member(self, location: Location) -> str:
        """Return the next member to ask, and count it. The suspect comes after all others, because a call to a stopped
        server costs a whole attempt."""
        search = self._searches.setdefault(location.tablet_id, _LeaderSearch(""))
        others = sorted(uuid for uuid in location.members if uuid != search.suspect)
        again = search.leaderless and search.silent_uuid == search.suspect
        turns = len(others) * (ROUNDS_WITHOUT_LEADER if again else 1)
        search.asked += 1
        if search.asked > turns and search.suspect in location.members:
            search.suspect_asked = True
            return search.suspect
        return others[(search.asked - 1) % len(others)]

    def version(self, table_name: str) -> int:
        """Return the number of look-ups of that table so far, for `refresh`."""
        with self._lock:
            return self._versions.get(table_name, 0)

    def refresh(self, table_name: str, seen_version: int) -> None:
        """Ask the master again, unless another thread did so since `seen_version`. One look-up at a time per table."""
        with self._lock:
            gate = self._table_locks.setdefault(table_name, threading.Lock())
        with gate:
            if self.version(table_name) != seen_version:
                return
            locations = self._look_up(table_name)
            with self._lock:
                found = {location.tablet_id for location in locations}
                gone = [i for i, known in self._tablets.items() if known.table_name == table_name and i not in found]
                for tablet_id in gone:
                    del self._tablets[tablet_id]
                for location in locations:
                    # The master learns of a failover later than the client. So if it names the suspect as leader, that
                    # is not taken.
                    search = self._searches.get(location.tablet_id)
                    if search is not None and location.leader_uuid == search.suspect:
                        location = replace(location, leader_uuid="")
                    self._tablets[location.tablet_id] = location
                self._versions[table_name] = seen_version + 1

    def follow(self, tablet_id: str, asked_uuid: str, detail: str) -> bool:
        """Take the leader that NOT_LEADER's hint `uuid@host:port` names; returns whether it was taken.

        An empty hint means that the server knows no leader. A hint is not taken if it names the server that was asked,
        or the one that was just silent: followers name a stopped leader until they have elected another, and waiting
        for it again costs a whole attempt.
        """
        uuid, address = leader_hint(detail)
        with self._lock:
            location = self._tablets.get(tablet_id)
            if location is None:
                return False
            search = self._searches.get(tablet_id)
            if not uuid and search is not None:
                search.leaderless = True
            address = address or location.members.get(uuid)
            if not uuid or address is None or uuid in (asked_uuid, search and search.silent_uuid):
                if location.leader_uuid == asked_uuid:
                    self._tablets[tablet_id] = replace(location, leader_uuid="")
                return False
            members = {**location.members, uuid: address}
            self._tablets[tablet_id] = replace(location, members=members, leader_uuid=uuid)
            return True

    def leader_answered(self, tablet_id: str, uuid: str) -> None:
        """Note that the server `uuid` answered as the leader: the search for one is over."""
        with self._lock:
            self._searches.pop(tablet_id, None)
            location = self._tablets.get(tablet_id)
            if location is not None and location.leader_uuid != uuid and uuid in location.members:
                self._tablets[tablet_id] = replace(location, leader_uuid=uuid)

    def leader_failed(self, tablet_id: str, uuid: str, *, silent: bool = False) -> None:
        """Note that the server `uuid` did not answer as the leader; `silent`: it did not answer in time."""
        with self._lock:
            location = self._tablets.get(tablet_id)
            if location is None:
                return
            if location.leader_uuid == uuid:
                self._tablets[tablet_id] = replace(location, leader_uuid="")
            search = self._searches.get(tablet_id, _LeaderSearch(""))
            if silent:
                search.silent_uuid = uuid
            elif search.silent_uuid == uuid:
                search.silent_uuid = ""
            if not search.suspect or search.suspect_asked:
                search = _LeaderSearch(uuid, search.silent_uuid)  # the first suspect, or all members failed, too
            self._searches[tablet_id] = search


def _with_members(location: Location | None, tablet_id: str) -> Location:
    """Return the location; Refused(NOT_READY) if no member is known."""
    if location is None or not location.members:
        what = "no replica of this tablet is known yet; try again, or see `nyala cluster check`"
        raise Refused(Code.NOT_READY, what, tablet_id=tablet_id)
    return location
