"""What heartbeats tell: which servers live, which replicas they hold. Never persisted; rebuilt after a failover."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from nyala.replica.policy import RENEW_AGAIN_US, RENEW_US
from nyala.replica.rpc import addresses_from_pb, pb, tablet_report_from_pb
from nyala.replica.types import (
    Address,
    Code,
    DataState,
    Member,
    OpId,
    PeerReport,
    RaftConfig,
    Refused,
    ResourceUse,
    TabletReport,
    limits,
)

from .belief import believed, check_report, config_told, doubt, may_lead, newer
from .report_limits import ReportMemory, StatusRate

_log = logging.getLogger("nyala.master")

OPEN = ("CONFIGURING", "RUNNING")
"""Phases of a replica that has replayed its log: from then on its leader can be in touch with it."""

AVOID_US_FIRST = 60_000_000
AVOID_US_MAX = 600_000_000
"""For how long a server where copies fail is avoided after they were last reported; twice as long each time."""

SERVER_SILENT_US = 3_600_000_000
"""A server of no tablet that was silent for so long gives its place to another one, if all places are taken."""

DOUBT_US = 5_000_000
"""A new member may tell of the config that added it before the others do: shown is what stays so for this long."""

UNPROVEN_US = 10_000_000
"""A config is proven by answers to calls that take milliseconds. So long, the members were asked five times in vain."""
TELLERS_MAX = 5
"""Servers that tell of one unproven config, in a listing of tablets."""

LIVE = (DataState.READY, DataState.COPYING)
"""States of a replica that has data, or is getting it."""


class FailingCopy(NamedTuple):
    """How often copies of a tablet into a server failed one after the other, and why the last one did."""

    failures: int
    error: str


@dataclass
class ServerState:
    """One tablet server as of its last heartbeat. Times of the monotonic clock, in microseconds."""

    uuid: str
    addresses: tuple[Address, ...]
    last_heard_us: int
    peer: str = ""
    """The host that its heartbeats came from when it was admitted."""
    back_us: int = 0
    """Since when it is heard without a long silence."""
    process: int = 0
    sequence: int = 0
    """Of the last heartbeat that was taken in; 0: its build numbers none."""
    booting: bool = False
    location: str = ""
    memory_bytes: int = 0
    disk_bytes_free: int = 0
    version: str = ""
    feature_level: int = 1
    """The highest that its build knows."""
    finalized_level: int = 1
    """The cluster's, as far as it has heard."""
    tablets_max: int = 0
    loop_lag_ms_max: float = 0.0
    gil_hold_ms_max: float = 0.0
    open_files: ResourceUse = field(default_factory=ResourceUse)
    memory_maps: ResourceUse = field(default_factory=ResourceUse)
    rate: StatusRate = field(default_factory=StatusRate)
    replicas: dict[str, TabletReport] = field(default_factory=dict)
    ready_us: dict[str, int] = field(default_factory=dict)
    """By tablet: since when its replica has been reported as READY without a break."""
    open_us: dict[str, int] = field(default_factory=dict)
    """By tablet: since when its replica has been reported as open without a break, by a server that had started."""
    doubted_us: dict[str, int] = field(default_factory=dict)
    """By tablet: since when what it says of the tablet is not believed."""
    reported: bool = False
    """Whether a full report has arrived: only then does a missing replica mean anything."""
    heard_until: str = ""
    """Of a full report in slices: the last tablet id that it covers so far; empty: none is under way."""
    creations_after: str = ""
    deletions_after: str = ""
    """The tablets of the last orders that it was given: the next ones begin behind them."""
    copies_failing: dict[str, FailingCopy] = field(default_factory=dict)
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

    def update_failing_copies(self, failing: Iterable[pb.FailingCopy], now_us: int) -> None:
        """Take in which copies fail, and avoid the server for a while if one did too often.

        What a server sends is cut to what an honest one sends: it is shown in lists, each server within one message.
        """
        self.copies_failing = {
            f.tablet_id: FailingCopy(f.failures, f.error[: limits.COPY_ERROR_CHARS_MAX])
            for f in islice(failing, limits.COPIES_FAILING_MAX)
            if len(f.tablet_id) <= limits.ID_LENGTH_MAX
        }
        if any(map(self.copies_fail, self.copies_failing)):
            if now_us >= self.avoided_until_us:
                self.avoid_us = min(max(2 * self.avoid_us, AVOID_US_FIRST), AVOID_US_MAX)
            self.avoided_until_us = now_us + self.avoid_us
        elif now_us - self.avoided_until_us > AVOID_US_MAX:
            self.avoid_us = 0


@dataclass
class TabletState:
    """One tablet as its members report it."""

    known: RaftConfig
    """Of the catalog: the config from which belief begins."""
    told: dict[str, RaftConfig] = field(default_factory=dict)
    """By server, the committed config that it tells now."""
    config: RaftConfig | None = None
    """The committed config that is believed; None before a member of it has reported."""
    left: set[str] = field(default_factory=set)
    """Servers that one of these configs had and a later one has not, with a live replica as far as they said."""
    leader_uuid: str = ""
    leader_term: int = -1
    leader_heard_us: int = 0
    leader_status: TabletReport | None = None
    later: tuple[OpId, int] | None = None
    """If anybody tells of a config later than the catalog's: the believed position, and since when this is so."""


@dataclass(frozen=True)
class Unproven:
    """A config later than `known`, the catalog's, of which these servers tell; `believed`: a member of `known` does."""

    config: RaftConfig
    known: RaftConfig
    told_by: tuple[str, ...]
    since_us_ago: int
    believed: bool


def _tells_the_same(before: TabletReport, after: TabletReport) -> bool:
    """Whether nothing can follow from the config that `after` tells; most reports tell nothing new of it."""
    return before.config_wire == after.config_wire != b"" and before.term <= after.term


class SoftState:
    """Servers and tablets as reported since this master began to lead.

    Invariants: a tablet's config is never older than the catalog's; its leader is the voter that reported so in the
    highest term; who left a config is no member of the newest one. What a server says of a tablet changes nothing as
    long as it is no member of it, as far as is believed (`heartbeats/belief.py`).
    Concurrency: the loop's thread.
    """

    def __init__(
        self, now_us: int, known: Callable[[str], RaftConfig | None], *, long_silence_us: int = 15_000_000
    ) -> None:
        """`known(tablet)`: the last committed config of the catalog; None for a tablet that it does not have.

        `long_silence_us`: a server that is heard again after so long is back, and judges others only by what follows.
        """
        self._known = known
        self._long_silence_us = long_silence_us
        self.since_us = now_us
        """Since when anybody could have been heard."""
        self.renewals: dict[tuple[str, str], OpId] = {}
        """By server and tablet, the damaged replicas to be copied anew in their place, and as of which config."""
        self._renewed_us: dict[tuple[str, str], int] = {}
        self.servers: dict[str, ServerState] = {}
        self.room = ReportMemory()
        self.tablets: dict[str, TabletState] = {}

    def reset(self, now_us: int) -> None:
        """Forget everything: a new term of leadership begins blind."""
        self.__init__(now_us, self._known, long_silence_us=self._long_silence_us)  # type: ignore[misc]

    def admit(
        self,
        uuid: str,
        addresses: tuple[Address, ...],
        now_us: int,
        process: int = 0,
        *,
        peer: str = "",
        listed: bool = False,
    ) -> str:
        """A tablet server answered at these addresses, by this uuid; why there is no room for it, empty if there is.

        `process` counts from now on, also if its heartbeat is lost because the caller hung up. A server that was there
        before is there no longer: in no config of a tablet, it is forgotten. `peer`: the host that its heartbeats come
        from. `listed`: the masters know it there, so it takes no room of others.
        """
        for other in [s for s in self.servers.values() if s.uuid != uuid and set(s.addresses) & set(addresses)]:
            self._forget_server(other)
        server = self.servers.get(uuid)
        if not listed and (server is None or server.peer != peer):
            of_host = [s for s in self.servers.values() if s.peer == peer]
            if not self._has_room(of_host, limits.SERVERS_PER_HOST_MAX, now_us):
                return f"{limits.SERVERS_PER_HOST_MAX} tablet servers of its host count, and the masters take no more"
        if not listed and server is None and not self._has_room(self.servers.values(), limits.SERVERS_MAX, now_us):
            return f"the masters know {limits.SERVERS_MAX} tablet servers, and take no more"
        if server is None:
            server = self.servers[uuid] = ServerState(uuid, (), now_us, back_us=now_us)
        server.addresses, server.peer = addresses, peer
        if process != server.process:
            server.process, server.sequence = process, 0
            server.reported, server.heard_until = False, ""
        return ""

    def _has_room(self, servers: Collection[ServerState], most: int, now_us: int) -> bool:
        """Whether these are fewer than `most`, once one of no tablet that has been silent for long was forgotten."""
        if len(servers) < most:
            return True
        silent = min(servers, key=lambda s: s.last_heard_us)
        return now_us - silent.last_heard_us >= SERVER_SILENT_US and self._forget_server(silent)

    def _forget_server(self, server: ServerState) -> bool:
        """Whether the server is a member of no tablet, and so was forgotten."""
        if any(t.config is not None and t.config.member(server.uuid) is not None for t in self.tablets.values()):
            return False
        for tablet_id in list(server.replicas):
            self._forget(server, tablet_id)
        del self.servers[server.uuid]
        return True

    def heartbeat(self, request: pb.HeartbeatRequest, now_us: int) -> bool:
        """Take one heartbeat of a server that was admitted in; returns whether a full report is needed.

        Refused CAS_FAILED for one that a later one of the same process has overtaken: what it tells is past; OVERLOADED
        for one that comes too soon.
        """
        server = self.servers.get(request.server_uuid)
        if server is None:
            server = self.servers[request.server_uuid] = ServerState(request.server_uuid, (), now_us, back_us=now_us)
        if request.process != server.process:
            # The server has started again; or an earlier process's word came late, and the living one repeats itself.
            server.reported, server.heard_until = False, ""
        elif request.process and request.sequence <= server.sequence:
            what = "a later heartbeat of this server has come before"
            raise Refused(Code.CAS_FAILED, what, sequence=request.sequence, last=server.sequence)
        server.rate.take(len(request.replicas), now_us)
        check_report(request)
        server.process, server.sequence = request.process, request.sequence
        if now_us - server.last_heard_us > self._long_silence_us:
            server.back_us = now_us
        server.last_heard_us = now_us
        server.addresses = addresses_from_pb(request.addresses) or server.addresses
        server.booting = request.booting
        server.location = request.location
        server.memory_bytes = request.memory_bytes
        server.disk_bytes_free = request.disk_bytes_free
        server.version = request.version
        server.feature_level, server.finalized_level = max(request.feature_level, 1), max(request.finalized_level, 1)
        server.tablets_max = request.tablets_max
        server.loop_lag_ms_max = request.loop_lag_ms_max
        server.gil_hold_ms_max = request.gil_hold_ms_max
        server.open_files = ResourceUse(request.open_files.used, request.open_files.limit)
        server.memory_maps = ResourceUse(request.memory_maps.used, request.memory_maps.limit)
        server.update_failing_copies(request.copies_failing, now_us)
        covered = request.full_report and self._take_slice(server, request)
        if covered or (server.reported and not request.full_report):
            for replica in request.replicas:
                self._take(server, replica, now_us)
            for replica in server.replicas.values():
                self._hear_leader(server, replica, now_us)
                if replica.phase in OPEN and not server.booting:
                    server.open_us.setdefault(replica.tablet_id, now_us)
                else:
                    server.open_us.pop(replica.tablet_id, None)
        return not server.reported

    def _take_slice(self, server: ServerState, request: pb.HeartbeatRequest) -> bool:
        """Forget what a full report, or the next slice of one, leaves out; False for a slice that is not the next one,
        such as one that began under another master: the server begins where `heard_until` says."""
        after, until = request.slice_after, request.slice_until
        if after != server.heard_until and after:
            return False
        told = {r.tablet_id for r in request.replicas}
        for gone in [t for t in server.replicas if t > after and (not until or t <= until) and t not in told]:
            self._forget(server, gone)
        server.heard_until = until
        server.reported = server.reported or not until
        return True

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

    def places(self, uuids: Iterable[str]) -> list[Member]:
        """Where these servers said last that they listen; of those that were heard of, a bounded number."""
        known = (self.servers.get(uuid) for uuid in islice(uuids, limits.PEERS_SOUGHT_MAX))
        return [s.member for s in known if s is not None and s.addresses]

    def _forget(self, server: ServerState, tablet_id: str) -> None:
        self.room.give_back(server.uuid, server.replicas.pop(tablet_id))
        server.ready_us.pop(tablet_id, None)
        server.open_us.pop(tablet_id, None)
        server.doubted_us.pop(tablet_id, None)
        state = self.tablets.get(tablet_id)
        if state is None:
            return
        state.left.discard(server.uuid)
        state.told.pop(server.uuid, None)
        if state.leader_uuid == server.uuid:
            state.leader_uuid, state.leader_status = "", None
        self._settle(tablet_id, state)

    def _keep(self, server: ServerState, replica: TabletReport, known: RaftConfig | None) -> bool:
        """Keep what the server says of a replica; False if there is no room for it, and then nothing of it is kept."""
        tablet_id, before = replica.tablet_id, server.replicas.get(replica.tablet_id)
        state = self.tablets.get(tablet_id)
        believes = state.config if state is not None and state.config is not None else known
        strange = believes is None or believes.member(server.uuid) is None
        room = before is not None or len(server.replicas) < limits.REPLICAS_REPORTED_MAX
        if room and self.room.take(server.uuid, replica, before, strange=strange):
            server.replicas[tablet_id] = replica
            return True
        if before is not None:
            self._forget(server, tablet_id)
        return False

    def _take(self, server: ServerState, status: pb.ReplicaStatus, now_us: int) -> None:
        before = server.replicas.get(status.tablet_id)
        replica = tablet_report_from_pb(status, before)
        tablet_id, known = replica.tablet_id, self._known(replica.tablet_id)
        if not self._keep(server, replica, known):
            return
        if replica.data_state == DataState.READY:
            server.ready_us.setdefault(tablet_id, now_us)
        else:
            server.ready_us.pop(tablet_id, None)
        if known is None:
            return
        state = self.tablets.get(tablet_id)
        if state is None:
            state = self.tablets[tablet_id] = TabletState(known)
        if replica.data_state not in LIVE:
            state.left.discard(server.uuid)
        told_before = state.known is known and server.uuid in state.told
        if not told_before or before is None or not _tells_the_same(before, replica):
            told = config_told(replica)
            if told is not None:
                state.told[server.uuid] = told
            else:
                state.told.pop(server.uuid, None)
            state.known = known
            self._settle(tablet_id, state)
            self._note_later(state, now_us)
        self._hear_of_leader(state, server.uuid, replica, now_us)
        if self._doubt(server.uuid, replica):
            server.doubted_us.setdefault(tablet_id, now_us)
        else:
            server.doubted_us.pop(tablet_id, None)

    def _settle(self, tablet_id: str, state: TabletState) -> None:
        """What is believed of the config, by what members tell now; whom it makes a member is heard anew."""
        config = believed(state.known, state.told)
        before = state.config
        if config == before or not any(config.member(uuid) for uuid in state.told):
            return
        had = {m.uuid for m in before.members} if before is not None else set()
        leaving = (state.left | had) - {m.uuid for m in config.members}
        state.left = {u for u in leaving if self._is_live(u, tablet_id)}
        state.config = config
        if state.leader_uuid and not may_lead(config, state.leader_uuid):
            state.leader_uuid, state.leader_status, state.leader_term = "", None, -1
        for member in config.members:
            replica = self.replica(member.uuid, tablet_id)
            if replica is not None and replica.role == "LEADER":
                self._hear_of_leader(state, member.uuid, replica, self.servers[member.uuid].last_heard_us)

    @staticmethod
    def _note_later(state: TabletState, now_us: int) -> None:
        """Remember since when a config later than the catalog's is told: a believed one, or any."""
        believed_at = state.config.opid if state.config is not None else state.known.opid
        if not any(newer(c.opid, state.known.opid) for c in state.told.values()):
            state.later = None
        elif state.later is None or state.later[0] != believed_at:
            state.later = (believed_at, now_us)

    def unproven(self, tablet_id: str, now_us: int) -> Unproven | None:
        """The later config that servers have told of the tablet for a while, though it is not in the catalog: the
        believed one, or the last one that a stranger tells of; None if there is none."""
        state, known = self.tablets.get(tablet_id), self._known(tablet_id)
        if state is None or known is None or state.later is None or now_us - state.later[1] < UNPROVEN_US:
            return None
        later = [c for c in state.told.values() if newer(c.opid, known.opid)]
        believes = state.config is not None and newer(state.config.opid, known.opid)
        config = state.config if believes else max(later, key=lambda c: c.opid, default=None)
        if config is None:
            return None
        tellers = sorted(u for u, c in state.told.items() if c.opid == config.opid)[:TELLERS_MAX]
        return Unproven(config, known, tuple(tellers), now_us - state.later[1], believes)

    @staticmethod
    def _hear_of_leader(state: TabletState, uuid: str, replica: TabletReport, now_us: int) -> None:
        """Take in who leads: a voter by its own word, in a term that is not behind; or as another member says."""
        leads = replica.role == "LEADER" and may_lead(state.config, uuid)
        if leads and (replica.term >= state.leader_term or state.leader_uuid == uuid):
            state.leader_uuid, state.leader_term, state.leader_status = uuid, replica.term, replica
            state.leader_heard_us = now_us
        elif state.leader_uuid == uuid and not leads:
            # Its own word counts for the term too: a leader of a term that nobody has entered is none.
            state.leader_uuid, state.leader_status, state.leader_term = "", None, replica.term
        member = state.config is not None and state.config.member(uuid) is not None
        hint = replica.leader_uuid if member and may_lead(state.config, replica.leader_uuid) else ""
        if hint and not state.leader_uuid and replica.term >= state.leader_term:
            state.leader_uuid, state.leader_term = hint, replica.term

    def _is_live(self, uuid: str, tablet_id: str) -> bool:
        replica = self.replica(uuid, tablet_id)
        return replica is not None and replica.data_state in LIVE

    def _hear_leader(self, server: ServerState, replica: TabletReport, now_us: int) -> None:
        """A heartbeat that leaves a leading replica out says that nothing about it changed."""
        state = self.tablets.get(replica.tablet_id)
        if state is not None and replica.role == "LEADER" and state.leader_uuid == server.uuid:
            state.leader_heard_us = now_us

    def doubts(self, uuid: str, now_us: int) -> list[str]:
        """What the server has said of tablets for a while and is not believed, one text a tablet."""
        server = self.servers[uuid]
        found = []
        for tablet_id, since_us in sorted(server.doubted_us.items()):
            what = self._doubt(uuid, server.replicas[tablet_id])
            if what and now_us - since_us >= DOUBT_US:
                found.append(f"tablet {tablet_id}: {what}")
        return found

    def _doubt(self, uuid: str, replica: TabletReport) -> str:
        state = self.tablets.get(replica.tablet_id)
        if state is None:
            return ""
        return doubt(state.config, uuid, state.told.get(uuid), leads=replica.role == "LEADER")

    def silent_us(self, uuid: str, now_us: int) -> int:
        """For how long nothing was heard of the server, counted from the beginning of this leadership at most."""
        server = self.servers.get(uuid)
        return now_us - max(self.since_us, server.last_heard_us if server else 0)

    def missed_us(self, uuid: str, tablet_id: str, now_us: int) -> int:
        """For how long nothing was heard of the server while the tablet's leader was heard.

        Servers that were stopped or cut off together come back one after the other: the first ones say nothing of those
        that are still to come.
        """
        silent_us, state = self.silent_us(uuid, now_us), self.tablets.get(tablet_id)
        leader = self.servers.get(state.leader_uuid) if state is not None else None
        return silent_us if leader is None else min(silent_us, now_us - leader.back_us)

    def replica(self, uuid: str, tablet_id: str) -> TabletReport | None:
        """What the server last said of its replica."""
        server = self.servers.get(uuid)
        return server.replicas.get(tablet_id) if server else None

    def leaders_word(self, tablet_id: str, uuid: str) -> PeerReport | None:
        """What the tablet's leader last said of its peer `uuid`."""
        state = self.tablets.get(tablet_id)
        peers = state.leader_status.peers if state is not None and state.leader_status is not None else ()
        return next((p for p in peers if p.uuid == uuid), None)
