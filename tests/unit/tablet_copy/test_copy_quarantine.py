"""The quarantine, as an operator lists and purges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.tablet import Superblock, superblock_path
from nyala.replica.tablet_copy import (
    delete_replica,
    list_quarantine,
    list_some,
    parse_superblock,
    purge_quarantine,
    wal_folder,
)
from nyala.replica.tablet_copy.blocks import quarantined_superblocks
from nyala.replica.tablet_copy.quarantine import drop_undone_deletions, end_unfinished_copy
from nyala.replica.types import Code, Corruption, DataState, DiskFailure, OpId, Refused
from tests.harness.copies import TABLET, TARGET_UUID, RestingReplica, data_files, new_disk, superblock
from tests.harness.sim_disk import SimCrash, SimDisk


def deleted(disk: SimDisk) -> Superblock:
    """A tombstone whose quarantine holds a block, a log and metadata."""
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([1, 2], "a")
    replica.tablet.flush()
    last = replica.write([3], "b", term=4)
    replica.cmeta.save_hard_state(5, "c" * 32)
    replica.close()
    return delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)


def test_quarantine_is_listed_with_what_it_holds() -> None:
    """Goal: row TC-38: an operator sees what is kept, of which tablet, and how much. Method: a deleted replica, a
    damaged quarantine, one with a log only, one of another tablet whose id has a dash and a number."""
    disk = new_disk()
    tombstone = deleted(disk)
    (item,) = list_quarantine(disk)
    assert (item.path, item.tablet_id, item.table_name) == (tombstone.quarantine, TABLET, "things")
    assert item.data_state is DataState.READY and not item.error
    assert item.wal_bytes == sum(disk.size(f"{item.path}/wal/{n}") for n in disk.listdir(f"{item.path}/wal")) > 0
    assert item.block_bytes == sum(disk.size(f"data/{n}") for n in data_files(disk)) > 0
    for name, path in ((f"{TABLET}-000007", "superblock"), ("other-9-000001", "wal/wal-000000001")):
        disk.mkdir(f"quarantine/{name}/wal")
        disk.poke(f"quarantine/{name}/{path}", b"12345")
    damaged, other = (q for q in list_quarantine(disk) if q.path != item.path)
    if damaged.tablet_id != TABLET:
        damaged, other = other, damaged
    assert (damaged.tablet_id, damaged.data_state) == (TABLET, None) and "cannot be read" in damaged.error
    assert (other.tablet_id, other.wal_bytes, other.error) == ("other-9", 5, "")
    assert {q.path for q in list_quarantine(disk, TABLET)} == {item.path, damaged.path}
    looks: list[None] = []
    with pytest.raises(Corruption, match="000007"):
        list(quarantined_superblocks(disk, lambda: looks.append(None)))
    assert looks, "its caller may end the search before each"


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_quarantines_are_listed_in_pages(most: int) -> None:
    """Goal: a page looks at a bounded number of quarantines, and the next one goes on after its last. Method: five of
    three tablets; each page of one tablet, with the path after which the next one begins."""
    disk, names = new_disk(), ["a-1-000001", "b-1-000001", "b-1-000002", "b-1-000003", "c-1-000001"]
    for name in names:
        disk.mkdir(f"quarantine/{name}/wal")
    pages, after = list[list[str]](), ""
    looks: list[None] = []
    while True:
        found, last = list_some(disk, "b-1", after=after, most=most, stop=lambda: looks.append(None))
        pages.append([item.path.removeprefix("quarantine/") for item in found])
        assert last == (f"quarantine/{names[most * len(pages) - 1]}" if most * len(pages) < 5 else "")
        if not (after := last):
            break
    assert len(looks) == 5, "its caller may leave before each"
    assert pages == [[n for n in names[at : at + most] if n.startswith("b")] for at in range(0, 5, most)]


def test_purge_gives_the_space_back_and_keeps_the_promises() -> None:
    """Goal: row TC-45. Method: purge a tombstone: blocks and quarantine are gone, superblock, term, vote and last
    logged OpId are as before; a second purge does nothing."""
    disk = new_disk()
    tombstone = deleted(disk)
    (item,), files = list_quarantine(disk), data_files(disk)
    removed, freed, _ = purge_quarantine(disk, TABLET)
    assert freed == item.wal_bytes + item.block_bytes > item.wal_bytes and len(files) == 2
    assert tombstone.quarantine in removed and data_files(disk) == [] == disk.listdir("quarantine")
    assert Superblock.load(disk, TABLET) == tombstone and tombstone.last_logged == OpId(4, 2)
    kept = ConsensusMeta.load(disk, TABLET)
    assert (kept.term, kept.voted_for) == (5, "c" * 32)
    assert purge_quarantine(disk, TABLET) == ([], 0, 0)


def test_purge_tells_only_the_room_that_it_gave() -> None:
    """TC-45, TC-46. Goal: a purge reports only the bytes that it freed. Method: a deletion dies before its commit
    point, so that its quarantine names the live blocks, and is purged before a start has removed it."""
    disk = new_disk()
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([1, 2], "a")
    replica.tablet.flush()
    replica.close()
    disk.arm("delete.3")
    with pytest.raises(SimCrash):
        delete_replica(disk, Superblock.load(disk, TABLET), OpId(1, 1), stop=lambda: None)
    disk.restart()
    (item,), files = list_quarantine(disk), data_files(disk)
    assert item.block_bytes > 0
    assert purge_quarantine(disk, TABLET) == ([item.path], 0, 0)
    assert data_files(disk) == files


class Passing(SimDisk):
    """A disk on which a folder is removed before the n-th look at anything, as another tablet's work would."""

    def __init__(self, gone: str, before: int) -> None:
        super().__init__()
        self.gone = gone
        self.before = before
        self.looks = 0

    def _look(self) -> None:
        self.looks += 1
        if self.looks == self.before:
            self.remove_tree(self.gone)

    def exists(self, path: str) -> bool:
        self._look()
        return super().exists(path)

    def size(self, path: str) -> int:
        self._look()
        return super().size(path)

    def listdir(self, path: str) -> list[str]:
        self._look()
        return super().listdir(path)

    def read(self, path: str) -> bytes:
        self._look()
        return super().read(path)


@pytest.mark.parametrize(
    "use", [list_quarantine, lambda disk: purge_quarantine(disk, TABLET).removed], ids=["list", "purge"]
)
def test_quarantine_that_goes_away_meanwhile_is_left_out(use: Callable[[SimDisk], list[object]]) -> None:
    """TC-45. Goal: an operator may list and purge quarantines while copies of another tablet fail. Method: the
    quarantine of such a copy is removed before each call of the disk in turn; each answer is right about the
    tombstone's quarantine, with or without the other one."""
    other, before = "quarantine/other-000001", 0
    while True:
        before += 1
        disk = Passing(other, -1)
        tombstone = deleted(disk)
        disk.mkdir(f"{other}/wal")
        disk.poke(f"{other}/wal/wal-000000001", b"12345")
        superblock(tablet_id="other", data_state=DataState.COPYING).save(disk)
        disk.poke(f"{other}/superblock", disk.read("tablet-meta/other"))
        disk.looks, disk.before = 0, before
        found = [getattr(item, "path", item) for item in use(disk)]
        assert tombstone.quarantine in found, (before, found)
        if disk.looks < before:
            break
    assert before > 5


class BadData(SimDisk):
    """A disk whose folder of blocks cannot be looked at once it is `bad`."""

    bad = False

    def size(self, path: str) -> int:
        if self.bad and path.startswith("data/"):
            raise DiskFailure("a file cannot be looked at", path=path)
        return super().size(path)

    def listdir(self, path: str) -> list[str]:
        if self.bad and path == "data":
            raise DiskFailure("a folder cannot be listed", path=path)
        return super().listdir(path)


def test_quarantine_beside_a_bad_folder_of_blocks_is_listed_and_purged_all_the_same() -> None:
    """TC-38, TC-45. Goal: listing and purging work on a server whose data disk fails. Method: the lengths of blocks
    cannot be told, nor which are there: the log's bytes are, and the purge frees them."""
    disk = BadData()
    tombstone = deleted(disk)
    disk.bad = True
    (item,) = list_quarantine(disk)
    assert (item.path, item.block_bytes) == (tombstone.quarantine, 0) and item.wal_bytes > 0
    removed, freed, _ = purge_quarantine(disk, TABLET)
    assert tombstone.quarantine in removed and freed == item.wal_bytes
    assert list_quarantine(disk) == []


def test_purge_beside_a_superblock_that_cannot_be_read_removes_nothing() -> None:
    """Goal: row TC-46: a purge removes nothing while a superblock cannot be read, because it may name any file. Method:
    damage another tablet's superblock, live and then quarantined: refused, and every file is still there."""
    disk = new_disk()
    deleted(disk)
    files = data_files(disk)
    superblock(tablet_id="other").save(disk)
    good = disk.read("tablet-meta/other")
    disk.poke("tablet-meta/other", b"nonsense")
    with pytest.raises(Corruption):
        purge_quarantine(disk, TABLET)
    disk.poke("tablet-meta/other", good)
    disk.mkdir("quarantine/other-000001")
    disk.poke("quarantine/other-000001/superblock", b"nonsense")
    with pytest.raises(Corruption):
        purge_quarantine(disk, TABLET)
    assert data_files(disk) == files and len(list_quarantine(disk, TABLET)) == 1


def _put(disk: SimDisk, name: str, held: Superblock | None, *, log: bool = False) -> str:
    """A quarantine with that superblock, if there is one, and a log or none; returns its path."""
    path = f"quarantine/{name}"
    disk.mkdir(path)
    if held is not None:
        disk.poke(f"{path}/superblock", held.encode())
    if log:
        disk.mkdir(f"{path}/wal")
        disk.poke(f"{path}/wal/wal-000000001", b"12345")
    return path


def _quarantines(disk: SimDisk) -> set[str]:
    return {f"quarantine/{name}" for name in disk.listdir("quarantine")}


def test_quarantine_of_which_a_block_is_gone_tells_the_bytes_that_are_there() -> None:
    """TC-38. Goal: an operator sees what a purge would free. Method: one of two files of a block is gone; the
    quarantine of another tablet goes away after the listing, and is not told."""
    disk = Passing("quarantine/other-000001", -1)
    tombstone = deleted(disk)
    gone, left = data_files(disk)
    disk.remove(f"data/{gone}")
    _put(disk, "other-000001", None, log=True)
    disk.before = disk.looks + 2
    (item,) = list_quarantine(disk)
    assert (item.path, item.block_bytes) == (tombstone.quarantine, disk.size(f"data/{left}"))


def test_purge_leaves_what_is_not_this_tablets() -> None:
    """TC-45, TC-46. Goal: an operator forgets the data of one tablet. Method: quarantines of another tablet with a
    superblock and without, one whose name has no number, and a block that another tablet's quarantine names too."""
    disk = new_disk()
    tombstone = deleted(disk)
    kept = parse_superblock(disk.read(f"{tombstone.quarantine}/superblock"), "")
    others = {
        _put(disk, "other-000001", replace(kept, tablet_id="other", blocks=())),
        _put(disk, "other-000002", None, log=True),
        _put(disk, f"{TABLET}-notes", None, log=True),
        _put(disk, f"{TABLET}", None, log=True),
    }
    files = data_files(disk)
    third = _put(disk, "third-000001", replace(kept, tablet_id="third"))
    bare = _put(disk, f"{TABLET}-000009", None, log=True)
    removed, freed, _ = purge_quarantine(disk, TABLET)
    assert removed == sorted([tombstone.quarantine, bare]) and freed > 5
    assert _quarantines(disk) == others | {third} and data_files(disk) == files
    assert {item.path for item in list_quarantine(disk, TABLET)} == set()


@pytest.mark.parametrize(("kind", "code"), [("ENOSPC", Code.NO_SPACE), ("EMFILE", Code.OVERLOADED)])
def test_unfinished_copy_loses_its_log_for_want_of_room_only(kind: str, code: Code) -> None:
    """TC-12, TC-61. Goal: the next start goes on where this one could not. Method: a disk that stays full, and a want
    of handles, as the copy's end is written: the one costs the log, the other nothing; a second try leaves a tombstone
    with what was acknowledged, and quarantines of other tablets."""
    disk = new_disk()
    other = _put(disk, "other-000001", superblock(tablet_id="other", data_state=DataState.COPYING))
    stale = _put(disk, f"{TABLET}-000001", superblock(data_state=DataState.COPYING), log=True)
    copying = superblock(data_state=DataState.COPYING, last_logged=OpId(3, 7))
    copying.save(disk)
    disk.mkdir(wal_folder(TABLET))
    disk.poke(f"{wal_folder(TABLET)}/wal-000000001", b"12345")
    disk.fail_on("replace", "*", kind, times=None)
    with pytest.raises(Refused) as refused:
        end_unfinished_copy(disk, copying)
    assert refused.value.code is code and Superblock.load(disk, TABLET) == copying
    assert disk.exists(f"{wal_folder(TABLET)}/wal-000000001") == (kind == "EMFILE")
    tried = disk.fired["replace", kind]
    with pytest.raises(Refused):
        end_unfinished_copy(disk, copying)
    assert disk.fired["replace", kind] == tried + 1, "without a log there is nothing more to try"
    disk.heal()
    tombstone = end_unfinished_copy(disk, copying)
    assert (tombstone.data_state, tombstone.last_logged) == (DataState.DELETED, OpId(3, 7))
    assert _quarantines(disk) == {other, tombstone.quarantine} and stale not in _quarantines(disk)


def test_start_removes_undone_deletions_of_its_own_replica_durably() -> None:
    """TC-46. Goal: a quarantine that names live blocks never comes back, and no other one goes. Method: an undone
    deletion and an empty one beside quarantines of another tablet and one with a log; nothing is synced for nothing."""
    disk = new_disk()
    ready = superblock(wal_generation=2)
    stays = {
        _put(disk, "other-000001", replace(ready, tablet_id="other")),
        _put(disk, f"{TABLET}-000001", ready, log=True),
        _put(disk, f"{TABLET}-000002", replace(ready, wal_generation=1)),
    }
    drop_undone_deletions(disk, ready)
    assert disk.count("sync_dir", "quarantine") == 0 and _quarantines(disk) == stays
    _put(disk, f"{TABLET}-000003", ready)
    _put(disk, f"{TABLET}-000004", None)
    drop_undone_deletions(disk, ready)
    assert disk.count("sync_dir", "quarantine") == 1 and _quarantines(disk) == stays


def _undone_deletion(disk: SimDisk) -> None:
    """A READY replica beside a quarantine that names its live blocks."""
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([1, 2], "a")
    replica.tablet.flush()
    replica.close()
    _put(disk, f"{TABLET}-000001", Superblock.load(disk, TABLET), log=True)


def _files(disk: SimDisk) -> dict[str, set[str]]:
    return {folder: set(disk.listdir(folder)) for folder in ("data", "quarantine", "wals", "consensus-meta")}


@pytest.mark.a_third
@pytest.mark.parametrize("made", [_undone_deletion, deleted], ids=["READY", "tombstone"])
@pytest.mark.parametrize("gone", [TABLET, "other"])
def test_purge_removes_nothing_that_a_superblock_which_goes_away_meanwhile_needs(
    made: Callable[[SimDisk], object], gone: str
) -> None:
    """TC-45, TC-46. Goal: a purge never removes a file because a superblock is missing. Method: the superblock of the
    purged tablet, or of another one, is lost before each call of the disk in turn; each purge is refused, and removes
    nothing, or removes what a purge beside all superblocks does."""
    whole = new_disk()
    made(whole)
    superblock(tablet_id="other").save(whole)
    expected, before = purge_quarantine(whole, TABLET).removed, 0
    assert expected
    while True:
        before += 1
        disk = Passing(superblock_path(gone), -1)
        made(disk)
        superblock(tablet_id="other").save(disk)
        files, disk.looks, disk.before = _files(disk), 0, before
        try:
            assert purge_quarantine(disk, TABLET).removed == expected, before
        except Refused as refused:
            assert refused.code is Code.TABLET_NOT_FOUND and _files(disk) == files, before
        if disk.looks < before:
            break
    assert before > 5


@pytest.mark.parametrize("tablet_id", [TABLET, "other", "never-here"])
def test_purge_without_a_superblock_is_refused_with_what_to_do(tablet_id: str) -> None:
    """TC-45, IN-21. Goal: what a lost superblock named stays, and an operator reads how to go on. Method: a tablet
    whose superblock is lost while its quarantine names its blocks, one with a quarantine only, one that was never
    here."""
    disk = new_disk()
    _undone_deletion(disk)
    _put(disk, "other-000001", None, log=True)
    disk.remove(superblock_path(TABLET))
    files = _files(disk)
    with pytest.raises(Refused, match=f"(?s)nothing was removed.*tablet-meta/{tablet_id}") as refused:
        purge_quarantine(disk, tablet_id)
    assert refused.value.code is Code.TABLET_NOT_FOUND and _files(disk) == files


@pytest.mark.parametrize("most", range(1, 6))
def test_purge_says_how_much_is_left_to_the_next_one(most: int) -> None:
    """TC-45, IN-71. Goal: an operator knows whether to purge again. Method: two blocks and two quarantines, purged so
    many at a time: what is left falls by what was removed, until nothing is; nothing is removed twice."""
    disk = new_disk()
    tombstone = deleted(disk)
    bare = _put(disk, f"{TABLET}-000009", None, log=True)
    whole, removed = len(data_files(disk)) + 2, list[str]()
    while True:
        purged = purge_quarantine(disk, TABLET, most=most)
        removed += purged.removed
        assert len(purged.removed) <= most and purged.remaining == whole - len(removed)
        if not purged.remaining:
            break
    assert len(removed) == len(set(removed)) == whole == 4 and {tombstone.quarantine, bare} < set(removed)
    assert purge_quarantine(disk, TABLET, most=most) == ([], 0, 0)
