"""Ports of this machine that a process reserves for children that start later, or restart."""

from __future__ import annotations

import errno
import random
import socket
import sys
from pathlib import Path

PORT_MIN = 12_000
PORTS_TRIED = 50
LOOPBACK = "127.0.0.1"


class Ports:
    """Reserves ports until `close`: no other stack and no connection gets them. Children listen there.

    A socket is bound to each without listening. Linux gives such a port to a program that uses SO_REUSEADDR, as every
    server does, and refuses it to one that does not, as `free` does not. On other systems the children could not listen
    there either, so nothing is reserved, and another program may take a chosen port before a child listens.
    Concurrency: one thread at a time.
    """

    def __init__(self) -> None:
        self._reserved: dict[int, socket.socket] = {}

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def free(self) -> int:
        """Reserve and return a port that no process listens at or has reserved.

        It lies below the ports that the system gives to outgoing connections, so that no connection takes it while this
        process is away. If there is no such port, the result is one of those.
        """
        below = range(PORT_MIN, max(PORT_MIN, first_given_port()))
        for port in (*random.sample(below, min(PORTS_TRIED, len(below))), 0):
            taken = socket.socket()
            try:
                taken.bind((LOOPBACK, port))
            except OSError:
                taken.close()
                continue
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return self._reserve(taken)
        raise OSError(f"no port of {LOOPBACK} is free")

    def free_address(self) -> str:
        """Reserve one more port and return its host:port."""
        return f"{LOOPBACK}:{self.free()}"

    def reserve(self, address: str) -> bool:
        """Reserve the host:port of an earlier child; False if another process listens there.

        Any other defect of the address, such as a host that is not this one, is reported by the child that listens.
        """
        host, _, port = address.rpartition(":")
        if int(port) in self._reserved:
            return True
        taken = socket.socket()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((host, int(port)))
        except OSError as error:
            taken.close()
            return error.errno != errno.EADDRINUSE
        self._reserve(taken)
        return True

    def close(self) -> None:
        """Release all ports."""
        while self._reserved:
            self._reserved.popitem()[1].close()

    def _reserve(self, taken: socket.socket) -> int:
        port = int(taken.getsockname()[1])
        if sys.platform == "linux":
            self._reserved[port] = taken
        else:
            taken.close()
        return port


def first_given_port() -> int:
    """The first of the ports that the system gives to outgoing connections."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return PORT_MIN
