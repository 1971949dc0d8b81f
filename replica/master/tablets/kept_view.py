"""The policy's view of all tablets. It is kept from tick to tick: a refresh computes only the views that may have
changed."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import eq

from nyala.replica.policy import TabletView, is_at_rest
from nyala.replica.types import RaftConfig

from ..catalog.catalog import Catalog
from ..catalog.records import DESIRED_CHANGE, TABLE, TABLET, Tablet, group_of
from ..heartbeats.belief import newer
from ..heartbeats.soft_state import SoftState
from ..options import MasterOptions
from .view import changes_at, in_maintenance, retired_servers, standing_of, tablet_view

REFRESHES_PER_STEP = 150
"""The most tablets whose views are refreshed in one step of the loop: some 60 calls of functions each."""


def is_later(tablet: Tablet, config: RaftConfig | None) -> bool:
    """Whether the proven `config` is later than the one in a formed tablet's record. Pure."""
    return config is not None and (tablet.config is None or newer(config.opid, tablet.config.opid))


class KeptView:
    """The views of all tablets as of the last refresh, and lists of the tablets that need work.

    A view is refreshed if the tablet's records change, if a report of it changes, if a server of its config changes its
    standing, or at a time that the last refresh computed. After a refresh that is complete, each view is the one that
    `tablet_view` returns at that time. Concurrency: the loop's thread.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        soft: Callable[[], SoftState],
        proven: Callable[[str], RaftConfig | None],
        options: MasterOptions,
    ) -> None:
        """`proven(tablet)`: the config that was proven last."""
        self._catalog, self._soft, self._proven, self._options = catalog, soft, proven, options
        self.refreshes = 0
        """The number of views that were refreshed so far."""
        self._touched: set[str] | None = None
        self._begin()

    def _begin(self) -> None:
        self.tablets: dict[str, TabletView] = {}
        """By id, the view of each tablet that has one."""
        self.busy: set[str] = set()
        """The tablets that are not at rest (`is_at_rest`)."""
        self.unwell: set[str] = set()
        """The tablets with a damaged or a missing replica."""
        self.unrecorded: set[str] = set()
        """The tablets whose record lacks a leader, or a config, that servers report."""
        self.unheard: set[str] = set()
        """The formed tablets of which no member has reported a config in this leadership."""
        self.refreshed: set[str] = set()
        """The tablets whose views were refreshed, until a caller empties the set."""
        self._placed: Counter[str] = Counter()
        self._placed_of: dict[str, tuple[str, ...]] = {}
        self._of_server: dict[str, set[str]] = {}
        """By server, the tablets that have it in the config of their view."""
        self._standing: dict[str, tuple[object, ...]] = {}
        self._times: list[tuple[int, str]] = []
        self._time_of: dict[str, int] = {}
        """By tablet, the earliest of its times."""
        self._due: set[str] = set()
        self._number_of: dict[str, int] = {}
        """By tablet, the number of its last refresh."""
        self._gathered_us = -1

    def refresh(self, mono_us: int, wall_us: int, most: int | None = None) -> bool:
        """Refresh the views of the tablets that may have changed, `most` at most; returns whether all are fresh."""
        catalog = self._catalog()
        draining, works = retired_servers(catalog), in_maintenance(catalog, wall_us)
        self._gather(mono_us, draining, works)
        for _ in range(len(self._due) if most is None else min(most, len(self._due))):
            self._look_at(self._due.pop(), mono_us, draining, works)
        return not self._due

    def _gather(self, mono_us: int, draining: frozenset[str], works: frozenset[str]) -> None:
        """Note which tablets may have changed."""
        catalog, soft = self._catalog(), self._soft()
        self._gathered_us = mono_us
        changed = catalog.take_changed()
        if changed is None or soft.touched is not self._touched:  # another leadership
            self._begin()
            self._touched = soft.touched
            self._due.update(tablet_id for tablet_id, _ in catalog.items(TABLET))
        for key in changed or ():
            group, _, name = key.partition("/")
            if group in (group_of(TABLET), group_of(DESIRED_CHANGE)):
                self._due.add(name)
            elif group == group_of(TABLE):
                self._due.update(tablet_id for tablet_id, _ in catalog.tablets_of(name))
        self._due |= soft.touched
        soft.touched.clear()
        before, self._standing = self._standing, {}  # only of servers that have tablets now
        for uuid, tablets in self._of_server.items():
            heard = standing_of(soft, uuid, self._options, mono_us)
            self._standing[uuid] = standing = (heard, uuid in draining, uuid in works)
            if before.get(uuid) != standing:
                self._due |= tablets
        while self._times and self._times[0][0] <= mono_us:
            at, tablet_id = heapq.heappop(self._times)
            if self._time_of.get(tablet_id) == at:
                del self._time_of[tablet_id]
                self._due.add(tablet_id)

    def _look_at(self, tablet_id: str, mono_us: int, draining: frozenset[str], works: frozenset[str]) -> None:
        catalog, soft = self._catalog(), self._soft()
        self.refreshes += 1
        self._number_of[tablet_id] = self.refreshes
        self.refreshed.add(tablet_id)
        record = catalog.get(TABLET, tablet_id)
        view = None
        if record is not None:
            view = tablet_view(catalog, soft, tablet_id, record, self._options, mono_us, works)
        before = self.tablets.pop(tablet_id, None)
        _move(tablet_id, _members(before), _members(view), self._of_server)
        if view is not None:
            self.tablets[tablet_id] = view
            self._refresh_at(tablet_id, changes_at(soft, view, self._options, mono_us))
        _keep(self.busy, tablet_id, view is not None and not is_at_rest(view, draining))
        _keep(self.unwell, tablet_id, view is not None and bool(view.damaged or view.without_replica))
        _keep(self.unrecorded, tablet_id, record is not None and self._is_unrecorded(tablet_id, record))
        _keep(self.unheard, tablet_id, record is not None and self._is_unreported(tablet_id, record))
        self._place(tablet_id, record)

    def _refresh_at(self, tablet_id: str, at: int | None) -> None:
        """Refresh the view at that time, too, unless an earlier refresh computes another time."""
        known = self._time_of.get(tablet_id)
        if at is not None and (known is None or at < known):
            self._time_of[tablet_id] = at
            heapq.heappush(self._times, (at, tablet_id))

    def _place(self, tablet_id: str, record: Tablet | None) -> None:
        """Count the replicas of a tablet that was not dropped: the reported ones, or those that it will get."""
        self._placed.subtract(self._placed_of.pop(tablet_id, ()))
        if record is not None and not record.dropped:
            state = self._soft().tablets.get(tablet_id)
            config = state.config if state and state.config else record.known_config
            self._placed_of[tablet_id] = tuple(m.uuid for m in config.members)
            self._placed.update(self._placed_of[tablet_id])

    def _is_unrecorded(self, tablet_id: str, record: Tablet) -> bool:
        state = self._soft().tablets.get(tablet_id)
        config = state.config if state is not None else None
        if record.dropped:
            return False
        if not record.formed:
            return state is not None and state.leader_status is not None and config is not None
        later = config is not None and newer(config.opid, record.known_config.opid)
        return record.config is None or later or is_later(record, self._proven(tablet_id))

    def _is_unreported(self, tablet_id: str, record: Tablet) -> bool:
        state = self._soft().tablets.get(tablet_id)
        return record.formed and not record.dropped and (state is None or state.config is None)

    def unreported(self) -> int:
        """The number of formed tablets of which no member has reported a config in this leadership. Tablets whose view
        is due count, too, so the number is never too low."""
        if self._soft().touched is not self._touched:  # another leadership, of which no view was computed
            return self._catalog().count(TABLET)
        return len(self.unheard | self._due)

    def formed(self) -> int:
        """The number of formed tablets that were not dropped, as of the last refresh."""
        return len(self.tablets) + len(self.unheard)

    def replica_load(self) -> dict[str, int]:
        """The number of replicas per server: the reported ones, and those that new tablets will get."""
        return {uuid: count for uuid, count in self._placed.items() if count}

    def viewed_load(self) -> Counter[str]:
        """The number of replicas per server, of the tablets that have a view."""
        return Counter({uuid: len(tablets) for uuid, tablets in self._of_server.items()})

    def number(self, tablet_id: str, mono_us: int) -> int | None:
        """The number of the tablet's last refresh, if a refresh now would compute the same view; None if it might
        not."""
        soft, view = self._soft(), self.tablets.get(tablet_id)
        if view is None or not self.is_current({tablet_id: self._number_of[tablet_id]}, mono_us):
            return None
        if self._time_of.get(tablet_id, mono_us + 1) <= mono_us or soft.tablets[tablet_id].later is not None:
            return None  # an answer has the age of an unproven config
        standings = ((u, standing_of(soft, u, self._options, mono_us)) for u in _members(view))
        same = all(u in self._standing and self._standing[u][0] == standing for u, standing in standings)
        return self._number_of[tablet_id] if same else None

    def is_current(self, numbers: Mapping[str, int], mono_us: int) -> bool:
        """Whether no change of these tablets is known since their refreshes with these numbers. It takes up to two
        ticks to notice that a server fell silent, or that the time of a refresh has come."""
        touched = self._soft().touched
        recent = mono_us - self._gathered_us <= 2_000 * self._options.policy_ms
        if not recent or touched is not self._touched or not touched.isdisjoint(numbers):
            return False
        return self._due.isdisjoint(numbers) and all(map(eq, map(self._number_of.get, numbers), numbers.values()))

    def views(self, tablet_ids: Iterable[str]) -> tuple[TabletView, ...]:
        """The views of these tablets, in order of their ids."""
        return tuple(self.tablets[t] for t in sorted(tablet_ids))


def _members(view: TabletView | None) -> frozenset[str]:
    return frozenset(m.uuid for m in view.config.members) if view is not None else frozenset()


def _move(tablet_id: str, before: frozenset[str], after: frozenset[str], of_server: dict[str, set[str]]) -> None:
    """Keep the tablets of each server."""
    for uuid in before - after:
        of_server[uuid].discard(tablet_id)
        if not of_server[uuid]:
            del of_server[uuid]
    for uuid in after - before:
        of_server.setdefault(uuid, set()).add(tablet_id)


def _keep(among: set[str], tablet_id: str, belongs: bool) -> None:
    if belongs:
        among.add(tablet_id)
    else:
        among.discard(tablet_id)
