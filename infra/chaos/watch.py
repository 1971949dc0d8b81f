"""Looks at the cluster again and again: for eyes that follow, and for what may never be seen."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .scene import Scene

FAULTS_SHOWN = 10


class Witness:
    """What successive scenes must not contradict: one leader in each term, terms that never fall under one identity.

    Two servers that sent entries of one tablet in one term would both have shown themselves as its leader.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.leaders: dict[tuple[str, int], str] = {}
        self.terms: dict[tuple[str, str], int] = {}
        self.faults: list[str] = []

    def look(self, scene: Scene) -> None:
        """Take one scene in."""
        self.looks += 1
        for tablet in scene.tablets:
            for name, status in sorted(tablet.statuses.items()):
                self._term(tablet.tablet_id, name, status.uuid, status.term)
                if status.role == "LEADER":
                    first = self.leaders.setdefault((tablet.tablet_id, status.term), status.uuid)
                    if first != status.uuid:
                        self._fault(f"two leaders of {tablet.tablet_id} in term {status.term}: {first}, {status.uuid}")

    def _term(self, tablet_id: str, name: str, uuid: str, term: int) -> None:
        highest = self.terms.get((tablet_id, uuid), 0)
        if term < highest:
            self._fault(f"{name} ({uuid}) knew term {highest} of {tablet_id}, now {term}")
        self.terms[tablet_id, uuid] = max(term, highest)

    def _fault(self, text: str) -> None:
        if len(self.faults) < FAULTS_SHOWN and text not in self.faults:
            self.faults.append(text)


class Watcher:
    """A thread that looks, tells the witness, and keeps the newest scene."""

    def __init__(self, look: Callable[[], Scene], period_s: float = 0.3) -> None:
        self.witness = Witness()
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
            self.witness.look(scene)
            self.scene = scene

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join(30)
