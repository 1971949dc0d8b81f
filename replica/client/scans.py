"""Reads of all tablets of a table as of one hybrid time; each tablet's part is delivered whole or not at all.

Replicas differ in the order of their rows, so a broken part cannot be continued at another one: it is read again from
its start. A part is delivered only when it is complete, so no row comes twice.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pyarrow as pa

from nyala.replica.rows import ScanSpec, conditions_size
from nyala.replica.rpc import pb, predicate_to_pb, raise_if_error
from nyala.replica.types import Code, Refused, hybrid_from_us, limits, staleness_problem

from . import pruning
from .calls import TabletCalls
from .link_ports import LinkPort
from .retry import Deadline, refusal_of_rpc_error
from .scan_links import batches_on
from .tables import TableHandle, TabletHandle

_NEVER = threading.Event()
"""An event that is never set."""


@dataclass(frozen=True)
class TabletPart:
    """One complete part of one tablet: its batches, the number of rows, and the hybrid time of the read."""

    tablet_id: str
    batches: tuple[Any, ...]
    rows: int
    snapshot_time: int


def check_spec(handle: TableHandle, spec: ScanSpec) -> None:
    """Raise Refused(INVALID_ARGUMENT) for columns that do not exist, impossible numbers, or more conditions than one
    scan may have."""
    conditions_size(spec.predicates).check()
    for name in (*(spec.columns or ()), *(p.column for p in spec.predicates)):
        handle.schema.column(name)
    if spec.limit < 0 or spec.slice_count < 1 or spec.snapshot_time < 0:
        what = "a scan's limit and time must be 0 or more, and its slices 1 or more; correct them"
        given = {"limit": spec.limit, "slices": spec.slice_count, "time": spec.snapshot_time}
        raise Refused(Code.INVALID_ARGUMENT, what, given)
    if spec.staleness_us and (problem := staleness_problem(spec.staleness_us)):
        raise Refused(Code.INVALID_ARGUMENT, f"{problem}; give one between them", staleness_s=spec.staleness_us / 1e6)


def tablets_to_ask(handle: TableHandle, spec: ScanSpec) -> list[TabletHandle]:
    """Return the tablets that may hold matching rows."""
    wanted = set(pruning.positions(handle.schema, handle.partition, spec.predicates))
    return [t for t in handle.tablets if t.pos in wanted]


def result_schema(handle: TableHandle, spec: ScanSpec) -> Any:
    """Return the pa.Schema of the batches."""
    names = spec.columns if spec.columns is not None else handle.schema.names
    return pa.schema([handle.schema.arrow.field(n) for n in names])


class Scans:
    """Scans of tablets and tables. Concurrency: any thread."""

    def __init__(self, calls: TabletCalls) -> None:
        self._calls = calls

    def time_now(self, handle: TableHandle, tablets: Sequence[TabletHandle] | None = None) -> int:
        """Return a hybrid time at or above that of every write that these tablets have acknowledged, from all their
        leaders."""
        highest, deadline = self._calls.time_seen, Deadline(self._calls.options.timeout_s)
        left = [t.tablet_id for t in (tablets if tablets is not None else handle.tablets)]
        while left:
            time, led = self._time_of_leader(handle.name, left, deadline)
            highest = max(highest, time)
            left = [tablet_id for tablet_id in left if tablet_id not in led]
        return highest

    def _time_of_leader(self, table_name: str, tablet_ids: Sequence[str], deadline: Deadline) -> tuple[int, set[str]]:
        """Return the time of the first tablet's leader, which has made sure that it leads, and which of the tablets
        that server leads.

        The cached leader of a tablet may no longer lead. Its clock would be wrong then: the next leader's clock, and
        the times of writes there, may be ahead of it.
        """
        first, *others = tablet_ids

        def ask(stub: Any, uuid: str, timeout_s: float) -> tuple[int, set[str]]:
            located = ((t, self._calls.locator.location(t)) for t in others)
            same = [t for t, place in located if place is not None and place.leader_uuid == uuid]
            request = pb.ServerTimeRequest(
                dest_uuid=uuid, propagated_time=self._calls.time_seen, tablet_ids=[first, *same]
            )
            reply = stub.ServerTime(request, timeout=timeout_s)
            raise_if_error(reply.error)
            if first not in reply.led:  # a build that reads no tablets; another call of it makes sure
                raise_if_error(stub.Ledger(pb.LedgerRequest(dest_uuid=uuid, tablet_id=first), timeout=timeout_s).error)
                reply = stub.ServerTime(request, timeout=timeout_s)
                raise_if_error(reply.error)
            return int(reply.hybrid_time), {first, *reply.led}

        return self._calls.at_leader(table_name, first, ask, deadline=deadline)

    def tablet(self, handle: TableHandle, tablet: TabletHandle, spec: ScanSpec) -> TabletPart:
        """Return one part of one tablet, complete. NotApplied if the tablet cannot be read before the deadline."""
        request = _request(handle, tablet, spec, _encoded(handle, spec))
        return self._seen(self._whole(handle, tablet, request, spec, _NEVER))

    def count(self, handle: TableHandle, tablet: TabletHandle, spec: ScanSpec) -> TabletPart:
        """Return the number of matching rows of one tablet; no batches."""
        return self._seen(self._counted(handle, tablet, spec))

    def _counted(
        self, handle: TableHandle, tablet: TabletHandle, spec: ScanSpec, conditions: Sequence[pb.Predicate] = ()
    ) -> TabletPart:
        spec = replace(spec, columns=(), slice_pos=0, slice_count=1, count_only=True)
        request = _request(handle, tablet, spec, conditions or _encoded(handle, spec))
        part = self._whole(handle, tablet, request, spec, _NEVER)
        # The answer is a batch of one int64 column, `count`.
        rows = sum(sum(batch.column(0).to_pylist()) for batch in part.batches)
        return TabletPart(part.tablet_id, (), rows, part.snapshot_time)

    def table(self, handle: TableHandle, spec: ScanSpec) -> Iterator[TabletPart]:
        """Yield all parts of a table as of one hybrid time, in order of tablet and slice. A few are read ahead, in
        parallel."""
        check_spec(handle, spec)
        tablets = tablets_to_ask(handle, spec)
        spec = self._pinned(handle, spec, tablets)
        work = [(t, replace(spec, slice_pos=pos)) for t in tablets for pos in range(spec.slice_count)]
        left = spec.limit
        for part in self._ahead(handle, spec, work):
            yield self._seen(part)
            if spec.limit:
                left -= part.rows
                if left <= 0:
                    return

    def count_table(self, handle: TableHandle, spec: ScanSpec) -> int:
        """Return the number of matching rows of the whole table as of one hybrid time."""
        check_spec(handle, spec)
        tablets = tablets_to_ask(handle, spec)
        spec = self._pinned(handle, spec, tablets)
        conditions = _encoded(handle, spec)
        parts = [self._counted(handle, tablet, spec, conditions) for tablet in tablets]
        total = sum(self._seen(part).rows for part in parts)
        return min(total, spec.limit) if spec.limit else total

    def _seen(self, part: TabletPart) -> TabletPart:
        """Remember the time of a part that the caller gets: no later read of this client is older.

        A time is remembered only after a read at it has succeeded. If a strong read fails because a leader is away, a
        stale read must still be possible.
        """
        self._calls.observe(part.snapshot_time)
        return part

    def _pinned(self, handle: TableHandle, spec: ScanSpec, tablets: Sequence[TabletHandle]) -> ScanSpec:
        """Return the spec with one time for all tablets. A single part needs no time, because `latest` is linearizable
        at its leader."""
        if spec.snapshot_time or len(tablets) * spec.slice_count <= 1:
            return spec
        time = (
            self.time_of_staleness(handle, spec.staleness_us, tablets)
            if spec.staleness_us
            else self.time_now(handle, tablets)
        )
        return replace(spec, snapshot_time=time)

    def time_of_staleness(
        self, handle: TableHandle, staleness_us: int, tablets: Sequence[TabletHandle] | None = None
    ) -> int:
        """Return a time for these tablets. It is at most `staleness_us` old by the clock of a server of one of them,
        and not below the times that this client has seen. Its age is at most half of the kept history, so that the scan
        has time to read."""

        def ask(stub: Any, uuid: str, timeout_s: float) -> int:
            reply = stub.ServerTime(pb.ServerTimeRequest(dest_uuid=uuid), timeout=timeout_s)
            raise_if_error(reply.error)
            return int(reply.hybrid_time)

        deadline = Deadline(self._calls.options.timeout_s)
        asked = (tablets or handle.tablets)[0]  # the servers of the first tablet may not answer
        now = self._calls.at_any(handle.name, asked.tablet_id, ask, deadline=deadline)
        allowed_us = min(staleness_us, handle.history_retention_us // 2) - limits.CLOCK_DIFFERENCE_US_MAX
        return max(self._calls.time_seen, now - hybrid_from_us(max(0, allowed_us)))

    def _ahead(
        self, handle: TableHandle, spec: ScanSpec, work: list[tuple[TabletHandle, ScanSpec]]
    ) -> Iterator[TabletPart]:
        conditions = _encoded(handle, spec)
        parallel = min(self._calls.options.scan_parallel_max, len(work))
        if parallel <= 1 or spec.limit:
            for tablet, part in work:
                yield self._unless(_NEVER, handle, tablet, part, conditions)
            return
        with ThreadPoolExecutor(parallel, thread_name_prefix="nyala-scan") as pool:
            # Bounded read-ahead: the next part begins only when one has been taken.
            running: queue.SimpleQueue[Any] = queue.SimpleQueue()
            todo = iter(work)
            stop = threading.Event()

            def start_one() -> None:
                for tablet, part in todo:
                    running.put(pool.submit(self._unless, stop, handle, tablet, part, conditions))
                    return

            for _ in range(parallel):
                start_one()
            try:
                for _ in work:
                    read = running.get().result()
                    start_one()
                    yield read
            finally:
                stop.set()

    def _unless(
        self,
        stop: threading.Event,
        handle: TableHandle,
        tablet: TabletHandle,
        spec: ScanSpec,
        conditions: Sequence[pb.Predicate],
    ) -> TabletPart:
        """Return one part. If the scan ends meanwhile, it soon returns an empty one."""
        return self._whole(handle, tablet, _request(handle, tablet, spec, conditions), spec, stop)

    def _whole(
        self, handle: TableHandle, tablet: TabletHandle, request: pb.ScanRequest, spec: ScanSpec, stop: threading.Event
    ) -> TabletPart:
        """Return all of one part, unless `stop` is set meanwhile."""
        deadline = Deadline(self._calls.options.scan_timeout_s)

        def ask(stub: Any, uuid: str, timeout_s: float) -> TabletPart:
            if stop.is_set():
                return _nothing(tablet, spec)
            request.dest_uuid = uuid
            request.propagated_time = self._calls.time_seen
            request.timeout_us = int(deadline.left_s * 1e6)
            port = self._link_port(tablet.tablet_id, uuid, spec)
            request.by_link = port is not None
            # A long scan is no sign of a dead server; keepalive pings find that, so the attempt has no time limit.
            stream = stub.Scan(request, timeout=max(0.001, deadline.left_s))
            return self._collect(tablet, stream, spec, stop, _RowsLink(port, uuid, deadline, stop))

        if spec.staleness_us:
            # The scan may take long, but the search for a replica that is fresh enough may not.
            fresh_by = Deadline(min(self._calls.options.timeout_s, self._calls.options.scan_timeout_s))
            return self._calls.at_any(handle.name, tablet.tablet_id, ask, deadline=fresh_by)
        return self._calls.at_leader(handle.name, tablet.tablet_id, ask, deadline=deadline)

    def _link_port(self, tablet_id: str, uuid: str, spec: ScanSpec) -> LinkPort | None:
        """Return the port of the tablet's server on which rows may come; None if they must come on the call."""
        place = self._calls.locator.location(tablet_id)
        address = None if place is None or spec.count_only else place.members.get(uuid)
        port = None if address is None else self._calls.channels.link_port(address)
        return port if port is not None and port.reachable else None

    def _collect(
        self, tablet: TabletHandle, stream: Any, spec: ScanSpec, stop: threading.Event, rows_link: _RowsLink
    ) -> TabletPart:
        """Read a stream to its end, or until `stop`. Refused if it breaks off, or lacks rows."""
        batches, rows, time_of, last, schema = [], 0, spec.snapshot_time, False, None
        linked = said = 0
        try:
            for chunk in stream:
                if stop.is_set():
                    return _nothing(tablet, spec)
                raise_if_error(chunk.error)
                if chunk.arrow_schema:
                    schema = pa.ipc.read_schema(pa.py_buffer(chunk.arrow_schema))
                if chunk.arrow_batch:
                    batches.append(pa.ipc.read_record_batch(pa.py_buffer(chunk.arrow_batch), schema))
                if chunk.port and schema is not None:
                    for batch in rows_link.batches(chunk, schema):
                        batches.append(batch)
                        linked += batch.num_rows
                    if stop.is_set():
                        return _nothing(tablet, spec)
                said += chunk.link_rows
                rows += chunk.rows
                time_of = chunk.snapshot_time or time_of
                last = last or chunk.last
        except grpc.RpcError as e:
            raise refusal_of_rpc_error(e, mutates=False) from e
        finally:
            stream.cancel()
        if not last or linked != said:
            what = "a scan ended before its last row; scan again"
            raise Refused(Code.UNAVAILABLE, what, tablet_id=tablet.tablet_id, rows=linked, sent=said)
        return TabletPart(tablet.tablet_id, tuple(batches), rows + linked, time_of)


class _Stopped(Exception):
    """The scan was given up."""


@dataclass(frozen=True)
class _RowsLink:
    """The connection on which the rows of one part may arrive, if the server offers one."""

    port: LinkPort | None
    uuid: str
    deadline: Deadline
    given_up: threading.Event

    def batches(self, chunk: pb.ScanChunk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the batches that arrive on the connection which `chunk` offers. It yields none if the connection cannot
        be opened, or if the scan is given up. Refused as `batches_on`, and TIMED_OUT."""
        if self.port is None:
            return
        try:
            sock = self.port.connected(chunk.port, chunk.ticket, self.uuid, self.deadline.left_s)
        except OSError:
            return  # the server sends them on the call
        with sock:
            try:
                yield from batches_on(sock, schema, self._stop)
            except _Stopped:
                return

    def _stop(self) -> None:
        if self.given_up.is_set():
            raise _Stopped
        if self.deadline.left_s <= 0:
            raise Refused(Code.TIMED_OUT, "the rows of a scan came too slowly; allow more time, or ask for less")


def _nothing(tablet: TabletHandle, spec: ScanSpec) -> TabletPart:
    """Return an empty part, for a scan that has ended."""
    return TabletPart(tablet.tablet_id, (), 0, spec.snapshot_time)


def _encoded(handle: TableHandle, spec: ScanSpec) -> list[pb.Predicate]:
    """Return the conditions in wire form. They are made once for all parts of a scan, because 100,000 texts take 10
    ms."""
    return [predicate_to_pb(p, handle.schema.column(p.column).arrow_type) for p in spec.predicates]


def _request(
    handle: TableHandle, tablet: TabletHandle, spec: ScanSpec, conditions: Sequence[pb.Predicate]
) -> pb.ScanRequest:
    return pb.ScanRequest(
        tablet_id=tablet.tablet_id,
        table_id=handle.table_id,
        columns=spec.columns or (),
        all_columns=spec.columns is None,
        predicates=conditions,
        snapshot_time=spec.snapshot_time,
        slice_pos=spec.slice_pos,
        slice_count=spec.slice_count,
        limit=spec.limit,
        count_only=spec.count_only,
        staleness_us=spec.staleness_us,
    )
