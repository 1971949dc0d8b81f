"""What one heartbeat tells of this server's replicas, so that it fits in one message however many there are. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from nyala.replica.rpc import pb
from nyala.replica.types import limits


@dataclass(frozen=True)
class Report:
    """Statuses to send. A full one tells all tablets with ids behind `after` up to `until`; empty: no bound."""

    statuses: list[pb.ReplicaStatus]
    told: frozenset[str]
    """Changed tablets that this report settles, also those that are here no longer."""
    full: bool = False
    after: str = ""
    until: str = ""


StatusOf = Callable[[str], pb.ReplicaStatus]
REFRESH_PER_BEAT = 20
"""Unchanged replicas reported again with each heartbeat, in turn, so that sizes and row counts stay fresh."""


class ReportState:
    """What one master was told, and what it is told next.

    A master that refused or was silent, such as one that does not lead, is only asked, and is told everything from the
    beginning when it takes a heartbeat: what it was told before it has forgotten, or never heard.
    """

    def __init__(self) -> None:
        self.heard = False
        self._full = False
        self._slices = False
        self._after = ""
        self._place = 0

    def next(self, tablets: Sequence[str], changed: set[str], status_of: StatusOf) -> Report:
        """The next report. `tablets`: sorted, all that are here; `changed` loses what is told now."""
        self._full = self._full or not changed <= set(tablets)  # only a full report tells what is no longer here
        if not self.heard:
            report = Report([], frozenset(changed))
        elif self._full:
            report = full_report(tablets, changed, status_of, after=self._after, slices=self._slices)
        else:
            self._place = self._place + REFRESH_PER_BEAT if self._place + REFRESH_PER_BEAT < len(tablets) else 0
            refresh = islice(tablets, self._place, self._place + REFRESH_PER_BEAT)
            report = partial_report(changed, refresh, status_of)
        changed -= report.told
        return report

    def taken(self, reply: pb.HeartbeatReply) -> bool:
        """The master took the last report; whether it is the first one, so that the next one is due at once."""
        before, self.heard = self.heard, True
        self._slices, self._after = reply.takes_slices, reply.heard_until if before else ""
        self._full = reply.need_full_report or bool(self._after) or not before
        return not before

    def not_taken(self) -> None:
        """It refused the last report, or did not answer."""
        self.heard = False


def full_report(
    tablets: Sequence[str], changed: Collection[str], status_of: StatusOf, *, after: str, slices: bool
) -> Report:
    """All of the sorted `tablets`, or to a master that takes slices the next of them behind `after`.

    A change of a tablet outside of the slice is not settled: it is told with another report.
    """
    if not slices:
        return Report([status_of(t) for t in tablets], frozenset(changed), full=True)
    rest = [t for t in tablets if t > after]
    statuses = _fitting(rest, status_of)
    until = rest[len(statuses) - 1] if len(statuses) < len(rest) else ""
    told = frozenset(t for t in changed if t > after and (not until or t <= until))
    return Report(statuses, told, full=True, after=after, until=until)


def partial_report(changed: Collection[str], refresh: Iterable[str], status_of: StatusOf) -> Report:
    """What changed, as much of it as fits, and then what is told from time to time."""
    first = sorted(changed)
    wanted = [*first, *(t for t in refresh if t not in changed)]
    statuses = _fitting(wanted, status_of)
    return Report(statuses, frozenset(first[: len(statuses)]))


def _fitting(tablets: Iterable[str], status_of: StatusOf) -> list[pb.ReplicaStatus]:
    """Statuses of the first tablets, one at least and REPORT_REPLICAS_MAX at most, of REPORT_BYTES_MAX together."""
    statuses: list[pb.ReplicaStatus] = []
    left = limits.REPORT_BYTES_MAX
    for tablet_id in tablets:
        if len(statuses) == limits.REPORT_REPLICAS_MAX:
            break
        status = status_of(tablet_id)
        left -= status.ByteSize() + 8
        if statuses and left < 0:
            break
        statuses.append(status)
    return statuses
