"""An index of the catalog's read times, by query and by owner, so that finding one needs no search. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .records import ReadTime

_NONE: Mapping[str, ReadTime] = MappingProxyType({})


class KeptReadTimes:
    """The read times that are in the catalog.

    Concurrency: changed by one thread at a time; reads from any.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[str, int], ReadTime] = {}
        """By `load()` and query."""
        self._owned: dict[tuple[str, str], dict[str, ReadTime]] = {}
        """By owner, its times by their keys."""

    def of(self, load_id: str, query: int) -> ReadTime | None:
        """The time of that query; None if there is none."""
        return self._times.get((load_id, query))

    def owned(self, kind: str, name: str) -> Mapping[str, ReadTime]:
        """The times of that "application", "load" or "host", by their keys."""
        return self._owned.get((kind, name), _NONE)

    def add(self, key: str, time: ReadTime) -> None:
        """Note a time that was put. If a forged entry gives a query a second time, the first one counts."""
        self._times.setdefault((time.load_id, time.query), time)
        for owner in _owners(time):
            self._owned.setdefault(owner, {})[key] = time

    def remove(self, key: str, time: ReadTime) -> None:
        """Note a time that is no longer in the catalog."""
        if self._times.get((time.load_id, time.query)) is time:
            del self._times[time.load_id, time.query]
        for owner in _owners(time):
            self._owned[owner].pop(key)
            if not self._owned[owner]:
                del self._owned[owner]


def _owners(time: ReadTime) -> tuple[tuple[str, str], ...]:
    return ("application", time.application), ("load", time.load_id), ("host", time.host)
