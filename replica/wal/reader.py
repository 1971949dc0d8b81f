"""Read entries back from known places, checking every byte that is handed out."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from nyala.replica.base import Corruption, Disk, DiskFile, Entry

from .format import BAD_AVRO, Header, decode_entry
from .index import Span
from .recovery import segment_name


def read_entries(
    disk: Disk, folder: str, headers: Mapping[int, Header], spans: Sequence[Span], lo: int, hi: int, max_bytes: int
) -> list[Entry]:
    """Entries [lo, hi) of `spans` until `max_bytes` are reached, at least one; Corruption names segment and byte."""
    entries: list[Entry] = []
    room = max_bytes
    files: dict[int, DiskFile] = {}
    try:
        for span in spans:
            if span.segment not in files:
                files[span.segment] = disk.open(f"{folder}/{segment_name(span.segment)}")
            data = files[span.segment].pread(span.length_bytes, span.byte_offset)
            for entry in _decode_span(data, span, headers[span.segment], lo, min(hi, span.last + 1)):
                room -= entry.size_bytes
                if room < 0 and entries:
                    return entries
                entries.append(entry)
    finally:
        for file in files.values():
            file.close()
    return entries


def _decode_span(data: bytes, span: Span, header: Header, lo: int, hi: int) -> list[Entry]:
    stream = io.BytesIO(data)
    entries = []
    for index in range(span.first, hi):
        start = stream.tell()
        try:
            entry, problem = decode_entry(stream, header)
        except BAD_AVRO as error:
            problem = repr(error)
        if problem or entry.opid.index != index:
            raise Corruption(
                "an entry does not read back",
                segment=segment_name(span.segment),
                byte_offset=span.byte_offset + start,
                index=index,
                what=problem or "another index",
            )
        if index >= lo:
            entries.append(entry)
    return entries
