"""Writes and reads a block's two files. Both are synced, and their names durable, before a superblock names them."""

from __future__ import annotations

import json
import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.fs import exhausted
from nyala.replica.rows import TableSchema
from nyala.replica.types import MAX_HYBRID_TIME, Corruption, Disk, DiskFailure, Refused, new_uuid

from .page_crcs import PageCrcs
from .superblock import BlockInfo

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

FOLDER = "data"
TS_COLUMN = "__ts"
SUPERSEDED_COLUMN = "__superseded"

_MAGIC = b"NYIX"
_VERSION = 1
_HEADER = struct.Struct("<4sII")
_PIECE_BYTES = 4 << 20


@contextmanager
def data_trouble(path: str) -> Iterator[None]:
    """Turn a disk's failure on a block's file into Corruption, which ends that replica and not the server.

    Peers have the same rows, and unlike a log or metadata, a block may be lost: until a superblock names it, its
    content is in the log, or in the blocks before it. If the server only lacks a resource, even during a sync, the file
    is intact.
    """
    try:
        yield
    except DiskFailure as e:
        wanted = exhausted(e)
        if wanted is not None:
            raise wanted from e
        raise Corruption("a block's file cannot be read or written", path=path, reason=str(e)) from e


class Sidecar(NamedTuple):
    """`hashes` are rotated and sorted, `positions` those of their rows. `deltas`: block id -> (positions, times) ended
    there.

    `mapped`: pa.Buffer of the whole file, which contains them.
    """

    hashes: U64
    positions: npt.NDArray[np.uint32]
    bloom: U64
    deltas: dict[str, tuple[npt.NDArray[np.uint32], I64]]
    mapped: Any


class BlockContent(NamedTuple):
    """The content of a block. `batch`, sorted by key, has the columns of `schema`; the arrays are of shape (rows,)."""

    batch: Any
    schema: TableSchema
    ts: I64
    superseded: I64 | None
    rotated: U64
    """The rotated key hashes of the live rows, sorted; `positions` has the same order."""
    positions: npt.NDArray[np.uint32]
    bloom: U64
    deltas: Mapping[str, tuple[I64, I64]]


class Written(NamedTuple):
    """A newly written block, and the CRCs of its data file's pages."""

    info: BlockInfo
    pages: list[int]


class _Sink:
    """A file to which Arrow writes: appends through `Disk` and computes the CRC meanwhile."""

    def __init__(self, disk: Disk, path: str, pages: PageCrcs | None = None) -> None:
        """`pages`: gets all bytes, too."""
        if disk.exists(path):
            disk.remove(path)
        self._file = disk.open(path, create=True)
        self._crc = google_crc32c.Checksum()
        self._pages = pages
        self._length = 0
        self.closed = False

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _PIECE_BYTES):
            piece = bytes(view[start : start + _PIECE_BYTES])
            self._crc.update(piece)
            if self._pages is not None:
                self._pages.update(piece)
            self._file.pwrite(piece, self._length)
            self._length += len(piece)

    def flush(self) -> None:
        """Do nothing: no byte is buffered."""

    def close(self) -> None:
        """Do nothing: `finish` closes the file."""

    def finish(self) -> tuple[int, int]:
        """Sync and close the file; returns (length, CRC)."""
        self._file.sync()
        self._file.close()
        return self._length, int.from_bytes(self._crc.digest(), "big")

    def abandon(self) -> None:
        self._file.close()


def write_block(disk: Disk, stem: str, content: BlockContent, level: int) -> Written:
    """Write `<stem>.arrow` and `<stem>.idx`; both are durable on return.

    After Refused (no space) and Corruption (EIO) there are no files.
    """
    block_id = new_uuid()
    data_path, sidecar_path = f"{stem}.arrow", f"{stem}.idx"
    with data_trouble(stem):
        disk.mkdir(FOLDER)
        try:
            length, crc, pages = _write_data(disk, data_path, content, block_id)
            sidecar_length, sidecar_crc = _write_sidecar(disk, sidecar_path, content, block_id)
            disk.sync_dir(FOLDER)
        except BaseException as e:
            if isinstance(e, Exception):
                for path in (data_path, sidecar_path):
                    with suppress(FileNotFoundError, DiskFailure, Refused):
                        disk.remove(path)
            raise
    rows = content.batch.num_rows
    info = BlockInfo(
        name=data_path,
        length_bytes=length,
        crc=crc,
        rows=rows,
        min_time=int(content.ts.min()) if rows else 0,
        max_time=int(content.ts.max()) if rows else 0,
        level=level,
        schema_id=content.schema.schema_id,
        sidecar_name=sidecar_path,
        sidecar_length_bytes=sidecar_length,
        sidecar_crc=sidecar_crc,
        block_id=block_id,
        dead_rows=0 if content.superseded is None else int((content.superseded != MAX_HYBRID_TIME).sum()),
    )
    return Written(info, pages)


def _write_data(disk: Disk, path: str, content: BlockContent, block_id: str) -> tuple[int, int, list[int]]:
    arrays = [*content.batch.columns, pa.array(content.ts)]
    fields = [*content.batch.schema, pa.field(TS_COLUMN, pa.int64(), nullable=False)]
    if content.superseded is not None:
        arrays.append(pa.array(content.superseded))
        fields.append(pa.field(SUPERSEDED_COLUMN, pa.int64(), nullable=False))
    metadata = {"nyala.block": block_id, "nyala.version": "1", "nyala.schema_id": str(content.schema.schema_id)}
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))
    pages = PageCrcs()
    sink = _Sink(disk, path, pages)
    try:
        with pa.PythonFile(sink, mode="w") as stream, pa.ipc.new_file(stream, batch.schema) as writer:
            writer.write_batch(batch)
        return (*sink.finish(), pages.finish())
    except BaseException:
        sink.abandon()
        raise


def _write_sidecar(disk: Disk, path: str, content: BlockContent, block_id: str) -> tuple[int, int]:
    arrays: list[npt.NDArray[Any]] = [content.rotated, content.positions, content.bloom]
    names = ["hashes", "positions", "bloom"]
    for target, (positions, times) in sorted(content.deltas.items()):
        arrays += [positions.astype("<u4"), times]
        names += [f"delta_positions:{target}", f"delta_times:{target}"]
    entries, at = [], 0
    for name, array in zip(names, arrays, strict=True):
        entries.append({"name": name, "dtype": array.dtype.str, "at": at, "count": len(array)})
        at += -(-array.nbytes // 64) * 64
    header = json.dumps({"block": block_id, "arrays": entries}).encode()
    header += b" " * (-(len(header) + _HEADER.size) % 64)
    sink = _Sink(disk, path)
    try:
        sink.write(_HEADER.pack(_MAGIC, _VERSION, len(header)) + header)
        for array in arrays:
            sink.write(np.ascontiguousarray(array).view(np.uint8))
            sink.write(bytes(-array.nbytes % 64))
        return sink.finish()
    except BaseException:
        sink.abandon()
        raise


def read_sidecar(disk: Disk, info: BlockInfo) -> Sidecar:
    """Map the sidecar; ValueError or KeyError if it is not one, or is another block's."""
    with pa.memory_map(disk.real_path(info.sidecar_name)) as source:
        data = source.read_buffer()
    if data.size < _HEADER.size:
        raise ValueError(f"{data.size} bytes are no sidecar")
    magic, version, header_length = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise ValueError(f"magic {magic!r}, version {version} is no sidecar that this build reads")
    header = json.loads(bytes(data[_HEADER.size : _HEADER.size + header_length]))
    if header["block"] != info.block_id:
        raise ValueError(f"the sidecar is of block {header['block']}")
    base = _HEADER.size + header_length
    arrays = {
        e["name"]: np.frombuffer(data, dtype=e["dtype"], count=e["count"], offset=base + e["at"])
        for e in header["arrays"]
    }
    deltas = {
        name.partition(":")[2]: (positions, arrays["delta_times:" + name.partition(":")[2]])
        for name, positions in arrays.items()
        if name.startswith("delta_positions:")
    }
    return Sidecar(arrays["hashes"], arrays["positions"], arrays["bloom"], deltas, data)


def verify_file(disk: Disk, path: str, length_bytes: int, crc: int) -> None:
    """Raise Corruption unless the file has this length and CRC-32C. Reads it in pieces, so that it needs little
    memory."""
    for _ in verify_pieces(disk, path, length_bytes, crc):
        pass


def checked_pages(disk: Disk, path: str, length_bytes: int, crc: int) -> list[int]:
    """Like `verify_file`; returns the CRCs of the file's pages."""
    with data_trouble(path):
        return _page_crcs(_verified(disk, path, length_bytes, crc, _PIECE_BYTES, uncached=False))


def verify_pieces(
    disk: Disk, path: str, length_bytes: int, crc: int, *, piece_bytes: int = _PIECE_BYTES, uncached: bool = False
) -> Generator[int, None, None]:
    """Like `verify_file`, one piece for each step, which yields the bytes it read. The file is open in between.

    `uncached`: the page cache drops the file before and after, so that the disk is read and not memory.
    """
    with data_trouble(path), closing(_verified(disk, path, length_bytes, crc, piece_bytes, uncached=uncached)) as read:
        for piece in read:
            yield len(piece)


def mapped_pages(path: str, mapped: Any, crc: int) -> list[int]:
    """Like `checked_pages`, for a pa.Buffer of the mapped file, whose name may be gone."""
    starts = range(0, mapped.size, _PIECE_BYTES)
    pieces = (mapped.slice(at, min(_PIECE_BYTES, mapped.size - at)).to_pybytes() for at in starts)
    return _page_crcs(_checked(path, pieces, mapped.size, crc))


def _page_crcs(pieces: Iterable[bytes]) -> list[int]:
    pages = PageCrcs()
    for piece in pieces:
        pages.update(piece)
    return pages.finish()


def _verified(
    disk: Disk, path: str, length_bytes: int, crc: int, piece_bytes: int, *, uncached: bool
) -> Generator[bytes, None, None]:
    try:
        file = disk.open(path)
    except FileNotFoundError as e:
        raise Corruption("a block's file is missing", path=path) from e
    try:
        if file.size() != length_bytes:
            raise Corruption("a block's file has another length", path=path, bytes=file.size(), recorded=length_bytes)
        if uncached:
            file.uncache()
        starts = range(0, length_bytes, piece_bytes)
        pieces = (file.pread(min(piece_bytes, length_bytes - at), at) for at in starts)
        yield from _checked(path, pieces, length_bytes, crc)
        if uncached:
            file.uncache()
    finally:
        file.close()


def _checked(path: str, pieces: Iterable[bytes], length_bytes: int, crc: int) -> Iterator[bytes]:
    checksum = google_crc32c.Checksum()
    for piece in pieces:
        checksum.update(piece)
        yield piece
    found = int.from_bytes(checksum.digest(), "big")
    if found != crc:
        raise Corruption(
            "a block's file has another CRC-32C",
            path=path,
            bytes=f"0 to {length_bytes}",
            crc=f"{found:08x}",
            recorded=f"{crc:08x}",
        )
