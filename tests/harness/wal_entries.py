"""Entries, outcomes and small logs for tests of everything that uses a WAL."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from functools import cache
from random import Random

import fastavro
import google_crc32c

from nyala.replica.types import Disk, Entry, EntryKind, OpId
from nyala.replica.wal import Log, LogThreads, WalOptions, dump_segment
from nyala.replica.wal.format import (
    _HEADER_SCHEMA,
    MARKER_BYTES,
    _container_header,
    _header_crc,
    _identity,
    _raw_header,
    encode_long,
    identity_in,
)
from nyala.schemas import parse_json
from tests.harness.patience import patience_s
from tests.harness.sim_disk import SECTOR_BYTES, SimDisk

FOLDER = "wals/t1"
TABLET = "t1"
SMALL = WalOptions(segment_size_bytes_first=4096, segment_size_bytes_max=16384)


def entry(index: int, payload: bytes | None = None, *, term: int = 1, meta: bytes = b"m") -> Entry:
    """Return a WRITE entry whose payload, unless given, holds its term and index."""
    body = f"payload {term}.{index}".encode() if payload is None else payload
    return Entry(OpId(term, index), EntryKind.WRITE, index << 12, 1, meta, body, google_crc32c.value(body))


def entries(first: int, last: int, *, term: int = 1) -> list[Entry]:
    """Return the entries of indexes first..last."""
    return [entry(index, term=term) for index in range(first, last + 1)]


class Outcomes:
    """Collects the arguments of callbacks, in the order of their calls."""

    def __init__(self) -> None:
        self.results: list[OpId | BaseException] = []
        self._changed = threading.Condition()

    def __call__(self, result: OpId | BaseException) -> None:
        with self._changed:
            self.results.append(result)
            self._changed.notify_all()

    def wait_for(self, count: int, timeout_s: float = patience_s(30.0)) -> list[OpId | BaseException]:
        """Block until `count` callbacks came."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.results) >= count, timeout_s), self.results
            return list(self.results)

    @property
    def durable(self) -> list[OpId]:
        return [result for result in self.results if isinstance(result, OpId)]


@cache
def log_threads() -> LogThreads:
    """Return the threads that the logs of this process's tests share."""
    return LogThreads(4, 2)


def open_log(
    disk: Disk, options: WalOptions = SMALL, *, threaded: bool = False, folder: str = FOLDER
) -> tuple[Log, list[Entry]]:
    """Return a log and the result of its opening."""
    log, replay = Log.open(disk, folder, TABLET, options, threads=log_threads() if threaded else None)
    return log, list(replay.entries)


def append_now(log: Log, *groups: list[Entry]) -> Outcomes:
    """Append each group as one reservation, then drain: one group commit. For logs without a thread."""
    outcomes = Outcomes()
    for group in groups:
        log.append(group, outcomes)
    log.drain()
    return outcomes


def segment_paths(disk: Disk, folder: str = FOLDER) -> list[str]:
    """Return the paths of the segment files, oldest first."""
    return [f"{folder}/{name}" for name in disk.listdir(folder) if name.startswith("wal-")]


def build(disk: Disk, write: Callable[[Log], None], *, close: bool = True) -> None:
    """Open a log without a thread, let `write` fill it, and close it by default."""
    log, _ = open_log(disk)
    write(log)
    if close:
        log.close()


def begin_a_segment(disk: SimDisk, refused: Entry) -> None:
    """Make a segment without an entry after the others: its first block found no room."""
    log, _ = open_log(disk)
    disk.fail_on("pwrite", f"{FOLDER}/*", "ENOSPC", skip=1)
    append_now(log, [refused])
    log.close()
    disk.heal()


def of_an_earlier_build(segment: bytes) -> bytes:
    """Return a segment as builds wrote it that stated no zero sectors; none of its entries may have a long run of
    zeros."""
    meta, marker, length = _raw_header(segment)
    meta["nyala.zero_sectors"] = "silent"
    meta["nyala.header_crc"] = f"{_header_crc(meta, marker):010d}"
    header = _container_header({key: text for key, text in meta.items() if key.startswith("nyala.")}, marker)
    assert len(header) == length, "its sectors are where they were"
    return header + segment[length:]


OTHER_SCHEMA = parse_json(
    """{"type": "record", "name": "WalEntry", "namespace": "nyala.v1", "fields": [
    {"name": "identity_crc", "type": "long"}, {"name": "payload_crc", "type": "long"},
    {"name": "schema_id", "type": "long"}, {"name": "written_by", "type": ["null", "string"]},
    {"name": "term", "type": "long"}, {"name": "index", "type": "long"}, {"name": "kind", "type": "int"},
    {"name": "meta", "type": "bytes"}, {"name": "hybrid_time", "type": "long"},
    {"name": "payload", "type": "bytes"}]}"""
)
"""The schema of an entry as a build might have written it: without the fields that have defaults, with an unknown one,
in another order."""


def by_another_schema(segment: bytes) -> bytes:
    """Return a closed segment with the same blocks, but written by OTHER_SCHEMA; no entry may have a long run of
    zeros."""
    meta, marker, _ = _raw_header(segment)
    meta = {key: text for key, text in meta.items() if key.startswith("nyala.")} | {"nyala.zero_sectors": "silent"}
    meta |= {"avro.schema": json.dumps({k: v for k, v in OTHER_SCHEMA.items() if not k.startswith("__")})}
    whole = meta | {"avro.codec": "null"}
    whole["nyala.header_crc"] = f"{_header_crc(whole, marker):010d}"
    out = io.BytesIO()
    header = {"magic": b"Obj\x01", "meta": {key: text.encode() for key, text in whole.items()}, "sync": marker}
    fastavro.schemaless_writer(out, _HEADER_SCHEMA, header)
    for block in fastavro.block_reader(io.BytesIO(segment)):
        rows = io.BytesIO()
        for row in block:
            assert isinstance(row, dict) and row["flags"] == 0
            fastavro.schemaless_writer(rows, OTHER_SCHEMA, row | {"written_by": "another"})
        out.write(encode_long(block.num_records) + encode_long(len(rows.getvalue())) + rows.getvalue() + marker)
    return out.getvalue()


def of_a_later_build(segment: bytes, *, meta: dict[str, str] | None = None, **fields: int) -> bytes:
    """Return a closed segment that a later build wrote, every checksum right.

    `meta`: the header's values; `fields`: the last entry's values, its `kind` or its `flags`.
    """
    was, marker, _ = _raw_header(segment)
    told = {key: text for key, text in was.items() if key.startswith("nyala.")} | (meta or {})
    draft, _, _ = _raw_header(_container_header(told, marker))
    told["nyala.header_crc"] = f"{_header_crc(draft, marker):010d}"
    header = _container_header(told, marker)
    rows = [dict(row) for row in fastavro.reader(io.BytesIO(segment)) if isinstance(row, dict)]
    last = rows[-1]
    last.update(fields)
    at = OpId(last["term"], last["index"])
    written = Entry(at, last["kind"], last["hybrid_time"], last["schema_id"], last["meta"], b"", last["payload_crc"])
    last["identity_crc"] = identity_in(
        int(was["nyala.segment"]), _identity(was["nyala.tablet"], written, last["flags"])
    )
    out = io.BytesIO(header)
    out.seek(0, io.SEEK_END)
    for row in rows:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parse_json(was["avro.schema"]), row)
        out.write(encode_long(1) + encode_long(len(body.getvalue())) + body.getvalue() + marker)
    return out.getvalue()


def without_after(segment: bytes) -> bytes:
    """Return a segment as builds wrote it whose header did not name the entry before it."""
    was, marker, length = _raw_header(segment)
    told = {key: text for key, text in was.items() if key.startswith("nyala.") and key != "nyala.after"}
    draft, _, _ = _raw_header(_container_header(told, marker))
    told["nyala.header_crc"] = f"{_header_crc(draft, marker):010d}"
    return _container_header(told, marker) + segment[length:]


def block_ends(disk: Disk, path: str) -> list[int]:
    """Return the end of a segment's header, and of each of its blocks."""
    header = next(iter(dump_segment(disk, path)))["length_bytes"]
    data = disk.read(path)
    marker = data[header - MARKER_BYTES : header]
    return [at + MARKER_BYTES for at in range(len(data)) if data.startswith(marker, at)]


def tears(before: bytes, after: bytes, patterns_max: int, unit_bytes: int = SECTOR_BYTES) -> Iterator[bytes]:
    """Yield what a power cut may leave of one unsynced write: each set of the units that it changed, or some sets of
    many."""
    before = before.ljust(len(after), b"\0")
    units = range(0, len(after), unit_bytes)
    starts = [at for at in units if after[at : at + unit_bytes] != before[at : at + unit_bytes]]
    rng, every = Random(len(starts)), 1 << len(starts)
    patterns = range(every) if every <= patterns_max else [rng.randrange(every) for _ in range(patterns_max)]
    for pattern in patterns:
        data = bytearray(before)
        for bit, at in enumerate(starts):
            if pattern >> bit & 1:
                data[at : at + unit_bytes] = after[at : at + unit_bytes]
        yield bytes(data)
