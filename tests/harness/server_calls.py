"""Every service of two tablet servers in this process, called without a network, and everything that a call could
change."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nyala.replica.consensus_metadata import path_of
from nyala.replica.raft import Role
from nyala.replica.raft_driver import Phase, Replica
from nyala.replica.rpc import config_to_pb, member_to_pb, pb
from nyala.replica.server.requests.quiescing import Quiescing
from nyala.replica.server.requests.scans import Scans
from nyala.replica.server.requests.tablet_service import TabletServicer
from nyala.replica.server.requests.writes import Writes
from nyala.replica.server.runtime.gil_watch import GilWatch
from nyala.replica.server.runtime.lanes import drained
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.tablets.hosted import HostedTablet
from nyala.replica.tablet import superblock_path
from nyala.replica.transport import PeerServicer
from nyala.replica.types import Address, DataState
from tests.harness.copies import TABLET, TestClock
from tests.harness.links import trusting
from tests.harness.patience import patience_s
from tests.harness.request_table import State
from tests.harness.rows import batch, table_info, write_request
from tests.harness.server_pair import Pair, PairedServer, identity_of, run_pair, until

NOBODY = "f" * 32
"""The uuid of a server that does not exist."""


class _Calls:
    """The services of one server."""

    def __init__(self, server: PairedServer) -> None:
        self.server = server
        manager, memory = server.manager, MemoryGuard(1 << 40, lambda: 0)
        self.places: dict[str, Address] = {}
        self._pool = ThreadPoolExecutor(1)

        async def nobody_leads(replica: Any, time: int) -> None:
            return

        self.scans = Scans(manager.hybrid_clock, 2, nobody_leads, manager.damaged, quiescing=lambda: manager.quiescing)
        self.quiescing = Quiescing(manager, lambda: self.scans.under_way)
        tablets = TabletServicer(
            manager=manager,
            writes=Writes(memory, self._pool, self.scans.observe, lambda: None),
            scans=self.scans,
            maintenance=server.maintenance,
            hybrid_clock=manager.hybrid_clock,
            grant_ticket=server.grant_ticket,
            microtasks=manager.post.microtasks,
            gil=GilWatch(),
            identity=identity_of(server.uuid),
            quiescing=self.quiescing,
        )
        peers = PeerServicer(server.uuid, manager.deliver, trusting(self.places.__setitem__))
        self.services = {"TabletService": tablets, "CopyService": server.copies, "PeerService": peers}

    def close(self) -> None:
        self.scans.close()
        self._pool.shutdown()


class ServerWorld:
    """`first` leads a tablet alone, `other` is blank unless the row changes that. No message goes between them, unless
    `pair.cut` is lifted; copies do."""

    def __init__(self, pair: Pair, at: str, clock: TestClock) -> None:
        self.pair = pair
        self.clock = clock
        pair.cut = True
        self._calls = {"first": _Calls(pair.leader), "other": _Calls(pair.other)}
        self._at = at or "first"
        self.uuid = self._calls[self._at].server.uuid
        self.strangers = [c.server.uuid for name, c in self._calls.items() if name != self._at]
        self.told: dict[str, Any] = {}
        """The values that the row keeps for its later requests."""
        self.held, self._go = threading.Event(), threading.Event()

    def services(self) -> dict[str, Any]:
        """Return the services of the row's server, by name."""
        return dict(self._calls[self._at].services)

    def quiescing(self, at: str) -> Quiescing:
        """Return the part of a server that hands leaderships over; nothing runs it."""
        return self._calls[at].quiescing

    async def call(self, service: str, method: str, request: Any, at: str = "") -> Any:
        """Return the reply, or its last chunk."""
        answer = getattr(self._calls[at or self._at].services[service], method)(request, None)
        if hasattr(answer, "__aiter__"):
            return [chunk async for chunk in answer][-1]
        return await answer

    async def done(self, service: str, method: str, request: Any, at: str = "") -> Any:
        """Return the reply of a call that must be carried out."""
        reply = await self.call(service, method, request, at)
        assert not reply.error.code, (method, reply.error)
        return reply

    def close(self) -> None:
        self._go.set()
        for calls in self._calls.values():
            calls.close()

    def hold_copies(self) -> None:
        """Make the next request for a file's bytes wait until the world ends."""

        def wait(request: Any) -> None:
            self.held.set()
            self._go.wait(patience_s(60))

        self.pair.on_request = wait

    # ------------------------------------------------------------------------------------------------------- requests

    def opid(self, at: str = "") -> Any:
        """Return the position of the committed config."""
        replica = self._calls[at or self._at].server.manager.get(TABLET).replica
        assert replica is not None
        return config_to_pb(replica.committed_config).opid

    def leads(self, tablet_id: str) -> bool:
        """Return whether the row's server leads."""
        replica = self._calls[self._at].server.manager.get(tablet_id).replica
        return replica is not None and replica.is_leader and replica.phase is Phase.RUNNING

    def takes_writes(self, at: str) -> bool:
        """Return whether the server leads the tablet, and has committed an entry of its term."""
        replica = self._calls[at].server.manager.get(TABLET).replica
        if replica is None or not replica.is_leader:
            return False
        return replica.last_logged.term == replica.term and replica.commit_index == replica.last_logged.index

    async def change(self, kind: str, letter: str) -> None:
        """Add or remove a member that does not exist."""
        edit = pb.ConfigEdit(kind=kind, member=learner(letter))
        await self.done(
            "TabletService", "ChangeConfig", pb.ChangeConfigRequest(dest_uuid=self.uuid, tablet_id=TABLET, edits=[edit])
        )

    async def write(self, keys: list[int], value: str, **fields: Any) -> None:
        """Make an acknowledged write at `first`."""
        rows = batch(keys, [value] * len(keys), first_offset=fields.pop("first_offset", 0))
        await self.done("TabletService", "Write", write_request(self.pair.leader.uuid, TABLET, rows, **fields), "first")

    def creation(self, tablet_id: str, table_id: str = "t1") -> Any:
        """Return a request for a new tablet on the server alone."""
        server = self._calls[self._at].server
        config = pb.RaftConfig(members=[member_to_pb(server.member())])
        return pb.CreateTabletRequest(
            dest_uuid=self.uuid, tablet_id=tablet_id, table=table_info(table_id), config=config, leader_hint=self.uuid
        )

    # ---------------------------------------------------------------------------------------------------------- state

    async def state(self) -> State:
        """Return everything that a call could change, once what is under way has ended."""
        for calls in self._calls.values():
            for hosted in list(calls.server.manager.tablets.values()):
                await drained(hosted.lane)
                await drained(hosted.meta_lane)
        await until(self._settled, "everything is committed, applied and saved")
        parts: dict[str, dict[str, Any]] = {}
        for name, calls in self._calls.items():
            for part, value in _state_of(calls).items():
                parts.setdefault(part, {})[name] = value
        return dict(parts)

    def _settled(self) -> bool:
        for calls in self._calls.values():
            for hosted in calls.server.manager.tablets.values():
                replica, cmeta = hosted.replica, hosted.cmeta
                if hosted.opening or (hosted.copy is not None and not self.held.is_set()):
                    return False
                if replica is None or cmeta is None or not hosted.running:
                    continue
                if cmeta.committed_config != replica.committed_config or replica.applied_index != replica.commit_index:
                    return False
                if replica.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
                    return False
                if replica.is_leader and replica.last_logged.term != replica.term:
                    return False  # its first entry is still on the way
                if replica.is_leader and replica.commit_index != replica.last_logged.index:
                    return False
        return all(self._followed(hosted.replica) for hosted in self._hosted() if hosted.replica is not None)

    def _hosted(self) -> Iterator[HostedTablet]:
        for calls in self._calls.values():
            yield from calls.server.manager.tablets.values()

    def _followed(self, leader: Replica) -> bool:
        """Return whether all that follow it in its term have its log, and know that it is committed."""
        others = (h.replica for h in self._hosted() if h.running and h.tablet_id == leader.tablet_id)
        return not leader.is_leader or all(
            (other.last_logged, other.commit_index) == (leader.last_logged, leader.commit_index)
            for other in others
            if other is not None and other.term == leader.term and leader.active_config.member(other.uuid) is not None
        )


def learner(letter: str, port: int = 1) -> Any:
    """Return a member without a vote that does not exist."""
    return pb.Member(uuid=letter * 32, holds_data=True, addresses=[pb.Address(host="127.0.0.1", port=port)])


def _state_of(calls: _Calls) -> dict[str, Any]:
    manager, disk = calls.server.manager, calls.server.disk
    hosted = dict(sorted(manager.tablets.items()))
    replicas = {t: h.replica for t, h in hosted.items() if h.replica is not None and h.running}
    return {
        "the data states": {t: h.data_state for t, h in hosted.items()},
        "superblocks": {t: _read(disk, superblock_path(t)) for t in hosted},
        "consensus metadata": {t: _read(disk, path_of(t)) for t in hosted},
        "terms and roles": {t: (h.term, str(h.replica.role) if h.replica else "") for t, h in hosted.items()},
        "the log's end": {
            t: (h.last_opid, replicas[t].commit_index if t in replicas else 0) for t, h in hosted.items()
        },
        "members": {t: (r.committed_config, r.active_config) for t, r in replicas.items()},
        "rows": {t: _rows(h) for t, h in hosted.items()},
        "ledgers": {t: h.tablet.ledger_sources() for t, h in hosted.items() if h.tablet is not None and t in replicas},
        "files": [path for path in disk.files if not path.startswith("replay/")],
        "copies": [(j.tablet_id, j.progress.phase) for j in calls.server.jobs.running()],
        "sessions": [(s.tablet_id, s.requestor_uuid) for s in manager.sessions.sessions()],
        "addresses": (dict(calls.server.places), dict(calls.places)),
        "quiescing": manager.quiescing,
        "the clock": manager.hybrid_clock.ahead_of_wall_us() // 1_000_000,
    }


def _read(disk: Any, path: str) -> bytes | None:
    return disk.read(path) if disk.exists(path) else None


def _rows(hosted: Any) -> dict[int, str]:
    if hosted.tablet is None or hosted.data_state is not DataState.READY or not hosted.running:
        return {}
    found: dict[int, str] = {}
    for rows in hosted.tablet.scan():
        found.update(zip(rows.column("k").to_pylist(), rows.column("v").to_pylist(), strict=True))
    return found


def run_server(scenario: Callable[[ServerWorld], Awaitable[None]], at: str = "first") -> None:
    """Run `scenario` with a world of two servers and the calls of the one `at`."""
    clock = TestClock()

    async def all_of_it(pair: Pair) -> None:
        world = ServerWorld(pair, at, clock)
        try:
            await scenario(world)
        finally:
            world.close()

    run_pair(all_of_it, clock)
