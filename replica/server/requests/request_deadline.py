"""The deadline of a caller, and whether the caller still waits for its answer."""

from __future__ import annotations

from collections.abc import Callable

from nyala.replica.rpc import Context, host_of_caller
from nyala.replica.types import Code, Refused, SystemClock, limits

_monotonic_us = SystemClock().monotonic_us


class RequestDeadline:
    """The deadline of one caller. Work for the caller calls `stop` often, and ends when `stop` raises.

    Concurrency: `leave` on the loop's thread, `stop` on any.
    """

    def __init__(
        self,
        stay_s: float = limits.CALLER_STAYS_S_DEFAULT,
        monotonic_us: Callable[[], int] = _monotonic_us,
        *,
        host: str = "",
    ) -> None:
        """`host`: the caller's host, for bounds per host; empty if unknown."""
        self.host = host
        self._stay_s = min(stay_s, limits.CALLER_STAYS_S_MAX)
        self._monotonic_us = monotonic_us
        self._until_us = monotonic_us() + int(self._stay_s * 1e6)
        self._left = False

    @classmethod
    def of(
        cls, context: Context | None, timeout_us: int = 0, monotonic_us: Callable[[], int] = _monotonic_us
    ) -> RequestDeadline:
        """The deadline of a gRPC call: the earlier of the call's own and `timeout_us`; 0: the request names none."""
        limits_s = [timeout_us / 1e6] if timeout_us > 0 else []
        left_s = context.time_remaining() if context is not None else None
        if left_s is not None:
            limits_s.append(max(0.0, left_s))
        host = host_of_caller(context)
        return cls(min(limits_s, default=limits.CALLER_STAYS_S_DEFAULT), monotonic_us, host=host)

    def leave(self) -> None:
        """Note that the caller left: work for it ends at its next step."""
        self._left = True

    def stop(self) -> None:
        """Raise Refused TIMED_OUT if the caller left, or its deadline passed."""
        if self._left:
            raise Refused(Code.TIMED_OUT, "the caller left; the work for it ended")
        if self._monotonic_us() >= self._until_us:
            raise Refused(
                Code.TIMED_OUT,
                "the caller's deadline passed; the work for it was ended: allow more time, or ask for less",
                seconds=self._stay_s,
            )
