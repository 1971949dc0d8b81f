"""Builds the status of a replica, for masters and operators."""

from __future__ import annotations

import time

from nyala.replica.rpc import config_to_pb, opid_to_pb, pb
from nyala.replica.types import DataState

from .hosted import HostedTablet


def replica_status(hosted: HostedTablet, uuid: str, tick_ms: int) -> pb.ReplicaStatus:
    """The tablet's ReplicaStatus, whether its replica runs or not."""
    superblock = hosted.tablet.superblock if hosted.tablet is not None else hosted.superblock
    message = pb.ReplicaStatus(
        tablet_id=hosted.tablet_id,
        table_id=superblock.table_id,
        table_name=superblock.table_name,
        uuid=uuid,
        data_state=int(hosted.data_state),
        term=hosted.term,
        last_logged=opid_to_pb(hosted.last_opid),
        error=hosted.error,
    )
    if hosted.replica is not None:
        _of_replica(message, hosted, tick_ms)
    else:
        ready = hosted.superblock.data_state is DataState.READY and hosted.copy is None
        failed = ready and not (hosted.opening or hosted.waiting)
        message.phase = "FAILED" if failed else "BOOTSTRAPPING" if ready else "STOPPED"
        message.role = "NON_PARTICIPANT"
        if hosted.cmeta is not None:
            message.committed_config.CopyFrom(config_to_pb(hosted.cmeta.committed_config))
    message.witness = superblock.witness
    message.damaged = hosted.damaged
    tablet = hosted.tablet
    if tablet is not None:
        message.rows = tablet.rows_estimate
        message.bytes_on_disk = tablet.bytes_on_disk
        message.memory_bytes = tablet.memory_bytes
        message.flush_index = tablet.flush_opid.index
        now_s = time.monotonic()
        message.write_rows_per_s = hosted.write_rate.sample(tablet.rows_written, now_s)
        message.read_rows_per_s = hosted.read_rate.sample(hosted.rows_read, now_s)
        if tablet.superblock.table_schemas:
            message.schema_id = tablet.schema.schema_id
    return message


def _of_replica(message: pb.ReplicaStatus, hosted: HostedTablet, tick_ms: int) -> None:
    replica = hosted.replica
    if replica is None:
        return
    status = replica.status()
    message.phase = str(status.phase)
    message.role = str(status.role)
    message.term = status.term
    message.leader_uuid = status.leader_uuid
    message.last_logged.CopyFrom(opid_to_pb(status.last_logged))
    message.commit_index = status.commit_index
    message.commit_term = status.commit_opid.term
    message.applied_index = status.applied_index
    message.safe_time = status.applied_time
    message.wal_bytes = status.wal_bytes
    message.quiet = status.quiet
    if status.withheld is not None:
        message.withheld.CopyFrom(opid_to_pb(status.withheld))
    message.committed_config.CopyFrom(config_to_pb(status.committed_config))
    if status.pending_config is not None:
        message.pending_config.CopyFrom(config_to_pb(status.pending_config))
    if status.error:
        message.error = status.error
    for peer in status.peers:
        message.peers.append(
            pb.PeerHealth(
                uuid=peer.uuid,
                health=peer.health,
                match_index=peer.match_index,
                last_contact_us_ago=peer.last_contact_ticks * tick_ms * 1000,
                data_state=int(peer.data_state),
            )
        )
