"""Chooses the reaction to each refusal: a table, a back-off and a deadline. No I/O."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from enum import Enum
from urllib.parse import unquote

import grpc

from nyala.replica.rpc import TooLong, too_long
from nyala.replica.types import Applied, Code, Refused, Rng

from .options import ClientOptions


class Reaction(Enum):
    """The next step of a caller."""

    FAIL = "raise the final error"
    RETRY = "ask the same server again, later"
    FOLLOW = "ask the hinted leader, or look it up"
    REFRESH = "look up the tablet's servers, then ask again"


REACTIONS: dict[Code, Reaction] = {
    Code.INVALID_NAME: Reaction.REFRESH,
    Code.NOT_LEADER: Reaction.FOLLOW,
    Code.NOT_READY: Reaction.REFRESH,
    Code.TABLET_NOT_FOUND: Reaction.REFRESH,
    Code.TABLET_FAILED: Reaction.REFRESH,
    Code.CORRUPTION: Reaction.REFRESH,
    Code.TABLET_DELETED: Reaction.REFRESH,
    Code.STEPPING_DOWN: Reaction.REFRESH,
    Code.OVERLOADED: Reaction.RETRY,
    Code.NO_SPACE: Reaction.RETRY,
    Code.TIMED_OUT: Reaction.REFRESH,
    Code.UNAVAILABLE: Reaction.REFRESH,
    Code.LAGGING: Reaction.REFRESH,
}
"""A code that is not in this table fails at once."""


def reaction_to(error: Refused) -> Reaction:
    """Return the reaction to the error's code; FAIL if it is not in the table."""
    return REACTIONS.get(error.code, Reaction.FAIL)


class OutcomeUnknown(Refused):
    """The call may or may not have taken effect. Repeat it only if repeating is safe."""

    def __init__(
        self, code: Code, what: str, values: Mapping[str, object] | None = None, /, *, detail: str = "", **more: object
    ) -> None:
        super().__init__(code, what, values, applied=Applied.UNKNOWN, detail=detail, **more)


class NotApplied(Refused):
    """The call had no effect, on any server."""

    def __init__(
        self, code: Code, what: str, values: Mapping[str, object] | None = None, /, *, detail: str = "", **more: object
    ) -> None:
        super().__init__(code, what, values, applied=Applied.NOT_APPLIED, detail=detail, **more)


def final(error: Refused, *, unknown: bool, why: str = "", **values: object) -> Refused:
    """Return the exception that a user sees: NotApplied or OutcomeUnknown, with the attempts so far in its text."""
    kind = OutcomeUnknown if unknown else NotApplied
    what = f"{error.what}{'; ' + why if why else ''}"
    return kind(error.code, what, {**error.values, **values}, detail=error.detail)


UNREACHABLE = "the server cannot be reached: "
NOT_OFFERED = "the server at this address does not offer this call"
NO_ANSWER = "no answer in time; `nyala cluster check` says whether the cluster is well"
_NOT_CARRIED_OUT = frozenset({grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""The statuses of a call that the server did not begin. RESOURCE_EXHAUSTED is one if the request was too long, or did
not arrive in time. If the answer was too long, the server carried the call out."""


def refusal_of_rpc_error(error: grpc.RpcError | grpc.FutureCancelledError, *, mutates: bool) -> Refused:
    """Return the refusal for a gRPC call that failed. If the call `mutates`, and the server may have carried it out,
    the outcome is unknown."""
    status = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    text = (error.details() or status.name) if isinstance(error, grpc.Call) else str(error)
    kind = too_long(error) if isinstance(error, grpc.Call) else None
    may_be_carried_out = status not in _NOT_CARRIED_OUT or kind is TooLong.ANSWER
    applied = Applied.UNKNOWN if mutates and may_be_carried_out else Applied.NOT_APPLIED
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Refused(Code.TIMED_OUT, NO_ANSWER, applied=applied)
    if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return Refused(Code.UNAVAILABLE, UNREACHABLE + _short(text), applied=applied)
    if status is grpc.StatusCode.UNIMPLEMENTED:
        what = (
            f"{NOT_OFFERED}: upgrade it if it runs an earlier build, or give a master's address, if this is a tablet "
            "server's"
        )
        return Refused(Code.INVALID_ARGUMENT, what, applied=applied)
    if kind is TooLong.REQUEST:
        what = f"the request has too many bytes, so split it: {_short(text)}"
        return Refused(Code.TOO_LARGE, what, applied=applied)
    return Refused(Code.ILLEGAL_STATE, f"the call failed ({status.name}): {_short(text)}", applied=applied)


_CONNECTING = re.compile(r"failed to connect to all addresses; last error: [A-Z_]+: (ipv[46]:)?")


def _short(text: str) -> str:
    """Return the first line of gRPC's text, without the beginning that is the same for every failed connection."""
    return unquote(_CONNECTING.sub("", text.partition("\n")[0], 1))[:200]


class Deadline:
    """A moment on the monotonic clock."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._at = 0.0
        self.restart()

    def restart(self) -> None:
        """Begin to count anew."""
        self._at = time.monotonic() + self.timeout_s

    @property
    def left_s(self) -> float:
        """Return the seconds left, never negative."""
        return max(0.0, self._at - time.monotonic())


class Attempts:
    """Counts one call's attempts, and knows whether an outcome became unknown, when to try again and how long to
    wait."""

    def __init__(self, options: ClientOptions, deadline: Deadline, rng: Rng) -> None:
        self.unknown = False
        self.count = 0
        self._options = options
        self._deadline = deadline
        self._rng = rng
        self._attempt_timeout_s = options.attempt_timeout_s
        self._delay_s = options.backoff_first_s
        self._follows = 0

    @property
    def timeout_s(self) -> float:
        """Return the time limit of the next attempt of a call that may be repeated."""
        return max(0.001, min(self._attempt_timeout_s, self._deadline.left_s))

    def limit_s(self, *, retry_safe: bool) -> float:
        """Return the time limit of the next attempt: `timeout_s`, or all the time that is left if the call must not be
        repeated after an unknown outcome."""
        return self.timeout_s if retry_safe else max(0.001, self._deadline.left_s)

    def failed(self, error: Refused, *, retry_safe: bool) -> float:
        """Return the seconds to wait before the next attempt; raises the final error if there must be none.

        `retry_safe`: a repetition of the call after an unknown outcome has its effect only once.
        """
        self.count += 1
        self.unknown = self.unknown or error.applied is Applied.UNKNOWN
        reaction = reaction_to(error)
        if reaction is Reaction.FAIL:
            raise final(error, unknown=self.unknown)
        if self.unknown and not retry_safe:
            why = "not repeated, because repeating it is not safe: check whether it took effect"
            raise final(error, unknown=True, why=why)
        if error.code is Code.TIMED_OUT:
            self._attempt_timeout_s *= 2
        elif error.code is Code.NOT_LEADER and not error.detail:
            # The group elects a leader now, so a longer wait for a silent server would gain nothing.
            self._attempt_timeout_s = self._options.attempt_timeout_s
        delay = self._next_delay_s(follow=reaction is Reaction.FOLLOW and bool(error.detail))
        if delay >= self._deadline.left_s:
            raise final(
                error,
                unknown=self.unknown,
                why=f"gave up after {self.count} attempts in {self._deadline.timeout_s:g} s",
            )
        return delay

    def _next_delay_s(self, *, follow: bool) -> float:
        """Return an exponential delay with jitter. The first two hints are followed at once; the delay slows later
        ones, because servers may name each other in a circle."""
        if follow and self._follows < 2:
            self._follows += 1
            return 0.0
        delay = self._delay_s * (0.5 + self._rng.random() / 2)
        self._delay_s = min(self._delay_s * 2, self._options.backoff_max_s)
        return delay
