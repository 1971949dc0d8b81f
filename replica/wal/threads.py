"""The threads that all logs of a process share: some append, and a few preallocate segments."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from nyala.replica.fs import exhausted
from nyala.replica.types import limits

Turn = Callable[[], bool]
"""Some work of one log; returns whether the log has more to do now."""


class TurnThreads:
    """Threads that take turns in the order in which these were given. If a log has more to do after its turn, the rest
    waits behind the turns of the others. Concurrency: any thread."""

    def __init__(self, count: int, name: str) -> None:
        """Start all threads, so that no later turn fails for want of one; else ResourcesExhausted."""
        self._lock = threading.Lock()
        self._turns: deque[Turn] = deque()
        self._idle: list[threading.Lock] = []
        """One lock for each thread that waits, which the release of its lock wakes."""
        self._closed = False
        for number in range(count):
            # A process may end while a disk hangs, so these threads do not hold it up.
            thread = threading.Thread(target=self._serve, name=f"{name}-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise exhausted(error) or error from error

    def give(self, turn: Turn) -> None:
        """Let a thread take this turn. A log may have one turn here at a time, which bounds the queue."""
        with self._lock:
            self._turns.append(turn)
            if self._idle:
                self._idle.pop().release()  # the one that worked last, whose memory is still in the caches

    def close(self) -> None:
        """Let each thread end as soon as no turn waits."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop().release()

    def _serve(self) -> None:
        wake = threading.Lock()
        wake.acquire()
        turn: Turn | None = None
        while True:
            with self._lock:
                if turn is not None:
                    self._turns.append(turn)  # if no other turn waits, this thread goes on with the same log
                turn = self._turns.popleft() if self._turns else None
                if turn is None:
                    if self._closed:
                        return
                    self._idle.append(wake)
            if turn is None:
                wake.acquire()
            elif not turn():
                turn = None


class LogThreads:
    """The threads of all logs of a process."""

    def __init__(
        self,
        appending: int = limits.WAL_APPENDING_THREADS,
        preallocating: int = limits.WAL_PREALLOCATING_THREADS,
    ) -> None:
        """Start them. If one cannot be started, ResourcesExhausted, and the process cannot begin."""
        self.appending = TurnThreads(appending, "wal-append")
        self.preallocating = TurnThreads(preallocating, "wal-prealloc")

    def close(self) -> None:
        """Let the threads end. No log that uses them may still be open."""
        self.appending.close()
        self.preallocating.close()
