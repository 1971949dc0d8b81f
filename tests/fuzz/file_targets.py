"""Every file format, and the entries of logs, as they may be on a disk or come from a source of a copy.

Half of the inputs are changed as bytes, as disks damage them. The others are changed within and get new checksums,
which are right, as in a file from a hostile server or from an operator's editor.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

import google_crc32c

from nyala import schemas
from nyala.replica.consensus_metadata import ConsensusMeta, encode_config, path_of
from nyala.replica.fs import INSTANCE, read_instance
from nyala.replica.master import Catalog
from nyala.replica.master.catalog.catalog import CATALOG_ID
from nyala.replica.master.group.entries import unfit_entry as unfit_catalog_entry
from nyala.replica.rows import Predicate
from nyala.replica.server.startup.replay_watch import ReplayMarker, marker_path
from nyala.replica.tablet import Superblock, Tablet, block_file, superblock_path, unfit_entry
from nyala.replica.tools.plan_file import load_journal, plan_json
from nyala.replica.types import (
    Corruption,
    DataState,
    Entry,
    EntryKind,
    LaterFormat,
    OpId,
    Refused,
    hybrid_from_us,
    limits,
)
from nyala.replica.wal import Log, dump_segment, inspect_log
from nyala.replica.wal.format import seal
from nyala.replica.wal.newest import NEWEST_NAME, Newest, read_newest, save_newest
from nyala.replica.wal.recovery import WITHHELD_NAME, read_withheld
from tests.formats import test_catalog_records, test_durable_formats
from tests.fuzz.sessions import pure
from tests.fuzz.spoil import spoilt
from tests.fuzz.spoil_avro import spoilt_datum, spoilt_json
from tests.fuzz.target import Broken, Target
from tests.harness.copies import CONFIG, SOURCE_UUID, TABLET, TARGET_UUID
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, ledger_entry, noop_entry, schema_entry, write_entry
from tests.harness.tablet_twin import SOURCE as ROWS_SOURCE
from tests.harness.tablet_twin import superblock as twin_superblock
from tests.harness.wal_entries import FOLDER, SMALL, append_now, entries, entry
from tests.harness.wal_entries import TABLET as LOGGED

REFUSALS = (Corruption, Refused)
"""The ways in which a file that cannot be used may be refused."""
MOMENT = hybrid_from_us(1_000_000)


def _refused(
    read: Callable[[SimDisk], object], path: str, data: bytes, more: Sequence[tuple[str, bytes]] = ()
) -> object:
    """Return what `read` makes of a disk with that file, or the kind of its refusal."""
    disk = SimDisk()
    try:
        for name, content in (*more, (path, data)):
            disk.mkdir(name.rpartition("/")[0])
            disk.poke(name, content)
        return read(disk)
    except REFUSALS as error:
        if len(str(error)) > 8192:
            raise Broken(f"a refusal of {len(str(error))} characters: {str(error)[:200]}") from error
        return type(error).__name__
    finally:
        disk.close()


# ---------------------------------------------------------------------------------------------------- framed records


def _frame(datum: bytes) -> bytes:
    head = schemas.frame("recovery_journal", test_durable_formats.FRAMED["recovery_journal"])[:8]
    return head + len(datum).to_bytes(8, "little") + int(google_crc32c.value(datum)).to_bytes(4, "little") + datum


def _spoilt_framed(rng: random.Random, name: str, seeds: Sequence[bytes]) -> bytes:
    data = rng.choice(seeds)
    if rng.random() < 0.4:
        return spoilt(data, rng, seeds)
    value = schemas.unframe(name, data)
    for field in [f for f in value if f.endswith("_json") or f == "state"]:
        if rng.random() < 0.3 and value[field]:
            value[field] = _json_within(value[field], rng)
    return _frame(spoilt_datum(name, value, rng))


def _json_within(found: Any, rng: random.Random) -> Any:
    if isinstance(found, list):
        return [_json_within(each, rng) for each in found]
    if isinstance(found, bytes):
        return spoilt_json(found, rng)
    return spoilt_json(found.encode(), rng).decode("utf-8", "replace")


def _framed(name: str, path: str, seeds: Sequence[bytes], read: Callable[[SimDisk], object], **more: Any) -> Target:
    mutate = partial(_spoilt_framed, name=name, seeds=seeds)
    return pure(f"file/{name}", seeds, mutate, partial(_refused, read, path), **more)


def _cmeta(disk: SimDisk) -> object:
    meta = ConsensusMeta.load(disk, TABLET)
    if meta.term < limits.RAFT_TERM_MAX:
        meta.save_hard_state(meta.term + 1, SOURCE_UUID)
    own = ConsensusMeta.adopt(SimDisk(), TABLET, TARGET_UUID, meta.encode())
    return meta.term, meta.committed_config, own.term


def _marker(disk: SimDisk) -> object:
    marker = ReplayMarker.load(disk, TABLET)
    if marker is None:
        return "none"
    after = marker.after_crash("build")
    return marker, after and after.encode()


def _journal(disk: SimDisk) -> object:
    plan = load_journal(disk)
    return plan and json.dumps(plan_json(plan))


def _instance(disk: SimDisk) -> object:
    return read_instance(disk)


# ------------------------------------------------------------------------------------------------ tablets and blocks


class _Tablet:
    """A tablet with two blocks, one of which supersedes rows of the other, and ledger state; and its files."""

    def __init__(self) -> None:
        disk = SimDisk()
        disk.mkdir("tablet-meta")
        self._superblock = twin_superblock(INT_SCHEMA)
        self.tablet_id = self._superblock.tablet_id
        ids = (f"{number:032x}" for number in count(1))
        with patch.object(block_file, "new_uuid", lambda: next(ids)):  # so that inputs follow from their seed alone
            self._fill(disk)
        self.path = superblock_path(self.tablet_id)
        self.files = {p: disk.read(p) for p in (self.path, *(f"data/{n}" for n in disk.listdir("data")))}
        self.blocks = [p for p in self.files if p.endswith(".arrow")]
        self.sidecars = [p for p in self.files if p.endswith(".idx")]
        disk.close()

    def _fill(self, disk: SimDisk) -> None:
        tablet = Tablet.create(disk, self._superblock)
        names = ["k", "v", "s", "r"]
        rows = [{"op": 1, "offset": k, "k": k, "v": None if k % 3 else k, "s": f"row {k}", "r": k} for k in range(50)]
        later = [{"op": 3, "offset": 100 + k, "k": k, "r": -k} for k in range(0, 50, 5)]
        odd = [{"op": 1, "offset": 200 + k, "k": k, "v": 1, "s": "again", "r": 0} for k in range(3)]
        tablet.apply([write_entry(1, INT_SCHEMA, names, rows)])
        tablet.flush()
        tablet.apply([write_entry(2, INT_SCHEMA, ["k", "r"], later), write_entry(3, INT_SCHEMA, names, odd)])
        tablet.flush()
        tablet.close()

    def read(self, disk: SimDisk) -> object:
        """Read as a start does, then as clients and the pipeline do."""
        found = Superblock.load(disk, self.tablet_id)
        found.save(disk)
        if found.data_state is not DataState.READY or found.witness or not found.table_schemas:
            return found.data_state
        tablet = Tablet.open(disk, found)
        try:
            key = found.schema.key[0]
            rows = sum(len(batch) for batch in tablet.scan())
            some = sum(len(batch) for batch in tablet.scan(predicates=(Predicate(key, "is_not_null"),)))
            return rows, some, len(tablet.ledger_sources())
        finally:
            tablet.close()

    def superblock(self, data: bytes) -> object:
        """Read a superblock beside whole blocks."""
        return _refused(self.read, self.path, data, [f for f in self.files.items() if f[0] != self.path])

    def file(self, path: str, data: bytes) -> object:
        """Read a block or a sidecar beside files that are whole: the result is what was written, or Corruption."""
        found = _refused(self.read, path, data, [f for f in self.files.items() if f[0] != path])
        if found != "Corruption" and data != self.files[path]:
            raise Broken(f"a damaged {path} is read: {found}")
        return found

    def superblocks(self) -> list[bytes]:
        return [self.files[self.path], schemas.frame("superblock", test_durable_formats.FRAMED["superblock"])]


# -------------------------------------------------------------------------------------------------------------- logs


class _Log:
    """A log of three segments as it was closed, one of them changed."""

    def __init__(self) -> None:
        disk = SimDisk()
        self.entries: list[Entry] = []
        for first, last in ((1, 4), (5, 6), (7, 12)):
            log, _ = Log.open(disk, FOLDER, LOGGED, SMALL)
            for group in (entries(first, last - 1), [entry(last, bytes(700) if last == 6 else None)]):
                append_now(log, group)
                self.entries += group
            log.roll()
            log.close()
        names = [n for n in disk.listdir(FOLDER) if n.startswith("wal-")]
        self.files = {f"{FOLDER}/{n}": disk.read(f"{FOLDER}/{n}") for n in (*names, NEWEST_NAME)}
        self.paths = [f"{FOLDER}/{n}" for n in names]
        disk.close()

    def packed(self) -> list[bytes]:
        return [bytes([at]) + self.files[path] for at, path in enumerate(self.paths)]

    def mutate(self, rng: random.Random) -> bytes:
        """Return the number of the segment, and the bytes that replace it: its blocks changed, swapped, doubled or left
        out."""
        at = rng.randrange(len(self.paths))
        data = self.files[self.paths[at]]
        way = rng.random()
        if way < 0.4:
            return bytes([at]) + spoilt(data, rng, list(self.files.values()))
        if way < 0.5:
            return bytes([at]) + rng.choice([self.files[p] for p in self.paths])
        marker = data[len(data) - 16 :]
        parts = data.split(marker)
        blocks = parts[1:-1]
        for _ in range(rng.choice((1, 1, 2))):
            if not blocks:
                break
            pos = rng.randrange(len(blocks))
            change = rng.randrange(4)
            if change == 0:
                blocks.insert(rng.randrange(len(blocks) + 1), blocks[pos])
            elif change == 1:
                del blocks[pos]
            elif change == 2:
                blocks[pos] = spoilt(blocks[pos], rng)
            else:
                blocks.sort(key=lambda block: google_crc32c.value(block) ^ pos)
        return bytes([at]) + marker.join([parts[0], *blocks, parts[-1]]) + bytes(rng.choice((0, 0, 1, 512)))

    def read(self, data: bytes) -> object:
        """Read the log: its entries are a beginning of what was written, or it is refused; tools report what is
        wrong."""
        at, content = (data[0] % len(self.paths), data[1:]) if data else (0, b"")
        path = self.paths[at]
        others = [f for f in self.files.items() if f[0] != path]
        _refused(partial(self._looked_at, path), path, content, others)
        return _refused(self._opened, path, content, others)

    def _looked_at(self, path: str, disk: SimDisk) -> object:
        for _ in dump_segment(disk, path):
            pass
        return inspect_log(disk, FOLDER, LOGGED)

    def _opened(self, disk: SimDisk) -> object:
        log, replay = Log.open(disk, FOLDER, LOGGED, SMALL)
        found = list(replay.entries)
        log.close()
        if found != self.entries[: len(found)]:
            raise Broken(f"the log has entries that nobody wrote: {found}")
        if len(found) < len(self.entries) and replay.withheld is None and replay.last >= self.entries[-1].opid:
            raise Broken(f"the log lost its end and does not say so: {replay}")
        return len(found), replay.withheld


def _spoilt_sealed(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    data = rng.choice(seeds)
    if rng.random() < 0.4:
        return spoilt(data, rng, seeds)
    return seal(spoilt(data[:-4], rng))


def _small_files() -> list[Target]:
    """Return the targets of the records of a log's end and of a withheld vote."""
    disk = SimDisk()
    disk.mkdir(FOLDER)
    save_newest(disk, FOLDER, Newest(3, 4096, OpId(2, 9)))
    newest = disk.read(f"{FOLDER}/{NEWEST_NAME}")
    golden = [newest, (test_durable_formats.GOLDEN / test_durable_formats.NEWEST).read_bytes()]
    marks = [seal(b"NYWH" + bytes(4) + (2).to_bytes(8, "little") + (9).to_bytes(8, "little"))]
    disk.close()
    return [
        pure(
            "file/newest",
            golden,
            partial(_spoilt_sealed, seeds=golden),
            partial(_refused, lambda disk: read_newest(disk, FOLDER), f"{FOLDER}/{NEWEST_NAME}"),
        ),
        pure(
            "file/withheld",
            marks,
            partial(_spoilt_sealed, seeds=marks),
            partial(_refused, lambda disk: read_withheld(disk, FOLDER), f"{FOLDER}/{WITHHELD_NAME}"),
        ),
    ]


# ------------------------------------------------------------------------------------------- entries, once committed

_KINDS = list(EntryKind)


def pack_entry(one: Entry) -> bytes:
    """Return an input: the entry's kind, the length of its meta, its meta, its payload."""
    return bytes([one.kind]) + len(one.meta).to_bytes(3, "big") + one.meta + one.payload


def unpack_entry(data: bytes, index: int) -> Entry:
    """Return the entry of an input, at the next index; its payload's checksum is right, or it would not be in a log."""
    kind = _KINDS[data[0] % len(_KINDS)] if data else EntryKind.NOOP
    size = int.from_bytes(data[1:4], "big")
    meta, payload = data[4 : 4 + size], data[4 + size :]
    return Entry(OpId(1, index), kind, MOMENT + index, 1, meta, payload, int(google_crc32c.value(payload)))


_META = {
    EntryKind.WRITE: "write_meta",
    EntryKind.SCHEMA: "schema_change",
    EntryKind.LEDGER: "ledger_change",
    EntryKind.CONFIG: "config_change",
    EntryKind.CATALOG: "catalog_change",
}


def _spoilt_entry(rng: random.Random, seeds: Sequence[Entry]) -> bytes:
    one = rng.choice(seeds)
    way = rng.random()
    if way < 0.1:
        return spoilt(pack_entry(one), rng)
    if way < 0.3 and one.payload:
        return pack_entry(one._replace(payload=spoilt(one.payload, rng)))
    if way < 0.35:
        return pack_entry(one._replace(kind=rng.choice(_KINDS)))
    if one.kind not in _META:
        return pack_entry(one._replace(meta=spoilt(one.meta or b"x", rng)))
    value = schemas.decode(_META[one.kind], one.meta)
    if one.kind is EntryKind.SCHEMA and rng.random() < 0.8:
        value["schema_json"] = spoilt_json(value["schema_json"].encode(), rng).decode("utf-8", "replace")
        return pack_entry(one._replace(meta=schemas.encode("schema_change", value)))
    if one.kind is EntryKind.CATALOG and rng.random() < 0.8:
        for put in value["puts"]:
            if rng.random() < 0.3:
                put["value"] = spoilt_json(put["value"], rng)
        return pack_entry(one._replace(meta=schemas.encode("catalog_change", value)))
    return pack_entry(one._replace(meta=spoilt_datum(_META[one.kind], value, rng)))


def _tablet_entry(data: bytes) -> object:
    """Apply an entry that a follower does not find unfit, and flush it; then do so with the next one."""
    one = unpack_entry(data, 2)
    if why := unfit_entry(one):
        return len(why) < 8192
    disk = SimDisk()
    disk.mkdir("tablet-meta")
    try:
        tablet = Tablet.create(disk, twin_superblock(INT_SCHEMA))
        names = ["k", "v", "s", "r"]
        first = write_entry(1, INT_SCHEMA, names, [{"op": 2, "offset": 7, "k": 1, "v": 1, "s": "a", "r": 1}])
        results = tablet.apply([first._replace(hybrid_time=MOMENT)])
        results += tablet.apply([one, noop_entry(3, MOMENT + 3)])
        rows = sum(len(batch) for batch in tablet.scan())
        tablet.flush()
        tablet.close()
        again = Tablet.open(disk, Superblock.load(disk, twin_superblock(INT_SCHEMA).tablet_id))
        if (found := sum(len(batch) for batch in again.scan())) != rows:
            raise Broken(f"{rows} rows were flushed, {found} are read")
        again.close()
        return [result.error and result.error.code for result in results], rows
    finally:
        disk.close()


def _golden() -> Entry:
    """Return a change that puts a record of nearly each kind."""
    return test_catalog_records.entry_of(test_catalog_records.GOLDEN[0])


def _catalog_entry(data: bytes) -> object:
    """Apply an entry that a following master does not find unfit, flush it, and open the catalog again."""
    one = unpack_entry(data, 2)
    if why := unfit_catalog_entry(one):
        return len(why) < 8192
    disk = SimDisk()
    disk.mkdir("tablet-meta")
    try:
        catalog = Catalog.open(disk)
        catalog.apply([_golden(), one])
        catalog.flush()
        return Catalog.open(disk).records == catalog.records
    except LaterFormat:
        return "of a later build"
    finally:
        disk.close()


class _State:
    """The catalog's records as its superblock has them."""

    def __init__(self) -> None:
        disk = SimDisk()
        disk.mkdir("tablet-meta")
        catalog = Catalog.open(disk)
        catalog.apply([_golden()])
        catalog.flush()
        self._superblock = Superblock.load(disk, CATALOG_ID)
        self.seeds = [self._superblock.state]
        disk.close()

    def read(self, data: bytes) -> object:
        sealed = schemas.frame("superblock", replace(self._superblock, state=data).to_avro())
        return _refused(lambda disk: len(Catalog.open(disk).records), superblock_path(CATALOG_ID), sealed)


def targets() -> list[Target]:
    """Return one target for every file format, and for the contents of entries."""
    tablet, log, state = _Tablet(), _Log(), _State()
    disk = SimDisk()
    cmeta = ConsensusMeta.create(disk, TABLET, SOURCE_UUID, CONFIG, 3)
    cmeta.save_hard_state(4, SOURCE_UUID)
    framed = {name: [schemas.frame(name, value)] for name, value in test_durable_formats.FRAMED.items()}
    mark = ReplayMarker(wal_generation=3, first=7, last=7, suspect_first=6, suspect_last=8, died_alone=7, failed="x")
    disk.close()
    names = ["k", "v", "s", "r"]
    rows = [{"op": op, "offset": 100 + op, "k": op, "v": op, "s": f"row {op}", "r": op} for op in range(1, 7)]
    own = [
        write_entry(2, INT_SCHEMA, names, rows),
        write_entry(2, INT_SCHEMA, ["k", "r"], [{"op": 2, "offset": 0, "k": 1, "r": 2}], source=None, client_id="c"),
        schema_entry(2, INT_SCHEMA),
        ledger_entry(2, ROWS_SOURCE, 2, 5),
        Entry(OpId(1, 2), EntryKind.CONFIG, MOMENT, 0, encode_config(CONFIG), b"", 0),
        noop_entry(2),
    ]
    of_masters = [*map(test_catalog_records.entry_of, test_catalog_records.GOLDEN), own[-2], own[-1]]
    found = [
        _framed("consensus_metadata", path_of(TABLET), [cmeta.encode()], _cmeta),
        _framed("instance", INSTANCE, framed["instance"], _instance),
        _framed("replay_marker", marker_path(TABLET), [*framed["replay_marker"], mark.encode()], _marker),
        _framed("recovery_journal", "recovery-journal", framed["recovery_journal"], _journal),
        pure(
            "file/superblock",
            tablet.superblocks()[:1],
            partial(_spoilt_framed, name="superblock", seeds=tablet.superblocks()),
            tablet.superblock,
            brief=100,
        ),
        pure("file/wal", log.packed(), log.mutate, log.read, brief=200),
        *_small_files(),
        pure("file/catalog", state.seeds, lambda rng: spoilt_json(state.seeds[0], rng), state.read),
        pure("entry/tablet", list(map(pack_entry, own)), partial(_spoilt_entry, seeds=own), _tablet_entry, brief=100),
        pure(
            "entry/catalog", list(map(pack_entry, of_masters)), partial(_spoilt_entry, seeds=of_masters), _catalog_entry
        ),
    ]
    for name, paths in (("block", tablet.blocks), ("sidecar", tablet.sidecars)):
        path = paths[0]
        seeds = [tablet.files[path]]
        mutate = partial(_spoilt_file, seeds=[tablet.files[p] for p in paths])
        found.append(pure(f"file/{name}", seeds, mutate, partial(tablet.file, path), brief=100))
    return found


def _spoilt_file(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    return spoilt(seeds[0], rng, seeds) if rng.random() < 0.95 else rng.choice(seeds)
