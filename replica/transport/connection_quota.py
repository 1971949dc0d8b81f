"""Bounds one kind of connections: their number, the bytes of frames that are begun, and the time of a frame.

Connections of one kind share one bound in all and one per address. Each kind has its own quota, so a flood of one kind
does not affect another: links of the cluster's servers go on while clients are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from nyala.replica.types import limits


class Connection(Protocol):
    """The interface of a connection to its quota."""

    @property
    def idle(self) -> bool:
        """Whether the server owes no reply on it."""
        ...

    def fail(self, error: Exception) -> None:
        """End the connection; `error` has the reason."""
        ...


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds of one kind, in all and per address: connections, and bytes of begun frames."""

    connections_max: int
    connections_per_address_max: int
    bytes_max: int
    bytes_per_address_max: int


WITHOUT_TICKET = Bounds(
    connections_max=limits.CONNECTIONS_WITHOUT_TICKET_MAX,
    connections_per_address_max=limits.CONNECTIONS_WITHOUT_TICKET_MAX,
    bytes_max=limits.CONNECTIONS_WITHOUT_TICKET_MAX * 64,
    bytes_per_address_max=limits.CONNECTIONS_WITHOUT_TICKET_MAX * 64,
)
SERVERS = Bounds(
    connections_max=limits.LINKS_OF_SERVERS_MAX,
    connections_per_address_max=limits.LINKS_OF_SERVERS_MAX,
    bytes_max=limits.LINKS_OF_SERVERS_BYTES_MAX,
    bytes_per_address_max=limits.LINKS_OF_SERVERS_BYTES_MAX,
)
STRANGERS = Bounds(
    connections_max=limits.LINKS_OF_STRANGERS_MAX,
    connections_per_address_max=limits.LINKS_OF_STRANGERS_MAX,
    bytes_max=limits.LINKS_OF_STRANGERS_BYTES_MAX,
    bytes_per_address_max=limits.LINKS_OF_STRANGERS_BYTES_MAX,
)
CLIENTS = Bounds(
    connections_max=limits.LINKS_OF_CLIENTS_MAX,
    connections_per_address_max=limits.LINKS_OF_CLIENTS_PER_ADDRESS_MAX,
    bytes_max=limits.LINKS_OF_CLIENTS_BYTES_MAX,
    bytes_per_address_max=limits.LINKS_OF_CLIENTS_BYTES_MAX // 2,
)


@dataclass
class _Held:
    address: str
    bytes: int = 0
    due_s: float = 0.0
    """The time at which the begun frame must be whole."""


@dataclass
class _Address:
    connections: dict[Connection, None] = field(default_factory=dict)
    """The connections; the one that was used longest ago comes first."""
    bytes: int = 0


class ConnectionQuota:
    """The connections of one kind.

    Invariants: no bound is exceeded; of idle connections, the one that was used longest ago ends first. Concurrency:
    the loop's thread. Memory: two small records for each connection.
    """

    def __init__(self, bounds: Bounds, now_s: Callable[[], float]) -> None:
        self._bounds = bounds
        self._now_s = now_s
        self._held: dict[Connection, _Held] = {}
        """The connections in the order of their latest use."""
        self._addresses: dict[str, _Address] = {}
        self._begun: dict[Connection, None] = {}
        """The connections with a begun frame."""
        self.bytes = 0
        self.ended = 0
        """The number of connections that were ended to keep a bound."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def connections(self) -> list[Connection]:
        """All connections; the one that was used longest ago comes first."""
        return list(self._held)

    def add(self, connection: Connection, address: str) -> None:
        """Count one more connection. If that exceeds a bound, an older one ends: of its address if that has too many,
        otherwise of the address that has most."""
        of_address = self._addresses.setdefault(address, _Address())
        self._held[connection] = _Held(address)
        of_address.connections[connection] = None
        if len(of_address.connections) > self._bounds.connections_per_address_max:
            what = f"too many connections of {address}, at most {self._bounds.connections_per_address_max}"
            self._end(_oldest(of_address, connection), what)
        elif len(self._held) > self._bounds.connections_max:
            crowded = max(self._addresses.values(), key=lambda a: len(a.connections))
            self._end(_oldest(crowded, connection), f"too many connections, at most {self._bounds.connections_max}")

    def used(self, connection: Connection) -> None:
        """Note that a whole frame arrived on it."""
        held = self._held.pop(connection, None)
        if held is not None:
            self._held[connection] = held
            of_address = self._addresses[held.address].connections
            del of_address[connection]
            of_address[connection] = None

    def hold(self, connection: Connection, size_bytes: int, frame_bytes: int) -> str:
        """Count `size_bytes` of a begun frame; 0: there is none. Returns the reason if it may not have so much, or "".

        `frame_bytes`: the length that the frame announces. Its time begins with its first byte.
        """
        held = self._held.get(connection)
        if held is None:
            return ""
        if not size_bytes:
            self._begun.pop(connection, None)
        elif connection not in self._begun:
            self._begun[connection] = None
            held.due_s = self._now_s() + limits.FRAME_S_MAX
        if size_bytes:
            slowest_s = frame_bytes / limits.FRAME_BYTES_PER_S_MIN
            held.due_s = max(held.due_s, self._now_s() + slowest_s) if not held.bytes else held.due_s
        of_address, more = self._addresses[held.address], size_bytes - held.bytes
        if more > 0 and self.bytes + more > self._bounds.bytes_max:
            return f"{self.bytes} bytes of begun frames wait already, at most {self._bounds.bytes_max}"
        if more > 0 and of_address.bytes + more > self._bounds.bytes_per_address_max:
            most = self._bounds.bytes_per_address_max
            return f"{of_address.bytes} bytes of begun frames of {held.address} wait already, at most {most}"
        held.bytes += more
        of_address.bytes += more
        self.bytes += more
        return ""

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        held = self._held.pop(connection, None)
        if held is None:
            return
        self._begun.pop(connection, None)
        of_address = self._addresses[held.address]
        of_address.connections.pop(connection, None)
        of_address.bytes -= held.bytes
        self.bytes -= held.bytes
        if not of_address.connections:
            del self._addresses[held.address]

    def end_overdue(self) -> bool:
        """End the connections whose frame is overdue. Returns whether any frame is still begun."""
        now_s = self._now_s()
        for connection in [c for c in self._begun if self._held[c].due_s <= now_s]:
            self._end(connection, f"a frame was begun and is not whole after {limits.FRAME_S_MAX:g} s or more")
        return bool(self._begun)

    def _end(self, connection: Connection, why: str) -> None:
        self.ended += 1
        self.remove(connection)
        connection.fail(ConnectionError(why))


def _oldest(of_address: _Address, newest: Connection) -> Connection:
    """The idle connection that was used longest ago. If none is idle, the one that was used longest ago, except the
    newest."""
    others = [c for c in of_address.connections if c is not newest]
    return next((c for c in others if c.idle), others[0] if others else newest)
