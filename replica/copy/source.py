"""The leader's side of a tablet copy: sessions that hold blocks, WAL segments and the log behind them.

What a session names stays readable until it ends or was not asked for within its time to live: blocks are held at the
tablet, WAL segments are pinned, and the log is anchored at the first entry the copy needs, so that log GC leaves the
copy and everything after it in place [kudu raft-tablet-copy, "Follower Tablet Copy"].
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import google_crc32c

from nyala.replica.base import Clock, Code, Disk, DiskFile, Refused, limits, new_uuid
from nyala.replica.cmeta import ConsensusMeta
from nyala.replica.tablet import Superblock, data_trouble
from nyala.replica.wal import Log, SegmentInfo

from .blocks import base_name, superblock_bytes
from .deletion import wal_folder
from .manifest import CopyFile, CopyManifest, FileKind

LINGER_US = 30 * 1_000_000
"""How long the log anchor of a finished copy stays: until the new follower's own progress holds the log."""


class HeldState(Protocol):
    """A state machine whose block files can be held: a data tablet, or the masters' catalog, which has none."""

    def hold(self) -> AbstractContextManager[Superblock]: ...


class Releasable(Protocol):
    """A hold that is let go once; letting go twice is harmless."""

    def release(self) -> None: ...


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


def capture_session(
    *,
    disk: Disk,
    tablet_id: str,
    requestor_uuid: str,
    session_id: str,
    ttl_us: int,
    state: HeldState,
    cmeta: ConsensusMeta,
    log: Log,
    is_leader: bool,
    config_index: int = 0,
    commit_index: int = 0,
) -> CopySourceSession:
    """Fix what a copy of this replica is: superblock, metadata, blocks, and the WAL from the flush index on.

    The log is anchored before the superblock is read, so that no flush in between can let go of what the superblock
    needs. Segments that end at or below the flush index are left out: the superblock names that position and its term.
    `config_index` is the last committed config's: until the metadata has it, entries behind the metadata's go along.
    `commit_index` is what the source knows to be committed: Refused NOT_READY while its own log does not hold that, for
    the others' acknowledgements, perhaps the requestor's own, are all that keeps those entries.
    Heavy: it rolls the log and reads the chosen segments once for their checksums.
    """
    with ExitStack() as undo:
        first = log.anchor(0)
        undo.callback(first.release)
        superblock = undo.enter_context(state.hold())
        flush_index = superblock.flush_opid.index
        anchor = log.anchor(flush_index)
        first.release()
        kept = undo.enter_context(ExitStack())  # the anchor is let go here only if something below fails
        kept.callback(anchor.release)
        log.roll()
        pin = log.pin()
        undo.callback(pin.release)
        last = superblock.end_of(log.last)
        if last.index < commit_index:
            what = "the source's log ends below what is committed"
            raise Refused(Code.NOT_READY, what, last=last, commit_index=commit_index)
        metadata, saved_index = cmeta.encode(), cmeta.committed_config.opid.index
        below = flush_index if saved_index >= config_index else min(flush_index, saved_index)
        files = [
            CopyFile(FileKind.BLOCK, base_name(path), length, crc)
            for block in superblock.blocks
            for path, length, crc in block.files
        ]
        retained = _retained(pin.segments, below)
        for segment in retained:
            path = file_path(tablet_id, FileKind.WAL_SEGMENT, segment.name)
            file = disk.open(path)
            try:
                crc = crc_of_file(file, segment.length_bytes)
            finally:
                file.close()
            files.append(CopyFile(FileKind.WAL_SEGMENT, segment.name, segment.length_bytes, crc))
        manifest = CopyManifest(
            session_id=session_id,
            superblock=superblock_bytes(superblock),
            cmeta=metadata,
            files=tuple(files),
            last_opid=last,
            first_retained_index=min((s.first_index for s in retained), default=last.index + 1),
            is_leader=is_leader,
            ttl_us=ttl_us,
        )
        kept.pop_all()
        hold = undo.pop_all()
    return CopySourceSession(
        disk=disk, tablet_id=tablet_id, requestor_uuid=requestor_uuid, manifest=manifest, anchor=anchor, hold=hold
    )


def _retained(segments: Sequence[SegmentInfo], below: int) -> Sequence[SegmentInfo]:
    """From the first segment with an entry above `below` to the last with any: a log may lack none in between.

    One in between can be empty, or hold only entries that were overwritten later.
    """
    wanted = [pos for pos, s in enumerate(segments) if s.last_index > below and s.last_index >= s.first_index]
    return segments[wanted[0] : wanted[-1] + 1] if wanted else ()


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
        anchor: Releasable,
        hold: ExitStack,
    ) -> None:
        self.tablet_id = tablet_id
        self.requestor_uuid = requestor_uuid
        self.manifest = manifest
        self.anchor = anchor
        self.bytes_served = 0
        self._disk = disk
        self._hold = hold
        self._open: dict[tuple[int, str], DiskFile] = {}
        self._named = {(int(f.kind), f.name): f for f in manifest.files}
        self._changed = threading.Condition()
        self._reading = 0
        self._closed = False

    def read(self, kind: int, name: str, byte_offset: int, length_bytes: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) chunks of at most COPY_CHUNK_BYTES; NOT_FOUND for a file the session does not name.

        Corruption if a block cannot be read: the replica here has lost it.
        """
        named = self._named.get((kind, name))
        if named is None:
            raise Refused(Code.NOT_FOUND, "the session names no such file", kind=kind, name=name)
        if byte_offset < 0 or length_bytes < 0 or byte_offset + length_bytes > named.length_bytes:
            raise Refused(Code.INVALID_ARGUMENT, "outside of the file", name=name, length=named.length_bytes)
        end = byte_offset + length_bytes
        while byte_offset < end:
            chunk = self._chunk(named, byte_offset, min(limits.COPY_CHUNK_BYTES, end - byte_offset))
            if not chunk:
                raise Refused(Code.CORRUPTION, "a file of the session became shorter", name=name, ends=byte_offset)
            self.bytes_served += len(chunk)
            yield byte_offset, chunk
            byte_offset += len(chunk)

    def _chunk(self, named: CopyFile, byte_offset: int, length_bytes: int) -> bytes:
        """One read; a session that is being closed waits for it, because a closed descriptor may be another file's."""
        path = file_path(self.tablet_id, named.kind, named.name)
        with data_trouble(path) if named.kind is FileKind.BLOCK else nullcontext():
            return self._read(named, path, byte_offset, length_bytes)

    def _read(self, named: CopyFile, path: str, byte_offset: int, length_bytes: int) -> bytes:
        with self._changed:
            if self._closed:
                raise Refused(Code.EXPIRED, "the copy session has ended", session=self.manifest.session_id)
            key = (int(named.kind), named.name)
            if key not in self._open:
                self._open[key] = self._disk.open(path)
            file = self._open[key]
            self._reading += 1
        try:
            return file.pread(length_bytes, byte_offset)
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    def release_data(self) -> None:
        """Let go of blocks, pinned segments and files; the log stays anchored."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            while self._reading:
                self._changed.wait()
            for file in self._open.values():
                file.close()
            self._open.clear()
        self._hold.close()

    def close(self) -> None:
        """Let go of everything."""
        self.release_data()
        self.anchor.release()


@dataclass
class _Slot:
    session: CopySourceSession
    deadline_us: int


@dataclass
class SourceSessions:
    """All copy sessions of one server, bounded in number and in time.

    Concurrency: any thread.
    """

    clock: Clock
    sessions_max: int = limits.COPY_SESSIONS_MAX
    ttl_us: int = limits.COPY_SESSION_TTL_US
    _slots: dict[str, _Slot] = field(default_factory=dict)
    _opening: int = 0
    _lingering: list[tuple[str, Releasable, int]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(
        self, tablet_id: str, requestor_uuid: str, capture: Callable[[str, int], CopySourceSession]
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
            full = len(self._slots) + self._opening >= self.sessions_max
            if not full:
                self._opening += 1
        for session in dropped:
            session.close()
        if full:
            raise Refused(Code.OVERLOADED, "too many copy sessions", limit=self.sessions_max)
        try:
            session = capture(session_id, self.ttl_us)
            with self._lock:
                self._slots[session_id] = _Slot(session, self.clock.monotonic_us() + self.ttl_us)
            return session
        finally:
            with self._lock:
                self._opening -= 1

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
                self._lingering.append((slot.session.tablet_id, slot.session.anchor, until))
        if slot is None:
            return
        if success:
            slot.session.release_data()
        else:
            slot.session.close()

    def end_tablet(self, tablet_id: str) -> None:
        """Close every session of a tablet that is being stopped here, and let go of its log."""
        with self._lock:
            gone = [sid for sid, slot in self._slots.items() if slot.session.tablet_id == tablet_id]
            sessions = [self._slots.pop(sid).session for sid in gone]
            anchors = [anchor for tablet, anchor, _ in self._lingering if tablet == tablet_id]
            self._lingering = [held for held in self._lingering if held[0] != tablet_id]
        for session in sessions:
            session.close()
        for anchor in anchors:
            anchor.release()

    def expire(self) -> None:
        """Close what nobody has asked for within its time to live."""
        now = self.clock.monotonic_us()
        with self._lock:
            gone = [sid for sid, slot in self._slots.items() if slot.deadline_us < now]
            sessions = [self._slots.pop(sid).session for sid in gone]
            anchors = [anchor for _, anchor, until in self._lingering if until < now]
            self._lingering = [held for held in self._lingering if held[2] >= now]
        for session in sessions:
            session.close()
        for anchor in anchors:
            anchor.release()

    def sessions(self) -> list[CopySourceSession]:
        """The open sessions, for operators."""
        with self._lock:
            return [slot.session for slot in self._slots.values()]


class LocalCopySource:
    """A `CopySource` over sessions in the same process: tests, the simulator, and offline tools."""

    def __init__(
        self, sessions: SourceSessions, capture: Callable[[str, str, bool, str, int], CopySourceSession]
    ) -> None:
        """`capture(tablet_id, requestor_uuid, allow_leaderless, session_id, ttl_us)` makes a session or refuses."""
        self._sessions = sessions
        self._capture = capture

    def begin(self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool) -> CopyManifest:
        """The manifest of a new session."""

        def capture(session_id: str, ttl_us: int) -> CopySourceSession:
            return self._capture(tablet_id, requestor_uuid, allow_leaderless, session_id, ttl_us)

        return self._sessions.open(tablet_id, requestor_uuid, capture).manifest

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        """The chunks of one file."""
        session = self._sessions.get(session_id)
        for _, chunk in session.read(int(file.kind), file.name, byte_offset, length_bytes):
            yield chunk

    def end(self, session_id: str, success: bool) -> None:
        """End the session."""
        self._sessions.end(session_id, success)
