"""One gRPC channel for each address, made on first use, in the process that uses it."""

from __future__ import annotations

import os
import threading
from typing import Any

from nyala.replica.rpc import channel_to, pb_grpc
from nyala.replica.types import Address, Code, Refused

from .write_links import SmallWrites


class Channels:
    """Stubs by address.

    Concurrency: any thread. After a fork, the child makes channels of its own: those of the parent do not work there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._channels: dict[Address, Any] = {}
        self._stubs: dict[tuple[Address, str], Any] = {}
        self._writes: dict[Address, SmallWrites] = {}
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
                found = self._writes[address] = SmallWrites(stub, address)
            return found

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
            stub = self._stubs.get((address, kind))
            if stub is None:
                channel = self._channels.get(address)
                if channel is None:
                    channel = channel_to(address)
                    self._channels[address] = channel
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
