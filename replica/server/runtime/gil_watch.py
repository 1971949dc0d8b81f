"""Measures how long one thread held Python's lock, because such a pause can look like a dead leader.

If a thread wakes late from a sleep, it waited for a processor or for the lock. The kernel knows how long it waited for
a processor (`schedstat`). For the rest another thread held the lock, including the time in which that thread itself got
no processor.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from .recent_maximum import RecentMaximum

PERIOD_S = 0.1
"""The length of each sleep. A longer hold is always noticed, at least the part above this length. A shorter one is
noticed only by chance."""
RECENT_S = 60.0


def held_ms(slept_s: float, wanted_s: float, waited_for_cpu_s: float) -> float:
    """The part of a sleep's lateness, in milliseconds, for which the thread did not wait for a processor; never
    negative."""
    return max(0.0, slept_s - wanted_s - max(0.0, waited_for_cpu_s)) * 1000


def waited_for_cpu_s(schedstat: str) -> float:
    """The seconds for which a thread was ready and waited for a processor; 0 if the kernel does not say."""
    fields = schedstat.split()
    return int(fields[1]) / 1e9 if len(fields) >= 2 and fields[1].isdigit() else 0.0


class GilWatch:
    """The longest hold so far, and within the last minute or two.

    Concurrency: a daemon thread of its own writes two floats; any thread reads them.
    """

    def __init__(self) -> None:
        self.hold_ms_max = 0.0
        self.observations = 0
        self.holds_ms = RecentMaximum()
        self._recent = [0.0, 0.0]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gil-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    @property
    def hold_ms_recent(self) -> float:
        """The longest hold of the present minute and the one before."""
        return max(self._recent)

    def note(self, hold_ms: float) -> None:
        """Note one observation."""
        self.hold_ms_max = max(self.hold_ms_max, hold_ms)
        self._recent[0] = max(self._recent[0], hold_ms)
        self.observations += 1
        self.holds_ms.note(hold_ms)

    def begin_minute(self) -> None:
        """Begin another minute."""
        self._recent = [0.0, self._recent[0]]

    def _run(self) -> None:
        path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        waited, before = _waited(path), time.monotonic()
        began = before
        while not self._stop.is_set():
            time.sleep(PERIOD_S)  # `Event.wait` would take the interpreter's lock several times
            now_waited, now = _waited(path), time.monotonic()
            self.note(held_ms(now - before, PERIOD_S, now_waited - waited))
            waited, before = now_waited, now
            if now - began > RECENT_S:
                began = now
                self.begin_minute()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()


def _waited(path: Path) -> float:
    try:
        return waited_for_cpu_s(path.read_text())
    except OSError:
        return 0.0
