"""Offers that a source may not make are refused before anything here changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import CopyFile, CopyManifest, FileKind
from nyala.replica.tablet_copy.blocks import rename_blocks
from nyala.replica.tablet_copy.offer import accept_offer
from nyala.replica.types import Code, DataState, Member, OpId, RaftConfig, Refused, limits, next_generation
from nyala.schemas import unframe
from tests.harness.copies import CONFIG, TABLET, attempt, copy_over, leading_source, new_disk, superblock, tombstone

OWN_TERM = 6


def cmeta(term: int = OWN_TERM, config: RaftConfig = CONFIG, tablet_id: str = TABLET) -> bytes:
    return ConsensusMeta.create(new_disk(), tablet_id, "a" * 32, config, term).encode()


def rows(**fields: Any) -> bytes:
    return superblock(**fields).encode()


def config_at(opid: OpId, *members: Member) -> RaftConfig:
    return RaftConfig(opid, members or CONFIG.members)


BAD: dict[str, dict[str, Any]] = {
    "a superblock that does not decode": {"superblock": b"\xff" * 80},
    "no superblock": {"superblock": b""},
    "another tablet's superblock": {"superblock": rows(tablet_id="tablet-2")},
    "metadata that do not decode": {"cmeta": b"\xff" * 80},
    "no metadata": {"cmeta": b""},
    "another tablet's metadata": {"cmeta": cmeta(tablet_id="tablet-2")},
    "a term too far": {"cmeta": cmeta(limits.RAFT_TERMS_HONEST_MAX + 1)},
    "the last term of all": {"cmeta": cmeta(2**63 - 1)},
    "the end of the next generation": {"cmeta": cmeta(next_generation(OWN_TERM) + 2**32 - 1)},
    "a config without voters": {"cmeta": cmeta(config=config_at(OpId(1, 1), Member("a" * 32, votes=False)))},
    "a config of a later term": {"cmeta": cmeta(config=config_at(OpId(OWN_TERM + 1, 1)))},
    "a config below zero": {"cmeta": cmeta(config=config_at(OpId(-1, -1)))},
    "a log that ends below zero": {"last_opid": OpId(1, -1)},
    "a log that ends in a term too far": {"last_opid": OpId(2**62, 9)},
    "rows beyond the log": {"superblock": rows(flush_opid=OpId(1, 99))},
    "a log that ends in a term below zero": {"last_opid": OpId(-1, 9)},
    "rows below zero": {"superblock": rows(flush_opid=OpId(-1, 1))},
    "a log that begins below zero": {"first_retained_index": -1},
    "a log that begins beyond all indexes": {"first_retained_index": limits.RAFT_INDEX_MAX + 1},
    "a file of negative length": {"files": (CopyFile(FileKind.BLOCK, "x", -1, 0),)},
    "a file twice": {"files": (CopyFile(FileKind.BLOCK, "x", 1, 0),) * 2},
    "a long name": {"files": (CopyFile(FileKind.BLOCK, "x" * 300, 1, 0),)},
}


GOOD: dict[str, dict[str, Any]] = {
    "a group without an election": {"cmeta": cmeta(0, config_at(OpId(0, 0)))},
    "a config of the present term": {"cmeta": cmeta(config=config_at(OpId(OWN_TERM, 1)))},
    "rows up to the end of the log": {"superblock": rows(flush_opid=OpId(6, 9)), "last_opid": OpId(6, 9)},
    "a log without an entry": {"superblock": rows(), "last_opid": OpId(0, 0), "first_retained_index": 0},
    "the last index of all": {"first_retained_index": limits.RAFT_INDEX_MAX},
    "an empty file": {"files": (CopyFile(FileKind.BLOCK, "x", 0, 0),)},
    "the longest name": {"files": (CopyFile(FileKind.BLOCK, "x" * limits.NAME_LENGTH_MAX, 1, 0),)},
    "a name of two kinds": {"files": tuple(CopyFile(kind, "x", 1, 0) for kind in FileKind)},
}


@pytest.mark.parametrize("what", GOOD)
def test_offer_at_the_bounds_of_what_there_can_be_is_taken(what: str) -> None:
    """IN-50. Goal: a manifest that a true source can have is accepted. Method: a manifest in which one field is as low,
    as high or as long as possible."""
    source = leading_source()
    manifest = source.copy_source.begin(TABLET, "b" * 32, False)
    assert accept_offer(replace(manifest, **GOOD[what]), TABLET, OWN_TERM).tablet_id == TABLET
    source.replica.close()


def test_server_that_knows_nothing_takes_a_copy_of_an_old_group() -> None:
    """Goal: IN-50: a group that has held many elections can be copied to a new server. Method: the metadata of one that
    is 2^30 terms on, at a server that knows no term."""
    source = leading_source()
    manifest = source.copy_source.begin(TABLET, "b" * 32, False)
    assert accept_offer(replace(manifest, cmeta=cmeta(1 << 30)), TABLET, own_term=0).tablet_id == TABLET
    source.replica.close()


class Offering:
    """A source that is honest but for what its manifest says."""

    def __init__(self, copy_source: Any, **forged: Any) -> None:
        self._copy_source = copy_source
        self._forged = forged
        self.end, self.fetch = copy_source.end, copy_source.fetch

    def begin(self, *args: Any, **fields: Any) -> CopyManifest:
        manifest: CopyManifest = self._copy_source.begin(*args, **fields)
        return replace(manifest, **self._forged)


@pytest.mark.parametrize("what", BAD)
def test_offer_that_no_source_makes_is_refused_and_changes_nothing(what: str) -> None:
    """IN-50. Goal: an impossible manifest ends neither the server nor a replica. Method: over a tombstone, a manifest
    with one impossible field: refused with a reason; the superblock and the metadata are unchanged; then the copy
    without that fault succeeds."""
    disk, source = new_disk(), leading_source()
    local = tombstone(disk, OpId(1, 1), term=5)
    kept = (ConsensusMeta.load(disk, TABLET).encode(), Superblock.load(disk, TABLET))
    with pytest.raises(Refused) as refused:
        copy_over(local, attempt(disk, Offering(source.copy_source, **BAD[what])), own_term=5).run()
    assert refused.value.code is Code.CORRUPTION and "no replica has" in str(refused.value)
    assert (ConsensusMeta.load(disk, TABLET).encode(), Superblock.load(disk, TABLET)) == kept
    copy_over(local, attempt(disk, source.copy_source), own_term=5).run()
    source.replica.close()


def test_unfinished_copy_is_no_source() -> None:
    """TC-16. Goal: an unfinished copy is never the source of another one. Method: a source whose superblock says
    COPYING."""
    disk, source = new_disk(), leading_source()
    local = tombstone(disk, OpId(1, 1), term=5)
    copying = Offering(source.copy_source, superblock=rows(data_state=DataState.COPYING))
    with pytest.raises(Refused, match="not READY"):
        copy_over(local, attempt(disk, copying), own_term=5).run()
    assert Superblock.load(disk, TABLET) == local
    source.replica.close()


def test_blocks_that_share_a_name_are_refused() -> None:
    """IN-50. Goal: impossible names of blocks are refused. Method: a superblock that names a file twice, and one whose
    number has thousands of digits."""
    source = leading_source()
    manifest = source.copy_source.begin(TABLET, "b" * 32, False)
    [block, *_] = Superblock.from_avro(unframe("superblock", manifest.superblock)).blocks
    for blocks in ((block, block), (block._replace(sidecar_name=block.name),)):
        with pytest.raises(Refused, match="names a file twice"):
            rename_blocks(blocks, TABLET, 0)
    with pytest.raises(Refused, match="no number"):
        rename_blocks((block._replace(name=f"data/{TABLET}-{'9' * 5000}.arrow"),), TABLET, 0)
    source.replica.close()


def test_blocks_of_a_copy_get_the_next_numbers_that_no_file_of_the_tablet_has() -> None:
    """TC-64. Goal: a copy overwrites no file of the tablet, named by a superblock or not. Method: two blocks, where the
    superblock's next number is free, and where files of the tablet have it and higher ones; what is another tablet's,
    or no block, takes no number."""
    source = leading_source()
    [block, *_] = source.replica.tablet.superblock.blocks
    second = block._replace(name=f"data/{TABLET}-8.arrow", sidecar_name=f"data/{TABLET}-8.idx")
    strange = ["lost+found", f"{TABLET}.arrow", "other-000050.arrow"]
    for next_block, present, first in ((3, [], 3), (3, ["2"], 3), (3, ["3"], 4), (3, ["11", "6"], 12), (20, ["6"], 20)):
        files = [*strange, *(f"{TABLET}-{number}.arrow" for number in present)]
        renamed = rename_blocks((block, second), TABLET, next_block, files)
        assert [int(each.name.rpartition("-")[2].partition(".")[0]) for each in renamed.blocks] == [first, first + 1]
        assert renamed.next_block == first + 2
    source.replica.close()
