"""The records on the masters' topics: proposals of jobs, decisions of the masters, outcomes of both, reports, and the
history of configs and decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .errors import Code
from .ids import ZERO_OPID, ConfigEdit, Member, OpId, RaftConfig


class Wanted(StrEnum):
    """The change of a tablet that a proposal requests."""

    MOVE_REPLICA = "MOVE_REPLICA"
    TRANSFER_LEADERSHIP = "TRANSFER_LEADERSHIP"


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A batch job's desired change. The masters accept or refuse it, and answer with an Outcome."""

    proposal_id: str
    plan_id: str
    tablet_id: str
    wanted: Wanted
    from_uuid: str = ""
    to_uuid: str
    config_opid: OpId
    """The committed config from which it was computed."""
    deadline_us: int
    """Wall-clock time; 0 means the masters' own deadline."""
    reason: str


class Action(StrEnum):
    """A decision is exactly one of these."""

    CHANGE_CONFIG = "CHANGE_CONFIG"
    TRANSFER_LEADERSHIP = "TRANSFER_LEADERSHIP"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One config change or one leadership transfer that the cluster needs now.

    The policy makes it; its publisher adds `version`, `deadline_us` and `leader_address`.
    """

    tablet_id: str
    table_id: str
    catalog_term: int = 0
    version: int = 0
    """Grows per tablet within a catalog term."""
    action: Action
    edits: tuple[ConfigEdit, ...] = ()
    target_uuid: str = ""
    config_opid: OpId = ZERO_OPID
    deadline_us: int = 0
    """Wall-clock time; 0 means none."""
    reason: str = ""
    plan_id: str = ""
    leader_uuid: str = ""
    leader_address: str = ""

    @property
    def id(self) -> str:
        """Return the text by which an outcome names the decision: `tablet@term.version`."""
        return f"{self.tablet_id}@{self.catalog_term}.{self.version}"

    @property
    def need(self) -> tuple[object, ...]:
        """Return a value that is equal for two decisions that need the same: it leaves out the reason, and where the
        leader is at the moment."""
        return (self.tablet_id, self.catalog_term, self.action, self.edits, self.target_uuid, self.config_opid)


class Subject(StrEnum):
    """The kind of thing that an outcome is about."""

    PROPOSAL = "PROPOSAL"
    DECISION = "DECISION"


class Result(StrEnum):
    """How a proposal or a decision ended."""

    ACCEPTED = "ACCEPTED"
    """The proposal is desired from now on; another outcome states how it ended."""
    REFUSED = "REFUSED"
    """The cluster moved on before the decision was carried out, or the deadline passed. The masters decide anew; it is
    never to be repeated."""
    DONE = "DONE"
    """The requested or decided state holds, by this call or by an earlier one."""
    FAILED = "FAILED"
    """The decision was not carried out."""


RETRYABLE_CODES = frozenset(
    {
        Code.NOT_LEADER,
        Code.NOT_READY,
        Code.CHANGE_PENDING,
        Code.STEPPING_DOWN,
        Code.OVERLOADED,
        Code.TIMED_OUT,
        Code.UNAVAILABLE,
        Code.INVALID_NAME,
        Code.TABLET_FAILED,
        Code.NO_SPACE,
    }
)
"""Codes of errors that may pass by themselves. Repeating is safe, because the leader compares the config and the
version."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of one proposal or decision. `code` is the reason, a number of `Code` or of a later build's; OK with
    DONE."""

    subject: Subject = Subject.DECISION
    subject_id: str
    plan_id: str
    tablet_id: str
    result: Result
    code: int
    message: str
    at_us: int = 0
    catalog_term: int = 0
    version: int = 0
    executor: str = ""
    """Name of the process that carried it out."""

    @property
    def retryable(self) -> bool:
        """Whether carrying it out again may help before the deadline."""
        return self.code in RETRYABLE_CODES


@dataclass(frozen=True, kw_only=True)
class ReplicaReport:
    """One replica of a reported tablet."""

    uuid: str
    address: str
    votes: bool
    promote: bool
    replace: bool
    health: str
    data_state: int
    bytes_on_disk: int
    rows: int
    is_leader: bool
    location: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the masters know of one tablet, or of one server, whose `tablet_id` is empty."""

    tablet_id: str = ""
    table_id: str = ""
    table_name: str = ""
    range_pos: int = 0
    bucket: int = 0
    replication_factor: int = 0
    config_opid: OpId = ZERO_OPID
    pending_change: bool = False
    leader_uuid: str = ""
    term: int = 0
    replicas: tuple[ReplicaReport, ...] = ()
    server_uuid: str = ""
    server_address: str = ""
    alive: bool = True
    location: str = ""
    catalog_term: int
    at_us: int
    numbers: Mapping[str, int] = field(default_factory=dict)
    """What the schema has no field for, by name; an absent one is 0 or not known. Readers leave out names that they do
    not know."""


class EventKind(StrEnum):
    """The kinds of events in the history."""

    CONFIG = "CONFIG"
    """The masters' catalog has recorded a committed config of a tablet, whatever caused it."""
    DROPPED = "DROPPED"
    """The masters' catalog has recorded that the tablet is dropped."""
    DECIDED = "DECIDED"
    """The leading master has published a decision."""
    WITHDRAWN = "WITHDRAWN"
    """The leading master has withdrawn the tablet's decision."""
    SNAPSHOT_BEGAN = "SNAPSHOT_BEGAN"
    SNAPSHOT = "SNAPSHOT"
    """The config of one tablet, as a part of a snapshot."""
    SNAPSHOT_ENDED = "SNAPSHOT_ENDED"
    GAP = "GAP"
    """Events before this one were lost. A snapshot follows."""


@dataclass(frozen=True, kw_only=True)
class HistoryEvent:
    """One event of the topic `history`. Its kind determines which fields it has; the others are empty.

    Every master derives equal CONFIG and DROPPED events from an entry of the catalog, so a repeated one is a double.
    """

    kind: EventKind
    tablet_id: str = ""
    table_id: str = ""
    catalog_opid: OpId = ZERO_OPID
    """CONFIG, DROPPED: the entry of the catalog that caused it. SNAPSHOT and its begin and end: an entry that the
    catalog contained when the record was read."""
    after: OpId = ZERO_OPID
    """CONFIG, DROPPED: the entry before `catalog_opid` that changed any tablet's config. SNAPSHOT_BEGAN: the last entry
    that did, as of `catalog_opid`. A reader proves with it that no event is missing."""
    tablets: int = 0
    """CONFIG, DROPPED: the number of tablets that the entry changed. SNAPSHOT_ENDED: the snapshot's number of
    tablets."""
    at_us: int
    """Wall-clock time of the master that led; of CONFIG and DROPPED, the entry's hybrid time."""
    by: str = ""
    """The uuid of the master that observed it; empty for CONFIG and DROPPED, which all masters observe."""
    snapshot_id: str = ""
    config_opid: OpId = ZERO_OPID
    """The config's position; of a decision, that of the config on which the decision is based."""
    members: tuple[Member, ...] = ()
    decision_term: int = 0
    decision_version: int = 0
    """DECIDED: the decision. Otherwise: the last decision that the config contains."""
    unsafe: bool = False
    """Whether the config was forced, without its majority."""
    edits: tuple[ConfigEdit, ...] = ()
    to_uuid: str = ""
    """The target of a transfer of leadership."""
    plan_id: str = ""
    reason: str = ""

    @property
    def config(self) -> RaftConfig:
        """Return the config of a CONFIG or SNAPSHOT event."""
        return RaftConfig(self.config_opid, self.members, (self.decision_term, self.decision_version), self.unsafe)

    @property
    def decision(self) -> Decision:
        """Return the decision of a DECIDED event, without its deadline and its leader."""
        return Decision(
            tablet_id=self.tablet_id, table_id=self.table_id, catalog_term=self.decision_term,
            version=self.decision_version, edits=self.edits, target_uuid=self.to_uuid, config_opid=self.config_opid,
            action=Action.CHANGE_CONFIG if self.edits else Action.TRANSFER_LEADERSHIP, reason=self.reason,
            plan_id=self.plan_id,
        )  # fmt: skip
