"""A real server under more large calls of one host than it has memory for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from nyala.replica.rows import RowOp
from nyala.replica.rpc import CHANNEL_OPTIONS, pb, pb_grpc
from nyala.replica.types import Code, limits
from tests.harness.cluster import LocalCluster, local_cluster
from tests.harness.one_tablet import TABLET, create
from tests.harness.raw_http2 import RawCaller
from tests.harness.rows import batch, write_request

pytestmark = pytest.mark.process

CALLERS = 32
ROUNDS = 2
ROWS = 100_000
"""The rows of one batch, with 20 bytes each: charged for 100 MB, so a host has room for five."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(1) as made:
        yield made


def peak_mb(pid: int) -> int:
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()).group(1)) >> 10  # type: ignore[union-attr]


def test_large_calls_of_one_host_leave_room_for_another(cluster: LocalCluster) -> None:
    """Goal: IN-51, IN-60: one host's large calls cost a server bounded memory and keep no other host out. Method: from
    one address, many writes at once of batches that may cost fifty times their length, over and over: each is applied,
    or refused as OVERLOADED with nothing applied, and some are. Meanwhile another address lists the tablets again and
    again, and is answered each time. In the end the first address is served again, and the server's memory never grew
    beyond what calls may take."""
    leader = create(cluster)
    assert leader.process is not None
    before_mb, refused, answered = peak_mb(leader.process.pid), 0, 0
    other = RawCaller(leader.address, source="127.0.0.2")
    listing = pb.ListTabletsRequest(dest_uuid=leader.uuid, limit_bytes=limits.PAGE_BYTES)
    made = write_request(leader.uuid, TABLET, batch(range(ROWS), [""] * ROWS, op=RowOp.INSERT)).SerializeToString()

    def load(number: int) -> int:
        with grpc.insecure_channel(leader.address, options=CHANNEL_OPTIONS) as channel:
            stub, turned_away = pb_grpc.TabletServiceStub(channel), 0
            request = pb.WriteRequest.FromString(made)
            for round_number in range(ROUNDS):
                request.client_id, request.sequence = f"c{number}", round_number
                reply = stub.Write(request, timeout=120)
                if reply.error.code:
                    assert reply.error.code == Code.OVERLOADED and not reply.error.outcome_unknown, reply.error
                    turned_away += "too many calls from host 127.0.0.1" in reply.error.message
            return turned_away

    with ThreadPoolExecutor(CALLERS) as pool:
        loads = [pool.submit(load, number) for number in range(CALLERS)]
        while not all(each.done() for each in loads):
            reply = other.answer(other.call("TabletService", "ListTablets", listing), pb.ListTabletsReply())
            assert not reply.error.code and len(reply.replicas) == 1, reply.error
            answered += 1
        refused = sum(each.result() for each in loads)
    other.close()
    grown_mb = peak_mb(leader.process.pid) - before_mb
    print(
        f"{refused} of {CALLERS * ROUNDS} refused, {answered} answers to the other host, {grown_mb} MB more at the peak"
    )
    assert refused and answered
    assert grown_mb < limits.CALLS_MEMORY_PER_HOST_BYTES_MAX >> 20
    assert len(leader.tablets.ListTablets(listing, timeout=30).replicas) == 1
