"""Reads a tablet server's reports of its replicas from the wire."""

from __future__ import annotations

from collections.abc import Callable

from nyala.replica.types import OpId, PeerReport, RaftConfig, Refused, ReportedReplica, limits

from . import nyala_pb2 as pb
from .values import config_from_pb, opid_from_pb

Known = Callable[[str, bytes], ReportedReplica | None]
"""Finds a report of a tablet, by its id, with this `config_wire`; None if there is none."""


def reported_replica_from_pb(status: pb.ReplicaStatus, known: Known = lambda tablet_id, wire: None) -> ReportedReplica:
    """The report of a status, with the fields that the masters use.

    A config that is `known` is not converted again, because that takes ten times as long as all the rest, and all
    reports of a tablet share it.
    """
    told = status.committed_config if status.HasField("committed_config") else None
    wire = told.SerializeToString() if told is not None else b""
    same = known(status.tablet_id, wire)
    if same is not None:
        config, opid, wire = same.config, same.config_opid, same.config_wire
    else:
        config, opid = _config_of(told), opid_from_pb(told.opid) if told is not None else OpId(0, 0)
    leads = status.role == "LEADER"
    return ReportedReplica(
        tablet_id=status.tablet_id,
        data_state=status.data_state,
        phase=status.phase,
        role=status.role,
        term=status.term,
        leader_uuid=status.leader_uuid,
        commit_opid=OpId(status.commit_term, status.commit_index),
        config=config,
        config_opid=opid,
        config_wire=wire,
        pending=bool(status.pending_config.members),
        peers=tuple(PeerReport(p.uuid, p.health, p.last_contact_us_ago) for p in status.peers) if leads else (),
        damaged=status.damaged,
        witness=status.witness,
        rows=status.rows,
        bytes_on_disk=status.bytes_on_disk,
        wal_bytes=status.wal_bytes,
        write_rows_per_s=status.write_rows_per_s,
        read_rows_per_s=status.read_rows_per_s,
    )


def _config_of(told: pb.RaftConfig | None) -> RaftConfig | None:
    if told is None or not 0 < len(told.members) <= limits.CONFIG_MEMBERS_MAX:
        return None
    try:
        return config_from_pb(told)
    except Refused:
        return None
