"""What the disks of stopped servers say: do logs agree, is a file left that nobody names. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nyala.replica import tools
from nyala.replica.base import DataState, OpId
from nyala.replica.disk import RealDisk
from nyala.replica.wal import dump_segment

SHOWN_MAX = 5


@dataclass(frozen=True)
class Logged:
    """One entry of a log: what any two replicas must agree on, and its time."""

    opid: OpId
    kind: str
    hybrid_time: int
    payload_crc: int
    meta_crc: int
    """Of a config, or of whose write it is: as much a part of the entry as its payload."""


def read_log(root: Path, tablet_id: str) -> tuple[list[Logged], list[str]]:
    """All entries of a tablet's log in the order of the disk, and what is damaged and not torn."""
    folder = root / "wals" / tablet_id
    entries, wrong = [], []
    for segment in sorted(folder.glob("wal-*")):
        for item in dump_segment(RealDisk(folder), segment.name):
            if item["kind"] == "entry":
                crcs = item["payload_crc"], item["meta_crc"]
                entries.append(Logged(item["opid"], item["entry_kind"], item["hybrid_time"], *crcs))
            elif item["kind"] in ("damage", "newer") and not item.get("torn"):
                wrong.append(f"{segment}: {item['what']}")
    return entries, wrong


def judge_logs(tablet_id: str, logs: Mapping[str, list[Logged]], committed: Mapping[str, int]) -> list[str]:
    """V1 and the order of each log. `committed`: by server, the index that its replica had committed when it was asked.

    No index that two disks hold, up to what each had committed, has two terms or contents; indexes of one log follow
    each other without a gap, terms never fall, and hybrid times never fall.
    """
    wrong: list[str] = []
    seen: dict[int, tuple[str, Logged]] = {}
    for server, entries in sorted(logs.items()):
        kept = _in_force(entries)
        wrong += _order(f"{tablet_id[:8]} on {server}", list(kept.values()))
        for index, entry in kept.items():
            if index > committed.get(server, 0):
                continue
            first = seen.setdefault(index, (server, entry))
            if first[1] != entry:
                wrong.append(f"{tablet_id[:8]} index {index}: {first[0]} has {first[1]}, {server} has {entry}")
    return wrong[:SHOWN_MAX]


def _in_force(entries: Iterable[Logged]) -> dict[int, Logged]:
    """By index: a later entry of the same index replaced the earlier one, with all that followed it."""
    kept: dict[int, Logged] = {}
    last = 0
    for entry in entries:
        for index in range(entry.opid.index, last + 1):
            kept.pop(index, None)
        kept[entry.opid.index] = entry
        last = entry.opid.index
    return kept


def _order(where: str, entries: Iterable[Logged]) -> list[str]:
    wrong: list[str] = []
    before: Logged | None = None
    for entry in entries:
        if before is not None:
            if entry.opid.index != before.opid.index + 1:
                wrong.append(f"{where}: {entry.opid} follows {before.opid}")
            if entry.opid.term < before.opid.term:
                wrong.append(f"{where}: the term falls from {before.opid} to {entry.opid}")
            if 0 < entry.hybrid_time < before.hybrid_time:
                wrong.append(f"{where}: hybrid time falls at {entry.opid}")
        before = entry
    return wrong[:SHOWN_MAX]


def leftovers(root: Path) -> list[str]:
    """V8 on one stopped server: everything that `nyala fs check` finds, damage too, and copies that never ended."""
    view = tools.check_directory(RealDisk(root))
    wrong = [f"{root.name}: {f.severity} {f.path}: {f.what}" for f in view.all_findings]
    for tablet in view.tablets:
        if tablet.superblock is not None and tablet.superblock.data_state is DataState.COPYING:
            wrong.append(f"{root.name}: {tablet.tablet_id} is COPYING")
    return wrong[:SHOWN_MAX]


def open_deleted_files(pid: int, root: Path) -> list[str]:
    """V8 of a running server: files of its folder that were deleted and are still open."""
    found = []
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith(str(root)) and target.endswith(" (deleted)"):
            found.append(target)
    return found
