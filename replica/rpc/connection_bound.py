"""Bounds the gRPC connections of one host, which gRPC cannot: it accepts them in threads of its own, and counts all.

The kernel lists the sockets of this process. Of each that belongs to the server's port, a duplicate is made first and
compared then, so it cannot become another connection in between. To shut a duplicate down ends the connection, as if
its other end had closed it, and gRPC frees its own descriptor itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nyala.replica.types import limits

from .hosts import counted_host

_log = logging.getLogger("nyala.rpc")

_SOCKETS = "/proc/self/fd"
_COUNTS = (Path("/proc/net/sockstat"), Path("/proc/net/sockstat6"))
LOOK_EVERY_S = 0.5
LOOK_AGAIN_S = 0.05
"""The pause after a look that ended connections: a host opens thousands in a second. Until the next look it should not
open as many as gRPC accepts beyond the bound of one host: new connections of all hosts would be refused then."""


class Ends(NamedTuple):
    """The addresses of both ends of a connection, which no other open connection has."""

    here: tuple[str, int]
    there: tuple[str, int]


def excess(found: Collection[Ends], known: Collection[Ends], per_host_max: int) -> set[Ends]:
    """The connections to end so that no host has more than `per_host_max`: the last ones of those that were not known
    before, then of the others. Pure."""
    of_hosts: defaultdict[str, list[Ends]] = defaultdict(list)
    for connection in sorted(found, key=lambda c: c not in known):
        of_hosts[counted_host(connection.there[0])].append(connection)
    return {connection for of_host in of_hosts.values() for connection in of_host[per_host_max:]}


class ConnectionBound:
    """Ends the newest connections of a host that has too many.

    Between two looks a host may have more. Concurrency: `look` from one thread at a time.
    """

    def __init__(self, port: int, per_host_max: int = limits.GRPC_CONNECTIONS_PER_HOST_MAX) -> None:
        self._port = port
        self._per_host_max = per_host_max
        self._known: set[Ends] = set()
        self._told = False
        self.ended = 0
        """The number of connections that were ended."""

    async def run_forever(self) -> None:
        """Look again and again, in a thread."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S if self._told else LOOK_EVERY_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """End what is too much. Costs a line of text if the machine has few connections; otherwise some 10 us for each
        open file of this process."""
        if _connections_of_machine() < self._per_host_max:
            self._known = set()
            return
        found = dict(_connections_to(self._port))
        too_many = excess(found, self._known, self._per_host_max)
        self._known = found.keys() - too_many
        if too_many:
            for ends in too_many:
                with suppress(OSError), _duplicate(found[ends]) as sock:
                    if _ends_of(sock) == ends:  # and not another connection, that has got the descriptor meanwhile
                        sock.shutdown(socket.SHUT_RDWR)
            self.ended += len(too_many)
            if not self._told:
                hosts = ", ".join(sorted({counted_host(ends.there[0]) for ends in too_many}))
                _log.warning(
                    "ended %d gRPC connections of %s, which had more than %d", len(too_many), hosts, self._per_host_max
                )
        self._told = bool(too_many)


def _connections_of_machine() -> int:
    """The TCP connections in this network, of all processes; many if the kernel does not say."""
    with suppress(OSError):
        text = "".join(path.read_text() for path in _COUNTS if path.exists())
        if counts := re.findall(r"^TCP6?: inuse (\d+)", text, re.MULTILINE):
            return sum(map(int, counts))
    return 1 << 62


def _connections_to(port: int) -> Iterator[tuple[Ends, int]]:
    """The open connections to a port of this process, each with gRPC's descriptor, in the order of these; an older
    connection usually has a lower one."""
    try:
        names = sorted(os.listdir(_SOCKETS), key=int)
    except OSError:
        return
    for name in names:
        with suppress(OSError):  # it has been closed, or is not connected
            if os.readlink(f"{_SOCKETS}/{name}").startswith("socket:"):
                with _duplicate(int(name)) as sock:
                    ends = _ends_of(sock)
                if ends is not None and ends.here[1] == port:
                    yield ends, int(name)


def _ends_of(sock: socket.socket) -> Ends | None:
    """The ends of a TCP connection; None for another socket, OSError if it is not connected."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    return Ends(sock.getsockname()[:2], sock.getpeername()[:2])


def _duplicate(descriptor: int) -> socket.socket:
    """A socket of our own for the same connection; OSError if the descriptor is none any more."""
    own = os.dup(descriptor)
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise
