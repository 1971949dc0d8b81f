"""Files of every format version that was ever written, which every later build must read.

`python -m tests.formats.test_durable_formats` writes the files that are missing, and never touches one that is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro
import google_crc32c
import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.rows import SourceKey, WriteMeta
from nyala.replica.types import Address, Corruption, Entry, EntryKind, Member, OpId, RaftConfig
from nyala.replica.wal import Log, dump_segment
from nyala.replica.wal.newest import NEWEST_NAME, Newest, read_newest
from nyala.schemas import UnsupportedFrame, frame, unframe
from tests.harness.later_format import later_version
from tests.harness.sim_disk import SimDisk

GOLDEN = Path(__file__).parent / "golden"
SEGMENT = "wal_segment_v1.avro"
FLAGGED = "wal_segment_v1_zeros.avro"
"""The same entries, written since blocks state their zero sectors."""
FOLLOWS = "wal_segment_v1_after.avro"
"""The same, written since a header names the entry before its segment."""
NEWEST = "newest_segment_v1.bin"
"""The number of the golden segment."""
NEWEST_END = "newest_segment_v2.bin"
"""Where the golden segment ends, too."""
META = "consensus_metadata_v1.bin"
FOLDER = "wals/golden"
UUID_A, UUID_B = "a" * 32, "b" * 32

CONFIG = RaftConfig(
    OpId(3, 4),
    (
        Member(UUID_A, (Address("one.example", 7050),)),
        Member(UUID_B, (Address("two.example", 7051),), votes=False, promote=True, replace=True),
        Member("c" * 32, (), holds_data=False),
    ),
    decision=(2, 9),
)


def _entry(index: int, kind: EntryKind, meta: bytes, payload: bytes) -> Entry:
    crc = google_crc32c.value(payload)
    return Entry(OpId(2 if index < 5 else 3, index), kind, index << 20, 7, meta, payload, crc)


ENTRIES = [
    _entry(3, EntryKind.NOOP, b"", b""),
    _entry(4, EntryKind.WRITE, b"write meta", bytes(range(256)) * 3),
    _entry(5, EntryKind.CONFIG, b"config", b""),
    _entry(6, EntryKind.WRITE, b"", b"\x00" * 40_000),
]
GROUPS = [ENTRIES[:1], ENTRIES[1:3], ENTRIES[3:]]

WRITE_METAS = {
    "write_meta_v1.bin": WriteMeta((1, 2, 7), 5, SourceKey("kafka", "topic", 4), 1, after=98, done=50),
    "write_meta_v1_ignore_null.bin": WriteMeta((1, 3), 2, client_id="c1", sequence=3, ignore_null=True),
    "write_meta_v1_bounded.bin": WriteMeta((1, 3), 2, client_id="c1", sequence=3, rows_bounded=True),
    "write_meta_v1_both.bin": WriteMeta((1, 3), 2, client_id="c1", ignore_null=True, rows_bounded=True),
}
"""What a WRITE entry says of its rows, with no mark, with each one, and with both."""

FRAMED: dict[str, dict[str, Any]] = {
    "superblock": {
        "version": 1,
        "incompatible_features": [],
        "tablet_id": "golden",
        "table_id": "t" * 32,
        "table_name": "flights",
        "data_state": "READY",
        "last_logged": {"term": 3, "index": 6},
        "quarantine": "quarantine/golden.1",
        "bucket": 1,
        "range_pos": 2,
        "partition_json": '{"buckets": 3}',
        "schemas_json": ['{"schema_id": 7}'],
        "history_retention_us": 900_000_000,
        "flush_opid": {"term": 3, "index": 5},
        "flush_time": 5 << 20,
        "history_horizon": 1 << 20,
        "blocks": [
            {
                "name": "golden-1.arrow",
                "length_bytes": 4096,
                "crc": 0xDEADBEEF,
                "rows": 10,
                "min_time": 1,
                "max_time": 2,
                "level": 1,
                "tombstones": 3,
                "schema_id": 7,
                "sidecar": b"",
            }
        ],
        "block_generation": 2,
        "ledger": {
            "sources": [
                {
                    "source": {"cluster_id": "kafka", "topic_id": "topic", "kafka_partition": 4},
                    "generation": 1,
                    "last_offset": 99,
                    "done": 50,
                    "errors": [{"offset": 77, "code": 1, "column": "carrier"}],
                }
            ],
            "clients": [
                {
                    "client_id": "c1",
                    "first_incomplete": 3,
                    "last_used": 4 << 20,
                    "results": [{"sequence": 3, "hybrid_time": 4 << 20, "rows_applied": 2, "errors": []}],
                }
            ],
        },
        "wal_generation": 0,
        "state": b"",
        "reserved": b"",
    },
    "replay_marker": {
        "version": 1,
        "incompatible_features": [],
        "wal_generation": 3,
        "first": 70,
        "last": 71,
        "suspect_first": 60,
        "suspect_last": 99,
        "reserved": b"",
    },
    "recovery_journal": {
        "version": 1,
        "incompatible_features": [],
        "fingerprint": "0123456789ab",
        "plan_json": "{}",
        "reserved": b"",
    },
    "instance": {
        "version": 1,
        "incompatible_features": [],
        "uuid": UUID_A,
        "kind": "TABLET_SERVER",
        "cluster_id": "k" * 32,
        "created_us": 1_700_000_000_000_000,
        "reserved": b"",
    },
}


def _write_segment() -> bytes:
    disk = SimDisk()
    log, _ = Log.open(disk, FOLDER, "golden")
    for group in GROUPS:
        log.append(group, lambda _: None)
        log.drain()
    log.close()
    return disk.read(f"{FOLDER}/wal-000000001")


def _write_meta() -> bytes:
    disk = SimDisk()
    meta = ConsensusMeta.create(disk, "golden", UUID_A, CONFIG, 2)
    meta.save_hard_state(3, UUID_B)
    meta.raise_vote_floor(1)
    return disk.read(path_of("golden"))


def _segment_disk() -> tuple[SimDisk, str]:
    disk = SimDisk()
    disk.mkdir(FOLDER)
    path = f"{FOLDER}/wal-000000001"
    disk.poke(path, (GOLDEN / SEGMENT).read_bytes())
    return disk, path


def test_wal_segment_of_version_1_opens() -> None:
    """Goal: logs of version 1 replay for ever. Method: open the golden file as the first segment of a log."""
    disk, _ = _segment_disk()
    log, replay = Log.open(disk, FOLDER, "golden")
    assert list(replay.entries) == ENTRIES
    assert (replay.last, replay.first_index, replay.withheld) == (OpId(3, 6), 3, None)
    log.close()


def _write_newest() -> bytes:
    disk, _ = _segment_disk()
    Log.open(disk, FOLDER, "golden")[0].close()
    return disk.read(f"{FOLDER}/{NEWEST_NAME}")


def test_record_of_a_logs_end_of_version_2_reads_back() -> None:
    """IN-21. Goal: the record of a log's end is read for ever, and a log that has none opens and gets one. Method: open
    the golden segment; what is written beside it are the golden bytes, which say where it ends."""
    disk, path = _segment_disk()
    assert read_newest(disk, FOLDER) == Newest()
    assert _write_newest() == (GOLDEN / NEWEST_END).read_bytes()
    disk.poke(f"{FOLDER}/{NEWEST_NAME}", (GOLDEN / NEWEST_END).read_bytes())
    assert read_newest(disk, FOLDER) == Newest(1, disk.size(path), ENTRIES[-1].opid)


def test_record_of_a_logs_end_of_version_1_reads_back_as_a_number() -> None:
    """IN-21. Goal: a log of a build that knew the number only opens, and its record is renewed. Method: the golden
    record of version 1 beside the golden segment."""
    disk, _ = _segment_disk()
    disk.poke(f"{FOLDER}/{NEWEST_NAME}", (GOLDEN / NEWEST).read_bytes())
    assert read_newest(disk, FOLDER) == Newest(1)
    log, replay = Log.open(disk, FOLDER, "golden")
    log.close()
    assert (list(replay.entries), replay.withheld) == (ENTRIES, None)
    assert disk.read(f"{FOLDER}/{NEWEST_NAME}") == (GOLDEN / NEWEST_END).read_bytes()


def test_wal_segment_of_version_1_is_readable_by_fastavro_alone() -> None:
    """Goal: any Avro tool reads a closed segment. Method: fastavro with nothing of ours, blocks counted."""
    with (GOLDEN / SEGMENT).open("rb") as file:
        blocks = list(fastavro.block_reader(file))
    assert [block.num_records for block in blocks] == [len(group) for group in GROUPS]
    records = [record for block in blocks for record in block]
    assert [(r["term"], r["index"], r["kind"], r["meta"], r["payload"], r["payload_crc"]) for r in records] == [
        (*e.opid, e.kind, e.meta, e.payload, e.payload_crc) for e in ENTRIES
    ]


def _blocks(name: str, data: bytes) -> bytes:
    """The blocks of a segment, whatever its marker is."""
    disk = SimDisk()
    disk.mkdir(FOLDER)
    disk.poke(f"{FOLDER}/{name}", data)
    length = next(dump_segment(disk, f"{FOLDER}/{name}"))["length_bytes"]
    return data[length:].replace(data[length - 16 : length], b"*" * 16)


def test_wal_blocks_are_still_written_as_in_version_1() -> None:
    """Goal: older builds read what this one writes, but for entries with long runs of zeros, which are flagged so that
    they refuse them. Method: the blocks of a new segment equal the golden ones, and the golden flagged one but for its
    trailer, which names the place."""
    golden, flagged, latest = (_blocks(name, (GOLDEN / name).read_bytes()) for name in (SEGMENT, FLAGGED, FOLLOWS))
    fresh = _blocks("fresh", _write_segment())
    assert fresh == latest and fresh[:-33] == flagged[:-33] and len(fresh) == len(flagged)
    unflagged = golden.rindex(b"*" * 16, 0, len(golden) - 16) + 16
    assert fresh[:unflagged] == golden[:unflagged]
    assert len(ENTRIES[-1].payload) < len(golden) - unflagged, "all but the last block"


@pytest.mark.parametrize("name", [FLAGGED, FOLLOWS])
def test_wal_segment_with_a_trailer_of_zero_sectors_opens(name: str) -> None:
    """Goal: flagged entries and trailers replay for ever. Method: open the golden file; fastavro alone reads it."""
    disk = SimDisk()
    disk.mkdir(FOLDER)
    disk.poke(f"{FOLDER}/wal-000000001", (GOLDEN / name).read_bytes())
    log, replay = Log.open(disk, FOLDER, "golden")
    assert (list(replay.entries), replay.withheld) == (ENTRIES, None)
    log.close()
    with (GOLDEN / name).open("rb") as file:
        records = list(fastavro.reader(file))
    assert [r["payload"] for r in records] == [e.payload for e in ENTRIES]
    assert [r["flags"] for r in records] == [0, 0, 0, 1]
    assert [len(r["reserved"]) for r in records] == [0, 0, 0, 17]


def test_consensus_metadata_of_version_1_loads() -> None:
    """Goal: votes of version 1 are kept for ever. Method: load the golden file; write the same content anew."""
    disk = SimDisk()
    disk.mkdir("consensus-meta")
    disk.poke(path_of("golden"), (GOLDEN / META).read_bytes())
    meta = ConsensusMeta.load(disk, "golden")
    assert (meta.uuid, meta.term, meta.voted_for, meta.vote_floor_term) == (UUID_A, 3, UUID_B, 1)
    assert meta.committed_config == CONFIG
    assert _write_meta() == (GOLDEN / META).read_bytes()


@pytest.mark.parametrize("name", WRITE_METAS)
def test_meta_of_a_write_of_version_1_reads_back(name: str) -> None:
    """IN-21. Goal: a write in a log means the same for ever, with or without marks; one of a later build is refused.
    Method: decode the golden bytes, encode the same anew; then other bytes in the field of marks, which ends it."""
    data = (GOLDEN / name).read_bytes()
    assert WriteMeta.decode(data) == WRITE_METAS[name]
    assert WRITE_METAS[name].encode() == data
    bare = WriteMeta((1,), 1).encode()
    assert bare[-1:] == b"\x00", "no byte"
    for marks in (b"\x00", b"\x04", b"\x07", b"\x80", b"\x01\x01"):
        with pytest.raises(Corruption, match="newer build"):
            WriteMeta.decode(bare[:-1] + bytes([2 * len(marks)]) + marks)


@pytest.mark.parametrize("name", sorted(FRAMED))
def test_framed_file_of_version_1_reads_back(name: str) -> None:
    """Goal: framed records of version 1 are read for ever. Method: unframe the golden file; frame the same anew."""
    data = (GOLDEN / f"{name}_v1.bin").read_bytes()
    assert unframe(name, data) == FRAMED[name]
    assert frame(name, FRAMED[name]) == data


@pytest.mark.parametrize("name", sorted(FRAMED))
def test_framed_file_with_an_unknown_feature_is_refused(name: str) -> None:
    """Goal: an older build does not guess. Method: the golden record with a feature nobody knows."""
    with pytest.raises(ValueError, match="time-travel"):
        unframe(name, frame(name, FRAMED[name] | {"incompatible_features": ["time-travel"]}))


@pytest.mark.parametrize("name", sorted(FRAMED))
def test_framed_file_flipped_or_cut_anywhere_is_refused(name: str) -> None:
    """IN-21. Goal: magic, version, length and CRC cover every byte, and no flipped bit reads as a later build's file,
    which nothing repairs. Method: flip each bit, cut at each length, add a byte."""
    data = frame(name, FRAMED[name])
    bad = [data[:position] for position in range(len(data))] + [data + b"\0"]
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        bad.append(bytes(flipped))
    for each in bad:
        with pytest.raises(ValueError, match=name) as refused:
            unframe(name, each)
        assert not isinstance(refused.value, UnsupportedFrame), each[:20]
    with pytest.raises(UnsupportedFrame, match="version 2"):
        unframe(name, later_version(data))


def _write_missing() -> None:
    GOLDEN.mkdir(exist_ok=True)
    files = {FOLLOWS: _write_segment(), META: _write_meta(), NEWEST_END: _write_newest()}
    files |= {f"{name}_v1.bin": frame(name, value) for name, value in FRAMED.items()}
    files |= {name: meta.encode() for name, meta in WRITE_METAS.items()}
    for name, data in files.items():
        if not (GOLDEN / name).exists():
            (GOLDEN / name).write_bytes(data)


if __name__ == "__main__":
    _write_missing()
