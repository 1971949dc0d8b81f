"""Watches the cluster: keeps its newest scene for the display, and checks it for states that must never occur."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .scene import Scene

FAULTS_SHOWN = 10


class SceneChecker:
    """Checks successive scenes: one leader in each term, and no identity below a term that it led.

    Two servers that sent entries of one tablet in one term would both have reported themselves as its leader. A leader
    has its term on disk. A follower may report a term that is not on its disk yet, and lose it when its process ends.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.leaders: dict[tuple[str, int], str] = {}
        self.led: dict[tuple[str, str], int] = {}
        """(tablet, uuid) -> the highest term in which it was seen to lead."""
        self.faults: list[str] = []

    def look(self, scene: Scene) -> None:
        """Check one scene."""
        self.looks += 1
        for tablet in scene.tablets:
            for name, status in sorted(tablet.statuses.items()):
                led = self.led.get((tablet.tablet_id, status.uuid), 0)
                if status.term < led:
                    self._fault(f"{name} ({status.uuid}) led {tablet.tablet_id} in term {led}, now knows {status.term}")
                if status.role == "LEADER":
                    self.led[tablet.tablet_id, status.uuid] = max(led, status.term)
                    first = self.leaders.setdefault((tablet.tablet_id, status.term), status.uuid)
                    if first != status.uuid:
                        self._fault(f"two leaders of {tablet.tablet_id} in term {status.term}: {first}, {status.uuid}")

    def _fault(self, text: str) -> None:
        if len(self.faults) < FAULTS_SHOWN and text not in self.faults:
            self.faults.append(text)


class Watcher:
    """A thread that takes scenes of the cluster, has each checked, and keeps the newest one."""

    def __init__(self, look: Callable[[], Scene], period_s: float = 0.3) -> None:
        self.checker = SceneChecker()
        self.scene = look()
        self.error = ""
        self._look = look
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-watcher", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                scene = self._look()
            except Exception as error:  # noqa: BLE001 - a verdict, told at the end
                self.error = f"the watcher ended: {error!r}"
                return
            self.checker.look(scene)
            self.scene = scene

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(30)
