"""The latest time of a log whose server does not run."""

from __future__ import annotations

import pytest

from nyala.replica.types import Corruption
from nyala.replica.wal import Log, latest_time
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import FOLDER, TABLET, append_now, build, entries, entry, segment_paths


def test_latest_time_is_that_of_all_entries_that_were_written() -> None:
    """IN-50. Goal: an entry that was replaced counts, too, and so does one in an earlier segment. Method: no entry; a
    far one that a later term replaces, in another segment."""
    disk = SimDisk()
    build(disk, lambda log: None)
    assert latest_time(disk, FOLDER, TABLET) == 0

    def write(log: Log) -> None:
        for term, first, times in ((1, 1, (7, 99, 8)), (2, 2, (20, 21))):
            append_now(log, [entry(first + n, term=term)._replace(hybrid_time=t) for n, t in enumerate(times)])
            log.roll()

    build(disk, write)
    assert latest_time(disk, FOLDER, TABLET) == 99


def test_latest_time_of_a_log_whose_end_is_damaged_is_refused() -> None:
    """TC-51. Goal: no time is given for a log of which some entries cannot be read. Method: change a byte of the last
    block; Corruption names its segment."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, entries(1, 3)))
    (path,) = segment_paths(disk)
    disk.corrupt(path, disk.size(path) - 40)
    with pytest.raises(Corruption, match=f"the end of the log is damaged.*{path.rpartition('/')[2]}"):
        latest_time(disk, FOLDER, TABLET)
