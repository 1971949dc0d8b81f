"""Which requests speak for a server or a master: with TLS, they must come with its certificate. Pure."""

from __future__ import annotations

from collections.abc import Collection

from google.protobuf.message import Message

from nyala.replica.types import Code, Refused
from nyala.replica.types.names import shown

from .credentials import MASTER_ROLE, SERVER_ROLE, Named

SPEAKERS: dict[str, tuple[str, Collection[str]]] = {
    "MasterService.Heartbeat": ("server_uuid", (SERVER_ROLE,)),
    "MasterService.TakeOver": ("uuid", (MASTER_ROLE,)),
    "PeerService.OpenLink": ("from_uuid", (SERVER_ROLE, MASTER_ROLE)),
    "PeerService.IsProcess": ("from_uuid", (SERVER_ROLE, MASTER_ROLE)),
    "CopyService.StartTabletCopy": ("from_uuid", (SERVER_ROLE, MASTER_ROLE)),
    "CopyService.BeginCopy": ("requestor_uuid", (SERVER_ROLE, MASTER_ROLE)),
}
"""Call -> the field with the uuid for which it speaks, and the roles of which one must be in the certificate."""


def check_speaker(method: str, request: Message, caller: Named) -> None:
    """Refused INVALID_NAME if the request speaks for a server or master whose certificate the caller does not have."""
    field, roles = SPEAKERS.get(method, ("", ()))
    if field and not may_speak(caller, getattr(request, field), roles):
        what = (
            "the call speaks for another server or master than its certificate names, nothing was applied: start each "
            "process with the certificate that was issued for its own uuid"
        )
        raise Refused(
            Code.INVALID_NAME, what, method=method, speaks_for=shown(getattr(request, field)), certificate=str(caller)
        )


def may_speak(caller: Named, uuid: str, roles: Collection[str] = (SERVER_ROLE, MASTER_ROLE)) -> bool:
    """Whether the holder of the certificate is the server or master of that uuid."""
    return caller.role in roles and caller.name == uuid
