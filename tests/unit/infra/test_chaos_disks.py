"""The verifiers of the chaos runs on real files: rows of a disk alone, and blocks gone bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nyala.infra.chaos.disks import Rotten, blocks_in_use, flip_block, judge_rot, read_log, read_rows
from nyala.infra.chaos.expected_rows import TOGGLES, ExpectedRows, link_of, text_of
from nyala.infra.chaos.verify import judge_disks, verify_rot
from nyala.infra.chaos.workload import SCHEMA
from nyala.replica.fs import RealDisk
from nyala.replica.rows import RowOp
from nyala.replica.tablet import Tablet
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.tools import KINDS, format_root
from nyala.replica.types import Corruption, Entry
from nyala.replica.wal import Log
from tests.harness.tablet_twin import superblock, write_entry


class RestingTablet:
    """A stopped server's replica: version 1 of three rows in a block, and version 2 of one behind it in the log."""

    def __init__(self, root: Path) -> None:
        format_root(root, kind=KINDS["tablet-server"])
        self.root, self.expected = root, ExpectedRows(0)
        disk = RealDisk(root)
        made = superblock(SCHEMA)
        self.tablet_id = made.tablet_id
        tablet = Tablet.create(disk, made)
        log, _ = Log.open(disk, wal_folder(self.tablet_id), self.tablet_id)
        for index, ordinals in ((1, [TOGGLES, TOGGLES + 1, TOGGLES + 2]), (2, [TOGGLES])):
            entry = self._entry(index, ordinals)
            log.append([entry], lambda outcome: None)
            log.drain()
            tablet.apply((entry,))
            if index == 1:
                tablet.flush()
        log.close()
        tablet.close()

    def _entry(self, index: int, ordinals: list[int]) -> Entry:
        versions = self.expected.begin(ordinals)
        self.expected.acknowledged(ordinals, versions)
        told = [
            {"k": o, "link": link_of(0, o), "version": n, "v": text_of(o, n), "op": RowOp.UPSERT, "offset": o}
            for o, n in zip(ordinals, versions, strict=True)
        ]
        return write_entry(
            index, SCHEMA, ["k", "link", "version", "v"], told, source=None, client_id="c", sequence=index
        )


def test_rows_of_a_stopped_replica_are_those_of_its_blocks_and_of_its_committed_log(tmp_path: Path) -> None:
    """Goal: the verifier reads from the files the rows that a start would have. Method: a block and a log behind it,
    read up to either entry."""
    resting = RestingTablet(tmp_path)
    assert judge_disks([resting.expected], [[read_rows(tmp_path, resting.tablet_id, 2)]]) == (3, [])
    _, wrong = judge_disks([resting.expected], [[read_rows(tmp_path, resting.tablet_id, 1)]])
    assert len(wrong) == 1 and "version 1; acknowledged 2" in wrong[0]
    entries, damage = read_log(tmp_path, resting.tablet_id)
    assert ([str(e.opid) for e in entries], damage) == (["1.1", "1.2"], [])


def test_block_gone_bad_must_have_been_noticed_and_given_up(tmp_path: Path) -> None:
    """Goal: a run with a flipped bit passes only if the server reported it and gave up the block. Method: a bit of a
    block is flipped, and its replica does not open; logs that name it, that name another tablet, that tell of nothing,
    or of the replica's deletion; and the block still in use. No bad block at all is nothing verified."""
    resting = RestingTablet(tmp_path / "server-1")
    tablet_id = resting.tablet_id
    used = blocks_in_use(resting.root)
    assert flip_block(resting.root, tablet_id) in used and len(used) == 1
    (block,) = used
    with pytest.raises(Corruption, match="CRC-32C"):
        read_rows(resting.root, tablet_id, 2)
    rotten = Rotten("server-1", tablet_id, block, 5)
    noticed = f"E T {tablet_id} P u1 cannot start, stays offline: block {Path(block).name}: CRC-32C\n"
    assert judge_rot(rotten, noticed, ()) == judge_rot(rotten, f"I T {tablet_id} deleted\n", ()) == []
    for log in ("", noticed.replace(f" T {tablet_id} ", " T other "), f"I T {tablet_id} P u1 opened\n"):
        assert "nobody noticed" in judge_rot(rotten, log, ())[0]
    assert "still in use" in judge_rot(rotten, noticed, used)[0]
    log = tmp_path / "log"
    log.write_text(noticed)
    assert not verify_rot(tmp_path, [], {}).ok
    before = verify_rot(tmp_path, [replace(rotten, log_bytes=len(noticed))], {"server-1": log})
    assert "nobody noticed" in before.wrong[0] and "still in use" in before.wrong[1], (
        "what was said before is no notice"
    )
