"""Shows the content of a segment file, and what is broken in it and where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import google_crc32c

from nyala.replica.types import ZERO_OPID, Corruption, Disk, Entry

from .format import HEADER_BYTES_MAX, decode_header
from .index import SeenOpIds
from .recovery import is_segment_name
from .scan import walk


def dump_segment(disk: Disk, path: str) -> Iterator[dict[str, Any]]:
    """Yields one dict for the header, each entry, the damage if there is one, and the tail. Bad bytes raise no error.

    Keys: `kind` is header, entry, damage, newer or tail; all have their `byte_offset`. An entry has `opid`,
    `entry_kind`, `hybrid_time`, `schema_id`, `meta_bytes`, `meta_crc`, `payload_bytes`, `payload_crc`, `length_bytes`
    (CRC-32C). A damage has `what`, whether it is `torn` (opening would cut it), how many entries of its block are
    whole, and the `withheld` OpId. The tail counts the zero bytes of the preallocated rest. Raises FileNotFoundError if
    there is no such file.
    """
    name = path.rpartition("/")[2]
    file = disk.open(path)
    try:
        size = file.size()
        data = file.pread(HEADER_BYTES_MAX, 0)
        if not any(data):
            if is_segment_name(name):  # a segment gets its name only when its header is synced
                what = "a segment was emptied: its header is gone"
                yield {"kind": "damage", "byte_offset": 0, "what": what, "torn": False, "kept": 0, "withheld": None}
            yield {"kind": "tail", "byte_offset": 0, "zero_bytes": size}
            return
        try:
            header = decode_header(data, name)
        except Corruption as error:
            yield {"kind": "damage", "byte_offset": 0, "what": str(error), "torn": False, "kept": 0, "withheld": None}
            return
        yield {
            "kind": "header",
            "byte_offset": 0,
            "tablet_id": header.tablet_id,
            "segment": header.segment,
            "first_index": header.first_index,
            "length_bytes": header.length_bytes,
        }
        found: list[dict[str, Any]] = []

        seen = SeenOpIds()

        def visit(entry: Entry, start: int, end: int) -> None:
            seen.add(entry.opid)
            found.append(_describe(entry, start, end))

        try:
            result = walk(file, header, visit, ZERO_OPID, seen)
        except Corruption as error:
            yield from found
            yield {"kind": "newer", "byte_offset": found[-1]["byte_offset"] if found else 0, "what": str(error)}
            return
        yield from found
        damage = result.damage
        if damage is not None:
            yield {
                "kind": "damage",
                "byte_offset": damage.byte_offset,
                "what": damage.what,
                "torn": not damage.fatal and damage.withheld is None,
                "kept": len(damage.kept),
                "withheld": damage.withheld,
            }
        else:
            yield {"kind": "tail", "byte_offset": result.content_end, "zero_bytes": size - result.content_end}
    finally:
        file.close()


def _describe(entry: Entry, start: int, end: int) -> dict[str, Any]:
    return {
        "kind": "entry",
        "byte_offset": start,
        "length_bytes": end - start,
        "opid": entry.opid,
        "entry_kind": entry.kind.name,
        "hybrid_time": entry.hybrid_time,
        "schema_id": entry.schema_id,
        "meta_bytes": len(entry.meta),
        "meta_crc": google_crc32c.value(entry.meta),
        "payload_bytes": len(entry.payload),
        "payload_crc": entry.payload_crc,
    }
