"""Work that a simulated process does beside its main thread: a flush, a compaction, a tablet copy.

It runs on a real thread of its own, but never at the same time as the simulation: the two pass one baton back and
forth. The work releases it at each call of the disk or a peer. So everything else of the process, and of the others,
happens in between, at times drawn from the seed, and the process may die there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.harness.sim_disk import SimCrash

if TYPE_CHECKING:
    from tests.harness.sim_cluster import SimNode


class Side:
    """One piece of side work. `done(result or error)` runs on the main thread, unless the process died."""

    def __init__(self, node: SimNode, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.node = node
        self.over = self.killed = False
        self._life = node.life
        self._function, self._done = function, done
        self._result: Any = None
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def schedule(self, delay_us: int) -> None:
        """Go on for a step in `delay_us`, if the process is alive and awake then."""
        self.node.world.after(delay_us, self._turn)

    def _turn(self) -> None:
        if self.node.paused:
            self.node.world.at(self.node.paused_until_us, self._turn)
        elif not self.over and self.node.life == self._life:
            self.step()
            if not self.over:
                self.schedule(self.node.world.rng.randint(50, 8_000))

    def step(self) -> None:
        """Let it run to its next pause or its end; a crash point on the way ends the process."""
        self._mine.release()
        self._theirs.acquire()
        if self.over:
            self._thread.join()
            if isinstance(self._result, AssertionError):
                raise self._result
            if not self.killed:
                result = self._result
                if isinstance(result, SimCrash):
                    self.node.died(result)
                else:
                    self.node.do(lambda: self._done(result))

    def finish(self) -> None:
        """Run it to its end now: a replica that stops waits for its flush."""
        while not self.over:
            self.step()

    def kill(self) -> None:
        """End it because the process is gone: what the work still holds is released, nothing more is written."""
        self.killed = True
        while not self.over:
            self.step()

    def pause(self) -> None:
        """Let the world go on; called on the side's thread."""
        if self.killed:
            raise SimCrash("the process is gone")
        self._theirs.release()
        self._mine.acquire()
        if self.killed:
            raise SimCrash("the process is gone")

    @property
    def here(self) -> bool:
        """Return whether this is the side's own thread."""
        return threading.current_thread() is self._thread

    def _main(self) -> None:
        self._mine.acquire()
        try:
            if not self.killed:
                self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self._result = error
        self.over = True
        self._theirs.release()
