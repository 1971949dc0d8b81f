"""Real servers on directories of other builds: an earlier format is served and continued, a later one refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.consensus_metadata import path_of
from nyala.replica.fs import INSTANCE, RealDisk
from nyala.replica.tablet import superblock_path
from nyala.replica.tools import rewrite_config
from nyala.replica.types import Address, DataState, Member
from tests.formats.test_server_directory import GOLDEN, KEPT, LAST, ROWS, TOMBSTONE
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.copies import TARGET_UUID
from tests.harness.later_format import later_version
from tests.harness.one_tablet import TABLET, create, flush, scan_leader, write
from tests.harness.wal_entries import of_a_later_build

pytestmark = pytest.mark.process

NEW = dict.fromkeys(range(3, 10), "x" * 100)
CANNOT_START = 1


def later_segment(data: bytes) -> bytes:
    return of_a_later_build(data, meta={"nyala.version": "2"})


LATER = {
    "later-superblock": (superblock_path("later-superblock"), later_version),
    "later-metadata": (path_of("later-metadata"), later_version),
    "later-log": ("wals/later-log/wal-000000001", later_segment),
}
"""By tablet, the file that a later build wrote, and how."""


def content(root: Path) -> dict[str, bytes]:
    """Return every file of a stopped server."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def opened(cluster: LocalCluster, server: ServerProcess, tablet_id: str) -> Any:
    """Return the status of a replica that is open, or cannot be."""

    def told() -> Any:
        status = cluster.status(server, tablet_id)
        return status if status.phase != "BOOTSTRAPPING" else None

    return wait_until(told, f"{tablet_id} is open or has failed")


def opid(told: Any) -> tuple[int, int]:
    return (told.term, told.index)


def test_server_serves_the_directory_of_an_earlier_build_and_refuses_what_a_later_one_wrote() -> None:
    """TC-63. Goal: an upgrade takes everything along, and a build that was put back guesses nothing. Method: a process
    on the golden directory of version 1 has its replica and its tombstone as they were; its config forced to be this
    server alone, it serves all rows, takes a write, flushes and has both after a restart. In that restart the
    superblock, the metadata and the log of three more tablets are of version 2: each fails alone, says which file is of
    which version, and stays as it is. With the identity in version 2 the process does not start, says so, and changes
    no file."""
    with local_cluster() as cluster:
        server = cluster.add_server(start=False)
        shutil.copytree(GOLDEN, server.root)
        server.start()
        assert server.uuid == TARGET_UUID
        replica, tombstone = (opened(cluster, server, tablet_id) for tablet_id in (TABLET, TOMBSTONE))
        assert (replica.data_state, replica.error, replica.term) == (DataState.READY, "", 5)
        assert opid(replica.last_logged) == LAST
        assert (tombstone.data_state, tombstone.error, tombstone.term) == (DataState.DELETED, "", 3)
        assert opid(tombstone.last_logged) == KEPT

        assert server.stop() == 0
        disk = RealDisk(server.root)
        rewrite_config(disk, TABLET, (Member(TARGET_UUID, (Address.parse(server.address),)),))
        server.start()
        assert scan_leader(cluster) == ROWS
        write(cluster, min(NEW), len(NEW))
        assert scan_leader(cluster) == ROWS | NEW
        flush(server)
        for tablet_id in LATER:
            create(cluster, tablet_id=tablet_id)
            write(cluster, 0, 10, tablet_id=tablet_id)

        assert server.stop() == 0
        later = {path: change(disk.read(path)) for path, change in LATER.values()}
        for path, data in later.items():
            disk.replace(path, data)
        server.start()
        for tablet_id, (path, _) in LATER.items():
            status = opened(cluster, server, tablet_id)
            assert status.phase == "FAILED" and "version 2" in status.error and not status.damaged, status
            assert path.rpartition("/")[2] in status.error and f"T {tablet_id} " in server.log_path.read_text()
        assert scan_leader(cluster) == ROWS | NEW
        write(cluster, 10, 1)
        assert opid(opened(cluster, server, TOMBSTONE).last_logged) == KEPT

        assert server.stop() == 0
        assert {path: disk.read(path) for path in later} == later
        disk.replace(INSTANCE, later_version(disk.read(INSTANCE)))
        before = content(server.root)
        server.start(wait=False)
        assert server.wait_exit() == CANNOT_START
        said = server.log_tail().splitlines()[-1]
        assert all(words in said for words in ("later format", str(server.root / INSTANCE), "version 2")), said
        assert content(server.root) == before
