"""Ports of this machine that a process keeps for children that start in a while, or that are away for a while."""

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
    """Nobody else gets these ports until `close`: no other stack, no connection. Children listen there.

    A socket sits at each without listening. Linux gives such a port to who asks for it as every server does, with
    SO_REUSEADDR, and to nobody who asks without, as `free` does. Elsewhere a server could not listen there either, so
    nothing is reserved there, and what was chosen can be lost to somebody else until a child listens.
    Concurrency: one thread at a time.
    """

    def __init__(self) -> None:
        self._reserved: dict[int, socket.socket] = {}

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def free(self) -> int:
        """A port that nobody listens at or has reserved, reserved from now on.

        It lies below those that the system gives to whoever asks for any: it stays known to the children's peers while
        this process is away. Where there is no such port it is one of them.
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
        """host:port of one more."""
        return f"{LOOPBACK}:{self.free()}"

    def reserve(self, address: str) -> bool:
        """Reserve the host:port of an earlier child; False if another process listens there.

        What else is wrong with it, such as a host that is not this one, the child tells that is to listen there.
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
        """Others may have them."""
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
    """Of those that the system chooses from."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return PORT_MIN
