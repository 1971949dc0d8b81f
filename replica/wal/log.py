"""One tablet's log: an ordered queue in front of one appender, and a reader beside it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from nyala.replica.fs import FileLength
from nyala.replica.types import (
    Code,
    Disk,
    Entry,
    InvariantViolation,
    OpId,
    Refused,
    ResourcesExhausted,
    check,
    is_transient,
)
from nyala.replica.types.log_records import about

from .appender import Appender, GroupCommit, closed_error
from .format import EncodedEntry, encode_entry
from .handles import Anchor, Pin, Replay, SegmentInfo
from .options import WalOptions
from .reader import Survivors, read_entries
from .recovery import Recovered, forget_withheld, recover, repair_withheld
from .reservation import OnDurable, Reservation, ReservationState, Truncation
from .retention import Retention
from .threads import LogThreads

_log = logging.getLogger(__name__)


class Log:
    """Write-ahead log of one tablet [kudu consensus, "The write ahead log (WAL)"].

    Invariants: order on disk is the order of `reserve`. Indexes have no gaps; an entry at an index that exists replaces
    it and everything above. Nothing counts as appended before it is synced. After a failed write or sync, other than
    a full disk or an exhausted resource, every later call fails with the same error: no sync is ever tried again
    on the same file.
    Durability: an entry is durable at its callback; opening makes all entries that it returns durable. Concurrency: any
    thread. At most one thread appends at a time. Callbacks come from it, one of `threads` (or from `drain` or `close`),
    and must not block. If a reservation can no longer be served, its callback runs within its own `append_async`.
    """

    def __init__(
        self, disk: Disk, folder: str, tablet_id: str, options: WalOptions, found: Recovered, threads: LogThreads | None
    ) -> None:
        """Call `open` instead."""
        self._disk = disk
        self._folder = folder
        self._tablet_id = tablet_id
        self._options = options
        self._threads = threads
        self._state = threading.Condition()
        self._io = threading.Lock()
        self._queue: deque[Reservation] = deque()
        self._seen: list[Reservation] = []
        """Those that were in the queue together, and that the next group commit waits for."""
        self._queued_bytes = 0
        self._busy = False
        self._offered = False
        """Whether the log has a turn of a thread, or waits for one."""
        self._thread: threading.Thread | None = None
        """The thread whose turn it is."""
        self._closing = False
        self._closed = False
        self._failure: BaseException | None = None
        self._removal_unsynced = False
        """Whether a segment's name was removed, and that is not durable yet."""
        self._withheld = found.withheld
        self._index = found.index
        self._reserved = found.index.terms.copy()
        self._highest = max((info.last_index for info in found.segments), default=0)
        """The highest index ever reserved or found. An entry at or below it replaces one that is on disk."""
        self._retention = Retention(found.segments, found.headers)
        previous = found.segments[-1].length_bytes if found.segments else 0
        self._appender = Appender(
            disk,
            folder,
            tablet_id,
            options,
            next_number=found.next_number,
            end=found.end,
            recorded=found.newest,
            next_segment_bytes=min(max(2 * previous, options.segment_size_bytes_first), options.segment_size_bytes_max),
            threads=threads.preallocating if threads is not None else None,
        )

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        tablet_id: str,
        options: WalOptions | None = None,
        *,
        threads: LogThreads | None = None,
    ) -> tuple[Log, Replay]:
        """Recover the log in the folder, which is made if absent. Later appends go to a new segment.

        `threads` append to the log, which shares them with others; without them, `drain` and `close` do.
        Raises Corruption if anything but the last group commit is damaged; then the files are unchanged.
        """
        found = recover(disk, folder, tablet_id)
        log = cls(disk, folder, tablet_id, options or WalOptions(), found, threads)
        first, last = log.first_index, log.last
        return log, Replay(Survivors(log.read, first, last.index), first, last, found.withheld)

    @property
    def first_index(self) -> int:
        """The lowest index that can be read; 0 if the log is empty."""
        with self._state:
            return self._index.terms.first_index

    @property
    def last(self) -> OpId:
        """The highest OpId that is durable and was not truncated; ZERO_OPID if the log is empty."""
        with self._state:
            return self._index.terms.last

    @property
    def last_reserved(self) -> OpId:
        """The OpId that the next reservation follows."""
        with self._state:
            return self._reserved.last

    @property
    def queued_bytes(self) -> int:
        """Bytes that are reserved and not yet durable."""
        return self._queued_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the content of all segments."""
        with self._state:
            return self._retention.size_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether `reserve` of entries of that size would not block now. An event loop checks this before it
        reserves."""
        return not self._queued_bytes or self._queued_bytes + size_bytes <= self._options.queue_bytes_max

    @property
    def failure(self) -> BaseException | None:
        """The error because of which the log accepts no more entries; None if it does."""
        return self._failure

    def term_at(self, index: int) -> int | None:
        """The term of a durable entry; None if this log does not have it."""
        with self._state:
            return self._index.terms.term_at(index)

    # Appending.

    def reserve(self, entries: Sequence[Entry]) -> Reservation:
        """Take the next place in the order for `entries`, one or more with consecutive indexes.

        Blocks while the queue is full (without threads, raises Refused(OVERLOADED)): on an event loop check `has_room`
        first. The caller must pass the reservation to `append_async`, because later ones wait for it.
        """
        slot = Reservation(entries)
        check(bool(slot.entries), "a reservation holds an entry")
        with self._state:
            self._check_usable()
            while not self.has_room(slot.size_bytes):
                if self._threads is None:
                    raise Refused(Code.OVERLOADED, "the log's queue is full", queued_bytes=self._queued_bytes)
                self._state.wait()
                self._check_usable()
            first = slot.entries[0].opid
            refusal = self._reserved.refuses(first)
            check(not refusal, "entries follow each other", why=refusal, opid=first, last=self._reserved.last)
            slot.rewrites = first.index <= self._highest
            self._highest = max(self._highest, slot.last.index)
            for before, after in zip(slot.entries, slot.entries[1:], strict=False):
                follows = after.opid.index == before.opid.index + 1 and after.opid.term >= before.opid.term
                check(follows, "entries follow each other", before=before.opid, after=after.opid)
            for entry in slot.entries:
                self._reserved.add(entry.opid)
            self._queue.append(slot)
            self._queued_bytes += slot.size_bytes
        return slot

    def append_async(self, reservation: Reservation, on_durable: OnDurable) -> None:
        """Serialise a reservation's entries and hand them to the appender; returns before they are on disk."""
        try:
            encoded = self._encode(reservation)
        except BaseException as error:
            # Later ones wait for it. If memory ran out, the log ends as well, but its content is intact.
            bug = InvariantViolation("an entry does not serialise", cause=repr(error))
            self._fail_all([], error if isinstance(error, MemoryError) else bug, poison=True)
            raise
        with self._state:
            check(reservation.on_durable is None, "a reservation is appended once", opid=reservation.last)
            reservation.on_durable = on_durable
            error_now = reservation.error
            if reservation.state is ReservationState.RESERVED:
                reservation.encoded = encoded
                reservation.state = ReservationState.READY
                self._offer()
        if error_now is not None:
            on_durable(error_now)

    def _encode(self, reservation: Reservation) -> list[EncodedEntry]:
        """Encode the entries. If they replace others, their block ends in a trailer (`scan.py`)."""
        first, *others = reservation.entries
        head = encode_entry(self._tablet_id, first, placed=reservation.rewrites)
        return [head, *(encode_entry(self._tablet_id, entry) for entry in others)]

    def append(self, entries: Sequence[Entry], on_durable: OnDurable) -> None:
        """Call `reserve` and `append_async`."""
        self.append_async(self.reserve(entries), on_durable)

    def drain(self) -> None:
        """Without threads: do their work for everything that is ready. With them: wait until the queue is empty.

        With threads, do not call it while you hold a reservation that is not appended.
        """
        with self._state:
            if self._threads is not None:
                self._state.wait_for(lambda: not (self._queue or self._busy))
                return
            batch = self._take_ready()
        self._commit(batch)

    def _take_ready(self) -> list[Reservation]:
        """Take what is ready off the queue, up to the first that is not. The caller holds the lock."""
        batch: list[Reservation] = []
        while self._queue and self._queue[0].state is ReservationState.READY:
            batch.append(self._queue.popleft())
        return batch

    def truncate_after(self, index: int) -> None:
        """Drop the entries above `index`, in order with appends; on disk they stay until others replace them."""
        with self._state:
            self._reserved.truncate_after(index)
            if self._queue or self._busy:
                self._queue.append(Truncation(index))
            else:
                self._index.truncate_after(index)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise closed_error(self._tablet_id)

    def _offer(self) -> None:
        """Wait for a turn of a thread, if there is a group commit to do. The caller holds the lock."""
        if self._threads is not None and not self._offered and self._may_commit():
            self._offered = True
            self._threads.appending.give(self._turn)

    def _may_commit(self) -> bool:
        """Whether all reservations that were in the queue together are encoded. They stay in the queue until then, so
        that all are failed if one of them does not serialise. The caller holds the lock."""
        self._seen = self._seen or list(self._queue)
        while self._seen and self._seen[-1].state is ReservationState.READY:
            self._seen.pop()
        return bool(self._queue) and not self._seen

    def _turn(self) -> bool:
        """Do one group commit: one block, one sync, the callbacks; returns whether there is another to do now."""
        with self._state:
            if self._closing:  # `close` appends what is ready
                return False
            self._thread = threading.current_thread()
            batch = self._take_ready()
            self._busy = bool(batch)
        try:
            self._commit(batch)
        finally:
            with self._state:
                self._thread = None
                more = self._offered = self._may_commit()
                self._state.notify_all()
        return more

    def _commit(self, batch: list[Reservation]) -> None:
        """Do one group commit. One thread at a time."""
        slots = [slot for slot in batch if slot.entries]
        written: GroupCommit | None = None
        try:
            with self._io:
                if slots:
                    self._check_trusted()
                    written = self._appender.write(slots)
                self._publish(batch, written)
        except Refused as error:
            self._fail_all(batch, error, poison=not is_transient(error))
            return
        except Exception as error:  # noqa: BLE001
            about(_log, self._tablet_id).critical("the log stops: %s", error)
            self._fail_all(batch, error, poison=True)
            return
        except BaseException as error:
            self._fail_all([], error, poison=True)
            raise
        for slot in slots:
            self._call_back(slot, slot.last)

    def _check_trusted(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _publish(self, batch: Sequence[Reservation], written: GroupCommit | None) -> None:
        with self._state:
            places = iter(written.places if written is not None else ())
            for slot in batch:
                if isinstance(slot, Truncation):
                    self._index.truncate_after(slot.index)
                elif written is not None:
                    for _ in slot.entries:
                        opid, start, end = next(places)
                        self._index.add(opid, written.header.segment, start, end)
                    slot.state = ReservationState.DONE
                    slot.encoded = []
                    self._queued_bytes -= slot.size_bytes
            if written is not None:
                self._retention.publish(written.segment, written.header)
            self._busy = False
            self._state.notify_all()

    def _fail_all(self, batch: Sequence[Reservation], error: BaseException, *, poison: bool) -> None:
        """Fail `batch` and the queue after it, because their indexes would leave a gap."""
        with self._state:
            if poison and self._failure is None:
                self._failure = error
            failed = [*batch, *self._queue]
            # One that is handed over from now on is called back by `append_async`.
            told = [slot for slot in failed if slot.on_durable is not None]
            self._queue.clear()
            for slot in failed:
                slot.error = error
                slot.state = ReservationState.DONE
                slot.encoded = []
                self._queued_bytes -= slot.size_bytes
            self._reserved = self._index.terms.copy()
            self._busy = False
            self._state.notify_all()
        for slot in told:
            self._call_back(slot, error)

    def _call_back(self, slot: Reservation, result: OpId | BaseException) -> None:
        if slot.on_durable is None:
            return
        try:
            slot.on_durable(result)
        except Exception as error:  # noqa: BLE001
            about(_log, self._tablet_id).critical("a callback of the log raised", exc_info=True)
            with self._state:
                self._failure = self._failure or InvariantViolation("a callback of the log raised", cause=repr(error))

    # Reading.

    def read(self, lo: int, hi: int, max_bytes: int) -> list[Entry]:
        """The durable entries of indexes [lo, hi), at least one if there is any, at most about `max_bytes`.

        Blocks on the disk. Raises Refused(NOT_FOUND) if `lo` is below `first_index`; Corruption if bytes changed since.
        """
        with self._state:
            terms = self._index.terms
            hi = min(hi, terms.last_index + 1)
            if lo >= hi:
                return []
            if lo < terms.first_index:
                raise Refused(Code.NOT_FOUND, "log GC removed these entries", lo=lo, first_index=terms.first_index)
            spans = self._index.find(lo, hi)
            terms = terms.copy()
            numbers = sorted({span.segment for span in spans})
            headers = {number: self._retention.headers[number] for number in numbers}
            self._retention.hold(numbers)
        try:
            return read_entries(self._disk, self._folder, headers, spans, lo, hi, max_bytes, terms)
        finally:
            self._release(numbers)

    def _release(self, numbers: Sequence[int]) -> None:
        with self._state:
            self._retention.release(numbers)

    # Segments.

    def segments(self) -> list[SegmentInfo]:
        """All segments, oldest first."""
        with self._state:
            return list(self._retention.segments)

    def files(self) -> list[FileLength]:
        """The file of each segment, with the length that was written."""
        return [
            FileLength(f"{self._folder}/{info.name}", info.length_bytes, not info.closed) for info in self.segments()
        ]

    def pin(self) -> Pin:
        """Keep the present segments' files. An open one may grow; its listed length is durable."""
        with self._state:
            segments = tuple(self._retention.segments)
            held = [info.number for info in segments]
            self._retention.hold(held)

        def release(_: Pin) -> None:
            self._release(held)
            held.clear()

        return Pin(segments, release)

    def anchor(self, index: int) -> Anchor:
        """Keep all entries from `index` on."""

        def release(anchor: Anchor) -> None:
            with self._state:
                self._retention.anchors.discard(anchor)

        anchor = Anchor(index, release)
        with self._state:
            self._retention.anchors.add(anchor)
        return anchor

    def roll(self) -> None:
        """Close the segment in use; the next append begins another.

        Raises NO_SPACE or ResourcesExhausted; then the segment stays in use, and the log goes on.
        """
        with self._io:
            self._check_trusted()
            try:
                self._appender.roll()
            except BaseException as error:
                if not is_transient(error):
                    self._failure = error
                raise
            with self._state:
                self._retention.close_newest()

    def gc(self, keep_from_index: int) -> int:
        """Remove the oldest closed segments that have no entry at or above that index; returns the bytes freed.

        Stops at anchors, at segments that are read or pinned, and at the log's last entry. After ResourcesExhausted
        there is no gap: the next call goes on with the same segment.
        """
        freed = 0
        if self._removal_unsynced:
            self._sync_removal()
        while (info := self._unlist_oldest(keep_from_index)) is not None:
            self._disk.crash_point("wal.before_remove_segment")
            try:
                self._disk.remove(f"{self._folder}/{info.name}")
            except ResourcesExhausted:
                with self._state:
                    self._retention.list_again(info)
                raise
            self._removal_unsynced = True
            self._sync_removal()  # Each removal on its own: a power cut must not leave a hole.
            self._disk.crash_point("wal.after_remove_segment")
            freed += info.length_bytes
        return freed

    def _sync_removal(self) -> None:
        self._disk.sync_dir(self._folder)
        self._removal_unsynced = False

    def _unlist_oldest(self, keep_from_index: int) -> SegmentInfo | None:
        with self._state:
            # Whatever the caller asks for, the last entry stays, or the log would forget its last OpId.
            info = self._retention.pop_oldest(min(keep_from_index, self._index.terms.last_index))
            if info is not None:
                self._index.drop_segments_below(info.number + 1)
            return info

    def repair_record(self) -> bool:
        """Write the record of the log's end, and the mark of a lost one, again from memory if a file is missing or
        damaged; returns whether one was. The next start would refuse the log because of it, or vote too early. A folder
        that is gone is not made."""
        with self._io:
            if self._closed or self._failure is not None or not self._disk.exists(self._folder):
                return False
            marked = self._repair_withheld()
            return self._appender.repair_record() or marked

    def _repair_withheld(self) -> bool:
        mark = self._withheld
        return mark is not None and repair_withheld(self._disk, self._folder, mark)

    def forget_withheld(self) -> None:
        """Remove the mark of a damaged tail whose entries are back: a later start need not withhold its vote."""
        with self._io:
            self._withheld = None
            forget_withheld(self._disk, self._folder)

    def close(self) -> None:
        """Append what is ready, fail the rest, cut the open segment to its content and record the log's end; and mark a
        lost one again, if the mark was lost.

        A second call does nothing. Files that cannot be cut or removed now are left to the next opening.
        """
        with self._state:
            check(threading.current_thread() is not self._thread, "a callback of the log cannot close it")
            if self._closed:
                return
            self._closing = True
            self._state.wait_for(lambda: not (self._thread or self._busy))
            batch = self._take_ready()
            self._busy = bool(batch)
        self._commit(batch)
        self._fail_all([], closed_error(self._tablet_id), poison=False)
        with self._io:
            self._closed = True
            if self._disk.exists(self._folder):
                with suppress(Refused):  # no room
                    self._repair_withheld()
            self._appender.close(trusted=self._failure is None)
            with self._state:
                self._retention.close_newest()
