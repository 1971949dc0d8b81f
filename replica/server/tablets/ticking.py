"""One timer for all replicas of a server: ticks those that are awake, and watches the servers of quiet ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from nyala.replica.transport import LivenessChange, PeerLiveness
from nyala.replica.types.log_records import about

from ..runtime.recent_maximum import RecentMaximum
from .hosted import HostedTablet

_log = logging.getLogger("nyala.server")

LAG_WARNING_MS = 200.0
"""If the loop is later than this, the server logs a warning: a third of the shortest election timeout."""
PULSE_TICKS = 4
"""Signs of life are sent to other servers at least once in so many ticks. Three may be lost before a link is silent."""
CHECK_TICKS = 1200
"""Each quiet group is probed once in so many ticks, one replica after the other."""
WAKES_PER_TICK = 25
"""The most elections that begin in one tick when a server is lost; the others are spread over later ticks."""


class RaftTimer:
    """Ticks replicas, sends signs of life, and notifies replicas when a server falls silent or returns.

    Invariants: a replica that is not ticked is quiet and waits for nothing (`Replica.may_rest`), or does not run. It is
    ticked again from the iteration on in which it receives anything. Concurrency: the loop's thread.
    """

    def __init__(
        self,
        uuid: str,
        tablets: Mapping[str, HostedTablet],
        *,
        tick_ms: int,
        silent_ticks_max: int,
        pulse: Callable[[Sequence[str]], None],
    ) -> None:
        """`tablets`: the manager's own mapping. `pulse(uuids)`: send these servers a sign of life."""
        self._uuid = uuid
        self._tablets = tablets
        self._tick_ms = tick_ms
        self._pulse = pulse
        self._awake: dict[str, None] = {}
        self._ticks = 0
        self._unchecked: list[str] = []
        self._members_changed = True
        self.liveness = PeerLiveness(silent_ticks_max)
        self.lag_ms_max = 0.0
        self.lags_ms = RecentMaximum()

    @property
    def awake(self) -> int:
        """The number of replicas that are ticked."""
        return len(self._awake)

    def wake(self, tablet_id: str) -> None:
        """Tick this replica from now on."""
        self._awake[tablet_id] = None

    def members_changed(self) -> None:
        """Note that some replica has another config: other servers may have to be watched."""
        self._members_changed = True

    def started(self, hosted: HostedTablet) -> None:
        """Tick a replica that starts, and notify it of silent servers."""
        self.wake(hosted.tablet_id)
        self._members_changed = True
        if hosted.replica is not None:
            for uuid in self.liveness.silent:
                hosted.replica.server_silent(uuid, 0)

    async def run_forever(self, stopping: Callable[[], bool]) -> None:
        """Tick, and measure how late the loop is."""
        period_s = self._tick_ms / 1000
        due = time.monotonic() + period_s
        while not stopping():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            self._note_lag((now - due) * 1000)
            # Missed ticks are skipped: a stalled process must not mistake its own pause for a silent leader.
            due = max(due + period_s, now)
            self.tick()

    def _note_lag(self, lag_ms: float) -> None:
        self.lag_ms_max = max(self.lag_ms_max, lag_ms)
        self.lags_ms.note(lag_ms)
        if lag_ms > LAG_WARNING_MS:
            _log.warning("P %s the event loop was %.0f ms late", self._uuid, lag_ms)

    def tick(self) -> None:
        """Do one tick of everything."""
        self._ticks += 1
        if self._ticks % PULSE_TICKS == 0:
            if self._members_changed:
                self._members_changed = False
                self.liveness.watch(self._peers())
            self._pulse(self.liveness.watched)
        for change in self.liveness.tick():
            self._liveness_changed(change)
        self._check_some()
        for tablet_id in list(self._awake):
            hosted = self._tablets.get(tablet_id)
            if hosted is None or hosted.replica is None:
                del self._awake[tablet_id]
                continue
            hosted.replica.tick()
            if hosted.replica.rest():
                del self._awake[tablet_id]

    def _peers(self) -> set[str]:
        members = {m.uuid for h in self._tablets.values() if h.replica for m in h.replica.active_config.members}
        return members - {self._uuid}

    def _liveness_changed(self, change: LivenessChange) -> None:
        news = "is heard again, or is another process" if change.up else "is not heard"
        about(_log, process=self._uuid, peer=change.uuid).info("server %s %s", change.uuid, news)
        woken = 0
        for hosted in list(self._tablets.values()):
            replica = hosted.replica
            if replica is None:
                continue
            if change.up:
                replica.server_heard(change.uuid)
            else:
                rests = replica.may_rest and replica.leader_uuid == change.uuid
                replica.server_silent(change.uuid, change.silent_ticks, woken // WAKES_PER_TICK)
                woken += rests

    def _check_some(self) -> None:
        """Probe all quiet groups within CHECK_TICKS, some at each tick."""
        if not self._unchecked:
            self._unchecked = sorted(self._tablets)
            self._share = -(-len(self._unchecked) // CHECK_TICKS)
            self._pace = max(1, CHECK_TICKS // max(1, len(self._unchecked)))
        if self._ticks % self._pace:
            return
        for _ in range(min(self._share, len(self._unchecked))):
            hosted = self._tablets.get(self._unchecked.pop())
            if hosted is not None and hosted.replica is not None:
                hosted.replica.probe_quiet_group()
