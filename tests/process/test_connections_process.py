"""A real server under thousands of idle connections, while honest writes go on."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.rpc import frame, pb
from nyala.replica.types import limits
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import TABLET, create, write

pytestmark = [pytest.mark.process, pytest.mark.deep]

CONNECTIONS = 3000
GROWTH_MB_MAX = 100
"""Bounds the growth of a server's memory over the whole test: logs, rows and threads of the test's own writes
included."""
HALF = frame(b"x" * 200_000)[:100_000]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(3) as made:
        yield made


def memory_mb(server: ServerProcess) -> float:
    assert server.process is not None
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text).group(1)) / 1024  # type: ignore[union-attr]


def files(server: ServerProcess) -> int:
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def connect(address: tuple[str, int]) -> socket.socket | None:
    with suppress(OSError):
        sock = socket.create_connection(address, timeout=30)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return sock
    return None


def test_thousands_of_connections_take_little_memory_and_stop_no_write(cluster: LocalCluster) -> None:
    """Goal: IN-51: connections cost bounded memory, which is free when they are gone, and cut no replication. Method:
    at the leader of three servers: thousands of links for writes, each with half a frame, opened and closed one after
    the other; thousands opened and kept; thousands that say nothing, at the links' port and at gRPC's; every hundred of
    them a row is written, and all the while the leader stays. Its memory grows by less than the bound, what it has open
    is bounded, and once all are closed it has no more files open than before."""
    leader = create(cluster)
    for number in range(30):
        write(cluster, number, 1)
    before_mb, before_files, term = memory_mb(leader), files(leader), cluster.status(leader, TABLET).term
    host, _, port = leader.address.rpartition(":")
    written = 1000
    most_mb, most_files = 0.0, 0
    kept: list[socket.socket] = []

    def looked(number: int) -> None:
        nonlocal written, most_mb, most_files
        if number % 100 == 0:
            write(cluster, written, 1)
            written += 1
            most_mb, most_files = max(most_mb, memory_mb(leader)), max(most_files, files(leader))

    def ask() -> Any:
        return leader.tablets.OpenWrites(pb.OpenWritesRequest(dest_uuid=leader.uuid), timeout=30)

    for number in range(2 * CONNECTIONS):
        granted = ask()
        sock = connect((host, granted.port))
        if sock is not None:
            with suppress(OSError):
                sock.sendall(frame(granted.ticket))
                sock.recv(4)
                sock.sendall(HALF)
            kept.append(sock)
            if number < CONNECTIONS:
                kept.pop().close()
        looked(number)
    for number in range(CONNECTIONS):
        kept += [s for s in (connect((host, granted.port)), connect((host, int(port)))) if s is not None]
        looked(number)
    assert cluster.status(leader, TABLET).term == term and cluster.leader(TABLET) is leader
    for sock in kept:
        sock.close()
    wait_until(lambda: files(leader) <= before_files + 20, "everything is closed")
    write(cluster, written, 1)
    print(
        f"before {before_mb:.0f} MB, at most {most_mb:.0f} MB and {most_files} files, after {memory_mb(leader):.0f} MB"
    )
    bound = limits.LINKS_OF_CLIENTS_MAX + limits.GRPC_CONNECTIONS_MAX + limits.CONNECTIONS_UNPROVEN_MAX
    assert most_files < before_files + bound + 100
    assert most_mb - before_mb < GROWTH_MB_MAX + limits.LINKS_OF_CLIENTS_BYTES_MAX / 2**20
    assert memory_mb(leader) - before_mb < GROWTH_MB_MAX
