"""Watching a replica on its way from one server to another."""

from __future__ import annotations

from nyala.replica.base import Refused
from nyala.replica.client import Client
from nyala.replica.rpc import config_from_pb, pb


def has_moved(client: Client, tablet_id: str, from_uuid: str, to_uuid: str) -> bool:
    """Whether the tablet's leader has committed a config in which `to_uuid` votes and `from_uuid` is gone."""
    for server in client.list_servers().servers:
        try:
            statuses = client.list_tablets(server, [tablet_id])
        except Refused:
            continue
        for status in statuses:
            if status.role == "LEADER":
                config = config_from_pb(status.committed_config)
                target = config.member(to_uuid)
                return target is not None and target.votes and config.member(from_uuid) is None
    return False


def list_copies(client: Client) -> list[pb.CopyJob]:
    """Tablet copies that the servers know of, under way and lately ended; servers that do not answer are left out."""
    jobs = []
    for server in client.list_servers().servers:
        try:
            jobs += client.list_copies(server)
        except Refused:
            continue
    return jobs
