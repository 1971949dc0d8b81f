"""Tablet copy and deletion: tombstones, quarantine, copy sessions, the follower's steps. No gRPC, no asyncio."""

from .attempt import CopyAttempt, CopyProgress, copy_cancelled
from .blocks import named_blocks, parse_superblock, quarantined_superblocks, spared_blocks, superblock_bytes
from .checks import CopyRequest, LocalReplica, source_refusal, start_tablet_copy_checks
from .deletion import LastLogged, delete_replica, last_of_unopened, redo_deletion, wal_folder
from .downloads import DamagedFile
from .follower import FollowerCopy
from .joining import WitnessJoin
from .lost import bury_lost, lost_tablets, was_here
from .manifest import ANYTHING, WHOLE, CopyFile, CopyManifest, CopySource, CopyWanted, FileKind
from .quarantine import Quarantined, list_quarantine, purge_quarantine
from .source import (
    Asker,
    CopySourceSession,
    HeldState,
    LocalCopySource,
    SessionFile,
    SourceSessions,
    capture_session,
    crc_of_file,
    file_path,
)
from .startup import settle_at_startup

__all__ = [
    "ANYTHING",
    "WHOLE",
    "Asker",
    "CopyAttempt",
    "CopyFile",
    "CopyManifest",
    "CopyProgress",
    "CopyRequest",
    "CopySource",
    "CopySourceSession",
    "CopyWanted",
    "DamagedFile",
    "FileKind",
    "FollowerCopy",
    "HeldState",
    "LastLogged",
    "LocalCopySource",
    "LocalReplica",
    "Quarantined",
    "SessionFile",
    "SourceSessions",
    "WitnessJoin",
    "bury_lost",
    "capture_session",
    "copy_cancelled",
    "crc_of_file",
    "delete_replica",
    "file_path",
    "last_of_unopened",
    "list_quarantine",
    "lost_tablets",
    "named_blocks",
    "parse_superblock",
    "purge_quarantine",
    "quarantined_superblocks",
    "redo_deletion",
    "settle_at_startup",
    "source_refusal",
    "spared_blocks",
    "start_tablet_copy_checks",
    "superblock_bytes",
    "wal_folder",
    "was_here",
]
