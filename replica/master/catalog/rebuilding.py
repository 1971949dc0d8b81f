"""Makes the records of a new catalog from the replicas of tablet servers, after all masters were lost. Pure.

Facts that no tablet server knows are left out; `LOST` lists them. Contradictions between servers become problems, each
with a remedy. If there are any, no catalog is made, because a wrong catalog may delete replicas or apply rows twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nyala.replica.rows import PartitionSpec, SourceFormat, SourceKey, TableDescription, TableSchema
from nyala.replica.types import Address, Member, RaftConfig, limits, new_uuid

from .records import CLUSTER, FINALIZED, NAME, SOURCE, TABLE, TABLET, Cluster, Finalized, Position, Record, TableId
from .records import Tablet as TabletRecord
from .sources import source_name
from .tables import table_record

GENERATIONS_UNSEEN_MAX = 1 << 20
"""The most resets of a source whose generation no tablet has seen, but perhaps a query."""
LOST = (
    "writer schemas, and the topic and framing that a table's source declares: name the latter with --source, unless "
    "they are writes.TABLE and single-object, and register the schemas again before the ingest starts",
    "when each source began, its owner and its lease; resets of sources that no tablet has heard of",
    "desired changes, numbers of voters of single tablets, retirements, maintenance",
    "which tables were dropped a short time ago, request ids of tables that were created, times of Spark queries",
)
"""The facts that no tablet server knows."""


_UNREAD = (
    "Repeat the command when it has a leader. If it lost its majority, first recover it with `nyala unsafe recover "
    "--no-masters`, or leave it out with --leave-out"
)


@dataclass(frozen=True, kw_only=True)
class FoundSource:
    """A tablet's position in one source: its leader has applied every row of the tablet below `position`."""

    source: SourceKey
    generation: int
    position: int


@dataclass(frozen=True, kw_only=True)
class FoundTablet:
    """One tablet as its leader reports it: its table, and its committed config."""

    tablet_id: str
    table_id: str
    table_name: str
    bucket: int
    range_pos: int
    partition: PartitionSpec
    table_schemas: tuple[TableSchema, ...]
    history_retention_us: int
    config: RaftConfig
    sources: tuple[FoundSource, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FoundCluster:
    """The tablets and servers that were found in a cluster without masters."""

    cluster_id: str
    feature_level: int = 1
    servers: Mapping[str, Address]
    """The servers that answered, by uuid."""
    tablets: Sequence[FoundTablet]
    unread: Mapping[str, str] = field(default_factory=dict)
    """By tablet, the reason why it could not be read, although servers hold replicas of it."""
    problems: tuple[str, ...] = ()
    """The reasons why the servers are not those of one cluster. If there are any, the servers were not asked for
    tablets."""
    ids: frozenset[str] = frozenset()
    """The ids of all tables and tablets of which servers hold replicas, those that were not read included."""


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """The statements of the operator, and the answers of Kafka."""

    lost_servers: frozenset[str] = frozenset()
    """Uuids, or addresses, of servers that do not come back."""
    left_out: frozenset[str] = frozenset()
    """Tables and tablets, by id, that are not to be in the catalog."""
    missing: bool = False
    """Whether a table may lack tablets."""
    declared: Mapping[str, SourceFormat] = field(default_factory=dict)
    """The source that a table declares, by the table's name."""
    topics: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The name of a topic, by Kafka cluster and topic id."""
    first_kept: Mapping[SourceKey, int] = field(default_factory=dict)
    """The first offset that Kafka still has."""


@dataclass(frozen=True, kw_only=True)
class RebuiltTable:
    """One table of the new catalog."""

    description: TableDescription
    tablets: int
    missing: tuple[tuple[int, int], ...]
    """(bucket, range position) of tablets of which nothing was found."""


@dataclass(frozen=True, kw_only=True)
class RebuiltSource:
    """One source position of the new catalog."""

    position: Position
    without: tuple[str, ...]
    """Tablets that have applied no row of the source's generation; they count as complete."""


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """The new catalog, or the problems because of which there is none."""

    tables: tuple[RebuiltTable, ...]
    sources: tuple[RebuiltSource, ...]
    problems: tuple[str, ...]
    records: Mapping[str, Record]


def rebuild_catalog(found: FoundCluster, allowed: Allowed, now_us: int) -> Rebuilt:
    """Return the catalog of these tablets."""
    if found.problems:
        return Rebuilt(tables=(), sources=(), problems=found.problems, records={})
    left_out = allowed.left_out
    tablets = [t for t in found.tablets if t.tablet_id not in left_out and t.table_id not in left_out]
    by_table: dict[str, list[FoundTablet]] = {}
    for tablet in sorted(tablets, key=lambda t: (t.range_pos, t.bucket, t.tablet_id)):
        by_table.setdefault(tablet.table_id, []).append(tablet)
    problems = [f"tablet {t}: {why}. {_UNREAD}" for t, why in sorted(found.unread.items())]
    problems += [*_unseen_members(tablets, found, allowed), *_same_names(by_table)]
    names = {t.table_name for t in tablets}
    problems += [
        f"no table is called {name}, of which --source says the source"
        for name in sorted(allowed.declared.keys() - names)
    ]
    problems += [f"no server holds anything of {i}, which --leave-out names" for i in sorted(left_out - found.ids)]
    tables: list[RebuiltTable] = []
    sources: list[RebuiltSource] = []
    records: dict[str, Record] = {CLUSTER: Cluster(id=found.cluster_id)}
    if found.feature_level > 1:
        records[FINALIZED] = Finalized(level=found.feature_level, since_us=now_us)
    for table_id, of_table in sorted(by_table.items(), key=lambda each: (each[1][0].table_name, each[0])):
        if why := list(_disagreements(of_table)):
            problems += why
            continue
        table = _table(of_table, allowed, now_us)
        if table.missing and not allowed.missing:
            problems.append(_missing_text(table))
        tables.append(table)
        of_sources = list(_positions(table.description, of_table, allowed))
        sources += of_sources
        described = table.description
        records |= {TABLE + table_id: table_record(described), NAME + described.name: TableId(table_id=table_id)}
        records |= {TABLET + t.tablet_id: _tablet_record(t) for t in of_table}
        records |= dict(_lost_tablets(table, found.servers))
        records |= {SOURCE + source_name(table_id, s.position.source): s.position for s in of_sources}
    return Rebuilt(tables=tuple(tables), sources=tuple(sources), problems=tuple(problems), records=records)


def _unseen_members(tablets: Sequence[FoundTablet], found: FoundCluster, allowed: Allowed) -> Iterator[str]:
    """Yield a problem for each member of a config that did not answer, unless the operator calls it lost. It may hold
    tablets of which no other server knows."""
    unseen: dict[str, Member] = {m.uuid: m for t in tablets for m in t.config.members if m.uuid not in found.servers}
    for uuid, member in sorted(unseen.items()):
        addresses = {str(a) for a in member.addresses}
        if allowed.lost_servers & {uuid, *addresses}:
            continue
        count = sum(t.config.member(uuid) is not None for t in tablets)
        where = ", ".join(sorted(addresses)) or "an unknown address"
        yield (
            f"server {uuid} at {where} is a member of {count} tablets and was not asked: start it and name it with "
            f"--servers, or if it is lost for good, say --lost-server {uuid}"
        )


def _same_names(by_table: Mapping[str, Sequence[FoundTablet]]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for table_id, tablets in sorted(by_table.items()):
        names.setdefault(tablets[0].table_name, []).append(table_id)
    for name, ids in names.items():
        if len(ids) > 1:
            found = ", ".join(f"{i} with {len(by_table[i])} tablets" for i in ids)
            yield (
                f"several tables are called {name}: {found}. All but one of them were dropped: leave those out with "
                "--leave-out TABLE_ID; their replicas stay where they are"
            )


def _disagreements(tablets: Sequence[FoundTablet]) -> Iterator[str]:
    first = tablets[0]
    table = f"table {first.table_name} ({first.table_id})"
    if {(t.table_name, t.partition) for t in tablets} != {(first.table_name, first.partition)}:
        yield f"{table}: its tablets do not have one name and one partition. Leave the wrong ones out with --leave-out"
        return
    schemas = {(s.schema_id, s) for t in tablets for s in t.table_schemas}
    if not schemas or len(schemas) != len({number for number, _ in schemas}):
        yield f"{table}: its tablets know different schemas of one version. Leave the wrong ones out with --leave-out"
    places = {(bucket, range_pos) for bucket, range_pos in first.partition.partitions}
    seen: dict[tuple[int, int], str] = {}
    for tablet in tablets:
        place = tablet.bucket, tablet.range_pos
        if place not in places:
            yield f"{table}: tablet {tablet.tablet_id} is of bucket {place[0]}, range {place[1]}, which it cannot have"
        if place in seen:
            yield (
                f"{table}: the tablets {seen[place]} and {tablet.tablet_id} are of the same bucket {place[0]}, range "
                f"{place[1]}: one of them was replaced by the other. Leave that one out with --leave-out TABLET_ID"
            )
        seen[place] = tablet.tablet_id


def _table(tablets: Sequence[FoundTablet], allowed: Allowed, now_us: int) -> RebuiltTable:
    first = tablets[0]
    fed = {allowed.topics.get((s.source.cluster_id, s.source.topic_id), "") for t in tablets for s in t.sources} - {""}
    topic = fed.pop() if len(fed) == 1 else f"writes.{first.table_name}"
    schemas = {s.schema_id: s for t in tablets for s in t.table_schemas}
    *older, newest = (schemas[number] for number in sorted(schemas))
    description = TableDescription(
        table_id=first.table_id,
        name=first.table_name,
        schema=newest,
        partition=first.partition,
        replication_factor=_replication_factor(tablets),
        history_retention_us=max(t.history_retention_us for t in tablets),
        created_us=now_us,
        source=allowed.declared.get(first.table_name, SourceFormat(topic)),
        older_schemas=tuple(older),
    )
    there = {(t.bucket, t.range_pos) for t in tablets}
    missing = tuple(place for place in first.partition.partitions if place not in there)
    return RebuiltTable(description=description, tablets=len(tablets), missing=missing)


def _replication_factor(tablets: Sequence[FoundTablet]) -> int:
    """Return the number of voters that most tablets have; if two numbers are equally frequent, the higher one. While a
    replica moves or is replaced, a tablet has one voter more or less. So an even number becomes the odd one below it,
    and 2 becomes 3."""
    numbers = Counter(sum(m.votes and not m.replace for m in t.config.members) or 1 for t in tablets)
    number = max(numbers, key=lambda n: (numbers[n], n))
    odd = number if number % 2 else max(3, number - 1)
    return min(odd, limits.REPLICAS_MAX)


def _tablet_record(tablet: FoundTablet) -> TabletRecord:
    """Return the record of a tablet that had a leader, with its present config as the first and the known one."""
    config = tablet.config
    first = tuple(Member(m.uuid, m.addresses) for m in config.members if m.votes)
    return TabletRecord(
        table_id=tablet.table_id,
        bucket=tablet.bucket,
        range_pos=tablet.range_pos,
        members=first,
        formed=True,
        config=config,
    )


def _lost_tablets(table: RebuiltTable, servers: Mapping[str, Address]) -> Iterator[tuple[str, TabletRecord]]:
    """Yield a record for each tablet of which nothing was found. It is like the record of a tablet that lost all
    replicas: `nyala unsafe replace` puts an empty tablet in its place, and moves the sources back."""
    uuids = sorted(servers)[: table.description.replication_factor]
    members = tuple(Member(uuid, (servers[uuid],)) for uuid in uuids)
    for bucket, range_pos in table.missing:
        yield (
            TABLET + new_uuid(),
            TabletRecord(
                table_id=table.description.table_id, bucket=bucket, range_pos=range_pos, members=members, formed=True
            ),
        )


def _positions(table: TableDescription, tablets: Sequence[FoundTablet], allowed: Allowed) -> Iterator[RebuiltSource]:
    """Yield the source positions of a table.

    The generation is the highest that any tablet has: with a lower one, tablets would refuse every write. The next
    reset skips the generations that a query may have begun and no tablet has seen. `done` is the lowest position of the
    tablets that have this generation, so no row is skipped; the ledgers drop rows that are read again. It is not below
    the first offset that Kafka still has, because no ingest could begin there. `start`, the bound for lowering `done`
    later, is not known.
    """
    keys = sorted({s.source for t in tablets for s in t.sources})
    for key in keys:
        of_key = [(t.tablet_id, s) for t in tablets for s in t.sources if s.source == key]
        generation = max(s.generation for _, s in of_key)
        complete = {tablet_id: s.position for tablet_id, s in of_key if s.generation == generation}
        lowest, highest = min(complete.values()), max(complete.values())
        done = max(lowest, min(highest, allowed.first_kept.get(key, 0)))
        position = Position(
            table_id=table.table_id,
            table=table.name,
            topic=allowed.topics.get((key.cluster_id, key.topic_id), f"writes.{table.name}"),
            cluster_id=key.cluster_id,
            topic_id=key.topic_id,
            kafka_partition=key.kafka_partition,
            generation=generation,
            start=0,
            done=done,
            owner_run="",
            owner_deadline_us=0,
            unseen_generation=generation + GENERATIONS_UNSEEN_MAX,
        )
        without = tuple(t.tablet_id for t in tablets if t.tablet_id not in complete)
        yield RebuiltSource(position=_retired(position, keys, allowed), without=without)


def _retired(position: Position, keys: Sequence[SourceKey], allowed: Allowed) -> Position:
    """Return the position, marked retired if its topic was deleted and created again: Kafka lacks its topic id, but has
    that of another position of the same cluster and partition number."""
    if not allowed.topics or (position.cluster_id, position.topic_id) in allowed.topics:
        return position
    others = [k for k in keys if k.kafka_partition == position.kafka_partition and k != position.source]
    renewed = any((k.cluster_id, k.topic_id) in allowed.topics for k in others if k.cluster_id == position.cluster_id)
    return replace(position, retired=True) if renewed else position


def _missing_text(table: RebuiltTable) -> str:
    places = ", ".join(f"bucket {bucket} of range {range_pos}" for bucket, range_pos in table.missing[:3])
    more = f" and {len(table.missing) - 3} more" if len(table.missing) > 3 else ""
    described = table.description
    return (
        f"table {described.name} ({described.table_id}) lacks {len(table.missing)} of "
        f"{described.partition.tablets} tablets: {places}{more}. Name all servers with --servers. If these tablets are "
        "lost for good, say --accept-missing, and `nyala unsafe replace` puts empty ones in their place afterwards. If "
        f"the table was dropped, say --leave-out {described.table_id}"
    )
