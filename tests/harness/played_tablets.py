"""Tablets whose replicas lag behind, simulated by the test beneath the client's real scans, with a clock that the test
sets.

Each server has a wall clock of its own, off by less than the bound. A replica has data up to its safe time. For a stale
read it judges that time by the server's rule (`replica.types.freshness`); the leader has everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from nyala.replica.client import ClientOptions, TableHandle, TabletHandle
from nyala.replica.client.calls import TabletCalls
from nyala.replica.client.channels import Channels
from nyala.replica.client.locator import Locator
from nyala.replica.client.retry import Deadline
from nyala.replica.client.scans import Scans
from nyala.replica.rows import Column, ColumnType, PartitionSpec, TableSchema
from nyala.replica.rpc import pb
from nyala.replica.types import Code, Refused, hybrid_from_us, limits
from nyala.replica.types.freshness import time_needed, too_old
from tests.harness.agreed_times import AgreedTimes

SCHEMA = TableSchema(
    1,
    (Column(id=1, name="k", type=ColumnType.STRING, nullable=False), Column(id=2, name="v", type=ColumnType.INT64)),
    ("k",),
)
COUNT = pa.schema([pa.field("count", pa.int64(), nullable=False)])
REPLICAS = 3
HOUR_US = 3_600_000_000


def table_of(name: str, tablets: int) -> TableHandle:
    """Return a handle of a table whose only row in each tablet has the tablet's id as its key."""
    handles = tuple(TabletHandle(f"{name}-{n}", n, n, 0) for n in range(tablets))
    return TableHandle(name, name, SCHEMA, PartitionSpec(("k",), tablets), 3, 24 * HOUR_US, 0, tablets=handles)


class PlayedTablets:
    """All tablets of some tables. Deterministic by its seed; one thread."""

    def __init__(self, rng: Random, tables: list[TableHandle]) -> None:
        self.rng = rng
        self.agreed = AgreedTimes()
        self.now_us = 100 * HOUR_US
        half = limits.CLOCK_DIFFERENCE_US_MAX // 2
        self._off_us = [rng.randint(-half, half) for _ in range(REPLICAS)]
        self._last = [0] * REPLICAS
        self._safe = {t.tablet_id: [0] * REPLICAS for table in tables for t in table.tablets}
        self._written: dict[str, list[tuple[int, int]]] = {tablet_id: [] for tablet_id in self._safe}

    def clock(self, server: int, seen: int = 0) -> int:
        """Return the hybrid time of one server, above all that it issued and received."""
        now = hybrid_from_us(self.now_us + self._off_us[server])
        self._last[server] = max(self._last[server] + 1, seen, now)
        return self._last[server]

    def write(self, tablet_id: str, value: int, seen: int) -> int:
        """Write at the leader; returns the hybrid time."""
        at = self.clock(self.leader(tablet_id), seen)
        self._written[tablet_id].append((at, value))
        return at

    def leader(self, tablet_id: str) -> int:
        """Return which server leads a tablet."""
        return sum(map(ord, tablet_id)) % REPLICAS

    def replicate(self) -> None:
        """Bring one replica of one tablet up to a moment a while ago."""
        tablet_id = self.rng.choice(list(self._safe))
        server, lag_us = self.rng.randrange(REPLICAS), self.rng.randint(0, 3_000_000)
        safe = self._safe[tablet_id]
        safe[server] = max(safe[server], hybrid_from_us(self.now_us - limits.CLOCK_DIFFERENCE_US_MAX - lag_us))

    def scan(self, server: int, request: Any) -> list[Any]:
        """Return the chunks of one answer; Refused."""
        leads = server == self.leader(request.tablet_id)
        now = self.clock(server, max(request.propagated_time, request.snapshot_time))
        safe = self._safe[request.tablet_id]
        if leads:
            safe[server] = now
        if request.staleness_us:
            needed = request.snapshot_time or time_needed(now, request.staleness_us, request.propagated_time)
            if safe[server] < needed:
                raise too_old(now, safe[server], request.staleness_us)
        elif not leads:
            raise Refused(Code.NOT_LEADER, "a follower")
        at = request.snapshot_time or safe[server]
        seen = [value for time, value in self._written[request.tablet_id] if time <= at]
        if request.count_only:
            rows, schema = [{"count": len(seen)}], COUNT
        else:
            rows, schema = [{"k": request.tablet_id, "v": value} for value in seen[-1:]], SCHEMA.arrow
        batch = pa.RecordBatch.from_pylist(rows, schema)
        return [
            pb.ScanChunk(arrow_schema=schema.serialize().to_pybytes(), snapshot_time=at),
            pb.ScanChunk(arrow_batch=batch.serialize().to_pybytes(), rows=batch.num_rows, snapshot_time=at),
            pb.ScanChunk(snapshot_time=at, last=True),
        ]


class _Stub:
    def __init__(self, tablets: PlayedTablets, server: int) -> None:
        self._tablets, self._server = tablets, server

    def Scan(self, request: Any, timeout: float) -> _Stub:
        self.chunks = self._tablets.scan(self._server, request)
        return self

    def ServerTime(self, request: Any, timeout: float) -> Any:
        time = self._tablets.clock(self._server, request.propagated_time)
        led = [t for t in request.tablet_ids if self._tablets.leader(t) == self._server]
        return pb.ServerTimeReply(hybrid_time=time, led=led)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.chunks)

    def cancel(self) -> None: ...


class PlayedCalls(TabletCalls):
    """One client's calls: the times that it has seen are kept by the product, the way to the servers is the test's."""

    def __init__(self, tablets: PlayedTablets) -> None:
        super().__init__(Channels(), Locator(lambda name: []), ClientOptions(scan_parallel_max=1))
        self._tablets = tablets

    def at_leader(  # type: ignore[override]
        self, table_name: str, tablet_id: str, ask: Callable[[Any, str, float], Any], *, deadline: Deadline
    ) -> Any:
        return ask(_Stub(self._tablets, self._tablets.leader(tablet_id)), "uuid", 1.0)

    def at_any(
        self, table_name: str, tablet_id: str, ask: Callable[[Any, str, float], Any], *, deadline: Deadline
    ) -> Any:
        leader = self._tablets.leader(tablet_id)
        others = [server for server in range(REPLICAS) if server != leader]
        self._tablets.rng.shuffle(others)
        for server in others:
            try:
                return ask(_Stub(self._tablets, server), "uuid", 1.0)
            except Refused as e:
                if e.code is not Code.LAGGING:
                    raise
        return ask(_Stub(self._tablets, leader), "uuid", 1.0)


class PlayedClient:
    """The part of `Client` that reads, and what it has seen, over these tablets."""

    def __init__(self, tablets: PlayedTablets) -> None:
        self._tablets = tablets
        self.calls = PlayedCalls(tablets)
        self.scans = Scans(self.calls)
        self.observe = self.calls.observe
        self.agree_read_time = tablets.agreed.agree_read_time
        self.catalog_position = tablets.agreed.catalog_position

    @property
    def time_seen(self) -> int:
        return self.calls.time_seen

    def write(self, tablet_id: str, value: int) -> int:
        """Write, and remember the time as a writer does."""
        at = self._tablets.write(tablet_id, value, self.time_seen)
        self.observe(at)
        return at

    def snapshot_time(
        self, handle: TableHandle, staleness_us: int = 0, tablets: Sequence[TabletHandle] | None = None
    ) -> int:
        if staleness_us:
            return self.scans.time_of_staleness(handle, staleness_us, tablets)
        return self.scans.time_now(handle, tablets)

    def scan_tablet(self, handle: TableHandle, tablet: TabletHandle, spec: Any) -> Any:
        return self.scans.tablet(handle, tablet, spec)
