"""Tablet copy and deletion: copy sessions, the target's steps, tombstones, quarantine. No gRPC, no asyncio."""

from .attempt import CopyAttempt, CopyProgress, copy_cancelled
from .blocks import named_blocks, parse_superblock, spared_blocks
from .checks import (
    INTACT,
    CopyRequest,
    HealthyReplica,
    LocalReplica,
    replacement_refusal,
    source_refusal,
    start_tablet_copy_checks,
)
from .deletion import LastLogged, delete_replica, last_of_unopened, wal_folder
from .downloads import DamagedFile
from .joining import WitnessJoin
from .lost_superblock import lost_tablets, was_here, write_tombstone_for_lost
from .manifest import WHOLE, CopyFile, CopyManifest, CopySource, CopyWanted, FileKind
from .offer import accept_offer
from .quarantine import Purged, Quarantined, list_quarantine, list_some, no_superblock, purge_quarantine
from .source import (
    Asker,
    CopySourceSession,
    HeldState,
    LocalCopySource,
    LogSums,
    SessionFile,
    SourceSessions,
    capture_session,
)
from .startup import settle_at_startup
from .target import TargetCopy
