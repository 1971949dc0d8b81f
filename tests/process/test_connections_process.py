"""A real server under thousands of idle connections, or requests that stop, while honest writes go on."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.rpc import frame, pb
from nyala.replica.rpc.checked_server import request_s
from nyala.replica.types import limits
from tests.harness import raw_http2
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import TABLET, create, write
from tests.harness.patience import patience_s
from tests.harness.raw_http2 import RawCaller

pytestmark = [pytest.mark.process, pytest.mark.deep]

CONNECTIONS = 3000
GROWTH_MB_MAX = 100
"""Bounds the growth of a server's memory over the whole test: logs, rows and threads of the test's own writes
included."""
HALVES_LEFT_MB_MAX = 60
"""Bounds the growth by half requests beyond their bytes, and what is left of it when they have ended."""
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
    bound = limits.LINKS_OF_CLIENTS_MAX + limits.GRPC_CONNECTIONS_MAX + limits.CONNECTIONS_WITHOUT_TICKET_MAX
    assert most_files < before_files + bound + 100
    assert most_mb - before_mb < GROWTH_MB_MAX + limits.LINKS_OF_CLIENTS_BYTES_MAX / 2**20
    assert memory_mb(leader) - before_mb < GROWTH_MB_MAX


HALVES = 60
HALF_BYTES = 8 << 20
"""The bytes that each half request sends, of one as long as a tablet server takes."""


def test_half_requests_are_held_in_part_and_for_a_time(cluster: LocalCluster) -> None:
    """Goal: IN-51, IN-60: a host that begins requests and does not finish them takes bounded memory for a bounded time,
    and stops no other host. Method: at the leader of three servers, from one address and over one connection, sixty
    long and sixty short calls, each of which sends as much of its request as the server permits, up to 8 MiB.
    Together they would be 960 MiB. From another address rows are written all the while, and the leader stays. The
    server's memory grows by less than the slots of one host may hold. It ends all calls within the time that a call may
    wait and that a request may take, and then its memory is nearly what it was."""
    leader = create(cluster)
    for number in range(30):
        write(cluster, number, 1)
    before_mb, term = memory_mb(leader), cluster.status(leader, TABLET).term
    caller, most_mb, sent, written = RawCaller(leader.address, source="127.0.0.2"), 0.0, 0, 1000
    began_s, most_s = time.monotonic(), limits.REQUEST_WAIT_S_MAX + request_s("TabletService.Get") + patience_s(60.0)
    streams = [
        caller.begin("TabletService", method, limits.TABLET_REQUEST_BYTES_MAX)
        for method in ("Get", "GetIdentity")
        for _ in range(HALVES)
    ]

    def looked() -> None:
        nonlocal most_mb, written
        write(cluster, written, 1)
        written += 1
        most_mb = max(most_mb, memory_mb(leader))

    left = dict.fromkeys(streams, HALF_BYTES)
    while not all(caller.is_over(stream) for stream in streams):
        assert time.monotonic() - began_s < most_s, "calls are held for longer than is stated"
        for stream in streams:
            part = min(caller.permitted(stream), left[stream])
            if part > 0 and not caller.is_over(stream):
                caller.send(stream, part)
                left[stream] -= part
                sent += part
        looked()
    took_s = time.monotonic() - began_s
    caller.close()
    assert cluster.status(leader, TABLET).term == term and cluster.leader(TABLET) is leader
    wait_until(lambda: memory_mb(leader) < before_mb + HALVES_LEFT_MB_MAX, "the memory is given back")
    print(
        f"{sent >> 20} MiB sent, all ended after {took_s:.0f} s, {written - 1000} rows written meanwhile; "
        f"before {before_mb:.0f} MB, at most {most_mb:.0f} MB, after {memory_mb(leader):.0f} MB"
    )
    slots_mb = 2 * limits.REQUESTS_READ_PER_HOST_MAX * limits.TABLET_REQUEST_BYTES_MAX >> 20
    waiting_mb = 2 * HALVES * limits.REQUEST_WINDOW_BYTES >> 20
    assert most_mb - before_mb < slots_mb + waiting_mb + HALVES_LEFT_MB_MAX
    assert sent > slots_mb << 19


@pytest.mark.parametrize("service", ["TabletService", "MasterService"])
def test_memory_of_half_requests_is_given_back_at_once(service: str) -> None:
    """Goal: IN-51: when the callers of half requests have left, a server's or a master's memory is nearly what it was.
    Method: four addresses fill all slots with 8 MiB of a longer request, and close their connections."""
    with local_cluster(0) as cluster:
        server = cluster.add_server() if service == "TabletService" else cluster.add_master("--execute-decisions=none")
        before_mb = memory_mb(server)
        callers = [RawCaller(server.address, source=f"127.0.0.{number}") for number in range(2, 6)]
        methods = ("GetIdentity", "Get" if service == "TabletService" else "Heartbeat")
        for caller in callers:
            for method in methods:
                for _ in range(limits.REQUESTS_READ_PER_HOST_MAX):
                    caller.send(caller.begin(service, method, limits.TABLET_REQUEST_BYTES_MAX), HALF_BYTES)
        held_mb = memory_mb(server)
        for caller in callers:
            caller.close()
        wait_until(lambda: memory_mb(server) < before_mb + HALVES_LEFT_MB_MAX, "the memory is given back")
        print(f"before {before_mb:.0f} MB, held {held_mb:.0f} MB, after {memory_mb(server):.0f} MB")
        assert held_mb > before_mb + 2 * HALVES_LEFT_MB_MAX


NEWCOMERS = 20
FLOOD_PAUSE_S = 0.5
FLOOD_CONNECT_S = 2.0
"""A server that accepts nobody any more lets callers wait; the flood goes on with those that it has."""


@pytest.mark.parametrize("service", ["TabletService", "MasterService"])
def test_host_that_takes_all_connections_keeps_no_other_host_out(service: str) -> None:
    """Goal: IN-51: one host cannot take all gRPC connections of a server or master. Method: from one address, as many
    connections as it takes, each with an open call; those that it ends are opened again, half a second later. Meanwhile
    newcomers from another address connect until they are served, one after the other: all are."""
    with local_cluster(0) as cluster:
        server = cluster.add_server() if service == "TabletService" else cluster.add_master("--execute-decisions=none")
        stop, kept, ended = threading.Event(), list[socket.socket](), 0
        host, _, port = server.address.rpartition(":")
        opening = raw_http2.opening(service, "GetIdentity")

        def flood() -> None:
            nonlocal ended, kept
            while not stop.wait(FLOOD_PAUSE_S):
                with suppress(OSError):
                    while len(kept) < limits.GRPC_CONNECTIONS_MAX + 100 and not stop.is_set():
                        one = socket.create_connection((host, int(port)), FLOOD_CONNECT_S, ("127.0.0.2", 0))
                        kept.append(one)
                        one.sendall(opening)
                        one.setblocking(False)
                gone = [sock for sock in kept if is_ended(sock)]
                for sock in gone:
                    sock.close()
                ended += len(gone)
                kept = [sock for sock in kept if sock.fileno() >= 0]

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            wait_until(lambda: ended, "the server takes no more")
            took_s = []
            for _ in range(NEWCOMERS):
                began_s = time.monotonic()
                wait_until(lambda: is_served(server.address, service), "a newcomer is served")
                took_s.append(time.monotonic() - began_s)
        finally:
            stop.set()
            flooding.join()
        print(f"{ended} connections ended; newcomers waited {max(took_s):.1f} s at most, {sum(took_s):.0f} s in all")
        assert files(server) < limits.GRPC_CONNECTIONS_MAX + 200
        for sock in kept:
            sock.close()


def is_ended(sock: socket.socket) -> bool:
    try:
        while sock.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def is_served(address: str, service: str) -> bool:
    """Whether a new connection is accepted, and a call on it answered."""
    try:
        caller = RawCaller(address, source="127.0.0.3")
        try:
            stream = caller.call(service, "GetIdentity", pb.Empty())
            return bool(caller.answer(stream, pb.IdentityReply()).uuid)
        finally:
            caller.close()
    except (OSError, AssertionError):
        return False
