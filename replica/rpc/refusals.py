"""From what went wrong to what the caller is told."""

from __future__ import annotations

from collections.abc import Callable

from nyala.replica.base import Code, Corruption, Refused, ReplicaError


def check_name(dest_uuid: str, own_uuid: str) -> None:
    """Refused INVALID_NAME unless the request was meant for this server; the first check of every call."""
    if dest_uuid != own_uuid:
        raise Refused(Code.INVALID_NAME, "this server has another uuid", meant=dest_uuid or "(empty)", own=own_uuid)


def check_tablet_id(tablet_id: str) -> None:
    """Refused INVALID_ARGUMENT for what cannot name a tablet's files; before anything is made under that name."""
    if not tablet_id or "/" in tablet_id or tablet_id.startswith("."):
        raise Refused(Code.INVALID_ARGUMENT, "no possible tablet id", tablet=tablet_id)


def as_refusal(error: ReplicaError, on_fatal: Callable[[BaseException], None]) -> Refused:
    """The wire form of an error; a corruption is told. A failing disk or a bug of ours ends the process."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Corruption):
        return Refused(Code.CORRUPTION, str(error))
    on_fatal(error)
    raise error
