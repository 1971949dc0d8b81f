"""Counts, for each tablet, the copies into this server that failed in a row for this server's own reasons, or that it
refused because its replica is intact. Heartbeats report the counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from dataclasses import dataclass

from nyala.replica.tablet_copy import INTACT, DamagedFile
from nyala.replica.types import Corruption, Refused, is_transient, limits

FORGET_S = 60.0
"""Failures are forgotten after this long without another attempt. A leader tries again within 10 s."""
REPORTED_MAX = limits.COPIES_FAILING_MAX
"""The most tablets in one heartbeat: those whose copies failed most often."""
REASON_CHARS_MAX = 300
REFUSALS_MAX = limits.COPY_FAILURES_MAX - 1
"""Refusals are counted up to this, because any process can cause them. At one more, the masters would replace the
member and avoid the server."""


@dataclass
class FailedCopies:
    """The failed copies of one tablet since the last one that succeeded."""

    tablet_id: str
    count: int
    reason: str
    at_s: float
    own: bool
    """Whether they failed for this server's own reasons; otherwise it refused them."""


def is_our_own(error: BaseException) -> bool:
    """Whether a copy failed for a reason of this server: a full disk, an exhausted resource, or files that cannot be
    written or read back.

    A source that is busy, no longer leads, cannot be reached or sent damaged bytes is no such reason.
    """
    if isinstance(error, Refused):
        return is_transient(error)
    return isinstance(error, Corruption | OSError) and not isinstance(error, DamagedFile)


def is_refused(error: BaseException) -> bool:
    """Whether this server refused a copy over an intact replica. If its leader wants that copy, an operator has to
    help."""
    return isinstance(error, Refused) and error.detail == INTACT


class CopyFailures:
    """Counts by tablet. Bounded: a count that does not grow for FORGET_S is dropped. Concurrency: the loop's thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: a clock in seconds that never goes back."""
        self._now = now
        self._of: dict[str, FailedCopies] = {}

    def failed(self, tablet_id: str, error: BaseException) -> None:
        """Note that a copy of the tablet ended with that error, or its files could not be removed after a failure."""
        own, known = is_our_own(error), self._of.get(tablet_id)
        if own or (is_refused(error) and (known is None or not known.own)):
            count = known.count + 1 if known is not None and known.own is own else 1
            count = count if own else min(count, REFUSALS_MAX)
            self._of[tablet_id] = FailedCopies(tablet_id, count, str(error)[:REASON_CHARS_MAX], self._now(), own)

    def succeeded(self, tablet_id: str) -> None:
        """Note that a copy of the tablet is complete."""
        self._of.pop(tablet_id, None)

    def lasting(self, under_way: Container[str]) -> list[FailedCopies]:
        """The tablets whose copies failed recently, or are tried again now (`under_way`); most failures of
        its own first, and refusals last."""
        oldest_s = self._now() - FORGET_S
        self._of = {t: f for t, f in self._of.items() if f.at_s >= oldest_s or t in under_way}
        return sorted(self._of.values(), key=lambda f: (not f.own, -f.count, f.tablet_id))[:REPORTED_MAX]
