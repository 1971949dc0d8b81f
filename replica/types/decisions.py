"""The records on the masters' topics: proposals of jobs, decisions of the masters, outcomes of both, and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .errors import Code
from .ids import ZERO_OPID, ConfigEdit, OpId


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
