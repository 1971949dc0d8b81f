"""The client: one object for a cluster, shared by all threads of a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.rows import ScanSpec, SourceKey, WriteMeta
from nyala.replica.rpc import Credentials, credentials_of_process, load_credentials, opid_from_pb, opid_to_pb, pb
from nyala.replica.types import Address, Code, OpId, Refused, only_reads, shown

from .admin import Admin
from .batching import WireBatch
from .calls import TabletCalls
from .channels import Channels
from .client_ids import ClientIds
from .gets import Gets
from .locator import Locator
from .masters import Masters
from .options import ClientOptions
from .retry import NOT_OFFERED
from .row_errors import OnError
from .scans import Scans, TabletPart
from .tables import Location, TableHandle, TabletHandle, locations_from_pb
from .writes import SessionWriter, SourceWriter, WriteOutcome, WriteWindow, write_request


@dataclass(frozen=True)
class ReadLoad:
    """One `load()` of a Spark application, as the masters know it."""

    application: str
    load_id: str
    made: OpId
    """The `catalog_position` when it was made."""


class Client(Admin):
    """All calls to a cluster. It opens connections on first use, in the process that uses them.

    Concurrency: any thread; each of its writers: one thread.
    """

    def __init__(
        self,
        masters: Sequence[str | Address],
        options: ClientOptions | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`credentials`: for TLS; default: those in the directory NYALA_TLS, or none if that is not set."""
        self.options = options or ClientOptions()
        self._channels = Channels(credentials or credentials_of_process())
        addresses = [m if isinstance(m, Address) else _address(m) for m in masters]
        self._all_masters = Masters(addresses, self._channels, self.options)
        self.locator = Locator(self._look_up)
        self.calls = TabletCalls(self._channels, self.locator, self.options)
        super().__init__(self._all_masters, self.calls)
        self._scans = Scans(self.calls)
        self._gets = Gets(self.calls)
        self._client_ids = ClientIds()
        self._present: dict[str, tuple[TabletHandle, ...]] = {}
        """By table id, the present tablets of each table of which some tablets were replaced; used for older handles.
        The mapping is never changed, only replaced as a whole."""

    def _look_up(self, table_name: str) -> list[Location]:
        request = pb.TableRequest(name=table_name, with_tablets=True)
        staleness_us = round(self.options.look_up_staleness_s * 1e6)
        # A second look-up means that the first one's locations failed. Only the leading master certainly has newer
        # ones.
        if staleness_us and not self.locator.version(table_name):
            recorded = self._all_masters.recorded_table(request, staleness_us)
            if recorded is not None:
                return locations_from_pb(recorded)
        # Shorter than a call's own deadline: if no master answers, the caller goes on with the members it knows.
        reply = self._all_masters.whole_table(request, timeout_s=min(2.0, self.options.timeout_s))
        return locations_from_pb(reply)

    def close(self) -> None:
        """Close all connections."""
        self._channels.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ensure_located(self, handle: TableHandle) -> None:
        """Look up where the table's tablets are, unless this client knows it. A handle from another process brings no
        locations."""
        if self._unlocated(handle):
            self.locator.refresh(handle.name, self.locator.version(handle.name))

    def current(self, handle: TableHandle) -> TableHandle:
        """Return the handle with the table's present tablets, located.

        WRONG_TABLE if the table was dropped and created again. Not for sources: the new tablet that replaces a lost one
        needs earlier records than those that the caller has read.
        """
        if handle.table_id in self._present:
            handle = replace(handle, tablets=self._present[handle.table_id])
        self.ensure_located(handle)
        if self._unlocated(handle):
            tablets = self.get_table(handle.name, table_id=handle.table_id).tablets
            self._present[handle.table_id] = tablets
            handle = replace(handle, tablets=tablets)
        return handle

    def _unlocated(self, handle: TableHandle) -> bool:
        return any(self.locator.location(t.tablet_id) is None for t in handle.tablets)

    # ---- writes

    def source_writer(
        self,
        handle: TableHandle,
        source: SourceKey,
        *,
        generation: int,
        done: int,
        acknowledged: Mapping[str, int] | None = None,
    ) -> SourceWriter:
        """Return a writer of one task's records of one Kafka partition.

        `acknowledged`: tablet id -> highest offset acknowledged; empty on a cold start.
        """
        self.ensure_located(handle)
        return SourceWriter(self.calls, handle, source, generation=generation, done=done, acknowledged=acknowledged)

    def session_writer(self, handle: TableHandle, *, on_error: OnError = "raise") -> SessionWriter:
        """Return a writer for rows that come from no Kafka source. Use it as a context or close it, to release its
        client id.

        Rows that could not be applied raise RowErrors; with `on_error="return"` they are in its `row_errors` alone.
        """
        handle = self.current(handle)
        return SessionWriter(self.calls, handle, self._client_ids, on_error)

    def write_batch(self, handle: TableHandle, batch: WireBatch, meta: WriteMeta) -> WriteOutcome:
        """Write one batch and wait for it; origin, chain and sequence as `meta` says. NotApplied or OutcomeUnknown."""
        self.ensure_located(handle)
        if meta.source is None and not meta.client_id:
            what = "a write names its source or its client; set one of them"
            raise Refused(Code.INVALID_ARGUMENT, what, table=handle.name)
        outcomes: list[WriteOutcome] = []
        window = WriteWindow(self.calls, handle, outcomes.append)
        window.put(write_request(handle, batch, meta))
        window.drain()
        return outcomes[0]

    # ---- reads

    def scan(self, handle: TableHandle, spec: ScanSpec) -> Iterator[TabletPart]:
        """Yield all parts of a table as of one hybrid time; no row comes twice, and none is missing."""
        with only_reads():
            yield from self._scans.table(self.current(handle), spec)

    @only_reads()
    def scan_tablet(self, handle: TableHandle, tablet: TabletHandle, spec: ScanSpec) -> TabletPart:
        """Return one part of one tablet; all parts of a scan need the same `snapshot_time`."""
        self.ensure_located(handle)
        return self._scans.tablet(handle, tablet, spec)

    @only_reads()
    def get(
        self, handle: TableHandle, keys: pa.RecordBatch, columns: Sequence[str] | None = None, staleness_us: int = 0
    ) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Return the rows of these keys, and for each row the position of its key, as `Gets.rows` does."""
        return self._gets.rows(self.current(handle), keys, columns, staleness_us)

    @only_reads()
    def count(self, handle: TableHandle, spec: ScanSpec) -> int:
        """Return the number of rows that a scan would return; the servers send numbers, no rows."""
        handle = self.current(handle)
        return self._scans.count_table(handle, spec)

    @property
    def time_seen(self) -> int:
        """Return the highest hybrid time that this client has read or written; no stale read of it is older."""
        return self.calls.time_seen

    def observe(self, hybrid_time: int) -> None:
        """Note that the caller has seen data of this time elsewhere: no later stale read is older."""
        self.calls.observe(hybrid_time)

    @only_reads()
    def snapshot_time(
        self, handle: TableHandle, staleness_us: int = 0, tablets: Sequence[TabletHandle] | None = None
    ) -> int:
        """Return a hybrid time at or above that of every write acknowledged so far, by these tablets, by default all.

        With `staleness_us`, only writes acknowledged longer ago than that, and all writes of this client, count. If
        another program reads at this time, call `observe` with it.
        """
        handle = self.current(handle)
        if staleness_us:
            return self._scans.time_of_staleness(handle, staleness_us, tablets)
        return self._scans.time_now(handle, tablets)

    # ---- the time of a Spark query

    @only_reads()
    def catalog_position(self) -> OpId:
        """Return the position of the masters' catalog, for the queries of a new `load()`.

        Refused ILLEGAL_STATE if the leading master is of a version that keeps no times of queries.
        """
        return opid_from_pb(self._agree_read_time(pb.AgreeReadTimeRequest()).position)

    @only_reads()
    def agree_read_time(self, load: ReadLoad, query: int, time: int = 0) -> int:
        """Return the hybrid time that all tasks of one query of a `load()` read at; 0 if no task has proposed any yet.

        With `time`, it is proposed. Refused: EXPIRED if the masters may have forgotten the query's time, ILLEGAL_STATE
        as by `catalog_position`.
        """
        request = pb.AgreeReadTimeRequest(
            application=load.application,
            load_id=load.load_id,
            made=opid_to_pb(load.made),
            query=query,
            snapshot_time=time,
        )
        agreed: int = self._agree_read_time(request).snapshot_time
        return agreed

    def _agree_read_time(self, request: pb.AgreeReadTimeRequest) -> pb.AgreeReadTimeReply:
        try:
            reply: pb.AgreeReadTimeReply = self._all_masters.call("AgreeReadTime", request)
        except Refused as error:
            if not error.what.startswith(NOT_OFFERED):
                raise
            what = (
                "the leading master is of a version before 0.3.0, which keeps no times of queries: upgrade the masters "
                '(`nyala upgrade status` lists them), or load() the DataFrame with the option at = "now", and anew for '
                "each query that is to see newer rows"
            )
            raise Refused(Code.ILLEGAL_STATE, what) from error
        return reply


def _address(text: str) -> Address:
    if "/" in text:
        what = f"{shown(text)} has a scheme or a path; an address is a host and a port: write it as in master-1:7051"
        raise Refused(Code.INVALID_ARGUMENT, what)
    try:
        return Address.given(text.strip())
    except ValueError as e:
        raise Refused(Code.INVALID_ARGUMENT, f"{e}; write it as in master-1:7051") from e


def parse_masters(text: str) -> list[Address]:
    """Return the addresses in `host:port[,host:port]`; Refused(INVALID_ARGUMENT) describes what is wrong."""
    return [_address(part) for part in text.split(",") if part.strip()]


_shared: dict[tuple[int, tuple[Address, ...], str], Client] = {}
_shared_lock = threading.Lock()


def credentials_in(tls: str) -> Credentials | None:
    """Return the credentials in the directory `tls`, which a job or a DataFrame names; if it is empty, those of this
    process (NYALA_TLS). Refused as by `load_credentials`."""
    return load_credentials(tls) if tls else credentials_of_process()


def shared_client(masters: str | Sequence[str | Address], tls: str = "") -> Client:
    """Return this process's client for these masters, with the credentials in the directory `tls`. So a Spark worker
    that runs many tasks looks leaders up once.

    It is kept by process id, so a forked worker makes its own. It is never closed. Refused as by `credentials_in`.
    """
    given = parse_masters(masters) if isinstance(masters, str) else masters
    addresses = tuple(m if isinstance(m, Address) else _address(m) for m in given)
    key = (os.getpid(), addresses, tls)
    with _shared_lock:
        client = _shared.get(key)
        if client is None:
            client = _shared[key] = Client(addresses, credentials=credentials_in(tls))
        return client


def _forget_after_fork() -> None:
    """Forget the lock and the clients after a fork: the parent's lock may be held, and its connections do not work."""
    global _shared_lock
    _shared_lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
