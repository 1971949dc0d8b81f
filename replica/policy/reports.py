"""A cluster view from the records of the `reports` topic, as the batch jobs read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nyala.replica.base import Address, Member, OpId, RaftConfig

from .views import ClusterView, Health, ServerView, TabletView


def view_of_reports(reports: Iterable[Mapping[str, Any]], now_us: int, draining: Iterable[str] = ()) -> ClusterView:
    """The view that the newest report of each tablet and server gives; dicts as `schemas/avro/report.avsc` says.

    Raises KeyError if a record lacks a field of that schema.
    """
    servers: dict[str, ServerView] = {}
    tablets: dict[str, TabletView] = {}
    away = frozenset(draining)
    for row in sorted(reports, key=lambda r: (int(r["catalog_term"]), int(r["at_us"]))):
        if row["server_uuid"]:
            servers[row["server_uuid"]] = _server(row, away)
        elif row["tablet_id"]:
            tablets[row["tablet_id"]] = _tablet(row)
    return ClusterView(
        servers=tuple(servers[u] for u in sorted(servers)),
        tablets=tuple(tablets[t] for t in sorted(tablets)),
        now_us=now_us,
    )


def _server(row: Mapping[str, Any], away: frozenset[str]) -> ServerView:
    uuid = str(row["server_uuid"])
    address = str(row["server_address"])
    return ServerView(
        uuid=uuid,
        member=Member(uuid, (Address.parse(address),) if address else ()),
        alive=bool(row["alive"]),
        location=str(row["location"]),
        draining=uuid in away,
        tablets_max=int(row["limits"].get("tablets_max", 0)),
    )


def _tablet(row: Mapping[str, Any]) -> TabletView:
    replicas = list(row["replicas"])
    members = tuple(
        Member(
            r["uuid"],
            (Address.parse(r["address"]),) if r["address"] else (),
            votes=r["votes"],
            promote=r["promote"],
            holds_data=not (r["votes"] and r["promote"]),  # only a witness that waits for its data has both
            replace=r["replace"],
        )
        for r in replicas
    )
    opid = row["config_opid"]
    return TabletView(
        tablet_id=row["tablet_id"],
        table_id=row["table_id"],
        replication_factor=row["replication_factor"],
        config=RaftConfig(OpId(opid["term"], opid["index"]), members),
        leader_uuid=row["leader_uuid"],
        pending=row["pending_change"],
        health={r["uuid"]: Health.__members__.get(r["health"], Health.UNKNOWN) for r in replicas},
        bytes_on_disk=max((int(r["bytes_on_disk"]) for r in replicas), default=0),
    )
