"""Chooses the events that the leading master appends to the topic `history`: changes of configs, decisions, snapshots.
Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from nyala.replica.types import ZERO_OPID, Decision, EventKind, HistoryEvent

from ..catalog.catalog import Catalog
from ..catalog.config_changes import config_of
from ..catalog.records import TABLET

BATCH_MAX = 200
"""The most events that wait for Kafka's acknowledgement: 20 ms of work to encode them."""
DECIDED_MAX = 5_000
"""The most decisions that are kept while Kafka is away, some 5 MB."""
SNAPSHOT_EVERY_US = 24 * 3600 * 1_000_000


class HistoryWriter:
    """Chooses the events to append next, one batch at a time. The next batch is made after Kafka has acknowledged all
    events of the last one.

    Events that a former leader may not have appended are appended again: readers expect repeated events. A leadership
    begins with a snapshot. Another one follows once a day, and after each loss of events. Nothing here is needed after
    a crash. Concurrency: one thread; `acknowledged` on another one.
    """

    def __init__(self, catalog: Callable[[], Catalog], uuid: str) -> None:
        self._catalog, self._uuid = catalog, uuid
        self._term = -1
        self._waiting = 0
        """The number of events of the last batch that are not acknowledged."""
        self._position = ZERO_OPID
        """All changes of configs up to this entry of the catalog were taken."""
        self._changes: deque[HistoryEvent] = deque()
        self._decided: deque[HistoryEvent] = deque()
        self._lost = 0
        """The number of decisions that could not be kept."""
        self._snapshot: Iterator[HistoryEvent] | None = None
        self._snapshot_us = 0

    def decided(self, term: int, sent: Mapping[str, Decision | None], wall_us: int) -> None:
        """Note decisions that are published now; None withdraws the one of the tablet."""
        for tablet_id, decision in sent.items():
            if len(self._decided) >= DECIDED_MAX:
                self._decided.popleft()
                self._lost += 1
            self._decided.append(_decision_event(term, tablet_id, decision, wall_us, self._uuid))

    def acknowledged(self) -> None:
        """Note that Kafka has acknowledged one more event of the last batch."""
        self._waiting -= 1

    def take(self, term: int, mono_us: int, wall_us: int) -> list[HistoryEvent]:
        """The events to append now, in the catalog's `term`; empty if the last batch is not acknowledged. The caller
        keeps each event until Kafka has acknowledged it, and then calls `acknowledged` once for it."""
        if term != self._term:
            self._term, self._position = term, self._catalog().config_changes_begin
            self._changes.clear()
            self._begin_snapshot(mono_us, wall_us)
        if self._waiting:
            return []
        batch = self._gap(mono_us, wall_us)
        for source in (self._decided, self._changes):
            batch += [source.popleft() for _ in range(min(len(source), BATCH_MAX - len(batch)))]
        if not self._changes and self._snapshot is None and mono_us - self._snapshot_us >= SNAPSHOT_EVERY_US:
            self._begin_snapshot(mono_us, wall_us)
        if not self._changes and self._snapshot is not None:
            wanted = BATCH_MAX - len(batch)
            part = list(islice(self._snapshot, wanted))
            batch += part
            if len(part) < wanted:
                self._snapshot = None
        self._waiting = len(batch)
        return batch

    def _gap(self, mono_us: int, wall_us: int) -> list[HistoryEvent]:
        """Take the changes since the last ones. Returns the GAP event if some changes or decisions were lost."""
        reasons = []
        if self._lost:
            reasons.append(f"{self._lost} decisions could not be appended")
            self._lost = 0
        if not self._changes:
            catalog = self._catalog()
            changes = catalog.config_changes_since(self._position)
            if changes is None:
                begin = catalog.config_changes_begin
                reasons.append(f"changes of configs after {self._position} and up to {begin} could not be appended")
                self._position = begin
                changes = catalog.config_changes_since(begin) or []
            for change in changes:
                self._changes.extend(change.events())
                self._position = change.opid
        if not reasons:
            return []
        self._begin_snapshot(mono_us, wall_us)
        reason = "Kafka did not take events as fast as they came: " + "; ".join(reasons)
        return [HistoryEvent(kind=EventKind.GAP, at_us=wall_us, by=self._uuid, reason=reason)]

    def _begin_snapshot(self, mono_us: int, wall_us: int) -> None:
        """Begin a snapshot; one that is under way ends incomplete."""
        self._snapshot, self._snapshot_us = snapshot_of(self._catalog(), self._uuid, wall_us), mono_us


def snapshot_of(catalog: Catalog, uuid: str, wall_us: int) -> Iterator[HistoryEvent]:
    """The events of a snapshot, made as the caller takes them. All name the position of the catalog at which the first
    one is taken; each config is at least as new as that."""
    at, after = catalog.applied_opid, catalog.config_changed
    snapshot_id, count = f"{at}-{uuid}-{wall_us}", 0
    yield HistoryEvent(
        kind=EventKind.SNAPSHOT_BEGAN, catalog_opid=at, after=after, at_us=wall_us, by=uuid, snapshot_id=snapshot_id
    )
    for tablet_id, record in catalog.walk(TABLET):
        config = config_of(record)
        if config is None:
            continue
        count += 1
        yield HistoryEvent(
            kind=EventKind.SNAPSHOT, tablet_id=tablet_id, table_id=record.table_id, catalog_opid=at, at_us=wall_us,
            by=uuid, snapshot_id=snapshot_id, config_opid=config.opid, members=config.members,
            decision_term=config.decision[0], decision_version=config.decision[1], unsafe=config.unsafe,
        )  # fmt: skip
    yield HistoryEvent(
        kind=EventKind.SNAPSHOT_ENDED, catalog_opid=at, tablets=count, at_us=wall_us, by=uuid, snapshot_id=snapshot_id
    )


def _decision_event(term: int, tablet_id: str, decision: Decision | None, wall_us: int, uuid: str) -> HistoryEvent:
    if decision is None:
        return HistoryEvent(kind=EventKind.WITHDRAWN, tablet_id=tablet_id, decision_term=term, at_us=wall_us, by=uuid)
    return HistoryEvent(
        kind=EventKind.DECIDED, tablet_id=tablet_id, table_id=decision.table_id, at_us=wall_us, by=uuid,
        decision_term=decision.catalog_term, decision_version=decision.version, config_opid=decision.config_opid,
        edits=decision.edits, to_uuid=decision.target_uuid, plan_id=decision.plan_id, reason=decision.reason,
    )  # fmt: skip
