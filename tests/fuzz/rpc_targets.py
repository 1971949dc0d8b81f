"""Every call of tablet servers and masters: a world within this process, and requests as they come from gRPC."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from nyala.replica.rpc import pb
from tests.fuzz.handlers import Handlers, request_class
from tests.fuzz.spoil_proto import spoilt_message
from tests.fuzz.target import Broken, Scenario, Target
from tests.harness.catalogs import table_info
from tests.harness.master_calls import MasterWorld
from tests.harness.request_table import Row
from tests.harness.rows import batch, write_request
from tests.harness.server_calls import ServerWorld, run_server
from tests.harness.server_pair import until
from tests.unit.master import test_master_requests_table as of_master
from tests.unit.server import test_server_requests_table as of_server

GUARD = "guard"
GUARD_ROWS = {key: f"row {key}" for key in range(40)}
PLACEHOLDERS = [f"{letter}0" * 16 for letter in "567890"]
"""They replace ids that each world makes anew, and are as long as those."""
PORTS = (61_001, 61_002)
"""They replace the ports at which the servers of a world listen; as fields of a message they are as long as those."""


def port_bytes(port: int) -> bytes:
    """Return the port as a message about an address contains it: one byte for the field, then three for any port."""
    return bytes((2 << 3, port & 0x7F | 0x80, port >> 7 & 0x7F | 0x80, port >> 14))


def _requests(row: Row, world: Any) -> list[Any]:
    """Return the row's good request, and those from another time."""
    stale = [] if isinstance(row.stale, str) else [each.request(world) for each in row.stale]
    return [row.good(world), *stale]


class _Calls:
    """A session of one call. `ids`, `ports`: those that this world made up."""

    def __init__(
        self,
        row: Row,
        services: dict[str, Any],
        requests: Sequence[Any],
        ids: Sequence[str],
        ports: Sequence[int] = (),
    ) -> None:
        self._row = row
        self.handlers = Handlers(services)
        self._class = request_class(row.call)
        self._ids = [(p.encode(), i.encode()) for p, i in zip(PLACEHOLDERS, ids, strict=False)]
        self._ids += [(port_bytes(p), port_bytes(own)) for p, own in zip(PORTS, ports, strict=False)]
        self.seeds = [self.placed(request.SerializeToString()) for request in requests]
        self._others = [self._class.FromString(seed) for seed in self.seeds]

    def placed(self, data: bytes) -> bytes:
        """Return the input with placeholders."""
        for placeholder, own in self._ids:
            data = data.replace(own, placeholder)
        return data

    def mutate(self, rng: random.Random) -> bytes:
        return spoilt_message(self._class, self.seeds, rng, self._others)

    def own(self, data: bytes) -> bytes:
        """Return the input with this world's own ids."""
        for placeholder, own in self._ids:
            data = data.replace(placeholder, own)
        return data

    async def deliver(self, data: bytes) -> None:
        await self.handlers.call(*self._row.names, self.own(data))

    def close(self) -> None:
        self.handlers.close()

    async def check(self) -> None:
        """Check that nothing is under way any more."""
        if self.handlers.calls_under_way:
            raise Broken(f"{self.handlers.calls_under_way} calls are still counted")


class ServerCalls(_Calls):
    """A session of one call of a tablet server, with a tablet that nothing else changes. `ids`: as `_Calls`."""

    def __init__(self, row: Row, world: ServerWorld, ids: Sequence[str] = ()) -> None:
        ids = ids or ([world.told["session"]] if "session" in world.told else [])
        ports = [server.address.port for server in (world.pair.leader, world.pair.other)]
        super().__init__(row, world.services(), _requests(row, world), ids, ports)
        self.world = world
        self._written = 0

    async def begin(self) -> None:
        """Check that the guard's rows are there."""
        await self._done("CreateTablet", self.world.creation(GUARD))
        await until(lambda: self.world.leads(GUARD), "the server leads the guard's tablet")
        await self._done("Write", self._write(list(GUARD_ROWS), list(GUARD_ROWS.values())))
        self._end = self._hosted().last_opid

    def _write(self, keys: list[int], values: list[str]) -> Any:
        return write_request(self.world.uuid, GUARD, batch(keys, values))

    def _hosted(self) -> Any:
        return self.world.services()["TabletService"]._manager.get(GUARD)

    async def _done(self, method: str, request: Any) -> None:
        await self.handlers.done("TabletService", method, request)

    async def check(self) -> None:
        await super().check()
        world = self.world
        if world.pair.fatal:
            raise Broken(f"the server would have ended: {world.pair.fatal!r}") from world.pair.fatal[0]
        hosted = self._hosted()
        if hosted.last_opid != self._end:
            raise Broken(f"the log of the guard's tablet ends at {hosted.last_opid}, not at {self._end}")
        rows = {}
        for found in hosted.tablet.scan():
            rows.update(zip(found.column("k").to_pylist(), found.column("v").to_pylist(), strict=True))
        wanted = GUARD_ROWS | ({1000: f"honest {self._written}"} if self._written else {})
        if rows != wanted:
            raise Broken(f"the guard's rows have changed: {rows.items() ^ wanted.items()}")
        self._written += 1
        await self._done("Write", self._write([1000], [f"honest {self._written}"]))
        self._end = hosted.last_opid


class _MasterCalls(_Calls):
    def __init__(self, row: Row, world: MasterWorld) -> None:
        super().__init__(row, world.services(), _requests(row, world), [world.table_id, world.tablet])
        self._world = world
        self._opened = 0

    async def _done(self, method: str, request: Any) -> Any:
        return await self.handlers.done("MasterService", method, request)

    async def begin(self) -> None:
        """Check that the guard's table is there."""
        request = pb.CreateTableRequest(table=table_info(name=GUARD, buckets=2), request_id="guard")
        self._guard = (await self._done("CreateTable", request)).table

    async def check(self) -> None:
        await super().check()
        if self._world.fatal:
            raise Broken(f"the master would have ended: {self._world.fatal!r}") from self._world.fatal[0]
        found = (await self._done("GetTable", pb.TableRequest(name=GUARD))).table
        if found != self._guard:
            raise Broken(f"the guard's table has changed: {found}")
        self._opened += 1
        source = pb.SourceKey(cluster_id="guard", topic_id="guard", kafka_partition=self._opened)
        opens = [pb.SourceOpen(source=source, topic="guard")]
        await self._done("OpenSources", pb.OpenSourcesRequest(table=GUARD, owner_run="guard", lease_us=1, opens=opens))


Made = Callable[[ServerWorld], Awaitable[ServerCalls]]


def within_server(row: Row, scenario: Scenario, made: Made | None = None) -> None:
    """Run the scenario with a session of that call, or with the one that `made` returns."""

    async def life(world: ServerWorld) -> None:
        await row.prepare(world)
        session = await made(world) if made is not None else ServerCalls(row, world)
        try:
            await session.begin()
            await scenario(session)
        finally:
            session.close()

    run_server(life, row.at)


def _within_master(row: Row, scenario: Scenario) -> None:
    async def life(world: MasterWorld) -> None:
        await row.prepare(world)
        session = _MasterCalls(row, world)
        try:
            await session.begin()
            await scenario(session)
        finally:
            session.close()

    of_master.run(life)


def row_of_server(call: str) -> Row:
    """Return the table's row of that call."""
    return next(row for row in of_server.ROWS if row.call == call)


def targets() -> list[Target]:
    """Return one target for every call."""
    found: list[Target] = []
    for kind, rows, within in (("server", of_server.ROWS, within_server), ("master", of_master.ROWS, _within_master)):
        found += [Target(name=f"{kind}/{row.call}", within=partial(within, row)) for row in rows]
    return found
