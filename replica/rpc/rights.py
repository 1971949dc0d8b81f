"""Which certificates may make which call. With TLS, a server or master checks each call against this table. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from google.protobuf.message import Message

from nyala.replica.types import Code, Refused
from nyala.replica.types.names import shown

from .credentials import CLIENT_ROLE, MASTER_ROLE, OPERATOR_ROLE, SERVER_ROLE, UNMARKED_ROLE, Named

MEMBERS = frozenset({SERVER_ROLE, MASTER_ROLE})
"""The roles of processes of the cluster, whose certificates name a uuid."""
OPERATORS = frozenset({OPERATOR_ROLE, UNMARKED_ROLE})
"""The roles that change where replicas are, and how servers and masters work. An operator may all that a client may."""
CLIENTS = OPERATORS | {CLIENT_ROLE}
"""The roles that read and write rows, and make and drop tables."""


class Right(NamedTuple):
    """A row of the table: who may make one call."""

    roles: frozenset[str]
    """The roles of which one must be in the caller's certificate."""
    speaks_in: str = ""
    """The field with the uuid of the server or master in whose name the call comes. A server or master may name itself
    only; an operator may name any."""
    own_kind: bool = False
    """Of servers and masters, only those of the called process's own role may make the call: servers send Raft messages
    to servers and copy from them, masters do so among themselves."""


_ALL = Right(CLIENTS | MEMBERS)
_DATA = Right(CLIENTS)
_LOOK_UP = Right(CLIENTS | {MASTER_ROLE})
_DECISION = Right(OPERATORS | {MASTER_ROLE})
_OPERATION = Right(OPERATORS)
_LINK = Right(MEMBERS, "from_uuid", own_kind=True)

RIGHTS: dict[str, Right] = {
    "TabletService.GetIdentity": _ALL,
    "TabletService.IsProcess": Right(frozenset({MASTER_ROLE})),
    "TabletService.Write": _DATA,
    "TabletService.OpenWrites": _DATA,
    "TabletService.Scan": Right(CLIENTS | {SERVER_ROLE}),  # a follower lets the leader of an idle tablet reach a time
    "TabletService.Get": _DATA,
    "TabletService.ListTablets": _LOOK_UP,
    "TabletService.CreateTablet": _OPERATION,
    "TabletService.DeleteTablet": _OPERATION,
    "TabletService.ChangeConfig": _DECISION,
    "TabletService.TransferLeadership": _DECISION,
    "TabletService.Checksum": _DATA,
    "TabletService.ServerTime": _DATA,
    "TabletService.Lateness": _DATA,
    "TabletService.Quiesce": _OPERATION,
    "TabletService.Ledger": _DATA,  # a read of one tablet proves by it that the leader leads
    "TabletService.Flush": _OPERATION,
    "TabletService.ListQuarantine": _OPERATION,
    "TabletService.PurgeQuarantine": _OPERATION,
    # An operator begins a copy between two servers (`nyala copy start`), and reads what a session offers without a file
    # (`nyala master unsafe-rebuild`). Files go only to the server or master that the session is for.
    "CopyService.StartTabletCopy": Right(MEMBERS | {OPERATOR_ROLE}, "from_uuid", own_kind=True),
    "CopyService.BeginCopy": Right(MEMBERS | {OPERATOR_ROLE}, "requestor_uuid", own_kind=True),
    "CopyService.OpenFetch": Right(MEMBERS, own_kind=True),
    "CopyService.EndCopy": Right(MEMBERS | {OPERATOR_ROLE}, own_kind=True),
    "CopyService.ListCopies": _OPERATION,
    "CopyService.CancelCopy": _OPERATION,
    "PeerService.OpenLink": _LINK,
    "PeerService.IsProcess": _LINK,
    "MasterService.TakeOver": Right(frozenset({MASTER_ROLE}), "uuid"),
    "MasterService.GetIdentity": _ALL,
    "MasterService.Heartbeat": Right(frozenset({SERVER_ROLE}), "server_uuid"),
    "MasterService.CreateTable": _DATA,
    "MasterService.DropTable": _DATA,
    "MasterService.GetTable": _LOOK_UP,
    "MasterService.ListTables": _DATA,
    "MasterService.ListServers": _DATA,
    "MasterService.AddWriterSchema": _DATA,
    "MasterService.OpenSources": _DATA,
    "MasterService.AdvanceSources": _DATA,
    "MasterService.ListSources": _DATA,
    "MasterService.ResetSource": _OPERATION,
    "MasterService.MoveReplica": _OPERATION,
    "MasterService.AddReplica": _OPERATION,
    "MasterService.RemoveReplica": _OPERATION,
    "MasterService.ChangeRole": _OPERATION,
    "MasterService.CancelChange": _OPERATION,
    "MasterService.SetReplication": _OPERATION,
    "MasterService.RetireServer": _OPERATION,
    "MasterService.MaintainServer": _OPERATION,
    "MasterService.ForgetServer": _OPERATION,
    "MasterService.ReplaceTablets": _OPERATION,
    "MasterService.ConfirmConfig": _OPERATION,
    "MasterService.FinalizeUpgrade": _OPERATION,
    "MasterService.ChangeMasters": _OPERATION,
    "MasterService.AgreeReadTime": _DATA,
    "MasterService.Status": _LOOK_UP,
    "Health.Check": _ALL,
    "Health.List": _ALL,
    "Health.Watch": _ALL,
}
"""Every call of every service. A call without a row is refused."""


def roles_for(method: str, called_role: str) -> frozenset[str]:
    """Return the roles that may make the call at a process of `called_role`; none if the call has no row."""
    right = RIGHTS.get(method)
    if right is None:
        return frozenset()
    return right.roles - (MEMBERS - {called_role}) if right.own_kind else right.roles


def check_role(method: str, caller: Named, called_role: str) -> None:
    """Refused NOT_AUTHORIZED if the caller's certificate is of no role that may make the call at a process of
    `called_role`. Needs nothing of the request."""
    allowed = roles_for(method, called_role)
    if caller.role not in allowed:
        what = (
            "a certificate of this role may not make this call here: use one of an allowed role, which "
            "`nyala security issue` makes (NYALA_TLS, tls= or --tls)"
        )
        names = ", ".join(sorted(allowed - {UNMARKED_ROLE})) or "none"
        raise Refused(Code.NOT_AUTHORIZED, what, method=method, certificate=str(caller), allowed=names)


def check_speaker(method: str, request: Message, caller: Named) -> None:
    """Refused INVALID_NAME if a server or master makes the call in the name of another one."""
    field = RIGHTS[method].speaks_in
    if field and caller.role in MEMBERS and not may_speak(caller, getattr(request, field), MEMBERS):
        what = (
            "the call speaks for another server or master than its certificate names, nothing was applied: start each "
            "process with the certificate that was issued for its own uuid"
        )
        raise Refused(
            Code.INVALID_NAME, what, method=method, speaks_for=shown(getattr(request, field)), certificate=str(caller)
        )


def may_speak(caller: Named, uuid: str, roles: Collection[str]) -> bool:
    """Return whether the holder of the certificate is the process of that uuid, with one of these roles."""
    return caller.role in roles and caller.name == uuid
