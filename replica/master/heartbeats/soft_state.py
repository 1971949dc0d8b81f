"""The live servers and their replicas, as their heartbeats report them. It is never persisted; a new leading master
collects it again."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice

from nyala.replica.policy import ORDER_AGAIN_US, ORDER_REPEATED_US
from nyala.replica.rpc import Reports
from nyala.replica.types import (
    Address,
    Code,
    DataState,
    FailingCopy,
    Heartbeat,
    Member,
    OpId,
    PeerReport,
    RaftConfig,
    Refused,
    ReportedReplica,
    limits,
)

from .belief import believed, doubt, may_lead, newer, reported_config
from .full_reports import FullReports
from .report_limits import ReportMemory, StatusRate

_log = logging.getLogger("nyala.master")

OPEN = ("CONFIGURING", "RUNNING")
"""The phases of a replica that has replayed its log, and so can take messages of its leader."""

AVOID_US_FIRST = 60_000_000
AVOID_US_MAX = 600_000_000
"""The longest time for which a server is avoided after its last report of failing copies; it doubles each time."""

SERVER_SILENT_US = 3_600_000_000
"""If a server needs a place, one without a tablet that has been silent for this time is forgotten."""

DOUBT_US = 5_000_000
"""Operators see a doubt after this time, because a new member may report the config that added it before the others
do."""

LEADER_SILENT_US = 5_000_000
"""If a known leader was not heard for this time, a server whose address is not proven may replace it. A server sends a
heartbeat each second."""

UNPROVEN_US = 10_000_000
"""Operators see an unproven config after this time. Calls to prove one take milliseconds, so five have failed by
then."""
TELLERS_MAX = 5
"""The most servers that a listing of tablets names as reporters of one unproven config."""

HEAR_FIRST_US = 60_000_000
"""For this time from the beginning of a leadership, ticks of the policy wait for full reports."""

LIVE = (DataState.READY, DataState.COPYING)
"""The states of a replica that has data, or is getting it."""


def _fails_often(copy: FailingCopy) -> bool:
    return copy.failures >= limits.COPY_FAILURES_MAX


@dataclass
class ServerState:
    """One tablet server, according to its last heartbeat. Times are microseconds of the monotonic clock."""

    uuid: str
    addresses: tuple[Address, ...]
    last_heard_us: int
    peer: str = ""
    """The host from which its heartbeats came when it was admitted."""
    listed: bool = False
    """Whether a config has it. If so, it does not count towards the bounds on servers."""
    back_us: int = 0
    """The time since which it has sent heartbeats without a long silence."""
    process: int = 0
    sequence: int = 0
    """The number of the last processed heartbeat; 0: its build has no numbers."""
    counted_us: int = 0
    """The time of the last heartbeat whose report counted. Its leading replicas were heard then, even those that it did
    not name."""
    counted_booting: bool = False
    """Whether it was booting then."""
    last_report: Heartbeat = field(default_factory=Heartbeat)
    """The server's report of itself, in its last processed heartbeat."""
    rate: StatusRate = field(default_factory=StatusRate)
    instead_of: tuple[Address, ...] = ()
    """Its addresses in the catalog, or if no config has it, its last proven ones. They are set while it counts at other
    addresses, where it may be another process that took its uuid. Empty: its address is proven."""
    placed_us: int = 0
    """The time since which it counts at its addresses."""
    replicas: dict[str, ReportedReplica] = field(default_factory=dict)
    ready_us: dict[str, int] = field(default_factory=dict)
    """By tablet: the time since which its replica has been reported as READY without a break."""
    open_us: dict[str, int] = field(default_factory=dict)
    """By tablet: the time since which its replica has been reported as open without a break, by a started server."""
    doubted_us: dict[str, int] = field(default_factory=dict)
    """By tablet: the time since which its report of the tablet is not believed."""
    strays: set[str] = field(default_factory=set)
    """The tablets with a replica here whose believed config does not have the server."""
    reported: bool = False
    """Whether a full report has arrived: before that, a replica may exist without a report."""
    heard_until: str = ""
    """The last tablet id that the slices of a full report cover so far; empty: no such report is under way."""
    creations_after: str = ""
    deletions_after: str = ""
    """The last tablet of the orders that it got: the next orders begin after it."""
    avoid_us: int = 0
    avoided_until_us: int = 0

    @property
    def member(self) -> Member:
        """The server as a member of a config."""
        return Member(self.uuid, self.addresses)

    @property
    def recorded_at(self) -> tuple[Address, ...]:
        """The addresses for it in a new config: its own if they are proven, otherwise the catalog's."""
        return self.instead_of or self.addresses

    def copies_fail(self, tablet_id: str) -> bool:
        """Whether copies of the tablet into this server have failed too often, for its own reasons."""
        failing = () if self.instead_of else self.last_report.copies_failing  # it may be another process
        return any(f.tablet_id == tablet_id and _fails_often(f) for f in failing)

    def hear(self, beat: Heartbeat, now_us: int) -> None:
        """Store its report of itself, and avoid it for a while if a copy into it failed too often."""
        self.last_report = beat
        self.process, self.sequence, self.last_heard_us = beat.process, beat.sequence, now_us
        self.addresses = beat.addresses or self.addresses
        if any(map(_fails_often, beat.copies_failing)):
            if now_us >= self.avoided_until_us:
                self.avoid_us = min(max(2 * self.avoid_us, AVOID_US_FIRST), AVOID_US_MAX)
            self.avoided_until_us = now_us + self.avoid_us
        elif now_us - self.avoided_until_us > AVOID_US_MAX:
            self.avoid_us = 0


@dataclass
class TabletState:
    """One tablet as its members report it."""

    recorded: RaftConfig
    """The catalog's config, which is believed first."""
    told: dict[str, RaftConfig] = field(default_factory=dict)
    """By server, the committed config that it reports now."""
    config: RaftConfig | None = None
    """The committed config that is believed; None before a member of it has reported."""
    left: set[str] = field(default_factory=set)
    """The servers that an earlier config had and a later one has not, and that had a live replica in their last
    report."""
    leader_uuid: str = ""
    leader_term: int = -1
    leader_status: ReportedReplica | None = None
    later: tuple[OpId, int] | None = None
    """If any server reports a config later than the catalog's: the position of the believed config, and the time since
    which this holds."""


@dataclass(frozen=True)
class Unproven:
    """A config later than `recorded`, the catalog's, that these servers report; `believed`: a member of `recorded`
    reports it."""

    config: RaftConfig
    recorded: RaftConfig
    told_by: tuple[str, ...]
    since_us_ago: int
    believed: bool


def _tells_the_same(before: ReportedReplica, after: ReportedReplica) -> bool:
    """Whether `after` reports the same config as `before`, as most reports do."""
    return before.config_wire == after.config_wire != b"" and before.term <= after.term


class SoftState:
    """The servers and tablets that were reported since this master began to lead.

    Invariants: a tablet's config is never older than the catalog's; its leader is the voter that reported itself as
    leader in the highest term; a server in `left` is not a member of the newest config. A server's report of a tablet
    changes nothing unless it is a member of the believed config (`heartbeats/belief.py`).
    Concurrency: the loop's thread.
    """

    def __init__(
        self, now_us: int, known: Callable[[str], RaftConfig | None], *, long_silence_us: int = 15_000_000
    ) -> None:
        """`known(tablet)`: the catalog's last committed config of the tablet; None if it does not have the tablet.

        `long_silence_us`: a server that sends heartbeats again after this time is back; its earlier reports of others
        do not count any more.
        """
        self._known = known
        self._long_silence_us = long_silence_us
        self.since_us = now_us
        """The time from which on heartbeats can have arrived."""
        self.copy_orders: dict[tuple[str, str], OpId] = {}
        """The damaged replicas to be copied anew in their place, by server and tablet, each with the position of the
        config at that time."""
        self._ordered_us: dict[tuple[str, str], int] = {}
        self.servers: dict[str, ServerState] = {}
        self.room = ReportMemory()
        self.full_reports = FullReports()
        self.tablets: dict[str, TabletState] = {}
        self.touched: set[str] = set()
        """The tablets of which anything changed since the masters' view of them was computed; `KeptView` empties it."""
        self._member_of: defaultdict[str, set[str]] = defaultdict(set)
        """By server, the tablets that have it in their believed config."""
        self._reporters: dict[str, set[str]] = {}
        """By tablet, the servers that report a replica of it."""

    def reset(self, now_us: int) -> None:
        """Forget everything: each term of leadership begins without reports."""
        self.__init__(now_us, self._known, long_silence_us=self._long_silence_us)  # type: ignore[misc]

    def awaits_full_reports(self, now_us: int) -> bool:
        """Whether this leadership is young and full reports are under way. Each replica in them changes the view of its
        tablet, so the policy waits until all reports have come."""
        return now_us - self.since_us < HEAR_FIRST_US and self.full_reports.is_busy(now_us)

    def admit(
        self,
        uuid: str,
        addresses: tuple[Address, ...],
        now_us: int,
        process: int = 0,
        *,
        peer: str = "",
        listed: bool = False,
        instead_of: tuple[Address, ...] = (),
    ) -> str:
        """Admit a tablet server that has answered at these addresses with this uuid; returns the reason if there is no
        room, otherwise "".

        From now on, heartbeats of `process` count, even if this one is lost because its caller has left. Another server
        that was at these addresses is no longer there: it is forgotten if it is in no config. `peer`: the host from
        which its heartbeats come. `listed`: the catalog's configs have it, so it needs no room and takes none.
        `instead_of`: the catalog's addresses of it, if these are others.
        """
        for other in [s for s in self.servers.values() if s.uuid != uuid and set(s.addresses) & set(addresses)]:
            self._forget_server(other)
        server = self.servers.get(uuid)
        if not listed and (server is None or server.peer != peer):
            of_host = [s for s in self.servers.values() if s.peer == peer]
            if not self._has_room(of_host, limits.SERVERS_PER_HOST_MAX, now_us):
                return f"{limits.SERVERS_PER_HOST_MAX} tablet servers of its host count, which is the maximum"
        if not listed and server is None and not self._has_room(self.servers.values(), limits.SERVERS_MAX, now_us):
            return f"the masters know {limits.SERVERS_MAX} tablet servers without a tablet, which is the maximum"
        if server is None:
            server = self.servers[uuid] = ServerState(uuid, (), now_us, back_us=now_us)
        if server.addresses != addresses:
            server.addresses, server.placed_us = addresses, now_us
            self._place(server, instead_of)
        server.peer = peer
        server.listed = server.listed or listed
        if process != server.process:
            server.process, server.sequence = process, 0
            server.reported, server.heard_until = False, ""
        return ""

    def prove_place(self, uuid: str) -> None:
        """Note that the server's address is proven from now on."""
        self._place(self.servers[uuid], ())

    def _place(self, server: ServerState, instead_of: tuple[Address, ...]) -> None:
        """Note whether the server's address is proven, and compute anew what is believed of its tablets."""
        if bool(server.instead_of) is not bool(instead_of):
            server.instead_of = instead_of
            for tablet_id in server.replicas:
                self.touched.add(tablet_id)
                if (state := self.tablets.get(tablet_id)) is not None:
                    self._settle(tablet_id, state)
        server.instead_of = instead_of

    def is_proven(self, uuid: str) -> bool:
        """Whether the server counts, at an address that is proven."""
        server = self.servers.get(uuid)
        return server is not None and not server.instead_of

    def _has_room(self, servers: Iterable[ServerState], most: int, now_us: int) -> bool:
        """Whether fewer than `most` of these servers are in no config. If they are too many, one that was silent for
        long is forgotten first."""
        strangers = [s for s in servers if not s.listed]
        if len(strangers) < most:
            return True
        silent = min(strangers, key=lambda s: s.last_heard_us)
        if now_us - silent.last_heard_us < SERVER_SILENT_US:
            return False
        silent.listed = not self._forget_server(silent)
        return True

    def forget_server(self, uuid: str) -> bool:
        """Forget a server if it is known and not a member of any tablet; returns whether it was forgotten."""
        server = self.servers.get(uuid)
        return server is not None and self._forget_server(server)

    def _forget_server(self, server: ServerState) -> bool:
        """Forget the server if it is not a member of any tablet; returns whether it was forgotten."""
        if self.member_of(server.uuid):
            return False
        for tablet_id in list(server.replicas):
            self._forget(server, tablet_id)
        del self.servers[server.uuid]
        return True

    def heartbeat(self, beat: Heartbeat, reports: Reports, now_us: int) -> bool:
        """Process one heartbeat of an admitted server; returns whether a full report is needed.

        Refused CAS_FAILED for an outdated heartbeat, after a later one of the same process. OVERLOADED for one that
        comes too soon. INVALID_ARGUMENT for one that no honest server sends.
        """
        server = self.servers.get(beat.server_uuid)
        if server is None:
            server = self.servers[beat.server_uuid] = ServerState(beat.server_uuid, (), now_us, back_us=now_us)
        if beat.process != server.process:
            # The server has started again; or a heartbeat of an earlier process came late, and the living one will send
            # another.
            server.reported, server.heard_until = False, ""
        elif beat.process and beat.sequence <= server.sequence:
            what = "a later heartbeat of this server has come before"
            raise Refused(Code.CAS_FAILED, what, sequence=beat.sequence, last=server.sequence)
        server.rate.take(beat.replicas, now_us)
        told = reports(self._with_config)
        if now_us - server.last_heard_us > self._long_silence_us:
            server.back_us = now_us
        server.hear(beat, now_us)
        covered = beat.full_report and self._take_slice(server, beat, told)
        if covered or (server.reported and not beat.full_report):
            server.counted_us = now_us
            for replica in told:
                self._take(server, replica, now_us)
            # The replicas that it does not name are as they were, unless the server has started since, or starts now.
            turned = beat.booting is not server.counted_booting
            server.counted_booting = beat.booting
            for tablet_id in list(server.replicas) if turned else [r.tablet_id for r in told]:
                self._note_open(server, tablet_id, now_us)
        return not server.reported

    def _with_config(self, tablet_id: str, wire: bytes) -> ReportedReplica | None:
        """A last report of the tablet, of any server, that has this config."""
        for uuid in self._reporters.get(tablet_id, ()):
            replica = self.servers[uuid].replicas[tablet_id]
            if replica.config_wire == wire:
                return replica
        return None

    def _note_open(self, server: ServerState, tablet_id: str, now_us: int) -> None:
        replica = server.replicas.get(tablet_id)
        was = tablet_id in server.open_us
        if replica is not None and replica.phase in OPEN and not server.counted_booting:
            server.open_us.setdefault(tablet_id, now_us)
        else:
            server.open_us.pop(tablet_id, None)
        if was is not (tablet_id in server.open_us):
            self.touched.add(tablet_id)

    def _take_slice(self, server: ServerState, beat: Heartbeat, reports: Iterable[ReportedReplica]) -> bool:
        """Forget the replicas that a full report, or the next slice of one, leaves out. Returns False for a slice that
        is not the next one, for example of a report that began under another master. Then the server goes on after
        `heard_until`."""
        after, until = beat.slice_after, beat.slice_until
        if after != server.heard_until and after:
            return False
        told = {r.tablet_id for r in reports}
        for gone in [t for t in server.replicas if t > after and (not until or t <= until) and t not in told]:
            self._forget(server, gone)
        server.heard_until = until
        server.reported = server.reported or not until
        if not until:
            self.full_reports.end(server.uuid)
        return True

    def order_copies_in_place(self, wanted: Mapping[tuple[str, str], OpId], now_us: int) -> None:
        """Order the wanted copies in place. An order holds for ORDER_REPEATED_US, and is given again after
        ORDER_AGAIN_US at the earliest. If the files of a successful copy are damaged at once, another copy would not
        help, and each quarantined replica takes disk space."""
        for key in wanted:
            if now_us - self._ordered_us.get(key, now_us - ORDER_AGAIN_US) >= ORDER_AGAIN_US:
                self._ordered_us[key] = now_us
        self.copy_orders = {k: v for k, v in wanted.items() if now_us - self._ordered_us[k] < ORDER_REPEATED_US}

    def copy_order_ages(self, now_us: int) -> dict[tuple[str, str], int]:
        """By replica, the age of the last order of a copy in place; kept while the replica is damaged."""
        self._ordered_us = {
            (uuid, tablet_id): at
            for (uuid, tablet_id), at in self._ordered_us.items()
            if now_us - at < ORDER_AGAIN_US or ((known := self.replica(uuid, tablet_id)) is not None and known.damaged)
        }
        return {k: now_us - at for k, at in self._ordered_us.items()}

    def places(self, uuids: Iterable[str]) -> list[Member]:
        """The last reported addresses of these servers. Unknown servers are left out, and the number is bounded."""
        known = (self.servers.get(uuid) for uuid in islice(uuids, limits.PEERS_SOUGHT_MAX))
        return [s.member for s in known if s is not None and s.addresses]

    def _forget(self, server: ServerState, tablet_id: str) -> None:
        self.room.give_back(server.uuid, server.replicas.pop(tablet_id))
        server.ready_us.pop(tablet_id, None)
        server.open_us.pop(tablet_id, None)
        server.doubted_us.pop(tablet_id, None)
        server.strays.discard(tablet_id)
        self.touched.add(tablet_id)
        self._reporters[tablet_id].discard(server.uuid)
        if not self._reporters[tablet_id]:
            del self._reporters[tablet_id]
        state = self.tablets.get(tablet_id)
        if state is None:
            return
        state.left.discard(server.uuid)
        state.told.pop(server.uuid, None)
        if state.leader_uuid == server.uuid:
            state.leader_uuid, state.leader_status = "", None
        self._settle(tablet_id, state)

    def _keep(self, server: ServerState, replica: ReportedReplica, known: RaftConfig | None) -> bool:
        """Keep the server's report of a replica; False, without a change, if there is no room for it."""
        tablet_id, before = replica.tablet_id, server.replicas.get(replica.tablet_id)
        state = self.tablets.get(tablet_id)
        believes = state.config if state is not None and state.config is not None else known
        strange = believes is None or believes.member(server.uuid) is None
        room = before is not None or len(server.replicas) < limits.REPLICAS_REPORTED_MAX
        if room and self.room.take(server.uuid, replica, before, strange=strange):
            server.replicas[tablet_id] = replica
            self._reporters.setdefault(tablet_id, set()).add(server.uuid)
            return True
        if before is not None:
            self._forget(server, tablet_id)
        return False

    def _take(self, server: ServerState, replica: ReportedReplica, now_us: int) -> None:
        tablet_id, known = replica.tablet_id, self._known(replica.tablet_id)
        before = server.replicas.get(tablet_id)
        if not self._keep(server, replica, known):
            return
        if replica.data_state == DataState.READY:
            server.ready_us.setdefault(tablet_id, now_us)
        else:
            server.ready_us.pop(tablet_id, None)
        state = self.tablets.get(tablet_id)
        if state is not None:
            self._note_stray(server, tablet_id, state)
        if known is None:
            return
        if state is None:
            state = self.tablets[tablet_id] = TabletState(known)
        if replica.data_state not in LIVE:
            state.left.discard(server.uuid)
        was = state.leader_uuid, state.leader_term, state.leader_status
        told_before = state.recorded is known and server.uuid in state.told
        if not told_before or before is None or not _tells_the_same(before, replica):
            told = reported_config(replica, state.told.values())
            if told is not None:
                state.told[server.uuid] = told
            else:
                state.told.pop(server.uuid, None)
            state.recorded = known
            self._settle(tablet_id, state)
            self._note_later(state, now_us)
        self._hear_of_leader(state, server.uuid, replica)
        if not told_before or before != replica or was != (state.leader_uuid, state.leader_term, state.leader_status):
            self.touched.add(tablet_id)
        if self._doubt(server.uuid, replica):
            server.doubted_us.setdefault(tablet_id, now_us)
        else:
            server.doubted_us.pop(tablet_id, None)

    def _settle(self, tablet_id: str, state: TabletState) -> None:
        """Compute the believed config from what members report now, and process the reports of new members again."""
        config = state.recorded
        if any(newer(c.opid, config.opid) for c in state.told.values()):
            proven = {u: c for u, c in state.told.items() if self.is_proven(u)}
            config = believed(config, proven if any(map(config.member, proven)) else state.told)
        before = state.config
        if config is before or config == before or not any(config.member(uuid) for uuid in state.told):
            return
        had = {m.uuid for m in before.members} if before is not None else set()
        leaving = (state.left | had) - {m.uuid for m in config.members}
        state.left = {u for u in leaving if self._is_live(u, tablet_id)}
        state.config = config
        for uuid in had:
            self._member_of[uuid].discard(tablet_id)
        for uuid in (m.uuid for m in config.members):
            self._member_of[uuid].add(tablet_id)
        for uuid in self._reporters.get(tablet_id, ()):
            self._note_stray(self.servers[uuid], tablet_id, state)
        if state.leader_uuid and not may_lead(config, state.leader_uuid):
            state.leader_uuid, state.leader_status, state.leader_term = "", None, -1
        for member in config.members:
            replica = self.replica(member.uuid, tablet_id)
            if replica is not None and replica.role == "LEADER":
                self._hear_of_leader(state, member.uuid, replica)

    @staticmethod
    def _note_stray(server: ServerState, tablet_id: str, state: TabletState) -> None:
        if state.config is not None and state.config.member(server.uuid) is None:
            server.strays.add(tablet_id)
        else:
            server.strays.discard(tablet_id)

    @staticmethod
    def _note_later(state: TabletState, now_us: int) -> None:
        """Note since when a config later than the catalog's has been reported, believed or not."""
        believed_at = state.config.opid if state.config is not None else state.recorded.opid
        if not any(newer(c.opid, state.recorded.opid) for c in state.told.values()):
            state.later = None
        elif state.later is None or state.later[0] != believed_at:
            state.later = (believed_at, now_us)

    def unproven(self, tablet_id: str, now_us: int) -> Unproven | None:
        """The config later than the catalog's that servers have reported for UNPROVEN_US; None if there is none. It is
        the believed one, or the latest one that a stranger reports."""
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

    def _hear_of_leader(self, state: TabletState, uuid: str, replica: ReportedReplica) -> None:
        """Note the leader: a voter that reports itself as leader, in a term that is not lower than the known leader's;
        or the voter that a member names. If only one of two has a proven address, it stays or becomes the leader
        whatever the terms are, as long as it is heard."""
        leads, proven = replica.role == "LEADER" and may_lead(state.config, uuid), self.is_proven(uuid)
        if leads and (self._replaces(state, uuid, replica.term) or state.leader_uuid == uuid):
            state.leader_uuid, state.leader_term, state.leader_status = uuid, replica.term, replica
        elif state.leader_uuid == uuid and not leads:
            # Its own report counts for the term, too: no replica can lead in a term that none has entered.
            state.leader_uuid, state.leader_status, state.leader_term = "", None, replica.term if proven else -1
        member = proven and state.config is not None and state.config.member(uuid) is not None
        hint = replica.leader_uuid if member and may_lead(state.config, replica.leader_uuid) else ""
        if hint and not state.leader_uuid and replica.term >= state.leader_term:
            state.leader_uuid, state.leader_term = hint, replica.term

    def _replaces(self, state: TabletState, uuid: str, term: int) -> bool:
        """Whether a server that reports that it leads in this term replaces the tablet's known leader."""
        known = self.servers.get(state.leader_uuid)
        if known is None or bool(known.instead_of) is not self.is_proven(uuid):
            return term >= state.leader_term
        if known.instead_of:
            return True
        silent_us = self.servers[uuid].last_heard_us - known.last_heard_us
        return term >= state.leader_term and silent_us > LEADER_SILENT_US

    def _is_live(self, uuid: str, tablet_id: str) -> bool:
        replica = self.replica(uuid, tablet_id)
        return replica is not None and replica.data_state in LIVE

    def doubts(self, uuid: str, now_us: int) -> list[str]:
        """The server's reports that have not been believed for DOUBT_US, as one text for each tablet."""
        server = self.servers[uuid]
        found = []
        for tablet_id, since_us in sorted(server.doubted_us.items()):
            what = self._doubt(uuid, server.replicas[tablet_id])
            if what and now_us - since_us >= DOUBT_US:
                found.append(f"tablet {tablet_id}: {what}")
        return found

    def _doubt(self, uuid: str, replica: ReportedReplica) -> str:
        state = self.tablets.get(replica.tablet_id)
        if state is None:
            return ""
        return doubt(state.config, uuid, state.told.get(uuid), leads=replica.role == "LEADER")

    def silent_us(self, uuid: str, now_us: int) -> int:
        """The time since the server's last heartbeat, or since the beginning of this leadership if that is later."""
        server = self.servers.get(uuid)
        return now_us - max(self.since_us, server.last_heard_us if server else 0)

    def missed_us(self, uuid: str, tablet_id: str, now_us: int) -> int:
        """The time without a heartbeat of the server during which the tablet's leader has sent heartbeats.

        Servers that were stopped or cut off together come back one after the other; the return of the first ones does
        not count against the others.
        """
        silent_us, state = self.silent_us(uuid, now_us), self.tablets.get(tablet_id)
        leader = self.servers.get(state.leader_uuid) if state is not None else None
        return silent_us if leader is None else min(silent_us, now_us - leader.back_us)

    def replica(self, uuid: str, tablet_id: str) -> ReportedReplica | None:
        """The server's last report of its replica."""
        server = self.servers.get(uuid)
        return server.replicas.get(tablet_id) if server else None

    def member_of(self, uuid: str) -> Set[str]:
        """The tablets that have the server in their believed config."""
        return self._member_of.get(uuid, frozenset())

    def reporters(self, tablet_id: str) -> Iterable[ServerState]:
        """The servers that report a replica of the tablet."""
        return (self.servers[uuid] for uuid in self._reporters.get(tablet_id, ()))

    def peer_report(self, tablet_id: str, uuid: str) -> PeerReport | None:
        """The last report of the tablet's leader about its peer `uuid`."""
        state = self.tablets.get(tablet_id)
        peers = state.leader_status.peers if state is not None and state.leader_status is not None else ()
        return next((p for p in peers if p.uuid == uuid), None)
