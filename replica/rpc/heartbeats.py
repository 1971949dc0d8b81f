"""Heartbeats of tablet servers, from the wire."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice

from nyala.replica.types import Code, FailingCopy, Heartbeat, Refused, ReportedReplica, ResourceUse, limits

from . import nyala_pb2 as pb
from .reported_replicas import Known, reported_replica_from_pb
from .values import addresses_from_pb, feature_level_from_pb

_NUMBERS = ("memory_bytes", "disk_bytes_free", "tablets_max", "loop_lag_ms_max", "gil_hold_ms_max", "sequence")
_RESOURCES = ("open_files", "memory_maps")
_COUNTS = (
    "data_state", "term", "commit_index", "applied_index", "rows", "bytes_on_disk", "memory_bytes", "wal_bytes",
    "flush_index", "commit_term", "write_rows_per_s", "read_rows_per_s",
)  # fmt: skip

Reports = Callable[[Known], list[ReportedReplica]]
"""Converts the replicas of one heartbeat. Refused(INVALID_ARGUMENT) for one that no server of this system sends."""


def heartbeat_from_pb(request: pb.HeartbeatRequest) -> tuple[Heartbeat, Reports]:
    """Convert a heartbeat. It may report thousands of replicas, so these are converted only if it counts.

    The list of failing copies, and its texts, are cut to the lengths of an honest server, because listings show them,
    each server within one message.
    """
    failing = tuple(
        FailingCopy(f.tablet_id, f.failures, f.error[: limits.COPY_ERROR_CHARS_MAX])
        for f in islice(request.copies_failing, limits.COPIES_FAILING_MAX)
        if len(f.tablet_id) <= limits.ID_LENGTH_MAX
    )
    beat = Heartbeat(
        server_uuid=request.server_uuid,
        cluster_id=request.cluster_id,
        addresses=addresses_from_pb(request.addresses),
        process=request.process,
        sequence=request.sequence,
        replicas=len(request.replicas),
        full_report=request.full_report,
        slice_after=request.slice_after,
        slice_until=request.slice_until,
        booting=request.booting,
        quiescing=request.quiescing,
        location=request.location,
        memory_bytes=request.memory_bytes,
        disk_bytes_free=request.disk_bytes_free,
        version=request.version,
        feature_level=feature_level_from_pb(request.feature_level),
        finalized_level=feature_level_from_pb(request.finalized_level),
        tablets_max=request.tablets_max,
        loop_lag_ms_max=request.loop_lag_ms_max,
        gil_hold_ms_max=request.gil_hold_ms_max,
        open_files=ResourceUse(request.open_files.used, request.open_files.limit),
        memory_maps=ResourceUse(request.memory_maps.used, request.memory_maps.limit),
        copies_failing=failing,
    )
    return beat, lambda known: _reports(request, known)


def _reports(request: pb.HeartbeatRequest, known: Known) -> list[ReportedReplica]:
    check_report(request)
    return [reported_replica_from_pb(status, known) for status in request.replicas]


def check_report(request: pb.HeartbeatRequest) -> None:
    """Refused(INVALID_ARGUMENT) for a heartbeat that no server of this system sends; nothing of it counts then."""
    numbers = [(name, getattr(request, name)) for name in _NUMBERS]
    for name in _RESOURCES:
        use = getattr(request, name)
        numbers += [(f"{name}.used", use.used), (f"{name}.limit", use.limit)]
    for name, value in numbers:
        if value < 0 or not math.isfinite(value):
            raise _refuse("a server reports no such number", field=name, value=value)
    if max(len(request.replicas), len(request.copies_failing)) > limits.REPLICAS_REPORTED_MAX:
        what = "a server reports more replicas than it can hold"
        raise _refuse(what, replicas=len(request.replicas), max=limits.REPLICAS_REPORTED_MAX)
    for replica in request.replicas:
        check_status(replica, request.server_uuid)
    for copy in request.copies_failing:
        if (size := copy.ByteSize()) > limits.REPLICA_STATUS_BYTES_MAX:
            raise _refuse("the report of a copy is too long", bytes=size, max=limits.REPLICA_STATUS_BYTES_MAX)


def check_status(replica: pb.ReplicaStatus, server_uuid: str) -> None:
    """Refused(INVALID_ARGUMENT) for a replica that the server of that uuid does not report in this way."""
    if replica.uuid not in ("", server_uuid):
        raise _refuse("a server reports its own replicas only", replica_of=replica.uuid[:40])
    if (size := replica.ByteSize()) > limits.REPLICA_STATUS_BYTES_MAX:
        raise _refuse("the report of a replica is too long", bytes=size, max=limits.REPLICA_STATUS_BYTES_MAX)
    for name in _COUNTS:
        if getattr(replica, name) < 0:
            raise _refuse("a replica reports no such number", field=name, value=getattr(replica, name))


def _refuse(what: str, /, **values: object) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, what, values)
