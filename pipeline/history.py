"""Replays the topic `history`: the configs of all tablets, and the proof that no change of one is missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from nyala.replica.types import ZERO_OPID, EventKind, HistoryEvent, Member, OpId, RaftConfig

ENTRIES_MAX = 500_000
"""The most entries that a replay keeps, some 150 MB."""
SNAPSHOTS_MAX = 1_000
"""The most snapshots that a replay keeps. The masters make one each day, and one at each election."""
MEMBERS_MAX = 100_000
_OF_ENTRIES = (EventKind.CONFIG, EventKind.DROPPED)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay. If `missing` is empty, it is proven that no change after `begins` is missing."""

    configs: Mapping[str, RaftConfig]
    """By id, the config of each tablet that is not dropped."""
    begins: OpId | None
    """The position of the masters' catalog at which the oldest complete snapshot began; None if there is none."""
    until: OpId
    """The last position of the catalog that an event names."""
    missing: tuple[OpId, ...]
    """The entries of the catalog after `begins` that changed configs and of which events are missing. Sorted."""


class Difference(StrEnum):
    """A tablet whose config in the history differs from the one in the masters' catalog."""

    OTHER_CONFIG = "OTHER_CONFIG"
    NOT_IN_CATALOG = "NOT_IN_CATALOG"
    NOT_IN_HISTORY = "NOT_IN_HISTORY"


def differences(history: Mapping[str, RaftConfig], catalog: Mapping[str, RaftConfig]) -> dict[str, Difference]:
    """Return the differences of the two, sorted by the id of the tablet; empty if they are equal."""
    found = {}
    for tablet_id in sorted(history.keys() | catalog.keys()):
        if tablet_id not in catalog:
            found[tablet_id] = Difference.NOT_IN_CATALOG
        elif tablet_id not in history:
            found[tablet_id] = Difference.NOT_IN_HISTORY
        elif history[tablet_id] != catalog[tablet_id]:
            found[tablet_id] = Difference.OTHER_CONFIG
    return found


@dataclass(slots=True)
class _Snapshot:
    catalog_opid: OpId
    began: HistoryEvent | None = None
    seen: bytearray = field(default_factory=bytearray)
    """By number of a tablet, whether the snapshot has it: a byte each, because there are many snapshots."""
    found: int = 0
    count: int = -1

    @property
    def complete(self) -> bool:
        return self.began is not None and self.found == self.count

    def add(self, number: int) -> None:
        """Note that the snapshot has this tablet."""
        if number >= len(self.seen):
            self.seen.extend(bytes(number + 1 - len(self.seen)))
        self.found += not self.seen[number]
        self.seen[number] = 1


@dataclass(slots=True)
class _Entry:
    after: OpId = ZERO_OPID
    count: int = 0
    tablets: frozenset[int] = frozenset()
    """The numbers of the tablets that it changed, until there are `count` of them."""
    complete: bool = False

    def add(self, event: HistoryEvent, number: int) -> None:
        """Note one of the entry's events."""
        self.after, self.count = max(self.after, event.after), max(self.count, event.tablets)
        if not self.complete:
            self.tablets |= {number}
            self.complete = len(self.tablets) == self.count
            self.tablets = frozenset() if self.complete else self.tablets


class Replay:
    """Replays events one by one. Their order, and repetitions of them, do not change the result.

    1. The tablet's config is that of its newest event, by position in the masters' catalog.
    2. A tablet is gone if the newest complete snapshot does not have it, and no later event is about it.
    3. The events of each entry of the catalog that changed configs name the entry before it that did so, and how many
       tablets it changed. Each snapshot names the last such entry before it. An entry that is named and has no events
       is missing.

    Memory: a config for each tablet, some 300 bytes for each entry that changed one, and one byte for each tablet of
    each snapshot. If there are more than ENTRIES_MAX entries or SNAPSHOTS_MAX snapshots, it forgets the older half.
    Then it has the same configs, but proves them from a later position on.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._newest: dict[str, tuple[tuple[OpId, OpId, EventKind], RaftConfig | None]] = {}
        """By tablet, the place of its newest event in the catalog's order, and its config; None: it is dropped."""
        self._snapshots: dict[str, _Snapshot] = {}
        self._entries: dict[OpId, _Entry] = {}
        self._forgotten = ZERO_OPID
        """Entries up to this one may be forgotten."""
        self._until = ZERO_OPID
        self._members: dict[Member, Member] = {}
        """One object for equal members, because most of a config are its members."""

    def add(self, event: HistoryEvent) -> None:
        """Add one event."""
        self._until = max(self._until, event.catalog_opid)
        if event.kind in _OF_ENTRIES or event.kind is EventKind.SNAPSHOT:
            number = self._numbers.setdefault(event.tablet_id, len(self._numbers))
            self._keep(event)
            if event.kind in _OF_ENTRIES and event.catalog_opid > self._forgotten:
                self._entries.setdefault(event.catalog_opid, _Entry()).add(event, number)
            elif event.kind is EventKind.SNAPSHOT:
                self._snapshot(event).add(number)
        elif event.kind is EventKind.SNAPSHOT_BEGAN:
            self._snapshot(event).began = event
        elif event.kind is EventKind.SNAPSHOT_ENDED:
            self._snapshot(event).count = event.tablets
        if len(self._entries) > ENTRIES_MAX:
            self._forgotten = sorted(self._entries)[ENTRIES_MAX // 2]
            self._entries = {opid: entry for opid, entry in self._entries.items() if opid > self._forgotten}
        if len(self._snapshots) > SNAPSHOTS_MAX:
            newest = sorted(self._snapshots, key=lambda one: (self._snapshots[one].catalog_opid, one))
            self._snapshots = {one: self._snapshots[one] for one in newest[SNAPSHOTS_MAX // 2 :]}

    def result(self) -> Replayed:
        """Return the result of the events that were added so far."""
        begun = [one.began for one in self._snapshots.values() if one.began is not None]
        complete = [(one.began, one.seen) for one in self._snapshots.values() if one.began is not None and one.complete]
        whole = sorted(complete, key=lambda each: (each[0].catalog_opid, each[0].at_us, each[0].snapshot_id))
        last, held = (whole[-1][0].catalog_opid, whole[-1][1]) if whole else (ZERO_OPID, bytearray())
        configs = {}
        for tablet_id, (place, config) in sorted(self._newest.items()):
            number = self._numbers[tablet_id]
            known = not whole or (number < len(held) and held[number])
            if config is not None and (known or place[0] > last):
                configs[tablet_id] = config
        first = next((began for began, _ in whole if began.catalog_opid >= self._forgotten), None)
        begins = first.catalog_opid if first else None
        return Replayed(configs, begins, self._until, _missing(self._entries, begun, first))

    def _keep(self, event: HistoryEvent) -> None:
        """Keep the event's config if it is the newest one of its tablet. A snapshot may be newer than the position that
        it names, and then a later event has the same config."""
        place = event.catalog_opid, event.config_opid, event.kind
        known = self._newest.get(event.tablet_id)
        if known is not None and known[0] > place:
            return
        if len(self._members) > MEMBERS_MAX:
            self._members.clear()
        members = tuple(self._members.setdefault(member, member) for member in event.members)
        config = None if event.kind is EventKind.DROPPED else replace(event.config, members=members)
        if known is None or known[0] < place or repr(known[1]) < repr(config):
            self._newest[event.tablet_id] = place, config

    def _snapshot(self, event: HistoryEvent) -> _Snapshot:
        return self._snapshots.setdefault(event.snapshot_id, _Snapshot(event.catalog_opid))


def fold(events: Iterable[HistoryEvent]) -> Replayed:
    """Return the result of a `Replay` of these events."""
    replay = Replay()
    for event in events:
        replay.add(event)
    return replay.result()


def _missing(
    entries: Mapping[OpId, _Entry], begun: Iterable[HistoryEvent], first: HistoryEvent | None
) -> tuple[OpId, ...]:
    """The entries after the oldest complete snapshot that are named, but of which events are missing. If an entry does
    not name the one before it, like the first one of a rebuilt catalog, it is listed itself, because entries before it
    may be missing."""
    begins, last = (first.catalog_opid, first.after) if first is not None else (ZERO_OPID, ZERO_OPID)
    missing = {event.after for event in begun if event.after > begins and event.after not in entries}
    for opid, entry in sorted(entries.items()):
        if opid <= begins:
            last = max(last, opid)
            continue
        if entry.after != last:
            missing.add(entry.after if entry.after > last else opid)
        if not entry.complete:
            missing.add(opid)
        last = opid
    return tuple(sorted(missing))
