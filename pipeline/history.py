"""Replays the topic `history`: the configs of all tablets, and the proof that no change of one is missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nyala.replica.types import ZERO_OPID, EventKind, HistoryEvent, OpId, RaftConfig

_OF_ENTRIES = (EventKind.CONFIG, EventKind.DROPPED)


@dataclass(frozen=True)
class Replayed:
    """What the events say. It is proven from `begins` on if `missing` is empty."""

    configs: Mapping[str, RaftConfig]
    """By id, the config of each tablet that is not dropped."""
    begins: OpId | None
    """The position of the masters' catalog at which the oldest complete snapshot began; None if there is none."""
    until: OpId
    """The last position of the catalog of which an event tells."""
    missing: tuple[OpId, ...]
    """The entries of the catalog after `begins` that changed configs, and of which not all events are there. Sorted."""


@dataclass
class _Snapshot:
    began: HistoryEvent | None = None
    tablets: set[str] = field(default_factory=set)
    count: int = -1

    @property
    def complete(self) -> bool:
        return self.began is not None and len(self.tablets) == self.count


@dataclass
class _Entry:
    after: OpId = ZERO_OPID
    count: int = 0
    tablets: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return len(self.tablets) == self.count


def fold(events: Iterable[HistoryEvent]) -> Replayed:
    """Return what the events say. Their order, and repetitions of them, change nothing.

    1. The newest event of a tablet, by its position in the masters' catalog, has the tablet's config.
    2. A tablet that the newest complete snapshot does not have, and of which no later event tells, is gone.
    3. Each entry of the catalog that changed configs names the one before it, and how many tablets it changed; each
       snapshot names the last one before it. An entry that is named and is not there is missing.
    """
    newest: dict[str, HistoryEvent] = {}
    snapshots: dict[str, _Snapshot] = {}
    entries: dict[OpId, _Entry] = {}
    until = ZERO_OPID
    for event in events:
        until = max(until, event.catalog_opid)
        if event.kind in _OF_ENTRIES:
            entry = entries.setdefault(event.catalog_opid, _Entry())
            entry.after, entry.count = max(entry.after, event.after), max(entry.count, event.tablets)
            entry.tablets.add(event.tablet_id)
        elif event.kind is EventKind.SNAPSHOT:
            snapshots.setdefault(event.snapshot_id, _Snapshot()).tablets.add(event.tablet_id)
        elif event.kind is EventKind.SNAPSHOT_BEGAN:
            snapshots.setdefault(event.snapshot_id, _Snapshot()).began = event
        elif event.kind is EventKind.SNAPSHOT_ENDED:
            snapshots.setdefault(event.snapshot_id, _Snapshot()).count = event.tablets
        if event.kind in _OF_ENTRIES or event.kind is EventKind.SNAPSHOT:
            known = newest.get(event.tablet_id)
            if known is None or _order(event) > _order(known):
                newest[event.tablet_id] = event
    begun = [one.began for one in snapshots.values() if one.began is not None]
    complete = [(one.began, one.tablets) for one in snapshots.values() if one.began is not None and one.complete]
    whole = sorted(complete, key=lambda each: (each[0].catalog_opid, each[0].at_us, each[0].snapshot_id))
    last, held = (whole[-1][0].catalog_opid, whole[-1][1]) if whole else (ZERO_OPID, set[str]())
    configs = {
        tablet_id: event.config
        for tablet_id, event in sorted(newest.items())
        if event.kind is not EventKind.DROPPED and (tablet_id in held or event.catalog_opid > last or not whole)
    }
    first = whole[0][0] if whole else None
    return Replayed(configs, first.catalog_opid if first else None, until, _missing(entries, begun, first))


def _missing(
    entries: Mapping[OpId, _Entry], begun: Iterable[HistoryEvent], first: HistoryEvent | None
) -> tuple[OpId, ...]:
    """The entries after the oldest complete snapshot that are named, and are not there with all tablets that they
    changed. An entry that does not name the one before it, as the first one of a rebuilt catalog, stands for what is
    missing before it."""
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


def _order(event: HistoryEvent) -> tuple[object, ...]:
    """Events of one tablet in the order of the catalog. A snapshot may be newer than the position that it names, and
    then a later event has the same config."""
    return event.catalog_opid, event.config_opid, event.kind, repr(event.members)
