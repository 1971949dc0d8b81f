"""Files of a running server that are replaced or deleted while they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from nyala.replica.consensus_metadata import FOLDER
from nyala.replica.tools import read_cmeta_files, read_file
from nyala.replica.types import Code, Refused
from tests.harness.copies import SOURCE_UUID, RestingReplica, cmeta_bytes, new_disk
from tests.harness.sim_disk import SimDisk


class DeletingDisk(SimDisk):
    """Deletes a file as soon as its folder was listed."""

    victim = ""

    def listdir(self, path: str) -> list[str]:
        names = super().listdir(path)
        if self.victim:
            self.remove(f"{path}/{self.victim}")
        return names


def test_metadata_of_a_tablet_deleted_meanwhile_is_named_and_the_others_are_read() -> None:
    """IN-22. Goal: `nyala cmeta print` beside a server that deletes a tablet ends with what it could read. Method: of
    two files one goes away between the listing and the reading, another one is damaged."""
    disk = DeletingDisk()
    disk.mkdir(FOLDER)
    source = RestingReplica(new_disk(), SOURCE_UUID)
    for name in ("t1", "t2", "t3"):
        disk.poke(f"{FOLDER}/{name}", cmeta_bytes(source.disk))
    disk.corrupt(f"{FOLDER}/t3", 40)
    disk.victim = "t2"
    seen = read_cmeta_files(disk)
    assert (len(seen.found), seen.gone, len(seen.damaged)) == (1, ["t2"], 1)
    disk.victim = ""
    assert read_cmeta_files(disk, "t1") and not read_cmeta_files(disk, "other")


def test_file_that_goes_away_before_it_is_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    """IN-22. Goal: `superblock dump` and `cmeta dump` of a tablet deleted meanwhile say so. Method: a file that is not
    there any more."""
    (tmp_path / "here").write_bytes(b"whole")
    assert read_file(tmp_path / "here") == b"whole"
    with pytest.raises(Refused, match="its tablet was deleted") as refused:
        read_file(tmp_path / "gone")
    assert refused.value.code is Code.NOT_FOUND
