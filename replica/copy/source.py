"""The leader's side of a tablet copy: sessions that hold blocks, WAL segments and the log behind them.

What a session names stays readable until it ends or nobody has asked for its time to live: blocks are held at the
tablet, WAL segments are pinned by an anchor at the first entry the copy needs, so log GC leaves the copy and everything
after it in place [kudu raft-tablet-copy, "Follower Tablet Copy"].
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import google_crc32c

from nyala.replica.base import Clock, Code, Disk, DiskFile, Refused, limits, new_uuid

from .deletion import wal_folder
from .manifest import CopyFile, CopyManifest, FileKind

LINGER_US = 30 * 1_000_000
"""How long the anchor of a finished copy stays: until the new follower's own progress holds the log."""


def file_path(tablet_id: str, kind: FileKind, name: str) -> str:
    """The path of a session's file under the server's root."""
    return f"data/{name}" if kind is FileKind.BLOCK else f"{wal_folder(tablet_id)}/{name}"


def crc_of_file(file: DiskFile, length_bytes: int) -> int:
    """CRC-32C of the first `length_bytes` bytes, read in bounded chunks."""
    crc, offset = 0, 0
    while offset < length_bytes:
        chunk = file.pread(min(limits.COPY_CHUNK_BYTES, length_bytes - offset), offset)
        if not chunk:
            raise Refused(Code.CORRUPTION, "a file is shorter than recorded", length=length_bytes, ends=offset)
        crc = google_crc32c.extend(crc, bytes(chunk))
        offset += len(chunk)
    return crc


class CopySourceSession:
    """One follower's copy of one tablet, fixed at the session's start.

    Concurrency: `read` from any thread; closed once.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        tablet_id: str,
        requestor_uuid: str,
        manifest: CopyManifest,
        anchor_index: int,
        hold: ExitStack,
    ) -> None:
        self.tablet_id = tablet_id
        self.requestor_uuid = requestor_uuid
        self.manifest = manifest
        self.anchor_index = anchor_index
        self.bytes_served = 0
        self._disk = disk
        self._hold = hold
        self._open: dict[tuple[int, str], DiskFile] = {}
        self._named = {(f.kind, f.name): f for f in manifest.files}
        self._lock = threading.Lock()
        self._closed = False

    def read(self, kind: int, name: str, byte_offset: int, length_bytes: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) chunks of at most COPY_CHUNK_BYTES; NOT_FOUND for a file the session does not name."""
        named = self._named.get((FileKind(kind) if kind in tuple(FileKind) else FileKind.BLOCK, name))
        if named is None or named.kind != kind:
            raise Refused(Code.NOT_FOUND, "the session names no such file", kind=kind, name=name)
        if byte_offset < 0 or length_bytes < 0 or byte_offset + length_bytes > named.length_bytes:
            raise Refused(Code.INVALID_ARGUMENT, "outside of the file", name=name, length=named.length_bytes)
        file = self._file(named)
        end = byte_offset + length_bytes
        while byte_offset < end:
            chunk = file.pread(min(limits.COPY_CHUNK_BYTES, end - byte_offset), byte_offset)
            if not chunk:
                raise Refused(Code.CORRUPTION, "a file of the session became shorter", name=name, ends=byte_offset)
            self.bytes_served += len(chunk)
            yield byte_offset, chunk
            byte_offset += len(chunk)

    def _file(self, named: CopyFile) -> DiskFile:
        with self._lock:
            if self._closed:
                raise Refused(Code.EXPIRED, "the copy session has ended", session=self.manifest.session_id)
            key = (int(named.kind), named.name)
            if key not in self._open:
                self._open[key] = self._disk.open(file_path(self.tablet_id, named.kind, named.name))
            return self._open[key]

    def close(self) -> None:
        """Let go of blocks and files; the anchor is the registry's."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for file in self._open.values():
                file.close()
            self._open.clear()
        self._hold.close()


@dataclass
class _Slot:
    session: CopySourceSession
    deadline_us: int
    readers: int = 0


@dataclass
class SourceSessions:
    """All copy sessions of one server, bounded in number and in time.

    Concurrency: any thread.
    """

    clock: Clock
    sessions_max: int = limits.COPY_SESSIONS_MAX
    ttl_us: int = limits.COPY_SESSION_TTL_US
    _slots: dict[str, _Slot] = field(default_factory=dict)
    _opening: dict[str, tuple[str, int]] = field(default_factory=dict)
    _lingering: list[tuple[str, int, int]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(
        self, tablet_id: str, requestor_uuid: str, anchor_index: int, capture: Callable[[str, int], CopySourceSession]
    ) -> CopySourceSession:
        """Run `capture(session_id, ttl_us)` with the log anchored at `anchor_index`; Refused OVERLOADED when full.

        A requestor that starts over replaces its earlier session of the same tablet.
        """
        self.expire()
        session_id = new_uuid()
        with self._lock:
            stale = [
                sid
                for sid, slot in self._slots.items()
                if (slot.session.tablet_id, slot.session.requestor_uuid) == (tablet_id, requestor_uuid)
            ]
            dropped = [self._slots.pop(sid).session for sid in stale]
            if len(self._slots) + len(self._opening) >= self.sessions_max:
                raise Refused(Code.OVERLOADED, "too many copy sessions", limit=self.sessions_max)
            self._opening[session_id] = (tablet_id, anchor_index)
        for session in dropped:
            session.close()
        try:
            session = capture(session_id, self.ttl_us)
            with self._lock:
                self._slots[session_id] = _Slot(session, self.clock.monotonic_us() + self.ttl_us)
            return session
        finally:
            with self._lock:
                self._opening.pop(session_id, None)

    def get(self, session_id: str) -> CopySourceSession:
        """The session, with its time to live started anew; Refused EXPIRED if it is gone."""
        self.expire()
        with self._lock:
            slot = self._slots.get(session_id)
            if slot is None:
                raise Refused(Code.EXPIRED, "no such copy session", session=session_id)
            slot.deadline_us = self.clock.monotonic_us() + self.ttl_us
            return slot.session

    def end(self, session_id: str, success: bool) -> None:
        """Close a session; after a success its anchor lingers until the follower's own progress holds the log."""
        with self._lock:
            slot = self._slots.pop(session_id, None)
            if slot is not None and success:
                until = self.clock.monotonic_us() + LINGER_US
                self._lingering.append((slot.session.tablet_id, slot.session.anchor_index, until))
        if slot is not None:
            slot.session.close()

    def end_tablet(self, tablet_id: str) -> None:
        """Close every session of a tablet that is being deleted here."""
        with self._lock:
            gone = [sid for sid, slot in self._slots.items() if slot.session.tablet_id == tablet_id]
            sessions = [self._slots.pop(sid).session for sid in gone]
        for session in sessions:
            session.close()

    def expire(self) -> None:
        """Close what nobody has asked for within its time to live."""
        now = self.clock.monotonic_us()
        with self._lock:
            gone = [sid for sid, slot in self._slots.items() if slot.deadline_us < now]
            sessions = [self._slots.pop(sid).session for sid in gone]
            self._lingering = [held for held in self._lingering if held[2] >= now]
        for session in sessions:
            session.close()

    def anchor(self, tablet_id: str) -> int | None:
        """The lowest index that log GC must keep for copies of this tablet, or None."""
        self.expire()
        with self._lock:
            held = [slot.session.anchor_index for slot in self._slots.values() if slot.session.tablet_id == tablet_id]
            held += [index for tablet, index in self._opening.values() if tablet == tablet_id]
            held += [index for tablet, index, _ in self._lingering if tablet == tablet_id]
        return min(held, default=None)

    def sessions(self) -> list[CopySourceSession]:
        """The open sessions, for operators."""
        with self._lock:
            return [slot.session for slot in self._slots.values()]
