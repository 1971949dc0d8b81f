"""A real server under more large calls of one host than it has memory for."""

from __future__ import annotations

import gzip
import re
import zlib
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


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_requests_take_no_memory_and_fill_no_log(encoding: str) -> None:
    """Goal: IN-60: a server never expands a compressed request, and the refusals fill no log. Method: one server, which
    is started as in production, gets 120 calls whose 15 KB each are 15 MiB of zeros. All end. Its memory grows by less
    than four such requests, its log by nothing, and an ordinary caller is answered in between and afterwards."""
    expanded = bytes(15 << 20)
    body = gzip.compress(expanded) if encoding == "gzip" else zlib.compress(expanded)
    with local_cluster(0) as cluster:
        server = cluster.add_server(start=False)
        server.prefix = ("env",)
        server.start()
        assert server.process is not None
        listing = pb.ListTabletsRequest(dest_uuid=server.uuid)
        assert not server.tablets.ListTablets(listing, timeout=30).error.code
        before_mb, before_log = peak_mb(server.process.pid), server.log_path.stat().st_size
        callers = [RawCaller(server.address) for _ in range(40)]
        calls = [(each, each.call("TabletService", "GetIdentity", body, encoding)) for each in callers * 3]
        assert not server.tablets.ListTablets(listing, timeout=30).error.code
        for caller, number in calls:
            caller.wait_ended(number)
        assert not server.tablets.ListTablets(listing, timeout=30).error.code
        grown_mb = peak_mb(server.process.pid) - before_mb
        print(f"{grown_mb} MB more at the peak")
        assert grown_mb < 60
        assert b"ompress" not in server.log_path.read_bytes()[before_log:]
        for caller in callers:
            caller.close()
