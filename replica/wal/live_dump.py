"""Shows a whole log, also while its server appends to it and log GC collects it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from nyala.replica.types import Corruption, Disk, OpId

from .dump import dump_segment
from .log_report import LogReport, inspect_log
from .recovery import is_segment_name

READS_MAX = 10
"""Readings of a file or a log that seems damaged; if no two agree, it counts as one that is being written."""

_WRITING = "it is being written or collected: dump it again"

Item = dict[str, Any]
Pause = Callable[[], None]
"""Waits some milliseconds, in which a write that was seen half done ends."""


def dump_log(disk: Disk, folder: str, pause: Pause) -> Iterator[tuple[str, Item]]:
    """Yields (file name, an item of `dump_segment`) for each segment of a folder, and at last one ("log", item) for
    all.

    Takes no lock. If a segment was removed after the listing, it is one item of kind `collected`. A segment that looks
    damaged is read again until two readings agree, because the end of a log in use may be seen half written. The last
    item, of kind `log` or `damage`, says what opening would find in all segments together. Yields nothing if there is
    no segment.
    """
    names = _segments(disk, folder)
    tablet_id, collected, writing = "", 0, False
    for name in names:
        items = dump_settled(disk, f"{folder}/{name}", pause)
        collected += items[0]["kind"] == "collected"
        tablet_id = tablet_id or items[0].get("tablet_id", "")
        writing |= items[-1].get("what") == _WRITING
        yield from ((name, item) for item in items)
    if names and collected == len(names):
        yield "log", {"kind": "log", "byte_offset": 0, "what": "every segment was collected: nothing is left"}
    elif names:
        verdict = _judge(disk, folder, tablet_id, pause)
        yield "log", {"kind": "log", "byte_offset": 0, "what": _WRITING} if writing and _is_damage(verdict) else verdict


def dump_settled(disk: Disk, path: str, pause: Pause) -> list[Item]:
    """The items of `dump_segment` for a file that may be written meanwhile, or removed."""
    try:
        items = list(dump_segment(disk, path))
        for _ in range(READS_MAX):
            if not _is_damage(items[-1]):
                return items
            pause()
            before, items = items, list(dump_segment(disk, path))
            if items == before:
                return items
    except FileNotFoundError:
        what = "the file went away before it was read: log GC collected it, or the tablet was deleted"
        return [{"kind": "collected", "byte_offset": 0, "what": what}]
    at = items[-1]["byte_offset"]
    return [*items[:-1], {"kind": "tail", "byte_offset": at, "what": _WRITING}]


def _segments(disk: Disk, folder: str) -> list[str]:
    return [name for name in disk.listdir(folder) if is_segment_name(name)]


def _is_damage(item: Item) -> bool:
    return item["kind"] in ("damage", "newer")


def _judge(disk: Disk, folder: str, tablet_id: str, pause: Pause) -> Item:
    """The defect that opening would find in all segments together: a gap, or damage before later entries."""
    before: Item | None = None
    for _ in range(READS_MAX):
        try:
            found = _verdict(inspect_log(disk, folder, tablet_id))
        except Corruption as error:
            found = {"kind": "damage", "byte_offset": error.values.get("byte_offset", 0), "what": str(error)}
        except FileNotFoundError:
            before = None
            continue
        if not _is_damage(found) or found == before:
            return found
        before = found
        pause()
    return {"kind": "log", "byte_offset": 0, "what": _WRITING}


def _verdict(view: LogReport) -> Item:
    found: Item = {
        "kind": "log", "byte_offset": view.size_bytes, "first_index": view.first_index, "last": view.last,
        "segments": len(view.segments),
    }  # fmt: skip
    if view.torn:
        found["torn"] = view.torn
    withheld: OpId | None = view.withheld
    if withheld is not None:
        what = "an entry that may be acknowledged is damaged or missing"
        found |= {"kind": "damage", "withheld": withheld, "what": what}
    return found
