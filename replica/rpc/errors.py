"""Refusals on the wire: code, text, machine-readable detail, and whether anything was applied."""

from __future__ import annotations

from enum import Enum

import grpc

from nyala.replica.types import Applied, Code, Refused, ReplicaError, printable

from . import nyala_pb2 as pb

MESSAGE_LENGTH_MAX = 2000
"""Bounds the characters of an error's text, and of its detail, whoever sends it. Callers log it and show it."""


class TooLong(Enum):
    """The message of a call that gRPC did not deliver, because it has more bytes than one end allows."""

    REQUEST = "SERVER: Received", "CLIENT: Sent"
    ANSWER = "CLIENT: Received", "SERVER: Sent"


def too_long(error: grpc.Call) -> TooLong | None:
    """The message of this failed call that was too long; None if the call failed for another reason. gRPC tells it by
    words alone."""
    text = error.details() or ""
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    return next((m for m in TooLong if any(f"{words} message larger than max" in text for words in m.value)), None)


def error_to_pb(error: Refused | None) -> pb.Error:
    """To the wire; None is code OK."""
    if error is None:
        return pb.Error()
    return pb.Error(
        code=int(error.code),
        message=_bounded(ReplicaError.__str__(error)),
        outcome_unknown=error.applied is Applied.UNKNOWN,
        detail=error.detail,
    )


def error_from_pb(message: pb.Error) -> Refused | None:
    """From the wire; None if there is no error. A code from a newer build keeps its text and becomes ILLEGAL_STATE.

    The text and the detail are those of another process: bounded, and with control characters escaped.
    """
    if message.code == Code.OK:
        return None
    applied = Applied.UNKNOWN if message.outcome_unknown else Applied.NOT_APPLIED
    what, detail = _bounded(message.message), _bounded(message.detail)
    try:
        code = Code(message.code)
    except ValueError:
        return Refused(Code.ILLEGAL_STATE, what, applied=applied, detail=detail, unknown_code=message.code)
    return Refused(code, what, applied=applied, detail=detail)


def _bounded(text: str) -> str:
    """The text in one line of bounded length."""
    cut = printable(text[: MESSAGE_LENGTH_MAX + 1])
    return cut if len(cut) <= MESSAGE_LENGTH_MAX else f"{cut[: MESSAGE_LENGTH_MAX - 1]}…"


def raise_if_error(message: pb.Error) -> None:
    """Raise the Refused that the message carries, if it carries one."""
    error = error_from_pb(message)
    if error is not None:
        raise error
