"""The leader's side of a tablet copy: sessions that hold blocks, WAL segments and the log after them.

The files of a session stay readable until it ends, or until its target has fetched nothing for its time to live. The
tablet holds the blocks, the log pins the WAL segments, and an anchor at the first entry that the copy needs keeps log
GC from that entry and all later ones [kudu raft-tablet-copy, "Follower Tablet Copy"].
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import google_crc32c

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.rows import never_stop
from nyala.replica.tablet import Superblock, data_trouble, verify_file
from nyala.replica.types import (
    ZERO_OPID,
    Clock,
    Code,
    Corruption,
    Disk,
    DiskFile,
    OpId,
    Refused,
    check,
    limits,
    new_uuid,
)
from nyala.replica.wal import Log, SegmentInfo

from .blocks import base_name
from .deletion import wal_folder
from .manifest import WHOLE, CopyFile, CopyManifest, CopyWanted, FileKind

LINGER_US = 30 * 1_000_000
"""The time that the log anchor of a finished copy stays. By then the new follower's own progress keeps the log."""


class HeldState(Protocol):
    """A state machine whose block files can be held: a data tablet, or the masters' catalog, which has none."""

    def hold(self) -> AbstractContextManager[Superblock]: ...


class Releasable(Protocol):
    """A hold that can be released; a second release does nothing."""

    def release(self) -> None: ...


def file_path(tablet_id: str, kind: FileKind, name: str) -> str:
    """The path of a session's file under the server's root."""
    return f"data/{name}" if kind is FileKind.BLOCK else f"{wal_folder(tablet_id)}/{name}"


class LogSums:
    """Checksums of closed segments, kept while captures end before they are complete.

    A target waits COPY_BEGIN_S_MAX. If the disk is so slow that the log cannot be read in that time, the next attempt
    goes on where this one ended. A complete capture forgets its sums, so a sum that fits a segment no more, because
    the segment was cut and written again, spoils one copy and not the next. Concurrency: any thread.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], tuple[int, int]] = {}
        self._lock = threading.Lock()

    def crc_of(self, path: str, file: DiskFile, length_bytes: int, stop: Callable[[], None] = never_stop) -> int:
        """CRC-32C of the first `length_bytes` bytes, read in bounded chunks. `stop` is called before each, and may
        raise."""
        with self._lock:
            offset, crc = self._kept.pop((path, length_bytes), (0, 0))
        try:
            while offset < length_bytes:
                stop()
                chunk = file.pread(min(limits.COPY_CHUNK_BYTES, length_bytes - offset), offset)
                if not chunk:
                    raise Refused(Code.CORRUPTION, "a file is shorter than recorded", length=length_bytes, ends=offset)
                crc = google_crc32c.extend(crc, bytes(chunk))
                offset += len(chunk)
            return crc
        finally:
            with self._lock:
                self._kept[path, length_bytes] = offset, crc
                while len(self._kept) > limits.COPY_LOG_SUMS_MAX:
                    del self._kept[next(iter(self._kept))]

    def forget(self, folder: str) -> None:
        """Forget the sums of the segments in a log's folder."""
        with self._lock:
            self._kept = {key: kept for key, kept in self._kept.items() if not key[0].startswith(f"{folder}/")}


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
    term: int = 0,
    committed: OpId = ZERO_OPID,
    wanted: CopyWanted = WHOLE,
    stop: Callable[[], None] = never_stop,
    sums: LogSums | None = None,
) -> CopySourceSession:
    """Open a session on this replica's superblock, metadata, blocks, and WAL from the flush index on.

    The log is anchored before the superblock is read, so that no flush in between can release entries that the
    superblock needs. Segments that end at or below the flush index are left out: the superblock names that position and
    its term. `config_index` is the index of the last committed config: if the metadata has an earlier config, the
    session also has the entries after that one. `commit_index` is the source's commit index: Refused NOT_READY while
    its own log does not hold that entry, because then only other members, perhaps the requestor, hold it.
    `wanted.log_only`: no blocks; and no log either, if the log may begin after `committed`, the OpId at `commit_index`
    of a leader of `term`. See DESIGN.md, "Witnesses".
    Heavy: it rolls the log and reads the chosen segments once for their checksums. `stop` is called before each piece
    of at most COPY_CHUNK_BYTES that is read; an error that it raises ends the capture, and nothing is held. If
    the next capture of this tablet has the same `sums`, it does not read again what this one has read.
    """
    sums = sums or LogSums()
    with ExitStack() as undo:
        first = log.anchor(0)
        undo.callback(first.release)
        superblock = undo.enter_context(state.hold())
        flush_index = superblock.flush_opid.index
        if flush_index < wanted.flushed.index:
            what = "the source has not flushed what the requestor needs yet"
            raise Refused(Code.NOT_READY, what, flushed=superblock.flush_opid, wanted=wanted.flushed)
        anchor = log.anchor(flush_index)
        kept = undo.enter_context(ExitStack())  # the anchor is released here only if something below fails
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
        pinned: Sequence[SegmentInfo] = pin.segments
        if wanted.log_only:
            superblock = superblock.without_rows()
            settled = is_leader and committed.term == term and saved_index >= config_index
            if settled and committed >= wanted.acknowledged:
                last = max(committed, superblock.flush_opid)
                superblock, pinned = replace(superblock, flush_opid=last), ()
        files = [
            CopyFile(FileKind.BLOCK, base_name(path), length, crc)
            for block in superblock.blocks
            for path, length, crc in block.files
        ]
        retained = _retained(pinned, below)
        for segment in retained:
            path = file_path(tablet_id, FileKind.WAL_SEGMENT, segment.name)
            file = disk.open(path)
            try:
                crc = sums.crc_of(path, file, segment.length_bytes, stop)
            finally:
                file.close()
            files.append(CopyFile(FileKind.WAL_SEGMENT, segment.name, segment.length_bytes, crc))
        manifest = CopyManifest(
            session_id=session_id,
            superblock=superblock.encode(),
            cmeta=metadata,
            files=tuple(files),
            last_opid=last,
            first_retained_index=min((s.first_index for s in retained), default=last.index + 1),
            is_leader=is_leader,
            ttl_us=ttl_us,
        )
        sums.forget(wal_folder(tablet_id))
        kept.pop_all()
        hold = undo.pop_all()
    return CopySourceSession(
        disk=disk, tablet_id=tablet_id, requestor_uuid=requestor_uuid, manifest=manifest, anchor=anchor, hold=hold
    )


def _retained(segments: Sequence[SegmentInfo], below: int) -> Sequence[SegmentInfo]:
    """All segments from the first with an entry above `below` to the last with any entry.

    One in between can be empty, or hold only entries that were overwritten later; a log needs it all the same.
    """
    wanted = [pos for pos, s in enumerate(segments) if s.last_index > below and s.last_index >= s.first_index]
    return segments[wanted[0] : wanted[-1] + 1] if wanted else ()


@dataclass(eq=False)
class SessionFile:
    """An open file of a session. Concurrency: one thread; after the session has ended every call is refused."""

    session: CopySourceSession
    named: CopyFile
    path: str
    file: DiskFile

    def read(self, byte_offset: int, length_bytes: int) -> bytes:
        """1 to COPY_CHUNK_BYTES bytes. Corruption if a block cannot be read: this replica has lost it."""
        check(length_bytes <= limits.COPY_CHUNK_BYTES, "a read for a copy is bounded", bytes=length_bytes)
        self.session.check_open()
        with _trouble(self.named, self.path):
            data = self.file.pread(length_bytes, byte_offset)
        self._served(len(data), byte_offset)
        return data

    def check_length(self, length_bytes: int) -> None:
        """Refused EXPIRED once the session has ended, CORRUPTION if the file is shorter than that."""
        self.session.check_open()
        with _trouble(self.named, self.path):
            ends = self.file.size()
        if ends < length_bytes:
            raise self._shorter(ends)

    def send(self, fd: int, byte_offset: int, length_bytes: int) -> None:
        """Send exactly these bytes to a blocking socket. Raises as `read` does, and OSError if the socket fails."""
        end = byte_offset + length_bytes
        while byte_offset < end:
            with _trouble(self.named, self.path):
                sent = self.file.send_to(fd, byte_offset, end - byte_offset)
            self._served(sent, byte_offset)
            byte_offset += sent

    def _served(self, length_bytes: int, byte_offset: int) -> None:
        if not length_bytes:
            raise self._shorter(byte_offset)
        self.session.bytes_served += length_bytes

    def _shorter(self, ends: int) -> Refused:
        what = "a file of the session became shorter"
        return Refused(Code.CORRUPTION, what, name=self.named.name, length=self.named.length_bytes, ends=ends)


def _trouble(named: CopyFile, path: str) -> AbstractContextManager[None]:
    return data_trouble(path) if named.kind is FileKind.BLOCK else nullcontext()


@dataclass(eq=False, kw_only=True)
class CopySourceSession:
    """One follower's copy of one tablet, fixed at the session's start.

    Concurrency: files are read from any thread; closed once.
    """

    disk: Disk
    tablet_id: str
    requestor_uuid: str
    manifest: CopyManifest
    anchor: Releasable
    hold: ExitStack
    bytes_served: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._named = {(int(f.kind), f.name): f for f in self.manifest.files}

    @contextmanager
    def opened(self, kind: int, name: str, byte_offset: int, length_bytes: int) -> Iterator[SessionFile]:
        """Open one of the session's files for that range; NOT_FOUND unless the session names it, EXPIRED once it has
        ended.

        Corruption if the file is missing or a block cannot be opened: this replica has lost it.
        The caller closes the file. The session may end while the caller reads.
        """
        named = self._named.get((kind, name))
        if named is None:
            raise Refused(Code.NOT_FOUND, "the session names no such file", kind=kind, name=name)
        if byte_offset < 0 or length_bytes < 0 or byte_offset + length_bytes > named.length_bytes:
            raise Refused(Code.INVALID_ARGUMENT, "outside of the file", name=name, length=named.length_bytes)
        path = file_path(self.tablet_id, named.kind, named.name)
        with self._lock:
            self.check_open()
            try:
                with _trouble(named, path):
                    file = self.disk.open(path)
            except FileNotFoundError as error:  # the session still holds it, so this server has not removed it
                raise Corruption("a file that a copy session holds is gone", path=path) from error
        try:
            yield SessionFile(self, named, path, file)
        finally:
            file.close()

    def read(self, kind: int, name: str, byte_offset: int, length_bytes: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, bytes) chunks of at most COPY_CHUNK_BYTES; raises as `opened` and `SessionFile.read` do."""
        end = byte_offset + length_bytes
        with self.opened(kind, name, byte_offset, length_bytes) as file:
            while byte_offset < end:
                chunk = file.read(byte_offset, min(limits.COPY_CHUNK_BYTES, end - byte_offset))
                yield byte_offset, chunk
                byte_offset += len(chunk)

    def verify_block(self, name: str) -> None:
        """Corruption if the block differs from what the superblock recorded; NOT_FOUND if the session has no such
        block."""
        named = next((f for f in self.manifest.files if f.kind is FileKind.BLOCK and f.name == name), None)
        if named is None:
            raise Refused(Code.NOT_FOUND, "the session names no such block", name=name)
        self.check_open()
        verify_file(self.disk, file_path(self.tablet_id, named.kind, name), named.length_bytes, named.crc)

    def check_open(self) -> None:
        """Refused EXPIRED once the session has ended."""
        if self._closed:
            raise Refused(Code.EXPIRED, "the copy session has ended", session=self.manifest.session_id)

    def release_data(self) -> None:
        """Release the blocks and pinned segments; the log stays anchored."""
        with self._lock:
            self._closed = True
        self.hold.close()

    def close(self) -> None:
        """Release everything that the session holds."""
        self.release_data()
        self.anchor.release()


class Served(NamedTuple):
    """An open session, for operators: when it began (wall clock), and the time since its target last fetched bytes."""

    session: CopySourceSession
    started_us: int
    idle_us: int


class Asker(NamedTuple):
    """The facts about a requestor that the bounds on sessions need."""

    host: str = ""
    """The host that the call came from; empty if it is this process."""
    is_member: bool = True
    """Whether the requestor's uuid is that of a member of the tablet's config."""


class _Begun(NamedTuple):
    """The requestor that began a session, and the number of its attempt."""

    requestor_uuid: str
    tablet_id: str
    run: str
    """Identifies the requestor's process; empty if the request has none."""
    attempt: int
    """Rises with each attempt of the requestor, of any tablet; 0 if the request has none."""
    asker: Asker

    def replaces(self, other: _Begun) -> bool:
        """Whether this attempt, if it is the later one, shows that the other's target has given up the other attempt.

        Never across hosts, because any caller can send another server's uuid.
        """
        another_process = bool(self.run and other.run and self.run != other.run)
        same_server = (self.requestor_uuid, self.asker.host) == (other.requestor_uuid, other.asker.host)
        return same_server and (self.tablet_id == other.tablet_id or another_process)

    def is_late(self, other: _Begun) -> bool:
        """Whether this request arrives after the other one although the requestor made it earlier."""
        return self.replaces(other) and 0 < self.attempt < other.attempt


@dataclass
class _Slot:
    session: CopySourceSession
    started_us: int
    """The wall clock's time."""
    asked_us: int
    """The time at which its target last fetched bytes; monotonic clock."""
    begun: _Begun


@dataclass
class SourceSessions:
    """All copy sessions of one server, bounded in number and in time.

    Concurrency: any thread.
    """

    clock: Clock
    sessions_max: int = limits.COPY_SESSIONS_MAX
    ttl_us: int = limits.COPY_SESSION_TTL_US
    _slots: dict[str, _Slot] = field(default_factory=dict)
    _opening: list[_Begun] = field(default_factory=list)
    _latest: dict[tuple[str, str, str], tuple[_Begun, int]] = field(default_factory=dict)
    """The latest attempt and the time of its arrival, by requestor, host and tablet. Kept while its session is open,
    and for a time to live."""
    _lingering: list[tuple[str, Releasable, int]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(
        self,
        tablet_id: str,
        requestor_uuid: str,
        capture: Callable[[str, int], CopySourceSession],
        *,
        run: str = "",
        attempt: int = 0,
        asker: Asker = Asker(),
    ) -> CopySourceSession:
        """Run `capture(session_id, ttl_us)` with the log anchored at `anchor_index`. Refused OVERLOADED if there are
        too many sessions: in all, of the asker's host, or of servers that are no members.

        A requestor that starts a copy anew replaces its earlier session of the same tablet; a new process of a
        requestor (`run`) replaces all sessions of its earlier process. Refused CAS_FAILED, with the later `attempt` as
        detail, if a later attempt has arrived before this one.
        """
        self.expire()
        session_id, begun = new_uuid(), _Begun(requestor_uuid, tablet_id, run, attempt, asker)
        with self._lock:
            self._check_latest(begun)
            stale = [sid for sid, slot in self._slots.items() if begun.replaces(slot.begun)]
            dropped = [self._slots.pop(sid).session for sid in stale]
            full = self._full(asker)
            if not full:
                self._opening.append(begun)
                self._latest[requestor_uuid, asker.host, tablet_id] = begun, self.clock.monotonic_us()
        for session in dropped:
            session.close()
        if full:
            whose, limit = full
            what = f"too many copy sessions{whose} are open at this server: try again when one of them has ended"
            raise Refused(Code.OVERLOADED, what, limit=limit)
        try:
            session = capture(session_id, self.ttl_us)
            try:
                with self._lock:
                    self._check_latest(begun)
                    self._slots[session_id] = _Slot(session, self.clock.wall_us(), self.clock.monotonic_us(), begun)
            except Refused:
                session.close()
                raise
            return session
        finally:
            with self._lock:
                self._opening.remove(begun)

    def _full(self, asker: Asker) -> tuple[str, int] | None:
        """If a bound is reached for this requestor: a text that says whose sessions it counts, and its value.

        The caller holds the lock.
        """
        there = [slot.begun.asker for slot in self._slots.values()] + [begun.asker for begun in self._opening]
        if len(there) >= self.sessions_max:
            return "", self.sessions_max
        if sum(other.host == asker.host for other in there) >= limits.COPY_SESSIONS_PER_HOST_MAX and asker.host:
            return f" of host {asker.host}", limits.COPY_SESSIONS_PER_HOST_MAX
        strangers = sum(not other.is_member for other in there)
        if not asker.is_member and strangers >= limits.COPY_SESSIONS_OF_STRANGERS_MAX:
            return " of servers that are no members of their tablets", limits.COPY_SESSIONS_OF_STRANGERS_MAX
        return None

    def _check_latest(self, begun: _Begun) -> None:
        """Refuse an attempt that a later one has overtaken. The caller holds the lock."""
        later = max((b.attempt for b, _ in self._latest.values() if begun.is_late(b)), default=0)
        if later:
            what = "a later attempt of this server to copy has begun here: this one is over"
            raise Refused(Code.CAS_FAILED, what, detail=str(later), attempt=begun.attempt, later=later)

    def get(self, session_id: str) -> CopySourceSession:
        """The session, whose time to live begins again; Refused EXPIRED if it has ended."""
        self.expire()
        with self._lock:
            slot = self._slots.get(session_id)
            if slot is None:
                raise Refused(Code.EXPIRED, "no such copy session", session=session_id)
            slot.asked_us = self.clock.monotonic_us()
            return slot.session

    def end(self, session_id: str, success: bool) -> None:
        """Close a session; after a success its anchor lingers until the follower's own progress holds the log."""
        with self._lock:
            slot = self._slots.pop(session_id, None)
            if slot is None:
                return
            if success:
                until = self.clock.monotonic_us() + LINGER_US
                self._lingering.append((slot.session.tablet_id, slot.session.anchor, until))
        slot.session.release_data()
        if not success:
            slot.session.anchor.release()

    def end_tablet(self, tablet_id: str) -> None:
        """Close every session of a tablet that this server stops, and release the anchors on its log."""
        with self._lock:
            gone = [sid for sid, slot in self._slots.items() if slot.session.tablet_id == tablet_id]
            sessions = [self._slots.pop(sid).session for sid in gone]
            anchors = [anchor for tablet, anchor, _ in self._lingering if tablet == tablet_id]
        for session in sessions:
            session.close()
        for anchor in anchors:
            anchor.release()

    def expire(self) -> None:
        """Close the sessions whose targets have fetched nothing for their time to live. May write to the disk.

        The server calls it periodically: when a target has died, no further request may come that would close its
        session.
        """
        now = self.clock.monotonic_us()
        with self._lock:
            gone = [sid for sid, slot in self._slots.items() if now - slot.asked_us > self.ttl_us]
            sessions = [self._slots.pop(sid).session for sid in gone]
            anchors = [anchor for _, anchor, until in self._lingering if until < now]
            served = {slot.begun for slot in self._slots.values()}
            self._latest = {k: v for k, v in self._latest.items() if v[0] in served or now - v[1] <= self.ttl_us}
            self._lingering = [held for held in self._lingering if held[2] >= now]
        for session in sessions:
            session.close()
        for anchor in anchors:
            anchor.release()

    def sessions(self) -> list[CopySourceSession]:
        """The open sessions."""
        return [served.session for served in self.served()]

    def served(self) -> list[Served]:
        """The open sessions, with the times that operators see."""
        now = self.clock.monotonic_us()
        with self._lock:
            return [Served(s.session, s.started_us, now - s.asked_us) for s in self._slots.values()]


class LocalCopySource:
    """A `CopySource` over sessions in the same process: tests, the simulator, and offline tools."""

    def __init__(
        self, sessions: SourceSessions, capture: Callable[[str, str, bool, str, int, CopyWanted], CopySourceSession]
    ) -> None:
        """`capture(tablet_id, requestor_uuid, allow_leaderless, session_id, ttl_us, wanted)` returns a session or
        raises Refused."""
        self._sessions = sessions
        self._capture = capture

    def begin(
        self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool, wanted: CopyWanted = WHOLE
    ) -> CopyManifest:
        """The manifest of a new session."""

        def capture(session_id: str, ttl_us: int) -> CopySourceSession:
            return self._capture(tablet_id, requestor_uuid, allow_leaderless, session_id, ttl_us, wanted)

        return self._sessions.open(tablet_id, requestor_uuid, capture).manifest

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        """The chunks of one file."""
        session = self._sessions.get(session_id)
        for _, chunk in session.read(int(file.kind), file.name, byte_offset, length_bytes):
            yield chunk

    def end(self, session_id: str, success: bool, doubted: str = "") -> None:
        """End the session. `doubted` is ignored: only a server can report a lost block to its replica."""
        self._sessions.end(session_id, success)
