"""One gRPC channel for each address, made on first use, in the process that uses it."""

from __future__ import annotations

import os
import threading
from typing import Any

from nyala.replica.rpc import ANY_MEMBER, MASTER_ROLE, REFRESH_S, Credentials, channel_to, pb_grpc, tls_problem
from nyala.replica.types import Address, Code, Refused

from .link_ports import LinkPort
from .write_links import SmallWrites


class Channels:
    """Stubs by address.

    When the credentials have changed, new calls go over new channels. Concurrency: any thread. After a fork, the child
    makes channels of its own: those of the parent do not work there.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        """`credentials`: for TLS; default: those of this process."""
        self._credentials = credentials
        self._made_with = None if credentials is None else credentials.grpc_channel
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._channels: dict[tuple[Address, str], Any] = {}
        self._stubs: dict[tuple[Address, str], Any] = {}
        self._writes: dict[Address, SmallWrites] = {}
        self._ports: dict[Address, LinkPort] = {}
        self._closed = False

    def tablet_server(self, address: Address) -> Any:
        """Return a TabletService stub."""
        return self._stub(address, "tablet", pb_grpc.TabletServiceStub)

    def small_writes(self, address: Address) -> SmallWrites:
        """Return the calls that write to the TabletService at `address` and block the thread until they are
        answered."""
        stub = self.tablet_server(address)
        with self._lock:
            found = self._writes.get(address)
            if found is None:
                found = self._writes[address] = SmallWrites(stub, address, self._credentials)
            found.stub = stub
            return found

    def link_port(self, address: Address) -> LinkPort:
        """Return the port for links of the server at `address`."""
        with self._lock:
            return self._ports.setdefault(address, LinkPort(address, self._credentials))

    def tls_problem(self, address: Address) -> str:
        """Return why the process at `address` does not let this client in, if that is because of TLS; otherwise an
        empty text. Blocks for a few seconds at most."""
        return tls_problem(address, self._credentials)

    def master(self, address: Address) -> Any:
        """Return a MasterService stub."""
        return self._stub(address, "master", pb_grpc.MasterServiceStub)

    def copier(self, address: Address) -> Any:
        """Return a CopyService stub."""
        return self._stub(address, "copy", pb_grpc.CopyServiceStub)

    def _stub(self, address: Address, kind: str, make: Any) -> Any:
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._pid = os.getpid()
            self._channels, self._stubs, self._writes = {}, {}, {}
        with self._lock:
            if self._closed:
                raise Refused(Code.ILLEGAL_STATE, "this client is closed; connect anew", server=address)
            if self._credentials is not None:
                self._credentials.refresh(REFRESH_S)
                if self._made_with is not self._credentials.grpc_channel:
                    self._made_with = self._credentials.grpc_channel
                    self._channels, self._stubs = {}, {}  # calls under way keep their channel until they end
            stub = self._stubs.get((address, kind))
            if stub is None:
                to = MASTER_ROLE if kind == "master" else ANY_MEMBER
                channel = self._channels.get((address, to))
                if channel is None:
                    channel = channel_to(address, to=to, credentials=self._credentials)
                    self._channels[address, to] = channel
                stub = self._stubs[address, kind] = make(channel)
            return stub

    def close(self) -> None:
        """Close all channels; calls under way fail."""
        with self._lock:
            self._closed = True
            ours = self._pid == os.getpid()
            writes = list(self._writes.values()) if ours else []
            channels = list(self._channels.values()) if ours else []
            self._channels, self._stubs, self._writes = {}, {}, {}
        for one in writes:
            one.close()
        for channel in channels:
            channel.close()
