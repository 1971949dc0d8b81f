"""A busy host, or one that is far away, is waited for, and a dead process is not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from nyala.replica.client import Client
from nyala.replica.master.heartbeats.tablet_servers import GrpcTabletServers
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.tools import catalog_copy
from nyala.replica.types import Address, Code, Refused

BUSY_S = 0.4
"""The time for the first bytes of a connection, as on a loaded machine or over 200 ms of network."""


class Server(pb_grpc.TabletServiceServicer, pb_grpc.MasterServiceServicer):
    """Says who it is."""

    def GetIdentity(self, request: Any, context: Any) -> Any:
        return pb.IdentityReply(uuid="a" * 32)

    def ListTables(self, request: Any, context: Any) -> Any:
        return pb.ListTablesReply()

    def Status(self, request: Any, context: Any) -> Any:
        config = pb.RaftConfig(members=[pb.Member(uuid="a" * 32)])
        return pb.MasterStatusReply(uuid="a" * 32, replica=pb.ReplicaStatus(committed_config=config))


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass


@pytest.fixture
def busy() -> Iterator[Address]:
    """A server on a host so busy that the first bytes of a connection wait."""
    server = grpc.server(ThreadPoolExecutor(2))
    pb_grpc.add_TabletServiceServicer_to_server(Server(), server)  # type: ignore[no-untyped-call]
    pb_grpc.add_MasterServiceServicer_to_server(Server(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    listening = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            threading.Event().wait(BUSY_S)
            far = socket.create_connection(("127.0.0.1", port))
            ends.extend((near, far))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield Address("127.0.0.1", listening.getsockname()[1])
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()
    for end in ends:
        end.close()
    server.stop(None).wait()


def _connected(address: Address) -> str:
    with Client([address]) as client:
        client.check_masters()
    return "a" * 32


ASKS: dict[str, Callable[[Address], str]] = {
    "a master a tablet server": lambda at: str(asyncio.run(GrpcTabletServers().identity(at)).uuid),
    "a tool a master": lambda at: str(catalog_copy._status_of(at).uuid),
    "a client its masters": lambda at: _connected(at),
}


@pytest.mark.parametrize("ask", ASKS)
def test_who_asks_waits_for_a_busy_host(ask: str, busy: Address) -> None:
    """IN-43, MF-10. Goal: a busy host is not taken for one where no server listens. Method: connections whose first
    bytes are late; and a port at which no process listens, which is reported at once."""
    assert ASKS[ask](busy) == "a" * 32
    with pytest.raises(Refused) as refused:
        ASKS[ask](Address("127.0.0.1", 1))
    assert refused.value.code is Code.UNAVAILABLE
