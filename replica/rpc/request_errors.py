"""Checks that a request names this server, and turns an error into its wire form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nyala.replica.types import Code, Corruption, Refused, ReplicaError, check_id


class NamedRequest(Protocol):
    """A request that names the server for which it is meant."""

    dest_uuid: str


def check_name(dest_uuid: str, own_uuid: str) -> None:
    """Refused INVALID_NAME unless the request was meant for this server; the first check of every call."""
    if dest_uuid != own_uuid:
        raise Refused(
            Code.INVALID_NAME,
            "this server has another uuid: look its address up again",
            meant=dest_uuid or "(empty)",
            own=own_uuid,
        )


def check_tablet_id(tablet_id: str) -> None:
    """Refused INVALID_ARGUMENT unless the id can name a tablet's files; checked before any file is made."""
    check_id(tablet_id, "a tablet")


def as_refusal(error: ReplicaError, on_fatal: Callable[[BaseException], None]) -> Refused:
    """The wire form of a refusal or a corruption. A failing disk or a bug of ours ends the process."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Corruption):
        return Refused(Code.CORRUPTION, str(error))
    on_fatal(error)
    raise error
