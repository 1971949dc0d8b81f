"""The gRPC calls that a server has begun and not ended: how many, and how many bytes, of one host and in all.

gRPC bounds connections, and calls on one connection. It counts nothing by address, so calls are counted here. gRPC
shows a call once its request is whole: what comes before that is bounded by gRPC's own bounds alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nyala.replica.base import Code, Refused, limits


class CallBounds(NamedTuple):
    """Calls under way, and bytes of their requests."""

    calls_max: int = limits.CALLS_MAX
    calls_per_host_max: int = limits.CALLS_PER_HOST_MAX
    bytes_max: int = limits.CALLS_BYTES_MAX
    bytes_per_host_max: int = limits.CALLS_BYTES_PER_HOST_MAX


class _Sum:
    """Of some calls."""

    __slots__ = ("bytes", "calls")

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0


class CallsUnderWay:
    """Calls whose request is here and whose answer is not complete.

    Invariants: never more than the bounds, of one host and in all; a host without a call is forgotten. A host may have
    half of all, so that one alone cannot take everything. Concurrency: the loop's thread.
    """

    def __init__(self, bounds: CallBounds | None = None, what: str = "calls") -> None:
        """`what`: the plural that a refusal names."""
        self._bounds = bounds or CallBounds()
        self._what = what
        self._all = _Sum()
        self._hosts: dict[str, _Sum] = {}
        self.refused = 0
        """Calls that were one too many."""

    @property
    def calls(self) -> int:
        """How many there are."""
        return self._all.calls

    @property
    def bytes(self) -> int:
        """Of their requests."""
        return self._all.bytes

    @property
    def hosts(self) -> int:
        """How many hosts they come from."""
        return len(self._hosts)

    @contextmanager
    def one(self, host: str, size_bytes: int = 0) -> Iterator[None]:
        """One call of `host` while it is answered; Refused(OVERLOADED) if it is one too many, or its bytes are."""
        of_host = self._hosts.get(host) or _Sum()
        bounds = self._bounds
        self._check(of_host, size_bytes, bounds.calls_per_host_max, bounds.bytes_per_host_max, f"from host {host}")
        self._check(self._all, size_bytes, bounds.calls_max, bounds.bytes_max, "from all hosts together")
        self._hosts[host] = of_host
        for each in (of_host, self._all):
            each.calls += 1
            each.bytes += size_bytes
        try:
            yield
        finally:
            for each in (of_host, self._all):
                each.calls -= 1
                each.bytes -= size_bytes
            if not of_host.calls:
                del self._hosts[host]

    def _check(self, there: _Sum, size_bytes: int, calls_max: int, bytes_max: int, whose: str) -> None:
        if there.calls < calls_max and there.bytes + size_bytes <= bytes_max:
            return
        self.refused += 1
        what = (
            f"too many {self._what} {whose} are under way at this server: wait and try again, or make fewer "
            f"{self._what} at a time"
        )
        raise Refused(
            Code.OVERLOADED, what, calls=there.calls, calls_max=calls_max, bytes=there.bytes, bytes_max=bytes_max
        )
