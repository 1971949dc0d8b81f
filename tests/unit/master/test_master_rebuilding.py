"""The catalog that is made of what tablet servers hold, after all masters were lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import MASTER, read_instance
from nyala.replica.master import (
    CATALOG_ID,
    Allowed,
    Catalog,
    FoundCluster,
    FoundSource,
    FoundTablet,
    Rebuilt,
    first_term,
    has_catalog,
    has_taken_part,
    rebuild_catalog,
)
from nyala.replica.master.catalog.records import NAME, SOURCE, TABLE, TABLET
from nyala.replica.master.catalog.sources import open_sources, reset_source, source_name
from nyala.replica.master.catalog.tables import table_described
from nyala.replica.rows import Column, ColumnType, PartitionSpec, SourceFormat, SourceKey, TableSchema
from nyala.replica.rpc import pb, source_to_pb
from nyala.replica.tools import write_master
from nyala.replica.types import Address, Member, OpId, RaftConfig, Refused
from tests.harness.catalogs import AppliedCatalog
from tests.harness.copies import TestClock
from tests.harness.sim_disk import SimCrash, SimDisk

SERVERS = {u * 32: Address("h", number) for number, u in enumerate("abcd", 7001)}
A, B, C, D = SERVERS
OF_ABC = tuple(Member(u, (SERVERS[u],)) for u in (A, B, C))
OLD, NEW = (
    TableSchema(n, (Column(id=1, name="id", type=ColumnType.INT64, nullable=False), *more), ("id",))
    for n, more in ((1, ()), (2, (Column(id=2, name="v", type=ColumnType.STRING),)))
)
TABLE_ID = "1" * 32
SOURCE_1 = SourceKey("kafka", "topic-1", 0)
NOW_US = 1_800_000_000_000_000


def tablet(bucket: int, *sources: FoundSource, table: str = TABLE_ID, name: str = "flights") -> FoundTablet:
    """One of two tablets of a table."""
    return FoundTablet(
        tablet_id=f"{table[0]}{bucket:031d}",
        table_id=table,
        table_name=name,
        bucket=bucket,
        range_pos=0,
        partition=PartitionSpec(("id",), 2),
        table_schemas=(OLD, NEW),
        history_retention_us=9,
        config=RaftConfig(OpId(3, 8), OF_ABC, (5, 2)),
        sources=sources,
    )


def at(position: int, generation: int = 1, source: SourceKey = SOURCE_1) -> FoundSource:
    return FoundSource(source=source, generation=generation, position=position)


def cluster(*tablets: FoundTablet) -> FoundCluster:
    servers = {u: SERVERS[u] for u in (A, B, C)}
    ids = frozenset({i for t in tablets for i in (t.tablet_id, t.table_id)})
    return FoundCluster(cluster_id="9" * 32, servers=servers, tablets=tablets, ids=ids)


def rebuilt_of(*tablets: FoundTablet, allowed: Allowed = Allowed()) -> Rebuilt:
    made = rebuild_catalog(cluster(*tablets), allowed, NOW_US)
    assert made.problems == ()
    return made


def test_rebuilt_catalog_has_every_table_its_tablets_and_their_configs() -> None:
    """OP-06. Goal: masters go on with each tablet where its servers are. Method: two tablets, of which one knows an
    older schema only; the records, as a master reads them from the disk."""
    first, second = replace(tablet(0), table_schemas=(OLD,)), tablet(1)
    disk = written(SimDisk(), rebuilt_of(first, second))
    catalog = Catalog.open(disk)
    table = catalog.get(TABLE, TABLE_ID)
    named = catalog.get(NAME, "flights")
    assert table is not None and named is not None and named.table_id == TABLE_ID
    described = table_described(table)
    assert (described.schema, described.older_schemas) == (NEW, (OLD,))
    assert described.replication_factor == 3 and described.history_retention_us == 9
    assert described.source == SourceFormat("writes.flights")
    found = dict(catalog.tablets_of(TABLE_ID))
    assert found.keys() == {first.tablet_id, second.tablet_id}
    for each in found.values():
        assert each.formed and each.config == first.config and each.members == OF_ABC and not each.dropped
    assert ConsensusMeta.load(disk, CATALOG_ID).term == TERM and catalog.flush_opid == OpId(TERM, 1)


TERM = first_term(5, NOW_US)


def written(disk: SimDisk, made: Rebuilt) -> SimDisk:
    write_master(disk, TestClock(), Address("m", 7), "9" * 32, 1, made, TERM)
    return disk


@pytest.mark.parametrize(
    ("marks", "wanted"),
    [
        ([3, 3, 3], 3), ([3, 3, 4], 3), ([2, 2, 3, 3], 3), ([4, 4, 3], 3), ([1, 1], 1), ([2, 2], 3), ([5, 5, 4, 4], 5),
        ([1, 3, 3], 3), ([9, 9], 7),
    ],
)  # fmt: skip
def test_replication_factor_is_the_odd_number_of_voters_that_most_tablets_have(marks: list[int], wanted: int) -> None:
    """OP-06. Goal: the masters do not remove a replica, or leave one out, because a tablet was in the middle of a
    change. Method: numbers of voters of a table's tablets, and the number that is wanted."""
    tablets = []
    for number, voters in enumerate(marks):
        members = tuple(Member(f"{n:032d}") for n in range(voters))
        config = RaftConfig(OpId(3, 8), members)
        tablets.append(replace(tablet(number), partition=PartitionSpec(("id",), len(marks)), config=config))
    allowed = Allowed(lost_servers=frozenset(m.uuid for t in tablets for m in t.config.members))
    (table,) = rebuilt_of(*tablets, allowed=allowed).tables
    assert table.description.replication_factor == wanted


Case = tuple[str, Callable[[], tuple[FoundCluster, Allowed]], str]
GOOD = (tablet(0), tablet(1))
OTHER = tuple(tablet(n, table="2" * 32) for n in (0, 1))
PROBLEMS: list[Case] = [
    ("a member was not asked", lambda: (replace(cluster(*GOOD), servers={A: SERVERS[A], B: SERVERS[B]}), Allowed()), C),
    ("two tables of one name", lambda: (cluster(*GOOD, *OTHER), Allowed()), "several tables are called flights"),
    ("a tablet is missing", lambda: (cluster(GOOD[0]), Allowed()), "lacks 1 of 2 tablets: bucket 1 of range 0"),
    (
        "a tablet has no leader",
        lambda: (replace(cluster(*GOOD), unread={"f" * 32: "no server says that it leads it"}), Allowed()),
        "unsafe recover",
    ),
    (
        "two tablets of one place",
        lambda: (cluster(*GOOD, replace(GOOD[1], tablet_id="e" * 32)), Allowed()),
        "of the same bucket 1",
    ),
    (
        "a tablet of no place",
        lambda: (cluster(*GOOD, replace(GOOD[1], tablet_id="e" * 32, bucket=2)), Allowed()),
        "which it cannot have",
    ),
    (
        "two partitions",
        lambda: (cluster(GOOD[0], replace(GOOD[1], partition=PartitionSpec(("id",), 3))), Allowed()),
        "one name and one partition",
    ),
    (
        "two schemas of one version",
        lambda: (cluster(GOOD[0], replace(GOOD[1], table_schemas=(replace(NEW, schema_id=1),))), Allowed()),
        "different schemas of one version",
    ),
    ("leaves out what is not there", lambda: (cluster(*GOOD), Allowed(left_out=frozenset({"z"}))), "--leave-out names"),
    (
        "declares the source of no table",
        lambda: (cluster(*GOOD), Allowed(declared={"trains": SourceFormat("t")})),
        "no table is called trains",
    ),
    (
        "no servers of one cluster",
        lambda: (replace(cluster(*GOOD), problems=("of cluster 8",)), Allowed()),
        "of cluster 8",
    ),
]


@pytest.mark.parametrize(("given", "says"), [(c[1], c[2]) for c in PROBLEMS], ids=[c[0] for c in PROBLEMS])
def test_what_does_not_agree_is_named_and_no_catalog_is_written(
    given: Callable[[], tuple[FoundCluster, Allowed]], says: str
) -> None:
    """OP-06. Goal: no catalog is made of contradictions. Method: a cluster with one defect; the problem names it, and
    the directory stays as it was."""
    made = rebuild_catalog(*given(), NOW_US)
    assert len(made.problems) == 1 and says in made.problems[0]
    disk = SimDisk()
    with pytest.raises(Refused, match="nothing was written"):
        written(disk, made)
    assert disk.files == {}


def test_operator_may_leave_out_a_dropped_table_and_go_on_without_a_lost_server_or_tablet() -> None:
    """OP-06. Goal: each problem that an operator can decide has a way out. Method: a table of the same name is left
    out; a server is lost; a tablet is missing, and its record is that of a tablet which lost all replicas."""
    both = cluster(*GOOD, *OTHER)
    left = rebuild_catalog(both, Allowed(left_out=frozenset({"2" * 32})), NOW_US)
    assert left.problems == () and [t.description.table_id for t in left.tables] == [TABLE_ID]
    fewer = replace(cluster(*GOOD), servers={A: SERVERS[A], B: SERVERS[B]})
    for name in (C, str(SERVERS[C])):
        assert rebuild_catalog(fewer, Allowed(lost_servers=frozenset({name})), NOW_US).problems == ()
    catalog = Catalog.open(written(SimDisk(), rebuilt_of(GOOD[0], allowed=Allowed(missing=True))))
    lost = [t for name, t in catalog.tablets_of(TABLE_ID) if name != GOOD[0].tablet_id]
    assert [(t.bucket, t.formed, t.config, len(t.members)) for t in lost] == [(1, True, None, 3)]


LEDGERS = st.lists(
    st.dictionaries(
        st.sampled_from([SourceKey("kafka", f"topic-{n}", 0) for n in (1, 2)]),
        st.tuples(st.integers(1, 3), st.integers(0, 9)),
        max_size=2,
    ),
    min_size=2,
    max_size=2,
)


@pytest.mark.deep
@settings(max_examples=300)
@given(LEDGERS, st.integers(0, 12))
def test_position_is_ahead_of_no_tablet_and_its_generation_below_none(
    ledgers: list[dict[SourceKey, tuple[int, int]]], first_kept: int
) -> None:
    """OP-06. Goal: after a rebuild an ingest neither skips a row nor is refused by a tablet, and nothing that came
    from before a reset counts. Method: any ledgers of two tablets; for each source, generation and `done` against
    those of the tablets; then a query opens it, and a reset goes above every generation that may be in use."""
    tablets = [
        tablet(n, *(at(position, generation, key) for key, (generation, position) in ledger.items()))
        for n, ledger in enumerate(ledgers)
    ]
    known = {key for ledger in ledgers for key in ledger}
    made = rebuilt_of(*tablets, allowed=Allowed(first_kept=dict.fromkeys(known, first_kept)))
    assert {s.position.source for s in made.sources} == known
    box = AppliedCatalog()
    box.commit((made.records, [], "", None))
    for found in made.sources:
        key, done = found.position.source, found.position.done
        generations = [ledger[key][0] for ledger in ledgers if key in ledger]
        complete = [ledger[key][1] for ledger in ledgers if key in ledger and ledger[key][0] == max(generations)]
        assert found.position.generation == max(generations)
        assert done in (min(complete), min(max(complete), first_kept)) and done >= min(complete)
        assert done == min(complete) or done <= first_kept  # else Kafka still has the rows in between
        assert len(found.without) == 2 - len(complete)
        request = pb.OpenSourcesRequest(
            table="flights",
            opens=[pb.SourceOpen(source=source_to_pb(key), topic=f"named-{key.topic_id}", initial_start=3)],
            owner_run="run",
        )
        opened = box.commit(open_sources(box.catalog, request, NOW_US))[1][0]
        assert (opened.generation, opened.done, opened.topic) == (max(generations), done, f"named-{key.topic_id}")
        reset = pb.ResetSourceRequest(table="flights", source=source_to_pb(key), to_offset=5, force=True)
        again = box.commit(reset_source(box.catalog, reset, NOW_US))
        assert again.generation > max(generations) + 1000 and (again.start, again.done) == (5, 5)


def test_topic_names_come_from_kafka_and_a_topic_that_was_replaced_is_retired() -> None:
    """OP-06. Goal: a recreated topic is noticed after a rebuild, too. Method: positions of two topic ids of one
    partition, of which Kafka has one, under a name; that one is declared by the table, the other retired. Without
    Kafka both have the default name."""
    gone = SourceKey("kafka", "topic-0", 0)
    tablets = (tablet(0, at(5), at(7, source=gone)), tablet(1, at(6)))
    made = rebuilt_of(*tablets, allowed=Allowed(topics={("kafka", "topic-1"): "events"}))
    states = {s.position.source: (s.position.topic, bool(s.position.retired)) for s in made.sources}
    assert states == {SOURCE_1: ("events", False), gone: ("writes.flights", True)}
    assert made.tables[0].description.source.topic == "events"
    assert {s.position.topic for s in rebuilt_of(*tablets).sources} == {"writes.flights"}
    declared = SourceFormat("other", "confluent")
    made = rebuilt_of(*tablets, allowed=Allowed(declared={"flights": declared}))
    assert made.tables[0].description.source == declared
    assert made.records[SOURCE + source_name(TABLE_ID, SOURCE_1)]


def test_term_is_above_each_decision_and_above_an_earlier_rebuild() -> None:
    """OP-06. Goal: decisions of lost masters, in Kafka or under way, count as old. Method: terms that lost masters can
    have had, also in a forced generation; and a second rebuild a minute later, before any decision was carried out."""
    for term in (0, 5, (1 << 32) - 1, 1 << 32, (3 << 32) + 9):
        after = first_term(term, NOW_US)
        assert after >> 32 == (term >> 32) + 1 and after & 0xFFFF_FFFF < 1 << 31
        assert first_term(term, NOW_US + 60_000_000) > after


def test_directory_of_a_rebuild_that_was_cut_off_starts_no_master(caplog: pytest.LogCaptureFixture) -> None:
    """OP-06. Goal: all or nothing. Method: the process dies before each replacement of a file: either the directory is
    empty, or it refuses to start, until the last one; then it has the whole catalog, and nothing was logged as lost."""
    made = rebuilt_of(*GOOD)
    whole = written(SimDisk(), made)
    steps = whole.count("replace")
    assert steps == 7 and not caplog.records
    for skip, loses_power in itertools.product(range(steps), (False, True)):
        disk = SimDisk()
        disk.fail_on("replace", "*", "CRASH", skip=skip)
        with pytest.raises(SimCrash):
            written(disk, made)
        disk.power_loss(random.Random(skip)) if loses_power else disk.restart()
        instance = read_instance(disk)
        if instance is None:
            assert skip == 0 and disk.files == {}
            continue
        assert instance.kind == MASTER and has_taken_part(instance) and not has_catalog(disk)
    assert Catalog.open(whole).get(TABLET, GOOD[0].tablet_id) is not None
