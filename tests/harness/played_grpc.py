"""A gRPC server on loopback whose answers a test plays."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from nyala.replica.rpc import pb_grpc
from nyala.replica.types import Address

_ADD = {
    pb_grpc.CopyServiceServicer: pb_grpc.add_CopyServiceServicer_to_server,
    pb_grpc.MasterServiceServicer: pb_grpc.add_MasterServiceServicer_to_server,
    pb_grpc.PeerServiceServicer: pb_grpc.add_PeerServiceServicer_to_server,
    pb_grpc.TabletServiceServicer: pb_grpc.add_TabletServiceServicer_to_server,
}


@contextmanager
def listening(*servicers: object, threads: int = 4) -> Iterator[Address]:
    """The address at which a server with these servicers listens; each may be of several services."""
    with ThreadPoolExecutor(threads) as pool:
        server = grpc.server(pool)
        for servicer in servicers:
            for service, add in _ADD.items():
                if isinstance(servicer, service):
                    add(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield Address("127.0.0.1", port)
        finally:
            server.stop(None).wait()
