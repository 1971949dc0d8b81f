"""What the policy sees and what it says: frozen values, with nothing of clocks, wires or disks."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum

from nyala.replica.types import Member, OpId, RaftConfig, check

DISK_BYTES_SPARE = 1 << 30
"""A server with less than this left, once a new replica is there, is nearly full: others are preferred. A server's logs
alone take 64 MB a busy tablet, and a disk that is full stops all of its replicas."""


class Health(IntEnum):
    """How one replica fares, as its leader and the heartbeats tell. Ordered from best to worst."""

    HEALTHY = 0
    UNKNOWN = 1
    """Nothing certain is known: wait, it becomes one of the others."""
    FAILED = 2
    """Silent for longer than the re-replication delay."""
    FAILED_UNRECOVERABLE = 3
    """The replica is offline, or silent for so long and behind the leader's log, or copies into its server fail. Wins
    over everything else."""

    @property
    def failed(self) -> bool:
        """Whether the replica is to be replaced."""
        return self >= Health.FAILED


class ChangeKind(StrEnum):
    """What an operator or a batch job wants of one tablet."""

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
    """ADD: whether the new member shall end as a voter; a voter always joins as a promotable non-voter."""
    witness: bool = False
    """ADD: it joins without data, votes as a witness at once, and becomes whole when its data is there."""
    plan_id: str = ""
    deadline_us: int = 0
    """Wall clock; 0 means none."""
    reason: str = ""
    proposal: bool = False
    """Whether somebody waits for its outcome on the topic."""
    cancelled: bool = False

    def __post_init__(self) -> None:
        check(bool(self.from_uuid) or self.kind is not ChangeKind.MOVE, "a move needs a source", change=self.wish_id)
        sourced = (ChangeKind.REMOVE, ChangeKind.DEMOTE)
        check(bool(self.from_uuid) or self.kind not in sourced, "it names who leaves", change=self.wish_id)
        check(bool(self.to_uuid) or self.kind in sourced, "a desired change needs a target", change=self.wish_id)

    def expired(self, now_us: int) -> bool:
        """Whether the deadline has passed."""
        return 0 < self.deadline_us < now_us


@dataclass(frozen=True, kw_only=True)
class TabletView:
    """One tablet: its committed config, who leads it, and how its members fare."""

    tablet_id: str
    table_id: str
    replication_factor: int
    config: RaftConfig
    leader_uuid: str = ""
    """Empty when no leader has reported lately: then nothing can be decided."""
    pending: bool = False
    """A config change is under way at the leader."""
    health: Mapping[str, Health] = field(default_factory=dict)
    """By member uuid; an absent one is UNKNOWN."""
    bytes_on_disk: int = 0
    desired: DesiredChange | None = None
    damaged: frozenset[str] = frozenset()
    """Members whose server has their replica, FAILED by damage that a copy in its place would heal."""
    unmade: frozenset[str] = frozenset()
    """Members whose server, which lives, has no replica at the moment: a tombstone, or a copy under way."""
    caught_up: frozenset[str] = frozenset()
    """Members that have the leader's log, as it says, and itself."""
    estranged: frozenset[str] = frozenset()
    """Servers outside the config whose live replica is of a former generation: it hears nothing of the group's leader,
    so its server cannot be copied to before that replica is deleted."""
    by_witness: bool = False
    """A lost voter's place is taken by a witness first, and the lost one is demoted instead of removed."""

    def health_of(self, uuid: str) -> Health:
        """The member's health; UNKNOWN if nobody reported it."""
        return self.health.get(uuid, Health.UNKNOWN)

    @property
    def copying(self) -> tuple[str, ...]:
        """Sorted uuids of the members that wait for promotion: each holds a slot of the caps, whatever its health."""
        return tuple(sorted(m.uuid for m in self.config.members if m.promote))


@dataclass(frozen=True, kw_only=True)
class ServerView:
    """One tablet server."""

    uuid: str
    member: Member
    """How it would stand in a config: uuid and addresses."""
    alive: bool = True
    location: str = ""
    draining: bool = False
    """Its replicas shall stand elsewhere, and it gets no new ones."""
    tablets_max: int = 0
    """How many replicas it holds at most; 0: it does not say."""
    avoided: bool = False
    """Copies into it failed lately, for its own reasons: it gets new replicas only if no other server is free."""
    disk_bytes_free: int | None = None
    """None: it does not say."""

    def nearly_full(self, bytes_wanted: int = 0) -> bool:
        """Whether its disk would be, with so many bytes more."""
        return self.disk_bytes_free is not None and self.disk_bytes_free - bytes_wanted < DISK_BYTES_SPARE

    def has_room(self, replicas: int) -> bool:
        """Whether it takes one more replica than these."""
        return not self.tablets_max or replicas < self.tablets_max


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """Everything one evaluation looks at. `now_us` is the wall clock at which the view was taken."""

    servers: tuple[ServerView, ...]
    tablets: tuple[TabletView, ...]
    now_us: int = 0

    def server(self, uuid: str) -> ServerView | None:
        """The server of that uuid, or None."""
        return next((s for s in self.servers if s.uuid == uuid), None)


@dataclass(frozen=True, kw_only=True)
class Caps:
    """Bounds on what happens at one time. A copy counts at its target; a move at its source too."""

    moves_max: int = 10
    moves_per_server_max: int = 2
    bytes_max: int = 1 << 62
    """Of one plan: bytes that its replica moves may copy."""

    def __post_init__(self) -> None:
        check(self.moves_max > 0, "moves_max must be positive", moves_max=self.moves_max)
        check(self.moves_per_server_max > 0, "moves_per_server_max must be positive", value=self.moves_per_server_max)
        check(self.bytes_max > 0, "bytes_max must be positive", bytes_max=self.bytes_max)


class MoveKind(StrEnum):
    """What a plan moves."""

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


def seen_leaving(tablet: TabletView, leaving: Set[str]) -> TabletView:
    """`tablet` as it is, but with every member whose uuid is in `leaving` seen as marked for replacement.

    The mark is not written, so nothing has to be taken back when the server is wanted again.
    """
    if leaving.isdisjoint(m.uuid for m in tablet.config.members):
        return tablet
    members = tuple(replace(m, replace=m.replace or m.uuid in leaving) for m in tablet.config.members)
    return replace(tablet, config=replace(tablet.config, members=members))
