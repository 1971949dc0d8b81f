"""Refusals on the wire: code, text, machine-readable detail, and whether anything was applied."""

from __future__ import annotations

from nyala.replica.types import Applied, Code, Refused, ReplicaError

from . import nyala_pb2 as pb

MESSAGE_LENGTH_MAX = 2000


def error_to_pb(error: Refused | None) -> pb.Error:
    """To the wire; None is code OK."""
    if error is None:
        return pb.Error()
    return pb.Error(
        code=int(error.code),
        message=ReplicaError.__str__(error)[:MESSAGE_LENGTH_MAX],
        outcome_unknown=error.applied is Applied.UNKNOWN,
        detail=error.detail,
    )


def error_from_pb(message: pb.Error) -> Refused | None:
    """From the wire; None if there is no error. A code from a newer build keeps its text and becomes ILLEGAL_STATE."""
    if message.code == Code.OK:
        return None
    applied = Applied.UNKNOWN if message.outcome_unknown else Applied.NOT_APPLIED
    try:
        code = Code(message.code)
    except ValueError:
        return Refused(
            Code.ILLEGAL_STATE, message.message, applied=applied, detail=message.detail, unknown_code=message.code
        )
    return Refused(code, message.message, applied=applied, detail=message.detail)


def raise_if_error(message: pb.Error) -> None:
    """Raise the Refused that the message carries, if it carries one."""
    error = error_from_pb(message)
    if error is not None:
        raise error
