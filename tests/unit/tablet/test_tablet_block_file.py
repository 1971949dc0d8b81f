"""The two files of a block by themselves: what is written, what is read back, and what an error leaves."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import crc32c
from nyala.replica.tablet import verify_file, verify_pieces
from nyala.replica.tablet.block_file import (
    FOLDER,
    SUPERSEDED_COLUMN,
    TS_COLUMN,
    BlockContent,
    Written,
    checked_pages,
    mapped_pages,
    read_sidecar,
    write_block,
)
from nyala.replica.tablet.merge import Part, merge_parts
from nyala.replica.tablet.page_crcs import PAGE_BYTES
from nyala.replica.types import MAX_HYBRID_TIME, Code, Corruption, Refused, ResourcesExhausted
from tests.harness.sim_disk import SimCrash, SimDisk
from tests.harness.tablet_twin import INT_SCHEMA

STEM = f"{FOLDER}/one"
FILES = [f"{STEM}.arrow", f"{STEM}.idx"]
SCHEMA = replace(INT_SCHEMA, schema_id=7)


def content_of(rows: int, dead: int = 0, deltas: tuple[int, ...] = ()) -> BlockContent:
    """A block's content: `rows` keys, the last `dead` of them ended, and so many rows ended in each of other blocks."""
    keys = list(range(rows))
    values = {"k": keys, "v": keys, "s": [f"row {k}" for k in keys], "r": keys}
    batch = pa.RecordBatch.from_arrays([pa.array(values[f.name], f.type) for f in SCHEMA.arrow], schema=SCHEMA.arrow)
    ends = np.full(rows, MAX_HYBRID_TIME, np.int64)
    ends[rows - dead :] = 10_000_000
    part = Part(batch, np.arange(500, 500 + rows, dtype=np.int64), ends if dead else None)
    ended = {
        f"block {n}": (np.arange(count, dtype=np.int64), np.arange(count, dtype=np.int64) + 70)
        for n, count in enumerate(deltas)
    }
    return merge_parts([part], SCHEMA, 0).content._replace(deltas=ended)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    disk = SimDisk()
    yield disk
    assert not +disk.handles, "each file was closed"
    disk.close()


def header_of(data: bytes) -> tuple[int, Any]:
    """(where the arrays begin, the header)"""
    magic, version, length = struct.unpack_from("<4sII", data)
    assert (magic, version) == (b"NYIX", 1)
    return 12 + length, json.loads(data[12 : 12 + length])


@pytest.mark.parametrize(
    "rows, dead, deltas",
    [(0, 0, ()), (0, 0, (3,)), (1, 0, ()), (1, 1, ()), (7, 2, (1, 8, 9)), (1000, 0, (16, 700)), (5000, 1300, (1,))],
    ids=str,
)
def test_block_is_described_as_it_is_and_read_as_it_was_written(
    rows: int, dead: int, deltas: tuple[int, ...], disk: SimDisk
) -> None:
    """Goal: the superblock's record of a block is true in each field, its arrays are aligned to 64 bytes, and all that
    a flush hands over comes back. Method: blocks with and without rows, ended ones, and deltas of lengths about the
    alignment's; each field against the files; files of an earlier try that are longer than the new ones."""
    disk.mkdir(FOLDER)
    for path in FILES:
        with closing(disk.open(path, create=True)) as left:
            left.pwrite(b"left over" * 60_000, 0)
    content = content_of(rows, dead, deltas)
    info, pages = write_block(disk, STEM, content, 3)
    data, sidecar = (disk.read(path) for path in FILES)
    assert (info.name, info.length_bytes, info.crc) == (FILES[0], len(data), crc32c(data))
    assert (info.sidecar_name, info.sidecar_length_bytes, info.sidecar_crc) == (FILES[1], len(sidecar), crc32c(sidecar))
    assert (info.rows, info.dead_rows, info.level, info.schema_id) == (rows, dead, 3, 7)
    assert (info.min_time, info.max_time) == ((500, 499 + rows) if rows else (0, 0))
    assert pages == [crc32c(data[at : at + PAGE_BYTES]) for at in range(0, len(data), PAGE_BYTES)]
    assert pages == checked_pages(disk, *info.files[0]) == mapped_pages(info.name, pa.py_buffer(data), info.crc)

    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        assert reader.num_record_batches == 1
        batch, schema = reader.get_batch(0), reader.schema
    hidden = [TS_COLUMN, SUPERSEDED_COLUMN] if dead else [TS_COLUMN]
    assert batch.select(list(SCHEMA.names)).equals(content.batch)
    assert schema.names == [*SCHEMA.names, *hidden] and not any(schema.field(name).nullable for name in hidden)
    assert batch.column(TS_COLUMN).to_pylist() == content.ts.tolist()
    assert schema.metadata == {
        b"nyala.block": info.block_id.encode(), b"nyala.version": b"1", b"nyala.schema_id": b"7"
    }  # fmt: skip

    base, header = header_of(sidecar)
    assert base % 64 == len(sidecar) % 64 == 0 and all(entry["at"] % 64 == 0 for entry in header["arrays"])
    sizes = [-(-entry["count"] * np.dtype(entry["dtype"]).itemsize // 64) * 64 for entry in header["arrays"]]
    assert [entry["at"] for entry in header["arrays"]] == [sum(sizes[:pos]) for pos in range(len(sizes))]
    assert base + sum(sizes) == len(sidecar) and base - 12 - len(json.dumps(header)) < 64
    found = read_sidecar(disk, info)
    assert found.hashes.tolist() == content.rotated.tolist() and found.positions.tolist() == content.positions.tolist()
    assert found.bloom.tolist() == content.bloom.tolist()
    assert {name: (p.tolist(), t.tolist()) for name, (p, t) in found.deltas.items()} == {
        name: (p.tolist(), t.tolist()) for name, (p, t) in content.deltas.items()
    }
    assert all(p.dtype == np.dtype("<u4") for p, _ in found.deltas.values())


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("operation", ["open", "pwrite", "sync", "sync_dir"])
@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "EMFILE", "ENOMEM", "CRASH"])
def test_block_that_cannot_be_written_leaves_no_file_and_says_why(
    kind: str, operation: str, path: str, disk: SimDisk
) -> None:
    """IN-30. Goal: a failing disk is Corruption, a full one or an exhausted resource is not, even if a sync met it, and
    none leaves a file or an open handle; the end of the process changes nothing. Method: each errno at each operation
    on each of the files."""
    disk.mkdir(FOLDER)
    disk.fail_on(operation, FOLDER if operation == "sync_dir" else path, kind)
    expected: type[BaseException] = {"EIO": Corruption, "ENOSPC": Refused, "CRASH": SimCrash}.get(
        kind, ResourcesExhausted
    )
    with pytest.raises(expected) as raised:
        write_block(disk, STEM, content_of(5, 1, (2,)), 0)
    if kind == "ENOSPC":
        assert isinstance(raised.value, Refused) and raised.value.code is Code.NO_SPACE
    if kind == "CRASH":
        there = {"open": 0, "pwrite": 1, "sync": 1, "sync_dir": 2}[operation] + (path == FILES[1])
        assert len(disk.listdir(FOLDER)) == min(2, there)
        disk.restart()
        return
    assert disk.listdir(FOLDER) == []
    assert write_block(disk, STEM, content_of(5, 1, (2,)), 0).info.rows == 5


def written(disk: SimDisk) -> Written:
    return write_block(disk, STEM, content_of(7, 2, (3,)), 0)


@pytest.mark.parametrize("change", ["length", "magic", "version", "header", "block", "array", "end"])
def test_file_that_is_no_sidecar_of_the_block_is_a_value_error(change: str, disk: SimDisk) -> None:
    """Goal: an opened block whose sidecar was not read before is refused as damaged, and no other exception ends the
    server. Method: files of a few bytes; another magic, version, header, block or name of an array; no arrays."""
    info, _ = written(disk)
    whole = disk.read(info.sidecar_name)
    base, _ = header_of(whole)
    other = {
        "magic": [b"NYIY" + whole[4:]],
        "version": [whole[:4] + struct.pack("<I", version) + whole[8:] for version in (0, 2)],
        "header": [whole[:12] + b"[" + whole[13:]],
        "block": [whole.replace(info.block_id.encode(), info.block_id[::-1].encode(), 1)],
        "array": [whole.replace(b'"bloom"', b'"blood"', 1)],
        "length": [whole[:length] for length in range(14)],
        "end": [whole[:base], whole[: base + 8]],
    }[change]
    for data in other:
        disk.remove(info.sidecar_name)
        with closing(disk.open(info.sidecar_name, create=True)) as file:
            file.pwrite(data, 0)
        with pytest.raises((ValueError, KeyError)):
            read_sidecar(disk, info)


@pytest.mark.parametrize("piece_bytes", [1, 64, 1000, 1 << 20])
def test_file_is_checked_whole_in_pieces_of_any_size(piece_bytes: int, disk: SimDisk) -> None:
    """Goal: the check of a file reads each byte once, in pieces of at most that size. Method: what is yielded, and the
    reads; then a file of another length, another checksum, and none: Corruption that names it."""
    info, _ = written(disk)
    for path, length, crc in info.files:
        disk.calls.clear()
        pieces = list(verify_pieces(disk, path, length, crc, piece_bytes=piece_bytes))
        assert sum(pieces) == length and all(0 < piece <= piece_bytes for piece in pieces)
        assert len(pieces) == -(-length // piece_bytes) == sum(call.operation == "pread" for call in disk.calls)
        for wrong in ((length - 1, crc), (length + 1, crc), (length, crc ^ 1)):
            with pytest.raises(Corruption, match=path):
                verify_file(disk, path, *wrong)
            with pytest.raises(Corruption, match=path):
                checked_pages(disk, path, *wrong)
        mapped = pa.py_buffer(disk.read(path))
        with pytest.raises(Corruption, match=path):
            mapped_pages(path, mapped, crc ^ 1)
        disk.remove(path)
        with pytest.raises(Corruption, match="missing"):
            verify_file(disk, path, length, crc)


def test_check_that_is_given_up_half_way_closes_its_file(disk: SimDisk) -> None:
    """Goal: a scrub that stops leaves no file open. Method: one piece of a check, which is then closed; the fixture
    counts handles."""
    info, _ = written(disk)
    path, length, crc = info.files[0]
    pieces = verify_pieces(disk, path, length, crc, piece_bytes=10)
    assert next(pieces) == 10 and disk.handles[path] == 1
    pieces.close()


def test_file_longer_than_a_piece_is_written_and_read_by_pieces(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: memory for a write or a check is bounded however long the block is. Method: pieces of 100 bytes; no
    write or read is longer or goes beyond the file's end, and the files are those of longer pieces."""
    piece, content = 100, content_of(400, 20, (5,))
    whole, _ = write_block(disk, f"{FOLDER}/whole", content, 0)
    before = [disk.read(path) for path, _, _ in whole.files]
    monkeypatch.setattr("nyala.replica.tablet.block_file._PIECE_BYTES", piece)
    monkeypatch.setattr("nyala.replica.tablet.block_file.new_uuid", lambda: whole.block_id)
    disk.calls.clear()
    info, pages = write_block(disk, STEM, content, 0)
    assert [disk.read(path) for path, _, _ in info.files] == before
    assert pages == checked_pages(disk, *info.files[0]) == mapped_pages(STEM, pa.py_buffer(before[0]), info.crc)
    calls = [call for call in disk.calls if call.operation in ("pwrite", "pread") and call.path == info.name]
    cut = [min(piece, info.length_bytes - at) for at in range(0, info.length_bytes, piece)]
    assert [call.length_bytes for call in calls if call.operation == "pread"] == cut
    assert max(call.length_bytes for call in calls) == piece
    assert disk.count("uncache") == 0, "a block that is opened stays in the page cache"
