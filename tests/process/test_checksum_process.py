"""Checksums of a real server whose cells have 1 MB."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from nyala.replica.rows import CHECKSUM_DEFINITION
from nyala.replica.rpc import pb
from nyala.replica.tools.check import checksum_timeout_s
from nyala.replica.types import limits
from tests.harness.cluster import LocalCluster, local_cluster
from tests.harness.one_tablet import TABLET, create, flush, write

pytestmark = pytest.mark.process

CELL_BYTES = limits.ROW_SIZE_BYTES_MAX - 200
ROWS = 105
ROWS_TOGETHER = 7


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(1) as made:
        yield made


def test_checksum_of_large_cells_ends_within_what_its_bytes_are_given(cluster: LocalCluster) -> None:
    """Goal: IN-04: a check of the cluster ends within a bound that follows the bytes, also with cells of 1 MB. Method:
    a tablet of 105 MB in such cells, some of them in memory: the status counts all these bytes, and the checksum comes
    within the time allowed for them, without the part for waiting."""
    leader = create(cluster)
    for first in range(0, ROWS, ROWS_TOGETHER):
        write(cluster, first, ROWS_TOGETHER, size=CELL_BYTES)
        if first == ROWS // 2 // ROWS_TOGETHER * ROWS_TOGETHER:
            flush(leader)
    status = cluster.status(leader, TABLET)
    assert status is not None and status.bytes_on_disk + status.memory_bytes >= ROWS * CELL_BYTES
    assert status.bytes_on_disk and status.memory_bytes
    given_s, began_s = checksum_timeout_s([status], 2), time.monotonic()
    reply = leader.tablets.Checksum(
        pb.ChecksumRequest(
            dest_uuid=leader.uuid, tablet_id=TABLET, timeout_us=int(given_s * 1e6), definition=CHECKSUM_DEFINITION
        ),
        timeout=given_s + 5,
    )
    took_s = time.monotonic() - began_s
    assert not reply.error.code and reply.rows == ROWS, reply.error
    print(f"{ROWS * CELL_BYTES / 1e6 / took_s:.0f} MB/s, {took_s:.2f} s of {given_s - limits.CHECKSUM_WAIT_S:.2f} s")
    assert took_s < given_s - limits.CHECKSUM_WAIT_S
