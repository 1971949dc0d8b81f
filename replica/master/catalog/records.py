"""The records of the catalog: a frozen dataclass for each kind, and the one JSON form of each. Pure.

A catalog entry carries records as JSON (Avro `CatalogChange`). A field of a dataclass is a field of the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar

from nyala.replica.consensus_metadata import members_from_json, members_json
from nyala.replica.policy import ChangeKind, DesiredChange
from nyala.replica.rows import SourceKey
from nyala.replica.types import Member, OpId, RaftConfig

Json = dict[str, Any]
Small = Annotated[int, "below 2^31"]
Uuid = Annotated[str, "32 hexadecimal digits"]
HybridTime = Annotated[int, "up to MAX_HYBRID_TIME"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table. `described`: its `TableInfo` as protobuf's JSON, which masters keep for clients and servers."""

    name: str
    replication_factor: Small
    described: Json


@dataclass(frozen=True, kw_only=True)
class TableId:
    """The id of the table that has a name, or that a request created."""

    table_id: str


@dataclass(frozen=True, kw_only=True)
class Tablet:
    """A tablet of a table, at a hash bucket and a range. Times are microseconds of the wall clock."""

    table_id: str
    bucket: Small
    range_pos: Small
    members: tuple[Member, ...]
    """Its first members, all of them voters."""
    formed: bool = False
    """Whether it has had a leader."""
    config: RaftConfig | None = None
    """The last committed config that was proven, or that an operator confirmed."""
    replication_factor: Small = 0
    """Its own number of voters; 0: its table's."""
    wishes: int = 0
    """The number of its desired changes so far."""
    dropped_us: int | None = None
    holders: tuple[str, ...] | None = None
    """The servers that may have a replica of the dropped tablet; None: not known yet."""
    gone_us: int | None = None
    """The time since which no server has a replica of the dropped tablet."""
    replaced_by: str = ""
    """The empty tablet in the place of this one, which was lost."""

    @property
    def dropped(self) -> bool:
        """Whether its table was dropped, or another tablet is in its place."""
        return self.dropped_us is not None

    @cached_property
    def first_config(self) -> RaftConfig:
        """Its first config."""
        return RaftConfig(OpId(0, 0), self.members)

    @property
    def known_config(self) -> RaftConfig:
        """The last committed config that the catalog knows: a proven one, or the one with which it began."""
        return self.config or self.first_config


@dataclass(frozen=True, kw_only=True)
class Position:
    """The position of one Kafka partition in one table [design §3.4]."""

    table_id: str
    table: str
    topic: str
    cluster_id: str
    topic_id: str
    kafka_partition: Small
    generation: int
    start: int
    done: int
    owner_run: str
    owner_deadline_us: int
    retired: bool | None = None
    """Whether another topic's position replaced it. None counts as False, and is written for a position that replaced
    no other one itself."""
    unseen_generation: int = 0
    """The highest generation that a query may have begun. Set only if the catalog was rebuilt from tablets, which may
    not have seen that generation."""

    @property
    def source(self) -> SourceKey:
        """The Kafka partition."""
        return SourceKey(self.cluster_id, self.topic_id, self.kafka_partition)


@dataclass(frozen=True, kw_only=True)
class Retired:
    """A tablet server that is to be emptied."""

    since_us: int
    reason: str
    tablets_at_first: Small


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """A server on which an operator works until `until_us`, a wall-clock time."""

    since_us: int
    until_us: int
    seconds: int
    """The length that the operator asked for at `since_us`."""
    owner: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Desired:
    """The number of changes of lasting desired state: replication factors, retired servers, maintenance."""

    changes: int


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster's identity."""

    id: Uuid


@dataclass(frozen=True, kw_only=True)
class Takeover:
    """The number of times that another directory took over a master's uuid."""

    takeover: int


@dataclass(frozen=True, kw_only=True)
class Finalized:
    """The feature level of the cluster; without this record it is 1. Builds that do not know the level are refused."""

    level: Small
    since_us: int


@dataclass(frozen=True, kw_only=True)
class ReadTime:
    """The time at which the tasks of one Spark query read, which never changes. `host` proposed it."""

    application: Uuid
    load_id: Uuid
    query: int
    time: HybridTime
    host: str


@dataclass(frozen=True, kw_only=True)
class ReadLoad:
    """A `load()` of Spark of which at least one query has a time in the catalog."""

    made_term: int
    made_index: int
    """The catalog's position when it was made."""
    from_query: int = 0
    """Lower queries may have had times that are forgotten."""

    @property
    def made(self) -> OpId:
        """The catalog's position when it was made."""
        return OpId(self.made_term, self.made_index)


@dataclass(frozen=True, kw_only=True)
class ReadFloor:
    """A position of the catalog: a `load()` made there or before, of which the catalog has no record, may be
    forgotten."""

    term: int
    index: int


Record = (
    Table | TableId | Tablet | Position | DesiredChange
    | Retired | Maintenance | Desired | Cluster | Takeover | Finalized | ReadTime | ReadLoad | ReadFloor | Json
)  # fmt: skip
"""Any record. A record of a kind that only a later build knows stays JSON."""
R = TypeVar("R")


class Kind(str, Generic[R]):
    """The first part of the keys of all records of one type."""


TABLE, NAME, REQUEST = Kind[Table]("table/"), Kind[TableId]("name/"), Kind[TableId]("request/")
TABLET, DESIRED_CHANGE, SOURCE = Kind[Tablet]("tablet/"), Kind[DesiredChange]("wish/"), Kind[Position]("source/")
RETIRED, DESIRED = Kind[Retired]("retired/"), Kind[Desired]("desired")
MAINTENANCE = Kind[Maintenance]("maintenance/")
CLUSTER, MASTER = Kind[Cluster]("cluster/id"), Kind[Takeover]("master/")
FINALIZED = Kind[Finalized]("feature-level")
READ_TIME, READ_LOAD = Kind[ReadTime]("read-time/"), Kind[ReadLoad]("read-load/")
READ_FLOOR = Kind[ReadFloor]("read-floor")
TYPES = {
    "table": Table, "name": TableId, "request": TableId, "tablet": Tablet, "wish": DesiredChange, "source": Position,
    "retired": Retired, "maintenance": Maintenance, "desired": Desired, "cluster": Cluster, "master": Takeover,
    "feature-level": Finalized, "read-time": ReadTime, "read-load": ReadLoad, "read-floor": ReadFloor,
}  # fmt: skip
"""The type of a record, by the first part of its key."""
SINGLE = (DESIRED, FINALIZED, READ_FLOOR)
"""Kinds with one record, whose key has one part."""


def group_of(key: str) -> str:
    """The first part of a key."""
    return key.partition("/")[0]


def _config(found: Json) -> RaftConfig:
    opid, decision = OpId(found["term"], found["index"]), (found["decision"][0], found["decision"][1])
    return RaftConfig(opid, members_from_json(found["members"]), decision, found["unsafe"])


def _config_json(config: RaftConfig) -> Json:
    marks = {"decision": list(config.decision), "unsafe": config.unsafe, "members": members_json(config)}
    return {"term": config.opid.term, "index": config.opid.index, **marks}


_READ: Mapping[str, Callable[[Any], object]] = {
    "members": lambda found: RaftConfig(OpId(0, 0), members_from_json(found)).members,  # no member twice
    "config": _config,
    "holders": tuple,
    "kind": ChangeKind,
}
_FIELDS: Mapping[type, tuple[str, ...]] = {kind: tuple(f.name for f in fields(kind)) for kind in TYPES.values()}
_WRITE: Mapping[str, Callable[[Any], object]] = {
    "members": lambda members: [{"uuid": m.uuid, "addresses": [str(a) for a in m.addresses]} for m in members],
    "config": _config_json,
    "holders": list,
}
"""By a field's name, the functions that read and write it. A field that is not listed is its JSON value."""


def read(key: str, found: Json) -> Record:
    """The record of that key; fields that this build does not know are left out. Raises KeyError, TypeError, ValueError
    or InvariantViolation if it is not a record."""
    kind = TYPES.get(group_of(key))
    if kind is None:
        return found
    known = {n: _READ[n](found[n]) if n in _READ else found[n] for n in _FIELDS[kind] if n in found}
    record: Record = kind(**known, **({"described": found} if kind is Table else {}))
    return record


def write(record: Record, before: Json | None = None, was: Record | None = None) -> Json:
    """The JSON of a record.

    `before`: the JSON of the record that it replaces; `was`: the same, read. Equal fields keep their JSON, with
    everything that a later build has added to it.
    """
    if isinstance(record, dict):
        return record
    if isinstance(record, Table):
        before, was = record.described, None
    out = {**(before or {})}
    for f in fields(record):
        value = getattr(record, f.name)
        if f.name == "described" or (was is not None and value == getattr(was, f.name)):
            continue
        if value == f.default and may_lack(type(record), f.name) and f.name != "witness":  # which each change has
            out.pop(f.name, None)
        else:
            out[f.name] = _WRITE[f.name](value) if f.name in _WRITE else value
    return out


def may_lack(kind: type, field: str) -> bool:
    """Whether the JSON of a record of that kind may lack that field."""
    if kind is DesiredChange:
        return field in ("witness", "cancelled")
    return any(f.name == field and f.default is not MISSING for f in fields(kind))
