"""A log that a later build wrote: refused with the reason, and left as it is."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.replica.types import Corruption
from nyala.replica.wal import Log, dump_segment
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import FOLDER, append_now, build, entries, of_a_later_build, open_log, segment_paths

LATER: dict[str, tuple[dict[str, Any], str]] = {
    "version": ({"meta": {"nyala.version": "2"}}, "format version 2 with features '' is not readable by this build"),
    "feature": ({"meta": {"nyala.incompatible_features": "sealed"}}, "with features 'sealed' is not readable"),
    "kind": ({"kind": 99}, "an entry of a newer build"),
    "flags": ({"flags": 1 << 7}, "an entry of a newer build"),
}


def written() -> tuple[SimDisk, str, bytes]:
    """A closed segment of three entries, its path and its bytes."""
    disk = SimDisk()

    def write(log: Log) -> None:
        append_now(log, entries(1, 3))

    build(disk, write)
    (path,) = segment_paths(disk)
    return disk, path, disk.read(path)


def test_segment_that_is_only_written_again_opens() -> None:
    """Goal: the rewriting that the next test uses does not by itself make a log unreadable. Method: the same rewriting,
    and nothing changed."""
    disk, path, data = written()
    disk.poke(path, of_a_later_build(data))
    log, replayed = open_log(disk)
    assert replayed == entries(1, 3)
    log.close()


@pytest.mark.parametrize("case", LATER)
def test_log_of_a_later_build_is_refused_with_the_reason_and_left_alone(case: str) -> None:
    """Goal: an older build does not cut off entries of a later one that it does not understand. Method: a segment with
    right checksums whose header, or whose last entry, is of a later build: opening says what, `wal dump` says where,
    and after two starts every byte of the folder is the same."""
    changes, words = LATER[case]
    disk, path, data = written()
    later = of_a_later_build(data, **changes)
    disk.poke(path, later)
    for _ in range(2):
        with pytest.raises(Corruption, match=words):
            open_log(disk)
        assert {p: disk.read(p) for p in segment_paths(disk)} == {path: later}
    rows = list(dump_segment(disk, path))
    if "meta" in changes:
        assert [row["kind"] for row in rows] == ["damage"] and words in rows[0]["what"] and not rows[0]["torn"]
    else:
        assert [row["kind"] for row in rows] == ["header", "entry", "entry", "newer"] and words in rows[-1]["what"]
    assert disk.listdir(FOLDER) == [path.rpartition("/")[2]]
