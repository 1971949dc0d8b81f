"""Counts the gRPC calls under way at a server, and the memory that they may take, per host and in all.

gRPC bounds connections, and calls on one connection, but does not count by address. So calls are counted here, from the
moment at which their headers have come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from nyala.replica.types import Applied, Code, Refused, limits


class CallBounds(NamedTuple):
    """Calls under way, and bytes of memory that they may take."""

    calls_max: int = limits.CALLS_MAX
    calls_per_host_max: int = limits.CALLS_PER_HOST_MAX
    bytes_max: int = limits.CALLS_MEMORY_BYTES_MAX
    bytes_per_host_max: int = limits.CALLS_MEMORY_PER_HOST_BYTES_MAX


@dataclass(slots=True)
class _Sum:
    """The calls of one host, or of all, and the memory that they may take."""

    whose: str
    calls: int = 0
    bytes: int = 0


class Call:
    """One counted call. The code that began it ends it; ending it again does nothing."""

    __slots__ = ("_calls", "_ended", "bytes", "host")

    def __init__(self, calls: CallsInFlight, host: str) -> None:
        self.host = host
        self.bytes = 0
        """The memory for which it is charged."""
        self._calls = calls
        self._ended = False

    def add(self, size_bytes: int, applied: Applied = Applied.NOT_APPLIED) -> None:
        """Charge the call for that many bytes more. Refused OVERLOADED, with `applied`, if they do not fit now;
        TOO_LARGE if they never can. Does nothing for a call that has ended."""
        if not self._ended:
            self._calls.charge(self, size_bytes, applied)

    def become(self, size_bytes: int, applied: Applied) -> None:
        """Charge the call for that many bytes from now on; Refused as by `add` if that is more than before."""
        self.add(size_bytes - self.bytes, applied)

    def end(self) -> None:
        """Stop counting the call and its memory."""
        if not self._ended:
            self._ended = True
            self._calls.forget(self)


class CallsInFlight:
    """Calls whose headers have arrived and whose answer has not left.

    Invariants: never more than the bounds, of one host and in all; a host without a call is forgotten. One host may
    have half of the total, so that it cannot take everything. Concurrency: the loop's thread.
    """

    def __init__(self, bounds: CallBounds | None = None, what: str = "calls") -> None:
        """`what`: the plural that a refusal names."""
        self._bounds = bounds or CallBounds()
        self._what = what
        self._all = _Sum("from all hosts together")
        self._hosts: dict[str, _Sum] = {}
        self.refused = 0
        """The number of refused calls."""

    @property
    def calls(self) -> int:
        """The number of calls under way."""
        return self._all.calls

    @property
    def bytes(self) -> int:
        """The memory that they may take."""
        return self._all.bytes

    @property
    def hosts(self) -> int:
        """The number of hosts from which they come."""
        return len(self._hosts)

    def begin(self, host: str, size_bytes: int = 0) -> Call:
        """Count one more call of `host`, which may take `size_bytes`. Refused OVERLOADED if it exceeds a bound together
        with the others; TOO_LARGE if it does so alone."""
        of_host, bounds = self._hosts.get(host) or _Sum(f"from host {host}"), self._bounds
        if of_host.calls >= bounds.calls_per_host_max:
            raise self._too_much(of_host)
        if self._all.calls >= bounds.calls_max:
            raise self._too_much(self._all)
        call = Call(self, host)
        self._hosts[host] = of_host
        for each in (of_host, self._all):
            each.calls += 1
        try:
            call.add(size_bytes)
        except Refused:
            call.end()
            raise
        return call

    @contextmanager
    def one(self, host: str, size_bytes: int = 0) -> Iterator[None]:
        """`begin` on entry, `Call.end` on exit."""
        call = self.begin(host, size_bytes)
        try:
            yield
        finally:
            call.end()

    def charge(self, call: Call, size_bytes: int, applied: Applied) -> None:
        """[Call] Charge the call for that many bytes more; negative: fewer."""
        of_host, bounds = self._hosts[call.host], self._bounds
        if size_bytes > 0:
            if call.bytes + size_bytes > bounds.bytes_per_host_max:
                self.refused += 1
                what = "the call may take more memory than all calls of one host together: ask in several"
                most = bounds.bytes_per_host_max
                raise Refused(Code.TOO_LARGE, what, applied=applied, bytes=call.bytes + size_bytes, bytes_max=most)
            if of_host.bytes + size_bytes > bounds.bytes_per_host_max:
                raise self._too_much(of_host, applied)
            if self._all.bytes + size_bytes > bounds.bytes_max:
                raise self._too_much(self._all, applied)
        for each in (call, of_host, self._all):
            each.bytes += size_bytes

    def forget(self, call: Call) -> None:
        """[Call] Forget a call that has ended."""
        of_host = self._hosts[call.host]
        for each in (of_host, self._all):
            each.calls -= 1
            each.bytes -= call.bytes
        if not of_host.calls:
            del self._hosts[call.host]

    def _too_much(self, there: _Sum, applied: Applied = Applied.NOT_APPLIED) -> Refused:
        self.refused += 1
        bounds, one_host = self._bounds, there is not self._all
        what = (
            f"too many {self._what} {there.whose} are under way at this server: wait and try again, or make fewer "
            f"{self._what} at a time"
        )
        return Refused(
            Code.OVERLOADED,
            what,
            applied=applied,
            calls=there.calls,
            calls_max=bounds.calls_per_host_max if one_host else bounds.calls_max,
            bytes=there.bytes,
            bytes_max=bounds.bytes_per_host_max if one_host else bounds.bytes_max,
        )
