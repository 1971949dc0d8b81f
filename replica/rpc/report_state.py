"""Chooses the replicas that one heartbeat reports, so that it fits in one message. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from nyala.replica.types import limits

from . import nyala_pb2 as pb


@dataclass(frozen=True)
class Report:
    """Statuses to send. A full report has all tablets with ids after `after` up to `until`; empty: no bound."""

    statuses: list[pb.ReplicaStatus]
    told: frozenset[str]
    """Changed tablets that this report covers, also those that are no longer here."""
    full: bool = False
    after: str = ""
    until: str = ""


StatusOf = Callable[[str], pb.ReplicaStatus]
SLICE_REPLICAS_MAX = 500
SLICE_BYTES_MAX = limits.REQUEST_SMALL_BYTES - (16 << 10)
"""Bound one slice of a full report. A master takes it in one short step of its loop, and need not count its fields
before it is parsed; the rest of the heartbeat is smaller than 16 KiB unless many copies fail."""
REFRESH_PER_BEAT = 20
"""Unchanged replicas that are reported again with each heartbeat, in turn, so that sizes and row counts stay fresh."""


class ReportState:
    """The reports to one master so far, and the choice of the next one.

    A master that refused or did not answer, such as one that does not lead, gets empty heartbeats. Once it accepts one,
    its reply says how much of a full report it lacks: all of it if it has begun to lead, and nothing if only the reply
    was late. The changes of a report that it may have missed are reported again.
    """

    def __init__(self) -> None:
        self.heard = False
        self._full = False
        self._slices = False
        self._waits = False
        """Whether the master takes full reports of other servers first."""
        self._after = ""
        self._sent_full = False
        self._until = ""
        """The end of the last report, if that was a slice which others follow."""
        self._place = 0
        self._sent: frozenset[str] = frozenset()
        """The changes in the last report, until the master accepts it."""
        self._gone = False
        """Whether a tablet went while the master was not heard, and no full report has told it since."""

    def next(self, tablets: Sequence[str], changed: set[str], status_of: StatusOf) -> Report:
        """The next report. `tablets`: all tablets of this server, sorted. Reported ones are removed from `changed`."""
        if not self.heard:
            changed |= self._sent
        gone = changed - set(tablets)
        self._full = self._full or bool(gone)  # only a full report shows which tablets are gone
        if not self.heard:
            self._gone, self._sent = self._gone or bool(gone), frozenset()
            changed -= gone  # for a master that never leads, they would be all tablets that ever went
            self._sent_full, self._until = False, ""
            return Report([], frozenset(gone))
        if self._full and self._waits:
            report = Report([], frozenset())
        elif self._full:
            report = full_report(tablets, changed, status_of, after=self._after, slices=self._slices)
        else:
            self._place = self._place + REFRESH_PER_BEAT if self._place + REFRESH_PER_BEAT < len(tablets) else 0
            refresh = islice(tablets, self._place, self._place + REFRESH_PER_BEAT)
            report = partial_report(changed, refresh, status_of)
        changed -= report.told
        self._sent, self._sent_full, self._until = report.told, report.full, report.until
        return report

    def taken(self, reply: pb.HeartbeatReply) -> bool:
        """Note that the master accepted the last report. Returns whether the next one is due at once: after the first
        one that it accepts, at the end of a wait, and until the last slice."""
        before, self.heard, self._sent = self.heard, True, frozenset()
        self._slices = reply.takes_slices
        # A master that takes no slices, or has not heard of a tablet that went, gets a whole report.
        anew = not before and (self._gone or not reply.takes_slices)
        self._gone = self._gone and not (self._sent_full and not reply.heard_until)
        self._after = "" if anew else reply.heard_until
        self._full = reply.need_full_report or bool(self._after) or anew
        waited, self._waits = self._waits, reply.full_report_waits
        return not self._waits and (not before or waited or self._after == self._until != "")

    def not_taken(self) -> None:
        """Note that the master refused the last report, or did not answer."""
        self.heard = False


def full_report(
    tablets: Sequence[str], changed: Collection[str], status_of: StatusOf, *, after: str, slices: bool
) -> Report:
    """A report of all the sorted `tablets`, or of the next slice after `after` if the master takes slices.

    A change of a tablet outside of the slice is reported later.
    """
    if not slices:
        return Report([status_of(t) for t in tablets], frozenset(changed), full=True)
    rest = tablets[bisect_right(tablets, after) :]
    statuses = _fitting(rest[:SLICE_REPLICAS_MAX], status_of, min(SLICE_BYTES_MAX, limits.REPORT_BYTES_MAX))
    until = rest[len(statuses) - 1] if len(statuses) < len(rest) else ""
    told = frozenset(t for t in changed if t > after and (not until or t <= until))
    return Report(statuses, told, full=True, after=after, until=until)


def partial_report(changed: Collection[str], refresh: Iterable[str], status_of: StatusOf) -> Report:
    """A report of changed tablets, as many as fit, and then of unchanged ones to refresh."""
    first = sorted(changed)
    wanted = [*first, *(t for t in refresh if t not in changed)]
    statuses = _fitting(wanted, status_of, limits.REPORT_BYTES_MAX)
    return Report(statuses, frozenset(first[: len(statuses)]))


def _fitting(tablets: Iterable[str], status_of: StatusOf, left: int) -> list[pb.ReplicaStatus]:
    """Statuses of the first tablets: at least one, at most REPORT_REPLICAS_MAX, and `left` bytes in all."""
    statuses: list[pb.ReplicaStatus] = []
    for tablet_id in tablets:
        if len(statuses) == limits.REPORT_REPLICAS_MAX:
            break
        status = status_of(tablet_id)
        left -= status.ByteSize() + 8
        if statuses and left < 0:
            break
        statuses.append(status)
    return statuses
