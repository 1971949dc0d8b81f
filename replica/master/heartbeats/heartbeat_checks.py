"""Checks heartbeats, and whether their sender counts as a tablet server of this cluster. Pure."""

from __future__ import annotations

import re

from nyala.replica.fs import TABLET_SERVER
from nyala.replica.types import Code, Heartbeat, Refused, is_uuid, limits

from .tablet_servers import Identity

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")


def check_sender(beat: Heartbeat) -> None:
    """Raise Refused(INVALID_ARGUMENT) if the heartbeat names no possible server, or has a text or a list beyond its
    bound."""
    if not is_uuid(beat.server_uuid):
        raise _refuse("a heartbeat names its server: 32 lower-case hex digits", server=beat.server_uuid[:40])
    if not 0 < len(beat.addresses) <= limits.SERVER_ADDRESSES_MAX:
        what = "a heartbeat says where its server listens"
        raise _refuse(what, addresses=len(beat.addresses), max=limits.SERVER_ADDRESSES_MAX)
    for address in beat.addresses:
        if not _HOST.fullmatch(address.host) or not 0 < address.port < 65536:
            what = "this is no host and port: name a host or an IP address (IPv6 in brackets)"
            raise _refuse(what, address=str(address)[:80])
    for name in ("location", "version"):
        text = getattr(beat, name)
        if len(text) > limits.NAME_LENGTH_MAX:
            raise _refuse(f"the {name} of a server is too long", length=len(text), max=limits.NAME_LENGTH_MAX)


def _refuse(what: str, /, **values: str | int) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, what, values)


def why_not(identity: Identity, uuid: str, cluster_id: str) -> str:
    """The reason why the process at an address is not the tablet server `uuid` of this cluster; empty if it is.

    A server that has not joined a cluster yet has no cluster id.
    """
    if identity.uuid != uuid:
        return f"another one answers there: {identity.uuid[:40] or '(without a uuid)'}"
    if identity.kind != TABLET_SERVER:
        return f"it is no tablet server but a {identity.kind[:40]}"
    if identity.cluster_id not in ("", cluster_id):
        return f"it belongs to cluster {identity.cluster_id[:40]}"
    return ""
