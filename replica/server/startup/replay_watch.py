"""Tracks which log entry a replay applies. A replica is given up if one entry crashes the process three times.

1. A marker file names the entries that are being applied, at most MARKED_AT_ONCE_MAX. It is written without a sync:
   the kernel's cache outlives the process. After a power loss an older marker, or none, only means that counting
   begins again.
2. If the server crashes, the next start suspects these entries. It applies them one at a time, and no other tablet's
   meanwhile, so that a second crash names one entry.
3. A third crash at that entry is proof. The start after it leaves that one replica offline and serves the others.

Three crashes are needed, because most servers that end during a replay were killed by an operator or a supervisor, and
no entry is the cause. Two such kills often happen at the same suspects, but three hardly ever at the same entry.

An entry that crashes the process, or raises where it is applied, is a defect of the code. The files are whole, and
every replica of the tablet fails at the entry, so a copy does not help. So crashes are counted for each build: another
build than the one that crashed applies the entry once more, alone. If a replica failed while the process went on, every
start replays it. The marker notes for operators at which entry it failed, and under which build.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from nyala.replica.raft_driver import StateMachine
from nyala.replica.types import Corruption, Disk, Entry, OpId, Refused
from nyala.replica.types.log_records import about
from nyala.schemas import frame, unframe

_log = logging.getLogger("nyala.server")
FOLDER = "replay"
MARKED_AT_ONCE_MAX = 64
"""The most entries that one marker covers. After a kill -9 the next replay applies them one by one, and the tablet does
not serve meanwhile. A higher number would make each replay a little cheaper, but a replay after a kill much longer."""

FAILED_CHARS_MAX = 160
"""The most characters of an error's text that are kept, so that a marker fits into a sector."""


class EntryCrashesReplay(Corruption):
    """The server crashed three times at one entry of the log, the last time with this build. A copy would contain the
    same entry."""

    copy_heals = False


def marker_path(tablet_id: str) -> str:
    """The path of a tablet's marker while its log is being replayed."""
    return f"{FOLDER}/{tablet_id}"


@dataclass(frozen=True, kw_only=True)
class ReplayMarker:
    """The content of a marker file. Ranges of log indexes include both ends; 0: none."""

    wal_generation: int
    first: int = 0
    last: int = 0
    suspect_first: int = 0
    suspect_last: int = 0
    build: str = ""
    """The build that wrote it; empty if that build did not write its name."""
    died_alone: int = 0
    """The entry at which a server crashed before while it applied that entry alone, as a suspect."""
    failed_index: int = 0
    """The entry at which the replica failed while its server went on."""
    failed_build: str = ""
    failed: str = ""

    def encode(self) -> bytes:
        """The bytes of the file: framed, and shorter than a sector. Later fields are JSON in `reserved`."""
        value = {name: getattr(self, name) for name in _FIELDS}
        more = {name: found for name in _MORE if (found := getattr(self, name))}
        reserved = json.dumps(more).encode() if more else b""
        return frame("replay_marker", {**value, "version": 1, "incompatible_features": [], "reserved": reserved})

    @classmethod
    def load(cls, disk: Disk, tablet_id: str) -> ReplayMarker | None:
        """The marker that a crash left; None if there is none, or if a power loss cut it."""
        path = marker_path(tablet_id)
        if not disk.exists(path):
            return None
        try:
            value = unframe("replay_marker", disk.read(path))
        except ValueError as error:
            about(_log, tablet_id).info("a replay marker cannot be read and is not counted: %s", error)
            return None
        return cls(**{name: value[name] for name in _FIELDS}, **_more_of(value["reserved"]))

    def after_crash(self, build: str) -> ReplayMarker | None:
        """The marker with which a replay of `build` begins; None if an entry is proven to crash that build.

        A crash under another build makes entries suspect, and proves nothing.
        """
        if not self.first:
            return replace(self, build=build)
        if self.is_proof and self.build == build:
            return None
        died_alone = self.first if self._was_alone else 0
        first, last = self.first, self.last
        return replace(
            self, first=0, last=0, suspect_first=first, suspect_last=last, died_alone=died_alone, build=build
        )

    @property
    def _was_alone(self) -> bool:
        """Whether the server crashed at one entry, which was applied alone because it was suspect."""
        return self.first == self.last and self.suspect_first <= self.first <= self.suspect_last

    @property
    def is_proof(self) -> bool:
        """Whether servers crashed at one entry three times, twice while it was applied alone."""
        return self.first > 0 and self._was_alone and self.died_alone == self.first

    def told(self) -> str:
        """A text for operators about the last replays; empty if nothing is known."""
        if self.is_proof:
            return (
                f"the server crashed three times while it applied entry {self.first} of the log, under build "
                f"{self.build or 'unknown'}: the next start under another build applies it again"
            )
        if self.failed_index:
            return (
                f"the replica failed when it applied entry {self.failed_index} of the log, under build "
                f"{self.failed_build}: {self.failed}; the next start applies it again, and succeeds under a build "
                "without the defect"
            )
        return ""


_FIELDS = ("wal_generation", "first", "last", "suspect_first", "suspect_last")
_MORE = ("build", "died_alone", "failed_index", "failed_build", "failed")


def _more_of(reserved: bytes) -> dict[str, Any]:
    """The fields in `reserved`; none if it has other bytes, which a later build may have written."""
    try:
        found = json.loads(reserved) if reserved else {}
    except ValueError:
        return {}
    kinds = {name: int if name in ("died_alone", "failed_index") else str for name in _MORE}
    known = found if isinstance(found, dict) else {}
    return {name: known[name] for name, kind in kinds.items() if isinstance(known.get(name), kind)}


def write_marker(disk: Disk, tablet_id: str, marker: ReplayMarker) -> None:
    """Write the marker without a sync, because it has to survive a crash of the process only."""
    file, data = disk.open(marker_path(tablet_id), create=True), marker.encode()
    try:
        file.pwrite(data, 0)
        file.truncate(len(data))
    finally:
        file.close()


class ReplayWatch:
    """All replays of one server. As soon as any tablet has suspect entries, tablets are replayed one at a time
    (`one_at_a_time`), so that a crash names one tablet.

    Concurrency: any thread.
    """

    def __init__(self, disk: Disk, build: str = "") -> None:
        """`build`: the build of this process; empty for a tool that only removes markers."""
        self._disk = disk
        self._build = build
        self._alone = threading.Lock()
        self.one_at_a_time = False

    def settle(self) -> None:
        """Read the markers that the former process left, before any tablet opens."""
        self._disk.mkdir(FOLDER)
        for tablet_id in self._disk.listdir(FOLDER):
            found = ReplayMarker.load(self._disk, tablet_id)
            self.one_at_a_time |= found is not None and bool(found.first or found.suspect_first)

    def forget(self, tablet_id: str) -> None:
        """Remove the marker: the tablet's replay is over, or its log is gone."""
        path = marker_path(tablet_id)
        if self._disk.exists(path):
            self._disk.remove(path)

    def note_failure(self, tablet_id: str, wal_generation: int, index: int, why: str) -> None:
        """Note for operators that the replica failed when it applied this entry.

        Nothing depends on the note, so it is left out if the disk has no room.
        """
        known = ReplayMarker.load(self._disk, tablet_id)
        if known is None or known.wal_generation != wal_generation:
            known = ReplayMarker(wal_generation=wal_generation, build=self._build)
        short = why[:FAILED_CHARS_MAX]
        noted = replace(known, first=0, last=0, failed_index=index, failed_build=self._build, failed=short)
        try:
            write_marker(self._disk, tablet_id, noted)
        except Refused as error:
            about(_log, tablet_id).warning("why it failed is not noted: %s", error)

    def watch(
        self, machine: StateMachine, tablet_id: str, *, wal_generation: int, last: OpId, passed: Callable[[], None]
    ) -> StateMachine:
        """`machine`, watched until it has applied the entries that the log held at its opening.

        Then `passed` is called on the thread that applied them; it must arrange a call of `forget` off the loop.
        EntryCrashesReplay if an entry of this log is proven to crash servers of this build.
        """
        marker = ReplayMarker.load(self._disk, tablet_id)
        if marker is None or marker.wal_generation != wal_generation or marker.first > last.index:
            marker = ReplayMarker(wal_generation=wal_generation, build=self._build)
        elif (after := marker.after_crash(self._build)) is None:
            raise EntryCrashesReplay(
                "this server crashed three times while it applied one entry of the log. Nothing is lost. Start a build "
                "without the defect, which tries again by itself, or remove "
                f"{marker_path(tablet_id)} while the server is stopped to try again with this one",
                tablet=tablet_id,
                index=marker.first,
                build=self._build,
            )
        else:
            marker = after
        if last.index <= machine.flush_opid.index:
            self.forget(tablet_id)
            return machine
        if marker.failed_index:
            about(_log, tablet_id).warning(
                "the replica failed at entry %d under build %s (%s); it is applied again under build %s",
                marker.failed_index,
                marker.failed_build,
                marker.failed,
                self._build,
            )
        if marker.suspect_first:
            about(_log, tablet_id).warning(
                "the server crashed while it applied entries %d to %d; they are applied one at a time",
                marker.suspect_first,
                marker.suspect_last,
            )
            self._disk.replace(marker_path(tablet_id), marker.encode())
        return _Watched(machine, self._disk, tablet_id, marker, last.index, self._exclusion, passed)

    def _exclusion(self) -> AbstractContextManager[Any]:
        return self._alone if self.one_at_a_time else nullcontext()


@dataclass
class _Watched:
    """A state machine that marks entries up to `through` while it applies them. After that it costs nothing.

    Concurrency: as the state machine's: `apply` on one thread at a time.
    """

    machine: StateMachine
    disk: Disk
    tablet_id: str
    marker: ReplayMarker
    through: int
    exclusion: Callable[[], AbstractContextManager[Any]]
    passed: Callable[[], None]
    replaying: bool = True

    @property
    def applied_opid(self) -> OpId:
        return self.machine.applied_opid

    @property
    def flush_opid(self) -> OpId:
        return self.machine.flush_opid

    @property
    def applied_time(self) -> int:
        return self.machine.applied_time

    def apply(self, entries: Sequence[Entry]) -> list[Any]:
        """Apply the entries, marked where needed; as the state machine's own `apply`."""
        if not self.replaying:
            return self.machine.apply(entries)
        results: list[Any] = []
        for part in self._parts(entries):
            with self.exclusion():
                self._mark(part[0].opid.index, part[-1].opid.index)
                try:
                    for entry in part:
                        self.disk.crash_point(f"replay.{self.tablet_id}.{entry.opid.index}")
                    results += self.machine.apply(part)
                except Exception:
                    self._mark(0, 0)
                    raise
                self._mark(0, 0)
        if entries[-1].opid.index >= self.through:
            self.replaying = False
            self.passed()
        return results

    def close(self) -> None:
        self.machine.close()

    def _parts(self, entries: Sequence[Entry]) -> list[list[Entry]]:
        """The entries in parts that are applied under one marker: each suspect alone, others up to the bound."""
        parts: list[list[Entry]] = []
        together = False
        for entry in entries:
            alone = self.marker.suspect_first <= entry.opid.index <= self.marker.suspect_last
            if together and not alone and len(parts[-1]) < MARKED_AT_ONCE_MAX:
                parts[-1].append(entry)
            else:
                parts.append([entry])
            together = not alone
        return parts

    def _mark(self, first: int, last: int) -> None:
        try:
            write_marker(self.disk, self.tablet_id, replace(self.marker, first=first, last=last))
        except Refused as error:
            about(_log, self.tablet_id).warning("replays without a marker: %s", error)
