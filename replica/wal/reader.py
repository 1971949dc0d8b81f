"""Reads entries back from known places, and checks every byte that it returns."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence

from nyala.replica.types import Corruption, Disk, DiskFile, Entry, check

from .format import BAD_AVRO, Header, decode_entry
from .index import Span, TermRuns
from .recovery import segment_name

_REPLAY_READ_BYTES = 4 << 20


def read_entries(
    disk: Disk,
    folder: str,
    headers: Mapping[int, Header],
    spans: Sequence[Span],
    lo: int,
    hi: int,
    max_bytes: int,
    terms: TermRuns,
) -> list[Entry]:
    """The entries [lo, hi) of `spans` until `max_bytes` are reached, at least one; Corruption names segment and byte.

    `terms` are those with which the entries were written.
    """
    entries: list[Entry] = []
    room = max_bytes
    files: dict[int, DiskFile] = {}
    try:
        for span in spans:
            if span.segment not in files:
                files[span.segment] = disk.open(f"{folder}/{segment_name(span.segment)}")
            data = files[span.segment].pread(span.length_bytes, span.byte_offset)
            for entry in _decode_span(data, span, headers[span.segment], lo, min(hi, span.last + 1), terms):
                room -= entry.size_bytes
                if room < 0 and entries:
                    return entries
                entries.append(entry)
    finally:
        for file in files.values():
            file.close()
    return entries


def _decode_span(data: bytes, span: Span, header: Header, lo: int, hi: int, terms: TermRuns) -> list[Entry]:
    stream = io.BytesIO(data)
    entries = []
    for index in range(span.first, hi):
        start = stream.tell()
        try:
            entry, problem, *_ = decode_entry(stream, header)
        except BAD_AVRO as error:
            problem = repr(error)
        if problem or entry.opid != (terms.term_at(index), index):
            raise Corruption(
                "an entry does not read back",
                segment=segment_name(span.segment),
                byte_offset=span.byte_offset + start,
                index=index,
                what=problem or f"it is entry {entry.opid}",
            )
        if index >= lo:
            entries.append(entry)
    return entries


class Survivors:
    """The entries with which a log was opened, read a few megabytes at a time at each iteration."""

    def __init__(self, read: Callable[[int, int, int], list[Entry]], first_index: int, last_index: int) -> None:
        self._read = read
        self._first_index = first_index
        self._last_index = last_index

    def __iter__(self) -> Iterator[Entry]:
        index = self._first_index
        while 0 < index <= self._last_index:
            entries = self._read(index, self._last_index + 1, _REPLAY_READ_BYTES)
            check(bool(entries), "a log is truncated before its replay has ended", index=index)
            for entry in entries:
                index = entry.opid.index + 1
                yield entry
