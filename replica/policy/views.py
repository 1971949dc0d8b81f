"""The policy's inputs and results: frozen values without clocks, wires or disks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Annotated

from nyala.replica.types import Member, OpId, RaftConfig, check
from nyala.replica.types.options import Option

DISK_BYTES_SPARE = 1 << 30
"""A server is nearly full if a new replica would leave less than this free; other servers are preferred. A server's
logs alone take 64 MB for each busy tablet, and a full disk stops all of its replicas."""


class Health(IntEnum):
    """The health of one replica, by its leader's reports and the heartbeats. Ordered from best to worst."""

    HEALTHY = 0
    UNKNOWN = 1
    """Not known yet: the policy waits until it becomes one of the others."""
    FAILED = 2
    """The replica has been silent for longer than the re-replication delay."""
    FAILED_UNRECOVERABLE = 3
    """The replica is offline, or silent for as long and needs entries that the leader's log no longer has, or copies
    into its server fail. Overrides the others."""

    @property
    def failed(self) -> bool:
        """Whether the replica should be replaced."""
        return self >= Health.FAILED


class ChangeKind(StrEnum):
    """The kinds of change of one tablet that an operator or a batch job can request."""

    MOVE = "MOVE"
    ADD = "ADD"
    REMOVE = "REMOVE"
    TRANSFER = "TRANSFER"
    PROMOTE = "PROMOTE"
    """The non-voter `to_uuid` shall vote."""
    DEMOTE = "DEMOTE"
    """The voter `from_uuid` shall stay without a vote, once enough others vote."""


@dataclass(frozen=True, kw_only=True)
class DesiredChange:
    """Desired state of one tablet, kept in the catalog until it holds or its deadline passes."""

    kind: ChangeKind
    wish_id: str
    from_uuid: str = ""
    to_uuid: str = ""
    votes: bool = True
    """For ADD: whether the new member shall become a voter. It joins as a learner first."""
    witness: bool = False
    """For ADD: whether the member joins without data and votes as a witness at once, until its data has arrived."""
    plan_id: str = ""
    deadline_us: int = 0
    """Wall-clock time; 0 means none."""
    reason: str = ""
    proposal: bool = False
    """Whether it came as a proposal, so that its outcome goes to the topic."""
    cancelled: bool = False

    def __post_init__(self) -> None:
        check(bool(self.from_uuid) or self.kind is not ChangeKind.MOVE, "a move needs a source", change=self.wish_id)
        sourced = (ChangeKind.REMOVE, ChangeKind.DEMOTE)
        check(bool(self.from_uuid) or self.kind not in sourced, "it names the member", change=self.wish_id)
        check(bool(self.to_uuid) or self.kind in sourced, "a desired change needs a target", change=self.wish_id)

    def expired(self, now_us: int) -> bool:
        """Whether the deadline has passed."""
        return 0 < self.deadline_us < now_us


@dataclass(frozen=True, kw_only=True)
class TabletView:
    """One tablet: its committed config, its leader, and the health of its members."""

    tablet_id: str
    table_id: str
    replication_factor: int
    config: RaftConfig
    leader_uuid: str = ""
    """The leader's uuid; empty if no leader has reported lately: then no decision is possible."""
    pending: bool = False
    """Whether a config change is under way at the leader."""
    health: Mapping[str, Health] = field(default_factory=dict)
    """By member uuid; an absent one is UNKNOWN."""
    bytes_on_disk: int = 0
    desired: DesiredChange | None = None
    damaged: frozenset[str] = frozenset()
    """Members whose replica FAILED because of damage that a copy in place would repair."""
    without_replica: frozenset[str] = frozenset()
    """Members whose server is alive and has no replica now: it has a tombstone, or a copy is under way."""
    caught_up: frozenset[str] = frozenset()
    """The leader, and the members that have its whole log by its own report."""
    former_generation: frozenset[str] = frozenset()
    """Servers outside the config with a live replica of a former generation. Such a replica ignores the group's leader,
    so no copy can go there before it is deleted."""
    by_witness: bool = False
    """Whether a witness first takes the place of a lost voter, which is demoted instead of removed."""

    def health_of(self, uuid: str) -> Health:
        """Return the member's health; UNKNOWN without a report."""
        return self.health.get(uuid, Health.UNKNOWN)

    def _wanted(self, kind: ChangeKind) -> DesiredChange | None:
        """Return the desired change if it is a MOVE or of `kind`, and is not taken back."""
        wanted = self.desired
        return wanted if wanted and not wanted.cancelled and wanted.kind in (kind, ChangeKind.MOVE) else None

    @property
    def joins(self) -> str:
        """Return the server that a desired change makes a member; empty if there is none."""
        return wanted.to_uuid if (wanted := self._wanted(ChangeKind.ADD)) else ""

    @property
    def leaves(self) -> str:
        """Return the member that a desired change removes; empty if there is none."""
        return wanted.from_uuid if (wanted := self._wanted(ChangeKind.REMOVE)) else ""

    @property
    def leads_next(self) -> str:
        """Return the server that leads after a desired transfer; without one, the present leader."""
        wanted = self._wanted(ChangeKind.TRANSFER)
        return wanted.to_uuid if wanted and wanted.kind is ChangeKind.TRANSFER else self.leader_uuid

    @property
    def copying(self) -> tuple[str, ...]:
        """Return the sorted uuids of the members that wait for promotion: each holds a slot of the caps, whatever its
        health."""
        return tuple(sorted(m.uuid for m in self.config.members if m.promote))


@dataclass(frozen=True, kw_only=True)
class ServerView:
    """One tablet server."""

    uuid: str
    member: Member
    """The server as a member of a config: uuid and addresses."""
    alive: bool = True
    location: str = ""
    draining: bool = False
    """Whether its replicas shall move to other servers, and it gets no new ones."""
    maintenance: bool = False
    """Whether an operator works on it: it gets no new replicas, and its silence is no reason to replace any."""
    quiescing: bool = False
    """Whether it gives up its leaderships, and takes none."""
    tablets_max: int = 0
    """The most replicas that it may hold; 0: it reports no limit."""
    avoided: bool = False
    """Whether copies into it failed lately, for its own reasons. If so, it gets new replicas only if no other server is
    free."""
    disk_bytes_free: int | None = None
    """The free bytes of its disk; None: it reports no number."""

    @property
    def takes_replicas(self) -> bool:
        """Whether it may get new replicas, if it has room."""
        return self.alive and not self.draining and not self.maintenance

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Its location and those around it, the widest first: of /dc1/rack3, /dc1 and /dc1/rack3."""
        parts = self.location.split("/")
        return tuple("/".join(parts[: n + 1]) for n in range(1, len(parts))) or (self.location,)

    def nearly_full(self, bytes_wanted: int = 0) -> bool:
        """Whether its disk would be nearly full after `bytes_wanted` more."""
        return self.disk_bytes_free is not None and self.disk_bytes_free - bytes_wanted < DISK_BYTES_SPARE

    def has_room(self, replicas: int) -> bool:
        """Whether it may hold one more than `replicas`."""
        return not self.tablets_max or replicas < self.tablets_max


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """The whole input of one evaluation. `now_us` is the wall clock at which the view was taken."""

    servers: tuple[ServerView, ...]
    tablets: tuple[TabletView, ...]
    now_us: int = 0

    def server(self, uuid: str) -> ServerView | None:
        """Return the server of that uuid, or None."""
        return next((s for s in self.servers if s.uuid == uuid), None)


@dataclass(frozen=True, kw_only=True)
class Caps:
    """Bounds on simultaneous copies and transfers. A copy counts at its target; a move counts at its source, too."""

    moves_max: Annotated[int, Option("replica moves at once")] = 10
    moves_per_server_max: Annotated[int, Option("those of one server at once")] = 2
    bytes_max: int = 1 << 62
    """Bounds the bytes that the replica moves of one plan may copy."""
    leader_moves_max: int = 200
    leader_moves_per_server_max: int = 50
    """Bounds the transfers of one plan: each interrupts the writes to its tablet for a moment."""

    @property
    def of_leaders(self) -> Caps:
        """Return the bounds of a plan's leader moves, as bounds of moves."""
        return Caps(moves_max=self.leader_moves_max, moves_per_server_max=self.leader_moves_per_server_max)

    def __post_init__(self) -> None:
        check(self.leader_moves_max > 0, "leader_moves_max must be positive", value=self.leader_moves_max)
        each = self.leader_moves_per_server_max
        check(each > 0, "leader_moves_per_server_max must be positive", value=each)
        check(self.moves_max > 0, "moves_max must be positive", moves_max=self.moves_max)
        check(self.moves_per_server_max > 0, "moves_per_server_max must be positive", value=self.moves_per_server_max)
        check(self.bytes_max > 0, "bytes_max must be positive", bytes_max=self.bytes_max)


class MoveKind(StrEnum):
    """Whether a move concerns a replica or a leadership."""

    REPLICA = "REPLICA"
    LEADER = "LEADER"


@dataclass(frozen=True, kw_only=True)
class Move:
    """One step of a rebalance plan."""

    kind: MoveKind
    tablet_id: str
    table_id: str
    from_uuid: str
    to_uuid: str
    config_opid: OpId
    bytes: int
    reason: str


class Moves(list[Move]):
    """The moves of one plan, the most useful first, and the number of those that its caps left out."""

    def __init__(self, moves: Iterable[Move] = ()) -> None:
        super().__init__(moves)
        self.left_out = 0
        """Replica moves that the caps left out, as far as they were counted."""
        self.leaders_left_out = 0
        """Leader moves that the caps left out."""
        self.replica_bound: int | None = None
        self.leader_bound: int | None = None
        """Lower bounds on the moves after which the numbers of replicas and of leaders are even; None: not computed."""


def with_leaving_marked(tablet: TabletView, leaving: Set[str]) -> TabletView:
    """Return `tablet` with every member whose uuid is in `leaving` seen as marked for replacement.

    The mark is not written, so nothing has to be undone when the retirement of the server is withdrawn.
    """
    if leaving.isdisjoint(m.uuid for m in tablet.config.members):
        return tablet
    members = tuple(replace(m, replace=m.replace or m.uuid in leaving) for m in tablet.config.members)
    return replace(tablet, config=replace(tablet.config, members=members))
