"""New numbers for a copy's blocks, because blocks of a quarantine here may have the source's numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from nyala import schemas
from nyala.replica.rows import never_stop
from nyala.replica.tablet import BlockInfo, Superblock, block_names
from nyala.replica.types import Code, Corruption, Disk, Refused

from .deletion import QUARANTINE

_NUMBERED = re.compile(r"^(?P<tablet>.+)-(?P<number>[0-9]{1,20})(?P<suffix>\.[a-z]+)$")
DATA = "data/"


def base_name(path: str) -> str:
    """The file's name inside `data/`."""
    return path.removeprefix(DATA)


def block_numbers(tablet_id: str, names: Iterable[str]) -> dict[str, int]:
    """The number of each file in `names` (in `data/`) that is a block of this tablet, or a sidecar of one."""
    return {m.string: int(m["number"]) for m in map(_NUMBERED.match, names) if m and m["tablet"] == tablet_id}


@dataclass(frozen=True)
class Renamed:
    """The blocks with new names, the new name for each old one, and the first free number."""

    blocks: tuple[BlockInfo, ...]
    names: dict[str, str]
    """Source's name inside `data/` -> name here."""
    next_block: int


def rename_blocks(blocks: Sequence[BlockInfo], tablet_id: str, next_block: int, present: Iterable[str] = ()) -> Renamed:
    """Give every block a number from `next_block` on, above all numbers of this tablet among the files `present`."""
    number = max([next_block, *(n + 1 for n in block_numbers(tablet_id, present).values())])
    renamed: list[BlockInfo] = []
    names: dict[str, str] = {}
    for block in blocks:
        paths: list[str] = []
        for old in (block.name, block.sidecar_name):
            match = _NUMBERED.match(base_name(old))
            if match is None:
                raise Refused(Code.CORRUPTION, "a block's name has no number", name=old)
            width = len(match["number"])
            new = f"{tablet_id}-{number:0{width}d}{match['suffix']}"
            names[base_name(old)] = new
            paths.append(DATA + new)
        renamed.append(block._replace(name=paths[0], sidecar_name=paths[1]))
        number += 1
    if len(set(names.values())) != 2 * len(blocks):
        raise Refused(Code.CORRUPTION, "the source's superblock names a file twice", tablet=tablet_id, files=len(names))
    return Renamed(tuple(renamed), names, number)


def parse_superblock(data: bytes, where: str) -> Superblock:
    """The superblock of framed bytes; Corruption says what is wrong with them."""
    try:
        return Superblock.from_avro(schemas.unframe("superblock", data))
    except (ValueError, KeyError, EOFError, IndexError, TypeError) as error:
        raise Corruption("a superblock cannot be read", where=where, reason=str(error)) from error


def quarantined_superblocks(disk: Disk, stop: Callable[[], None] = never_stop) -> Iterator[tuple[str, Superblock]]:
    """Each quarantine's path and superblock, one after the other. Corruption if one cannot be read: then no file may be
    removed. `stop` is called before each; it may raise.

    A quarantine that is removed meanwhile names nothing any more, because its blocks are removed before it.
    """
    for name in disk.listdir(QUARANTINE):
        stop()
        path = f"{QUARANTINE}/{name}/superblock"
        with suppress(FileNotFoundError):
            yield f"{QUARANTINE}/{name}", parse_superblock(disk.read(path), path)


def named_blocks(disk: Disk) -> frozenset[str]:
    """Paths of every block that a live or a quarantined superblock names.

    Corruption if any of them cannot be read: an unknown superblock may name anything.
    """
    names: set[str] = set()
    for tablet_id in Superblock.list_tablets(disk):
        names |= block_names(Superblock.load(disk, tablet_id))
    for _, superblock in quarantined_superblocks(disk):
        names |= block_names(superblock)
    return frozenset(names)


def spared_below(superblock: Superblock) -> int:
    """The tablet's blocks below this number stay, because a superblock that was lost before this one may have named
    them."""
    return 0 if superblock.last_logged_known else superblock.next_block


def spared_blocks(disk: Disk, present: Iterable[str]) -> frozenset[str]:
    """The paths of those files of `present`, in `data/`, that a lost superblock may have named.

    A tablet with a log folder or consensus metadata and no superblock was here, or was being created. Its superblock
    may come back from a backup, and would name these blocks. A tombstone may have taken the place of such a superblock.
    Then the blocks from before it stay until a copy is complete, or until its quarantine is purged. Blocks of an
    unfinished copy have later numbers and do not stay.
    """
    known = set(Superblock.list_tablets(disk))
    left = {*disk.listdir("wals"), *disk.listdir("consensus-meta")} - known
    below: dict[str, float] = dict.fromkeys(left, math.inf)
    for tablet_id in known:
        below[tablet_id] = spared_below(Superblock.load(disk, tablet_id))
    found = (m for m in map(_NUMBERED.match, present) if m)
    return frozenset(DATA + m.string for m in found if int(m["number"]) < below.get(m["tablet"], 0))
