"""A tablet that is a million offsets behind its source: tasks, ledgers and catalog together, at offsets of our own."""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from nyala import schemas
from nyala.pipeline.errors import TaskFailed
from nyala.pipeline.framing import Framing, wrap
from nyala.pipeline.row_schema import row_schema_json
from nyala.pipeline.task import Position, Task, TaskPlan
from nyala.pipeline.topics import TopicIdentity
from nyala.replica.client import ClientOptions, SourceWriter, TableHandle, TabletHandle
from nyala.replica.master.catalog.sources import advance_sources, open_sources
from nyala.replica.master.catalog.tables import create_table
from nyala.replica.policy import ServerView
from nyala.replica.rows import Column, ColumnType, PartitionSpec, SourceKey, TableSchema, WriteMeta, route
from nyala.replica.rpc import error_to_pb, pb, row_errors_to_pb, source_from_pb, source_to_pb
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.types import Address, Entry, EntryKind, Member, OpId
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.row_keys import encode_key
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import rows_of

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="id", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
    ),
    ("id",),
)
ROW = row_schema_json(SCHEMA)
SPEC = PartitionSpec(("id",), 2)
IDS = ("a" * 32, "b" * 32)
TOPIC = TopicIdentity("c", "writes.flights", "id1", 1)
SOURCE = SourceKey(TOPIC.cluster_id, TOPIC.topic_id, 0)
SERVER = ServerView(uuid="1" * 32, member=Member("1" * 32, (Address("h", 7),)))
FIRST_US = 100_000_000
MILLION = 1_000_000


class Tablets:
    """Both tablets, and the client's calls as far as a SourceWriter uses them: their leader is here, and answers."""

    def __init__(self) -> None:
        self.options = ClientOptions(backoff_first_s=0.001, backoff_max_s=0.002)
        self.rng = random.Random(1)
        self.locator = self.channels = self.Write = self
        self.time_seen = 0
        self._disks = [SimDisk() for _ in IDS]
        self.tablets = {
            name: Tablet.create(
                disk,
                Superblock(tablet_id=name, table_id="t", table_schemas=(SCHEMA,), history_retention_us=1 << 50),
            )
            for name, disk in zip(IDS, self._disks, strict=True)
        }

    def version(self, table: str) -> int:
        return 1

    def leader(self, tablet_id: str) -> tuple[str, Address]:
        return "u", Address("h", 7)

    def leader_answered(self, tablet_id: str, uuid: str) -> None: ...

    def observe(self, hybrid_time: int) -> None: ...

    def tablet_server(self, address: Address) -> Tablets:
        return self

    def small_writes(self, address: Address) -> Tablets:
        return self

    def begin(self, request: Any, timeout_s: float) -> None:
        """There is no link here: small writes are calls too."""

    def future(self, request: Any, timeout: float) -> Reply:
        """The Write call: an entry of the tablet's log, applied."""
        tablet = self.tablets[request.tablet_id]
        meta = WriteMeta(
            tuple(request.column_ids),
            request.rows,
            source_from_pb(request.source),
            request.generation,
            request.after if request.has_after else None,
            request.done,
        )
        at = OpId(1, tablet.applied_opid.index + 1)
        time = at.index << 12
        entry = Entry(at, EntryKind.WRITE, time, 1, meta.encode(), request.payload, request.payload_crc)
        (result,) = tablet.apply([entry])
        return Reply(
            pb.WriteReply(
                error=error_to_pb(result.error),
                row_errors=row_errors_to_pb(result.row_errors),
                hybrid_time=result.hybrid_time,
                last_offset=result.last_offset if result.last_offset is not None else -1,
                rows_applied=result.rows_applied,
                rows_replayed=result.rows_replayed,
            )
        )

    def restart(self) -> None:
        """Both come back from what they have flushed, which is everything."""
        for name, disk in zip(IDS, self._disks, strict=True):
            self.tablets[name].flush()
            self.tablets[name].close()
            self.tablets[name] = Tablet.open(disk, Superblock.load(disk, name))

    def rows(self) -> list[int]:
        """The keys that are in the table, each as often as it is there."""
        return sorted(row["id"] for each in self.tablets.values() for row in rows_of(each.scan(), SCHEMA))

    def last_offsets(self) -> list[int]:
        """How far the source is in each tablet's ledger."""
        return [state.last_offset for name in IDS for state in self.tablets[name].ledger_sources()]

    def close(self) -> None:
        for name, disk in zip(IDS, self._disks, strict=True):
            self.tablets[name].close()
            disk.close()


class Reply:
    """A call that has ended."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def result(self) -> Any:
        return self._reply

    def cancel(self) -> None: ...


class Letters:
    """The dead-letter topic: offsets of what was put there."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def put(self, origin: Any, letter: Any) -> None:
        self.offsets.append(letter.kafka_offset)

    def flush(self) -> None: ...


class World:
    """A topic of one partition, the table that it feeds, and the catalog."""

    def __init__(self) -> None:
        self.tablets = Tablets()
        self.letters = Letters()
        self.catalog = AppliedCatalog()
        self.table_id = self.catalog.commit(create_table(self.catalog.catalog, new_table(rf=1), [SERVER], {}, 1))
        tablets = tuple(TabletHandle(name, pos, pos, 0) for pos, name in enumerate(IDS))
        self.table = TableHandle("t", "flights", SCHEMA, SPEC, 1, 0, 0, tablets=tablets)
        self.topic: dict[int, int] = {}
        """Offset -> the key of the row to be inserted."""
        self.sides = self._split(4000)

    def _split(self, keys: int) -> list[list[int]]:
        batch = pa.RecordBatch.from_pydict({"id": pa.array(range(keys), pa.int64())})
        sides: list[list[int]] = [[], []]
        for key, pos in enumerate(route(batch, SCHEMA, SPEC)):
            sides[pos].append(key)
        return sides

    def publish(self, side: int, *offsets: int) -> None:
        """New rows of one tablet, at these offsets."""
        for offset in offsets:
            self.topic[offset] = self.sides[side].pop()

    def records(self, first: int, end: int) -> Any:
        """Return the records that Spark passes to a task for the topic's offsets from `first` to before `end`."""
        rows = [(offset, key) for offset, key in sorted(self.topic.items()) if first <= offset < end]
        return pa.RecordBatch.from_pydict(
            {
                "key": pa.array([encode_key(SCHEMA, {"id": key}) for _, key in rows], pa.binary()),
                "value": pa.array([event(key) for _, key in rows], pa.binary()),
                "partition": pa.array([0] * len(rows), pa.int32()),
                "offset": pa.array([offset for offset, _ in rows], pa.int64()),
                "op_header": pa.array([None] * len(rows), pa.binary()),
            }
        )


def event(key: int) -> bytes:
    """A row event that inserts: applied twice, it would become a dead letter."""
    parsed, out = schemas.parse_json(ROW), io.BytesIO()
    fastavro.schemaless_writer(out, parsed, {"id": key, "v": "x", "op": "INSERT"})
    return wrap(Framing.SINGLE_OBJECT, out.getvalue(), fingerprint=schemas.fingerprint64(parsed), registry_id=0)


class Query:
    """One run of the ingest query: from the checkpoint's offset, or, without one, from where the catalog says."""

    def __init__(self, world: World, run: str, checkpoint: int | None = None) -> None:
        self._world = world
        self._run = run
        wanted = pb.SourceOpen(
            source=source_to_pb(SOURCE),
            topic=TOPIC.topic,
            has_checkpoint=checkpoint is not None,
            checkpoint_offset=checkpoint or 0,
            initial_start=0,
        )
        request = pb.OpenSourcesRequest(table="flights", opens=[wanted], owner_run=run, lease_us=1)
        catalog = world.catalog
        self._now_us = FIRST_US * len(run)
        (opened,) = catalog.commit(open_sources(catalog.catalog, request, self._now_us))[1]
        self.position = Position(opened.generation, opened.done)
        self.at = opened.done if checkpoint is None else checkpoint
        """The first offset that is read next."""
        self.known: dict[str, int] = {}
        self.applied = self.replayed = 0

    def micro_batch(self, end: int, *, committed: bool = True) -> None:
        """Everything before `end`; not `committed`: the driver dies before it can say so in the catalog."""
        world = self._world
        plan = TaskPlan(world.table, TOPIC, "m:1", "k:1", "letters", {0: self.position}, {0: dict(self.known)})
        writer = SourceWriter(
            world.tablets,  # type: ignore[arg-type]
            world.table,
            SOURCE,
            generation=self.position.generation,
            done=self.position.done,
            acknowledged=self.known,
        )
        task = Task(plan, 0, writer=writer, sink=world.letters)  # type: ignore[arg-type]
        for row in task.run(world.records(self.at, end), iter(())).to_pylist():
            if row["tablet_id"] is not None:
                self.known[row["tablet_id"]] = row["acknowledged"]
            else:
                self.applied += row["applied"]
                self.replayed += row["replayed"]
        self.at = end
        if committed:
            self._advance(end)

    def _advance(self, end: int) -> None:
        done = max(end, self.position.done)
        moved = pb.SourceAdvance(source=source_to_pb(SOURCE), generation=self.position.generation, done=done)
        request = pb.AdvanceSourcesRequest(
            table_id=self._world.table_id, owner_run=self._run, lease_us=1, advances=[moved]
        )
        catalog = self._world.catalog
        (now,) = catalog.commit(advance_sources(catalog.catalog, request, self._now_us))
        self.position = Position(now.generation, now.done)


@pytest.fixture
def world() -> Any:
    made = World()
    yield made
    made.tablets.close()


BUSY = (40, 250_000, 600_000, MILLION + 39)
"""Offsets of rows of the busy tablet, a micro-batch each, while the other one gets nothing."""
LATE = MILLION + 40


def idle_for_a_million(world: World, *, committed: bool = True) -> None:
    """Both tablets have rows; then only the second has, to beyond a million; then the checkpoint is gone."""
    world.publish(0, *range(20))
    world.publish(1, *range(20, 40))
    world.publish(1, *BUSY)
    query = Query(world, "a")
    assert (query.at, query.known) == (0, {})
    query.micro_batch(40)
    for offset in BUSY:
        query.micro_batch(offset + 1, committed=committed)
    assert world.tablets.last_offsets() == [19, MILLION + 39]
    world.tablets.restart()


@pytest.mark.parametrize("committed", [True, False])
def test_tablet_idle_for_a_million_offsets_survives_a_lost_and_an_old_checkpoint(world: World, committed: bool) -> None:
    """Goal: an idle tablet's rows are neither lost nor applied twice, although its last acknowledged offset is known
    nowhere else. Method: rows for both after a million offsets, read by a run without a checkpoint, whose catalog knows
    all that was done, or only the first micro-batch; then an old checkpoint, from which all of it is read again. A row
    applied twice is a letter."""
    idle_for_a_million(world, committed=committed)
    world.publish(0, LATE, LATE + 2)
    world.publish(1, LATE + 1, LATE + 3)
    cold = Query(world, "bb")
    assert cold.at == (LATE if committed else 40)
    cold.micro_batch(LATE + 4)
    assert (cold.applied, cold.replayed) == (4, 0 if committed else len(BUSY))
    assert world.tablets.rows() == sorted(world.topic.values())
    assert world.tablets.last_offsets() == [LATE + 2, LATE + 3]
    world.tablets.restart()

    old = Query(world, "ccc", checkpoint=40)
    assert old.position.done == LATE + 4
    old.micro_batch(LATE + 4)
    assert (old.applied, old.replayed) == (0, len(BUSY) + 4)
    assert world.tablets.rows() == sorted(world.topic.values())
    assert world.letters.offsets == []


def test_tablet_idle_for_a_million_offsets_tells_what_it_lacks(world: World) -> None:
    """Goal: a tablet refuses a batch that would leave out rows. Method: a run that takes the idle tablet for as far as
    its source; its batch is refused for good and nothing of it is applied, and a run that knows nothing then brings the
    row."""
    idle_for_a_million(world)
    world.publish(0, LATE)
    wrong = Query(world, "bb")
    wrong.known = {IDS[0]: MILLION + 39}
    with pytest.raises(TaskFailed, match=r"\[fatal\].*GAP"):
        wrong.micro_batch(LATE + 1)
    assert world.tablets.last_offsets() == [19, MILLION + 39]
    cold = Query(world, "ccc")
    cold.micro_batch(LATE + 1)
    assert (cold.applied, world.tablets.rows()) == (1, sorted(world.topic.values()))
