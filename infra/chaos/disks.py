"""Reads servers' disks: their logs, their rows, and files that no superblock names. It changes nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from nyala.replica import tools
from nyala.replica.fs import RealDisk
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.types import DataState
from nyala.replica.wal import dump_segment, read_offline

from .expected_rows import Rows
from .logs import SHOWN_MAX, Logged


def read_log(root: Path, tablet_id: str) -> tuple[list[Logged], list[str]]:
    """All entries of a tablet's log in the order of the disk, and the damage that is not a tear.

    While the server runs, a segment may be removed meanwhile (FileNotFoundError), and its last block may look damaged
    while it is written: then read it again. Every returned entry is synced, or about to be.
    """
    folder = root / wal_folder(tablet_id)
    entries, wrong = [], []
    for segment in sorted(folder.glob("wal-*")):
        for item in dump_segment(RealDisk(folder), segment.name):
            if item["kind"] == "entry":
                crcs = item["payload_crc"], item["meta_crc"]
                entries.append(Logged(item["opid"], item["entry_kind"], item["hybrid_time"], *crcs))
            elif item["kind"] in ("damage", "newer") and not item.get("torn"):
                wrong.append(f"{segment}: {item['what']}")
    return entries, wrong


def read_rows(root: Path, tablet_id: str, committed: int) -> Rows:
    """The rows of a stopped server's replica: those of its blocks, and of its log up to the commit index.

    Corruption in the same cases as at a start.
    """
    disk = RealDisk(root)
    tablet = Tablet.open(disk, Superblock.load(disk, tablet_id))
    try:
        log = read_offline(disk, wal_folder(tablet_id), tablet_id).entries
        flushed = tablet.flush_opid.index
        for entry in log:
            if flushed < entry.opid.index <= committed:
                tablet.apply((entry,))
        return Rows.of(tablet.scan(("k", "link", "version", "v")))
    finally:
        tablet.close()


@dataclass(frozen=True)
class Rotten:
    """A block in which a bit was flipped while its server was stopped; `log_bytes`: the length of the server's log
    then."""

    server: str
    tablet_id: str
    block: str
    log_bytes: int


def flip_block(root: Path, tablet_id: str) -> str:
    """Flip a bit in the middle of a block of a stopped server's replica; returns the block's path, empty if it has
    none."""
    superblock = Superblock.load(RealDisk(root), tablet_id)
    if superblock.data_state is not DataState.READY or not superblock.blocks:
        return ""
    block = superblock.blocks[-1].name
    with (root / block).open("r+b") as file:
        file.seek((root / block).stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    return block


def judge_rot(rotten: Rotten, log: str, blocks_in_use: Collection[str]) -> list[str]:
    """The errors if the server did not report the damage in its log, although the replica was there when it started; or
    if it still uses the block."""
    lines = [line for line in log.splitlines() if f" T {rotten.tablet_id} " in line]
    what = f"{rotten.block} of {rotten.tablet_id[:8]} on {rotten.server} has a flipped bit"
    wrong = []
    if not any(Path(rotten.block).name in line or f"T {rotten.tablet_id} deleted" in line for line in lines):
        wrong.append(f"{what}, and nobody noticed")
    if rotten.block in blocks_in_use:
        wrong.append(f"{what}, and is still in use")
    return wrong


def blocks_in_use(root: Path) -> set[str]:
    """The blocks of the replicas that a stopped server would start."""
    disk = RealDisk(root)
    superblocks = [Superblock.load(disk, tablet_id) for tablet_id in Superblock.list_tablets(disk)]
    return {block.name for s in superblocks if s.data_state is DataState.READY for block in s.blocks}


def leftovers(root: Path) -> list[str]:
    """V8 on one stopped server: everything that `nyala fs check` finds, damage included, and copies that never
    ended."""
    view = tools.check_directory(RealDisk(root))
    wrong = [f"{root.name}: {f.severity} {f.path}: {f.what}" for f in view.all_findings]
    for tablet in view.tablets:
        if tablet.superblock is not None and tablet.superblock.data_state is DataState.COPYING:
            wrong.append(f"{root.name}: {tablet.tablet_id} is COPYING")
    return wrong[:SHOWN_MAX]


def open_deleted_files(pid: int, root: Path) -> list[str]:
    """V8 of a running server: the files of its folder that were deleted and are still open."""
    found = []
    if not (links := list(Path(f"/proc/{pid}/fd").glob("*"))):
        return [f"process {pid} has no open file: nothing was verified"]
    for link in links:
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith(str(root)) and target.endswith(" (deleted)"):
            found.append(target)
    return found
