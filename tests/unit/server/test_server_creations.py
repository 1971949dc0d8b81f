"""Creations of tablets with a field that no master of this cluster would send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.rpc import member_to_pb, pb
from nyala.replica.rpc.checked_server import parsed_request
from nyala.replica.server.requests.tablet_service import create_tablet
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet import superblock_path
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.types import Address, Code, Member, Refused, limits
from tests.harness.copies import TABLET, TARGET_UUID, data_files, new_disk, superblock
from tests.harness.rows import table_info
from tests.harness.sim_disk import SimDisk
from tests.unit.server.test_server_open import ALONE, OTHER, served, two_tablets

HERE = Member(TARGET_UUID, (Address("127.0.0.1", 2),))
THERE = Member("c" * 32, (Address("127.0.0.1", 3),))
MANY = [Member(f"{n:032}", THERE.addresses) for n in range(limits.CONFIG_MEMBERS_PROPOSED_MAX)]
METHOD = "TabletService.CreateTablet"


def creation(tablet_id: str = TABLET, *, table_id: str = "t1") -> Any:
    """Return a request as a master makes it."""
    config = pb.RaftConfig(members=[member_to_pb(HERE), member_to_pb(THERE)])
    return pb.CreateTabletRequest(
        dest_uuid=TARGET_UUID,
        tablet_id=tablet_id,
        table=table_info(table_id),
        config=config,
        leader_hint=THERE.uuid,
    )


class Bad(NamedTuple):
    """A field, what is done to a good request, and the value that the refusal shows."""

    field: str
    change: Callable[[Any], object]
    shown: str


def to(path: str, value: Any, shown: str = "") -> Bad:
    """A row that sets the field of this path, of the first item of what repeats."""

    def change(request: Any) -> None:
        *above, name = path.split(".")
        for part in above:
            request = getattr(request, part)
            if not hasattr(request, "DESCRIPTOR"):
                request = request[0] if len(request) else request.add()
        if isinstance(value, list):
            del getattr(request, name)[:]
            getattr(request, name).extend(value)
        else:
            setattr(request, name, value)

    return Bad(path, change, shown or str(value))


def also(path: str, more: Callable[[Any], object], shown: str) -> Bad:
    """A row that changes the request otherwise."""
    return Bad(path, more, shown)


def older(request: Any, *schema_ids: int, last: int = 1) -> None:
    for schema_id in schema_ids:
        request.table.older_schemas.add().CopyFrom(request.table.schema)
        request.table.older_schemas[-1].schema_id = schema_id
    request.table.schema.schema_id = last


def splits(request: Any, *values: bytes) -> None:
    request.table.partition.range_column = "k"
    request.table.partition.range_splits_json.extend(values)


def nobody_votes(request: Any) -> None:
    for member in request.config.members:
        member.votes = False


def hint_at_no_voter(request: Any) -> None:
    request.config.members[1].votes = False


BAD = (
    to("tablet_id", "", "an id has"),
    to("tablet_id", "a/b"),
    to("table.table_id", "", "an id has"),
    to("table.name", "", "1 to"),
    to("table.schema.schema_id", 0),
    to("table.schema.columns", [], "columns=0"),
    also("table.schema.columns", lambda r: r.table.schema.columns.add().CopyFrom(r.table.schema.columns[0]), "k"),
    to("table.schema.columns.id", 2),
    to("table.schema.columns.name", "__k"),
    to("table.schema.columns.name", "", "name"),
    to("table.schema.columns.type", "colour"),
    to("table.schema.columns.nullable", True, "nullable"),
    to("table.schema.columns.precision", 5),
    to("table.schema.columns.scale", 5),
    to("table.schema.columns.default_json", b'"x"', "default=x"),
    to("table.schema.key", [], "primary key"),
    to("table.schema.key", ["k", "k"], "twice"),
    to("table.schema.key", ["no-such"], "no-such"),
    to("table.partition.hash_columns", ["no-such"], "no-such"),
    to("table.partition.buckets", 0, "buckets=0"),
    to("table.partition.buckets", 5000),
    to("table.partition.hash_version", 9),
    to("table.partition.range_column", "no-such"),
    to("table.partition.range_splits_json", [b"1"], "range column"),
    also("table.partition.range_splits_json", lambda r: splits(r, b"null"), "split=None"),
    also("table.partition.range_splits_json", lambda r: splits(r, b"5", b"5"), "[5, 5]"),
    to("bucket", 1, "bucket=1"),
    to("bucket", -1),
    to("range_pos", 1, "range_pos=1"),
    to("range_pos", -1),
    to("table.replication_factor", 0),
    to("table.replication_factor", 2),
    to("table.replication_factor", 9),
    to("table.history_retention_us", 0),
    to("table.history_retention_us", limits.HISTORY_RETENTION_US_MAX + 1),
    also("table.older_schemas.schema_id", lambda r: older(r, 1), "[1, 1]"),
    also("table.older_schemas.schema_id", lambda r: older(r, 2), "[2, 1]"),
    also("table.older_schemas.schema_id", lambda r: older(r, 1, 1, last=2), "[1, 1, 2]"),
    also("table.older_schemas.schema_id", lambda r: older(r, 0, last=1), "[0, 1]"),
    to("config.members", [], "members=0"),
    to("config.members", [member_to_pb(THERE)], TARGET_UUID),
    to("config.members", [member_to_pb(HERE)] * 2, TARGET_UUID),
    to("config.members", [member_to_pb(HERE), *map(member_to_pb, MANY)], "17"),
    to("config.members.uuid", "", "uuid"),
    to("config.members.addresses", [], TARGET_UUID),
    to("config.members.addresses.host", "", TARGET_UUID),
    to("config.members.addresses.port", 0, TARGET_UUID),
    also("config.members.votes", nobody_votes, "nobody of it could lead"),
    to("config.members.promote", True, TARGET_UUID),
    to("config.members.holds_data", False, TARGET_UUID),
    to("config.opid.term", 1, "1.0"),
    to("config.opid.index", 7, "0.7"),
    to("config.decision_term", 1 << 40, str(1 << 40)),
    to("config.decision_version", 3, "3"),
    to("config.unsafe", True, "unsafe"),
    to("leader_hint", "d" * 32),
    also("leader_hint", hint_at_no_voter, THERE.uuid),
)
FREE = {
    "dest_uuid": "another server's uuid is refused by each call",
    "config.members.replace": "the masters move such a member away, as any other",
    "table.created_us": "no server uses it",
    "table.source.topic": "no server uses it",
    "table.source.framing": "no server uses it",
    "table.source.reader_schema": "no server uses it",
    "table.writer_schemas.fingerprint": "no server uses it",
    "table.writer_schemas.registry_id": "no server uses it",
    "table.writer_schemas.avro_json": "no server uses it",
}
"""Fields whose every value is taken here that the general rules of requests allow, and why."""


def fields(descriptor: Any, above: str = "") -> Iterator[str]:
    """Yield the path of every field without fields of its own."""
    for field in descriptor.fields:
        if field.message_type is None:
            yield above + field.name
        else:
            yield from fields(field.message_type, f"{above}{field.name}.")


async def ask(manager: TabletManager, request: Any) -> None:
    """Ask as a call over the network does."""
    await create_tablet(manager, parsed_request(METHOD, request.SerializeToString(), pb.CreateTabletRequest))


def test_every_field_of_a_creation_is_in_a_table() -> None:
    """IN-82. Goal: no field of a creation is forgotten. Method: the fields of the message at any depth, against the
    table below; an older schema is read as the table's own."""
    told = {bad.field for bad in BAD} | set(FREE)
    missing = [path for path in fields(pb.CreateTabletRequest.DESCRIPTOR) if path not in told]
    assert [path for path in missing if not path.startswith("table.older_schemas.")] == []


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.field} {bad.shown}")
def test_creation_with_a_bad_field_is_refused_with_the_value_and_changes_nothing(bad: Bad) -> None:
    """IN-82. Goal: a creation that no master sends costs neither a file nor the server. Method: a good creation with
    one field changed: INVALID_ARGUMENT with the value, no tablet and no file; the good one goes on afterwards, twice.
    """
    disk, fatal = new_disk(), list[BaseException]()

    async def use(manager: TabletManager) -> None:
        request, files = creation(), set(disk.files)
        bad.change(request)
        with pytest.raises(Refused) as refused:
            await ask(manager, request)
        assert refused.value.code is Code.INVALID_ARGUMENT and bad.shown in str(refused.value)
        assert manager.tablets == {} and set(disk.files) == files
        for _ in range(2):
            await ask(manager, creation())
            assert manager.get(TABLET).running

    served(disk, use, fatal)
    assert fatal == []


def put_back(disk: SimDisk) -> None:
    """As if a person had put the superblock back while the server runs."""
    superblock().save(disk)


def voted(disk: SimDisk) -> None:
    """Consensus metadata with a vote, without superblock and log."""
    meta = ConsensusMeta.create(disk, TABLET, TARGET_UUID, ALONE)
    meta.save_hard_state(3, TARGET_UUID)


def logged(disk: SimDisk) -> None:
    """A log without superblock and metadata."""
    disk.mkdir(wal_folder(TABLET))


def damaged(disk: SimDisk) -> None:
    """Consensus metadata that cannot be read, without a superblock."""
    ConsensusMeta.create(disk, TABLET, TARGET_UUID, ALONE)
    disk.poke(path_of(TABLET), b"nonsense")


@pytest.mark.parametrize("left", [put_back, voted, logged, damaged])
def test_creation_over_files_of_an_earlier_replica_is_refused_and_leaves_them(left: Callable[[SimDisk], None]) -> None:
    """TC-13, IN-21. Goal: a creation never takes the place of a replica whose promises and rows may be here. Method:
    files of one appear under a running server that has no such tablet: ILLEGAL_STATE with what to do, twice, and every
    file is as it was; the server lives, and creates another tablet."""
    disk, fatal = new_disk(), list[BaseException]()

    async def use(manager: TabletManager) -> None:
        left(disk)
        files = {path: disk.read(path) for path in disk.files}
        for _ in range(2):
            with pytest.raises(Refused, match="let the tablet be copied here") as refused:
                await ask(manager, creation())
            assert refused.value.code is Code.ILLEGAL_STATE and manager.tablets == {}
        assert {path: disk.read(path) for path in disk.files} == files
        await ask(manager, creation(OTHER))
        assert manager.get(OTHER).running

    served(disk, use, fatal)
    assert fatal == []


def test_creation_over_all_files_but_the_superblock_keeps_the_blocks() -> None:
    """IN-21. Goal: rows that only a backup of the superblock would name are not swept because somebody creates the
    tablet again. Method: a tablet with a block loses its superblock; at the next start it is created again: refused;
    after one more start, block and log are still there."""
    disk, fatal = new_disk(), list[BaseException]()
    two_tablets(disk)
    disk.remove(superblock_path(TABLET))
    files = data_files(disk)

    async def use(manager: TabletManager) -> None:
        with pytest.raises(Refused, match="ILLEGAL_STATE"):
            await ask(manager, creation())

    served(disk, use, fatal)
    served(disk, use, fatal)
    assert fatal == [] and data_files(disk) == files and disk.listdir(wal_folder(TABLET))


@pytest.mark.parametrize("again", [False, True])
def test_creation_that_was_cut_off_is_done_again(again: bool) -> None:
    """TC-34. Goal: a creation that a crash cut off leaves nothing that forbids the next one. Method: metadata of term 0
    and an empty folder for the log; the creation, and its repetition, in the same life or the next one."""
    disk, fatal = new_disk(), list[BaseException]()
    ConsensusMeta.create(disk, TABLET, TARGET_UUID, ALONE)
    disk.mkdir(wal_folder(TABLET))

    async def use(manager: TabletManager) -> None:
        for _ in range(2):
            await ask(manager, creation())
            assert manager.get(TABLET).running

    for _ in range(1 + again):
        served(disk, use, fatal)
    assert fatal == []
