"""Hybrid times of one replica: shows the times of its log to the clock, and finds times that are too far ahead."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from nyala.replica.raft import AppendEntries
from nyala.replica.types import Entry, HybridClock, limits, us_of_hybrid
from nyala.replica.types.log_records import about

_log = logging.getLogger("nyala.raft_driver")


class Times:
    """Invariant: every entry of the log is shown to the clock before the clock issues another time."""

    def __init__(self, tablet_id: str, uuid: str, clock: HybridClock) -> None:
        self._tablet_id = tablet_id
        self._uuid = uuid
        self._clock = clock
        self._told_future = False
        self.last = 0
        """The time of the last entry in the log."""
        self.applied = 0
        """The time of the last applied entry: the safe time."""
        self._safe_time = (0, 0)
        """The leader's last safe time: (index, time), as `Ready.safe_time`."""
        self._kept = 0
        """The time of the last one before it whose index was applied."""

    def note_safe_time(self, index: int, time: int, applied_index: int) -> None:
        """Note a safe time of the leader, as in `Ready.safe_time`."""
        self._kept = self.heard(applied_index)
        self._safe_time = index, max(time, self._safe_time[1])

    def heard(self, applied_index: int) -> int:
        """The highest safe time whose index is applied; 0 if there is none."""
        return self._safe_time[1] if applied_index >= self._safe_time[0] else self._kept

    def observe(self, entries: Sequence[Entry]) -> None:
        """Show the clock the times of entries that other leaders wrote."""
        time = max(entry.hybrid_time for entry in entries)
        self.last = max(self.last, time)
        self._clock.observe(time)

    def recovered(self, logged: int) -> None:
        """Observe the log's last time. Logs a warning if it is more than 30 s ahead of this server's wall clock.
        D-30."""
        ahead_us = self._clock.ahead_of_wall_us(logged)
        if logged and ahead_us > limits.CLOCK_AHEAD_OF_PEERS_US_MAX:
            about(_log, self._tablet_id, self._uuid).warning(
                "the log's times reach %s, %.1f s ahead of the wall here, more than %.0f s; later writes get "
                "times above them; set this server's clock right if it is behind",
                datetime.fromtimestamp(us_of_hybrid(logged) / 1e6, UTC).isoformat(timespec="seconds"),
                ahead_us / 1e6,
                limits.CLOCK_AHEAD_OF_PEERS_US_MAX / 1e6,
            )
        self._clock.observe_own(logged)

    def from_the_future(self, message: AppendEntries) -> str:
        """The reason, logged once, why the message's times are too far ahead of this server's clock; empty if they are
        not.

        Its leader may be honest and have a wrong clock.
        """
        latest = max((entry.hybrid_time for entry in message.entries), default=0)
        ahead_us = self._clock.ahead_us(max(latest, message.safe_time))
        if ahead_us <= limits.CLOCK_AHEAD_OF_PEERS_US_MAX:
            self._told_future = False
            return ""
        if not self._told_future:
            self._told_future = True
            about(_log, self._tablet_id, self._uuid, peer=message.from_uuid).warning(
                "dropped an append of %s: its time is %.1f s ahead of the clock here, more than %.0f s; "
                "compare the clocks of both servers",
                message.from_uuid,
                ahead_us / 1e6,
                limits.CLOCK_AHEAD_OF_PEERS_US_MAX / 1e6,
            )
        return f"its time is {ahead_us / 1e6:.1f} s ahead of the clock here"
