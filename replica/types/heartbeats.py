"""The values that a tablet server reports of itself with each heartbeat; for its replicas, see
`reported_replicas.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .ids import Address
from .resource_use import ResourceUse


class FailingCopy(NamedTuple):
    """How often copies of a tablet into a server failed one after the other, and why the last one did."""

    tablet_id: str
    failures: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One heartbeat, without the replicas that it reports. All values are as the sender wrote them, unchecked."""

    server_uuid: str = ""
    cluster_id: str = ""
    """The id of the cluster that the server belongs to; empty before it has joined one."""
    addresses: tuple[Address, ...] = ()
    process: int = 0
    """A number drawn at random when the sender's process started; 0: its build draws none."""
    sequence: int = 0
    """Counts the heartbeats of the process."""
    replicas: int = 0
    """The number of replicas that the heartbeat reports."""
    full_report: bool = False
    slice_after: str = ""
    slice_until: str = ""
    """The upper end of one slice of a full report: it covers all tablets after the first of these ids, up to the second
    one."""
    booting: bool = False
    quiescing: bool = False
    location: str = ""
    memory_bytes: int = 0
    disk_bytes_free: int = 0
    version: str = ""
    feature_level: int = 1
    """The highest feature level that the sender's build knows."""
    finalized_level: int = 1
    """The cluster's feature level, as far as the sender knows it."""
    tablets_max: int = 0
    loop_lag_ms_max: float = 0.0
    gil_hold_ms_max: float = 0.0
    open_files: ResourceUse = field(default_factory=ResourceUse)
    memory_maps: ResourceUse = field(default_factory=ResourceUse)
    copies_failing: tuple[FailingCopy, ...] = ()
