"""The last changes of tablets' configs in the catalog, from which the events of the history are made. They are equal on
all masters."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nyala.replica.types import ZERO_OPID, EventKind, HistoryEvent, OpId, RaftConfig, us_of_hybrid

from .records import Record, Tablet

KEPT_TABLETS_MAX = 5_000
"""The most changes of tablets that are kept, 10 MB. A new leader appends those that a former one may not have appended,
and Kafka may be away while so many changes are made."""


@dataclass(frozen=True)
class ConfigChange:
    """The tablets whose config one entry of the catalog changed: (tablet id, table id, config; None: dropped)."""

    opid: OpId
    after: OpId
    """The entry before it that changed a config."""
    hybrid_time: int
    tablets: tuple[tuple[str, str, RaftConfig | None], ...]

    def events(self) -> Iterator[HistoryEvent]:
        """The events of the history, one a tablet."""
        for tablet_id, table_id, config in self.tablets:
            held = config or RaftConfig(ZERO_OPID, ())
            yield HistoryEvent(
                kind=EventKind.DROPPED if config is None else EventKind.CONFIG, tablet_id=tablet_id, table_id=table_id,
                catalog_opid=self.opid, after=self.after, tablets=len(self.tablets),
                at_us=us_of_hybrid(self.hybrid_time), config_opid=held.opid, members=held.members,
                decision_term=held.decision[0], decision_version=held.decision[1], unsafe=held.unsafe,
            )  # fmt: skip


def config_of(record: Record | None) -> RaftConfig | None:
    """The config of a tablet that is not dropped. Pure."""
    return record.known_config if isinstance(record, Tablet) and not record.dropped else None


class ConfigChanges:
    """Bounded by KEPT_TABLETS_MAX. Concurrency: the catalog's lock."""

    def __init__(self, last: OpId = ZERO_OPID) -> None:
        """`last`: the last entry that changed a config, before the first one that is added here."""
        self.last = last
        self._kept: deque[ConfigChange] = deque()
        self._tablets = 0

    def add(self, opid: OpId, hybrid_time: int, changed: Iterable[tuple[str, Record | None, Record | None]]) -> None:
        """Keep what an entry changed: (tablet id, record before, record after)."""
        told = []
        for tablet_id, before, after in changed:
            was, config = config_of(before), config_of(after)
            if was != config:
                known = after if isinstance(after, Tablet) else before
                told.append((tablet_id, known.table_id if isinstance(known, Tablet) else "", config))
        if not told:
            return
        self._kept.append(ConfigChange(opid, self.last, hybrid_time, tuple(told)))
        self.last = opid
        self._tablets += len(told)
        while self._tablets > KEPT_TABLETS_MAX and len(self._kept) > 1:
            self._tablets -= len(self._kept.popleft().tablets)

    @property
    def begin(self) -> OpId:
        """The position from which on all later changes are kept."""
        return self._kept[0].after if self._kept else self.last

    def since(self, position: OpId) -> list[ConfigChange] | None:
        """The changes after that position; None if some of them are no longer kept."""
        if position < self.begin:
            return None
        return [change for change in self._kept if change.opid > position]
