"""What heartbeats tell: which servers live, which replicas they hold. Never persisted; rebuilt after a failover."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from nyala.replica.base import Address, Code, DataState, Member, OpId, RaftConfig, Refused, ReplicaError, limits
from nyala.replica.policy import RENEW_AGAIN_US, RENEW_US
from nyala.replica.rpc import addresses_from_pb, config_from_pb, pb, place_to_pb

_log = logging.getLogger("nyala.master")

OPEN = ("CONFIGURING", "RUNNING")
"""Phases of a replica that has replayed its log: from then on its leader can be in touch with it."""

AVOID_US_FIRST = 60_000_000
AVOID_US_MAX = 600_000_000
"""For how long a server where copies fail is avoided after they were last reported; twice as long each time."""

LIVE = (DataState.READY, DataState.COPYING)
"""States of a replica that has data, or is getting it."""


@dataclass
class ServerState:
    """One tablet server as of its last heartbeat. Times of the monotonic clock, in microseconds."""

    uuid: str
    addresses: tuple[Address, ...]
    last_heard_us: int
    process: int = 0
    sequence: int = 0
    """Of the last heartbeat that was taken in; 0: its build numbers none."""
    booting: bool = False
    location: str = ""
    memory_bytes: int = 0
    disk_bytes_free: int = 0
    version: str = ""
    tablets_max: int = 0
    loop_lag_ms_max: float = 0.0
    gil_hold_ms_max: float = 0.0
    replicas: dict[str, pb.ReplicaStatus] = field(default_factory=dict)
    ready_us: dict[str, int] = field(default_factory=dict)
    """By tablet: since when its replica has been reported as READY without a break."""
    open_us: dict[str, int] = field(default_factory=dict)
    """By tablet: since when its replica has been reported as open without a break, by a server that had started."""
    reported: bool = False
    """Whether a full report has arrived: only then does a missing replica mean anything."""
    copies_failing: dict[str, pb.FailingCopy] = field(default_factory=dict)
    """By tablet, as of the last heartbeat."""
    avoid_us: int = 0
    avoided_until_us: int = 0

    @property
    def member(self) -> Member:
        """How it would stand in a config."""
        return Member(self.uuid, self.addresses)

    def copies_fail(self, tablet_id: str) -> bool:
        """Whether copies of the tablet into this server fail again and again, for its own reasons."""
        failing = self.copies_failing.get(tablet_id)
        return failing is not None and failing.failures >= limits.COPY_FAILURES_MAX

    def hear_of_copies(self, failing: Iterable[pb.FailingCopy], now_us: int) -> None:
        """Take in which copies fail, and avoid the server for a while if one did too often."""
        self.copies_failing = {f.tablet_id: f for f in failing}
        if any(map(self.copies_fail, self.copies_failing)):
            if now_us >= self.avoided_until_us:
                self.avoid_us = min(max(2 * self.avoid_us, AVOID_US_FIRST), AVOID_US_MAX)
            self.avoided_until_us = now_us + self.avoid_us
        elif now_us - self.avoided_until_us > AVOID_US_MAX:
            self.avoid_us = 0


@dataclass
class TabletState:
    """One tablet as its members report it."""

    config: RaftConfig | None = None
    """The committed config of the highest OpId that anybody reported."""
    left: set[str] = field(default_factory=set)
    """Servers that one of these configs had and a later one has not, with a live replica as far as they said."""
    leader_uuid: str = ""
    leader_term: int = -1
    leader_heard_us: int = 0
    leader_status: pb.ReplicaStatus | None = None


def newer(a: OpId, b: OpId) -> bool:
    """Whether `a` is the later committed position, in Raft's order: a config that was forced upon a survivor has a
    higher term than what the lost members committed, and perhaps a lower index."""
    return a > b


class SoftState:
    """Servers and tablets as reported since this master began to lead.

    Invariants: a tablet's config never goes back; its leader is that of the highest term reported; who left a config
    is no member of the newest one.
    Concurrency: the loop's thread.
    """

    def __init__(self, now_us: int) -> None:
        self.since_us = now_us
        """Since when anybody could have been heard."""
        self.renewals: dict[tuple[str, str], OpId] = {}
        """By server and tablet, the damaged replicas to be copied anew in their place, and as of which config."""
        self._renewed_us: dict[tuple[str, str], int] = {}
        self.servers: dict[str, ServerState] = {}
        self.tablets: dict[str, TabletState] = {}

    def reset(self, now_us: int) -> None:
        """Forget everything: a new term of leadership begins blind."""
        self.__init__(now_us)  # type: ignore[misc]

    def heartbeat(self, request: pb.HeartbeatRequest, now_us: int) -> bool:
        """Take one heartbeat in; returns whether a full report is needed.

        Refused CAS_FAILED for one that a later one of the same process has overtaken: what it tells is past.
        """
        server = self.servers.get(request.server_uuid)
        if server is None:
            server = self.servers[request.server_uuid] = ServerState(request.server_uuid, (), now_us)
        if request.process != server.process:
            # The server has started again; or an earlier process's word came late, and the living one repeats itself.
            server.reported = False
        elif request.process and request.sequence <= server.sequence:
            what = "a later heartbeat of this server has come before"
            raise Refused(Code.CAS_FAILED, what, sequence=request.sequence, last=server.sequence)
        server.process, server.sequence = request.process, request.sequence
        server.last_heard_us = now_us
        server.addresses = addresses_from_pb(request.addresses) or server.addresses
        server.booting = request.booting
        server.location = request.location
        server.memory_bytes = request.memory_bytes
        server.disk_bytes_free = request.disk_bytes_free
        server.version = request.version
        server.tablets_max = request.tablets_max
        server.loop_lag_ms_max = request.loop_lag_ms_max
        server.gil_hold_ms_max = request.gil_hold_ms_max
        server.hear_of_copies(request.copies_failing, now_us)
        if request.full_report:
            for gone in set(server.replicas) - {r.tablet_id for r in request.replicas}:
                self._forget(server, gone)
            server.reported = True
        if server.reported:
            for replica in request.replicas:
                self._take(server, replica, now_us)
            for replica in server.replicas.values():
                self._hear_leader(server, replica, now_us)
                if replica.phase in OPEN and not server.booting:
                    server.open_us.setdefault(replica.tablet_id, now_us)
                else:
                    server.open_us.pop(replica.tablet_id, None)
        return not server.reported

    def renew(self, wanted: Mapping[tuple[str, str], OpId], now_us: int) -> None:
        """Order what is wanted, each for a moment and then not again for a while: where copies succeed and their files
        go bad at once, nothing is gained by haste, and what is put aside takes room."""
        for key in wanted:
            if now_us - self._renewed_us.get(key, now_us - RENEW_AGAIN_US) >= RENEW_AGAIN_US:
                self._renewed_us[key] = now_us
        self.renewals = {k: v for k, v in wanted.items() if now_us - self._renewed_us[k] < RENEW_US}

    def renewal_ages(self, now_us: int) -> dict[tuple[str, str], int]:
        """Since when the last order to renew each replica was said first; one is known while the replica is damaged."""
        self._renewed_us = {
            (uuid, tablet_id): at
            for (uuid, tablet_id), at in self._renewed_us.items()
            if now_us - at < RENEW_AGAIN_US or ((known := self.replica(uuid, tablet_id)) is not None and known.damaged)
        }
        return {k: now_us - at for k, at in self._renewed_us.items()}

    def places(self, uuids: Iterable[str]) -> list[pb.ServerPlace]:
        """Where these servers said last that they listen; of those that were heard of, a bounded number."""
        known = (self.servers.get(uuid) for uuid in islice(uuids, limits.PEERS_SOUGHT_MAX))
        return [place_to_pb(s.uuid, s.addresses) for s in known if s is not None and s.addresses]

    def _forget(self, server: ServerState, tablet_id: str) -> None:
        del server.replicas[tablet_id]
        server.ready_us.pop(tablet_id, None)
        server.open_us.pop(tablet_id, None)
        state = self.tablets.get(tablet_id)
        if state is None:
            return
        state.left.discard(server.uuid)
        if state.leader_uuid == server.uuid:
            state.leader_uuid, state.leader_status = "", None

    def _take(self, server: ServerState, replica: pb.ReplicaStatus, now_us: int) -> None:
        server.replicas[replica.tablet_id] = replica
        state = self.tablets.setdefault(replica.tablet_id, TabletState())
        if replica.data_state == DataState.READY:
            server.ready_us.setdefault(replica.tablet_id, now_us)
        else:
            server.ready_us.pop(replica.tablet_id, None)
        if replica.data_state not in LIVE:
            state.left.discard(server.uuid)
        if replica.HasField("committed_config") and replica.committed_config.members:
            try:
                config = config_from_pb(replica.committed_config)
            except ReplicaError:
                return  # a report that contradicts itself tells nothing
            if state.config is None or newer(config.opid, state.config.opid):
                before = {m.uuid for m in state.config.members} if state.config is not None else set()
                leaving = (state.left | before) - {m.uuid for m in config.members}
                state.left = {u for u in leaving if self._is_live(u, replica.tablet_id)}
                state.config = config
        leads = replica.role == "LEADER"
        if leads and replica.term >= state.leader_term:
            state.leader_uuid, state.leader_term, state.leader_status = server.uuid, replica.term, replica
            state.leader_heard_us = now_us
        elif state.leader_uuid == server.uuid and not leads:
            state.leader_uuid, state.leader_status = "", None
        if not state.leader_uuid and replica.leader_uuid and replica.term >= state.leader_term:
            state.leader_uuid, state.leader_term = replica.leader_uuid, replica.term

    def _is_live(self, uuid: str, tablet_id: str) -> bool:
        replica = self.replica(uuid, tablet_id)
        return replica is not None and replica.data_state in LIVE

    def _hear_leader(self, server: ServerState, replica: pb.ReplicaStatus, now_us: int) -> None:
        """A heartbeat that leaves a leading replica out says that nothing about it changed."""
        state = self.tablets.get(replica.tablet_id)
        if state is not None and replica.role == "LEADER" and state.leader_uuid == server.uuid:
            state.leader_heard_us = now_us

    def silent_us(self, uuid: str, now_us: int) -> int:
        """For how long nothing was heard of the server, counted from the beginning of this leadership at most."""
        server = self.servers.get(uuid)
        return now_us - max(self.since_us, server.last_heard_us if server else 0)

    def replica(self, uuid: str, tablet_id: str) -> pb.ReplicaStatus | None:
        """What the server last said of its replica."""
        server = self.servers.get(uuid)
        return server.replicas.get(tablet_id) if server else None

    def leaders_word(self, tablet_id: str, uuid: str) -> pb.PeerHealth | None:
        """What the tablet's leader last said of its peer `uuid`."""
        state = self.tablets.get(tablet_id)
        peers = state.leader_status.peers if state is not None and state.leader_status is not None else ()
        return next((p for p in peers if p.uuid == uuid), None)


class Foreigners:
    """Tablet servers of another cluster that send heartbeats here. They are told off and shown, and nothing else.

    A master that lost its catalog is of a new cluster: then these are all its servers, with all the data.
    Concurrency: the loop's thread.
    """

    MAX = 1000
    AWAY_US = 60_000_000

    def __init__(self) -> None:
        self._heard: dict[str, tuple[pb.ServerInfo, int]] = {}

    def note(self, request: pb.HeartbeatRequest, now_us: int) -> None:
        """One of them was heard."""
        if request.server_uuid not in self._heard:
            _log.error(
                "tablet server %s belongs to cluster %s and is refused; if this master has lost its data, stop it and "
                "bring its directory back",
                request.server_uuid,
                request.cluster_id,
            )
            if len(self._heard) >= self.MAX:
                self._heard.pop(next(iter(self._heard)))
        info = pb.ServerInfo(
            uuid=request.server_uuid,
            addresses=request.addresses,
            alive=True,
            location=request.location,
            version=request.version,
            cluster_id=request.cluster_id,
        )
        self._heard[request.server_uuid] = (info, now_us)

    def infos(self, now_us: int) -> list[pb.ServerInfo]:
        """Those heard lately."""
        self._heard = {u: held for u, held in self._heard.items() if now_us - held[1] < self.AWAY_US}
        return [info for info, _ in self._heard.values()]
