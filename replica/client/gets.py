"""Reads by key: each tablet's keys in one call, several tablets at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.rows import encode_batch, route
from nyala.replica.rpc import pb, pb_grpc, raise_if_error
from nyala.replica.types import Code, Refused, limits

from .calls import TabletCalls
from .retry import Deadline, NotApplied
from .tables import TableHandle, TabletHandle

I64 = npt.NDArray[np.int64]

MOMENTS_MAX = 4
"""The most moments at which a get tries to read one tablet. Another one is tried if the tablet dropped the history of
the last one meanwhile."""


class Gets:
    """Reads by key of tables. Concurrency: any thread."""

    def __init__(self, calls: TabletCalls) -> None:
        self._calls = calls

    def rows(
        self, handle: TableHandle, keys: pa.RecordBatch, columns: Sequence[str] | None, staleness_us: int
    ) -> tuple[pa.Table, I64]:
        """Return (rows, for each row the position of its key among `keys`), in the order of the keys. Keys without a
        row are left out.

        `keys`: the key's columns in key order, with the schema's types and without nulls. All rows of one tablet are as
        of one moment, which lies after the beginning of this call or, with a staleness, at most that long before it.
        NotApplied if a tablet cannot be read before the deadline, or if its history is dropped between two calls, again
        and again.
        """
        names = tuple(handle.schema.names if columns is None else columns)
        schema = pa.schema([handle.schema.arrow.field(name) for name in names])
        if not keys.num_rows:
            return schema.empty_table(), np.empty(0, dtype=np.int64)
        tablet_of = route(keys, handle.schema, handle.partition)
        asked = [(handle.tablets[pos], np.flatnonzero(tablet_of == pos)) for pos in np.unique(tablet_of).tolist()]

        def of_tablet(work: tuple[TabletHandle, I64]) -> list[tuple[pa.RecordBatch, I64]]:
            tablet, mine = work
            some = keys if len(mine) == keys.num_rows else keys.take(pa.array(mine))
            return [(batch, mine[at]) for batch, at in self._of_tablet(handle, tablet, some, names, staleness_us)]

        if len(asked) == 1:
            parts = of_tablet(asked[0])
        else:
            with ThreadPoolExecutor(min(self._calls.options.scan_parallel_max, len(asked)), "nyala-get") as pool:
                parts = [part for found in pool.map(of_tablet, asked) for part in found]
        positions = np.concatenate([at for _, at in parts])
        order = np.argsort(positions)
        table = pa.Table.from_batches([pa.RecordBatch.from_arrays(b.columns, schema=schema) for b, _ in parts], schema)
        return table.take(pa.array(order)), positions[order]

    def _of_tablet(
        self, handle: TableHandle, tablet: TabletHandle, keys: pa.RecordBatch, names: Sequence[str], staleness_us: int
    ) -> list[tuple[pa.RecordBatch, I64]]:
        """Return rows with their positions among the keys, all of one moment. If the history of that moment is dropped
        between two calls, all keys are read anew, at a later moment."""
        for _ in range(MOMENTS_MAX):
            try:
                return list(self._at_one_moment(handle, tablet, keys, names, staleness_us))
            except Refused as error:
                if error.code is not Code.HISTORY_GONE:
                    raise
                gone = error
        what = (
            f"the history of the moment that was read was dropped between two calls, {MOMENTS_MAX} times in a row; ask "
            "for fewer keys at a time, or create the table with a longer history_retention_s"
        )
        raise NotApplied(Code.HISTORY_GONE, what, keys=keys.num_rows) from gone

    def _at_one_moment(
        self, handle: TableHandle, tablet: TabletHandle, keys: pa.RecordBatch, names: Sequence[str], staleness_us: int
    ) -> Iterator[tuple[pa.RecordBatch, I64]]:
        """Yield rows with the positions of their keys. Each call asks for as many keys as a server accepts and answers
        at once. Later calls read at the time of the first one's reply."""
        at, step, time = 0, limits.GET_KEYS_MAX, 0
        while at < keys.num_rows:
            some = keys.slice(at, step)
            payload = encode_batch(some)
            if len(payload) > limits.GET_KEYS_BYTES_MAX:
                if some.num_rows == 1:
                    what = "a key is longer than any row's key; leave it out"
                    raise Refused(Code.TOO_LARGE, what, bytes=len(payload), limit_bytes=limits.GET_KEYS_BYTES_MAX)
                step = some.num_rows // 2
                continue
            reply = self._call(handle, tablet, payload, some.num_rows, names, staleness_us, time)
            time = reply.snapshot_time
            schema = pa.ipc.read_schema(pa.py_buffer(reply.arrow_schema))
            batch = pa.ipc.read_record_batch(pa.py_buffer(reply.arrow_batch), schema)
            yield batch, at + np.array(reply.found, dtype=np.int64)
            at += reply.answered

    def _call(
        self,
        handle: TableHandle,
        tablet: TabletHandle,
        payload: bytes,
        count: int,
        names: Sequence[str],
        staleness_us: int,
        time: int,
    ) -> pb.GetReply:
        deadline = Deadline(self._calls.options.timeout_s)
        request = pb.GetRequest(
            tablet_id=tablet.tablet_id,
            table_id=handle.table_id,
            columns=names,
            keys=payload,
            count=count,
            staleness_us=staleness_us,
            snapshot_time=time,
        )

        def ask(stub: pb_grpc.TabletServiceStub, uuid: str, timeout_s: float) -> pb.GetReply:
            request.dest_uuid = uuid
            request.propagated_time = self._calls.time_seen
            request.timeout_us = int(timeout_s * 1e6)
            reply: pb.GetReply = stub.Get(request, timeout=timeout_s)
            raise_if_error(reply.error)
            if not 1 <= reply.answered <= count:
                what = "a server answered no key of those asked for; ask again, and see that all servers run one build"
                raise Refused(Code.UNAVAILABLE, what, answered=reply.answered, keys=count)
            if time and reply.snapshot_time != time:
                what = (
                    "a server of an earlier build read the later keys of this call as of another time than the first, "
                    f"so no rows are returned: upgrade it, or ask for at most {limits.GET_KEYS_MAX} keys at a time, or "
                    "fewer if their rows are long"
                )
                raise Refused(Code.INVALID_ARGUMENT, what, wanted=time, read=reply.snapshot_time)
            return reply

        at: Callable[..., pb.GetReply] = self._calls.at_any if staleness_us else self._calls.at_leader
        reply = at(handle.name, tablet.tablet_id, ask, deadline=deadline)
        self._calls.observe(reply.snapshot_time)
        return reply
