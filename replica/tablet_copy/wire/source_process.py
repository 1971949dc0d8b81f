"""The interface of the copy source to its process, a tablet server or a master."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft_driver import Replica
from nyala.replica.tablet_copy import HeldState, SourceSessions
from nyala.replica.types import Disk
from nyala.replica.wal import Log

from .copy_rate import CopyRate


class SourceProcess(Protocol):
    """A process that serves copies. Concurrency: all of it may be used from any thread."""

    uuid: str
    disk: Disk
    sessions: SourceSessions
    copy_rate: CopyRate
    on_fatal: Callable[[BaseException], None]


class SourceReplica(NamedTuple):
    """A running replica from which a copy may be made, in its present state."""

    replica: Replica
    state: HeldState
    cmeta: ConsensusMeta
    log: Log
