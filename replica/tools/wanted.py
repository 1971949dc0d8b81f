"""Desired changes of tablets and servers that do not hold yet, as texts and JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nyala.replica.rpc import pb


@dataclass(frozen=True)
class Wanted:
    """One tablet whose members differ from the desired state."""

    tablet_id: str
    voters: int
    voters_wanted: int
    change: str
    """The desired change as text; empty if only the number of voters differs."""


def change_words(change: pb.DesiredChangeInfo) -> str:
    """Return a desired change in a few words."""
    from_uuid, to_uuid = change.from_uuid[:8], change.to_uuid[:8]
    words = {
        "MOVE": f"move {from_uuid} to {to_uuid}",
        "ADD": f"add {to_uuid}",
        "REMOVE": f"remove {from_uuid}",
        "TRANSFER": f"lead from {to_uuid}",
        "PROMOTE": f"promote {to_uuid}",
        "DEMOTE": f"demote {from_uuid}",
    }.get(change.kind, change.kind.lower())
    return f"cancelled: {words}" if change.cancelled else words


def unsettled(tablets: Iterable[pb.TabletInfo], draining: frozenset[str]) -> list[Wanted]:
    """Return the tablets with a desired change, with too few or too many voters, or with a replica on a retiring
    server."""
    found = []
    for tablet in tablets:
        changes = [change_words(tablet.wish)] if tablet.HasField("wish") else []
        changes += [f"leave {m.uuid[:8]}" for m in tablet.config.members if m.uuid in draining]
        changes += [f"{m.uuid[:8]} is copying" for m in tablet.config.members if m.promote]
        voters = sum(m.votes for m in tablet.config.members)
        wanted = tablet.replication_factor or voters
        if changes or voters != wanted:
            found.append(Wanted(tablet.tablet_id, voters, wanted, ", ".join(changes)))
    return found


def drain_words(server: pb.ServerInfo) -> str:
    """Return the progress of a server that is being retired; empty for other servers."""
    if not server.draining:
        return ""
    if server.drained:
        return "retired: nothing is left on it"
    unsure = f", {server.tablets_unreported} not heard of yet" if server.tablets_unreported else ""
    return f"draining: {server.tablets_left} of {server.tablets_at_first} tablets left{unsure}"


def drain_json(server: pb.ServerInfo) -> dict[str, Any] | None:
    """Return the same as JSON; None for a server that is not being retired."""
    if not server.draining:
        return None
    return {
        "drained": server.drained,
        "tablets_left": server.tablets_left,
        "tablets_at_first": server.tablets_at_first,
        "tablets_unreported": server.tablets_unreported,
        "reason": server.drain_reason,
    }


def maintenance_words(server: pb.ServerInfo) -> str:
    """Return until when an operator works on a server, and who; empty if nobody does."""
    if not server.maintenance_until_us:
        return ""
    until = datetime.fromtimestamp(server.maintenance_until_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    by = f", by {server.maintenance_owner}" if server.maintenance_owner else ""
    why = f": {server.maintenance_reason}" if server.maintenance_reason else ""
    return f"in maintenance until {until}{by}{why}"


def maintenance_json(server: pb.ServerInfo) -> dict[str, object] | None:
    """Return the same as JSON; None for a server that is not in maintenance."""
    if not server.maintenance_until_us:
        return None
    return {
        "until_us": server.maintenance_until_us,
        "owner": server.maintenance_owner,
        "reason": server.maintenance_reason,
    }


def change_json(tablet: pb.TabletInfo | None) -> dict[str, Any]:
    """Return the desired state of one tablet, as JSON."""
    if tablet is None:
        return {"voters": None, "voters_wanted": None, "desired_change": None}
    change = tablet.wish
    return {
        "voters": sum(m.votes for m in tablet.config.members),
        "voters_wanted": tablet.replication_factor,
        "desired_change": {
            "kind": change.kind,
            "from": change.from_uuid,
            "to": change.to_uuid,
            "deadline_us": change.deadline_us,
            "reason": change.reason,
            "plan_id": change.plan_id,
            "cancelled": change.cancelled,
        }
        if tablet.HasField("wish")
        else None,
    }
