"""Tablet copy and deletion: tombstones, quarantine, copy sessions, the follower's steps. No gRPC, no asyncio."""

from .blocks import named_blocks, parse_superblock, quarantined_superblocks, superblock_bytes
from .checks import CopyDecision, CopyRequest, LocalReplica, source_refusal, start_tablet_copy_checks
from .deletion import delete_replica, redo_deletion, wal_folder
from .follower import CopyProgress, FollowerCopy, copy_cancelled
from .manifest import CopyFile, CopyManifest, CopySource, FileKind
from .quarantine import Quarantined, list_quarantine, purge_quarantine
from .source import (
    CopySourceSession,
    HeldState,
    LocalCopySource,
    SourceSessions,
    capture_session,
    crc_of_file,
    file_path,
)
from .startup import settle_at_startup

__all__ = [
    "CopyDecision",
    "CopyFile",
    "CopyManifest",
    "CopyProgress",
    "CopyRequest",
    "CopySource",
    "CopySourceSession",
    "FileKind",
    "FollowerCopy",
    "HeldState",
    "LocalCopySource",
    "LocalReplica",
    "Quarantined",
    "SourceSessions",
    "capture_session",
    "copy_cancelled",
    "crc_of_file",
    "delete_replica",
    "file_path",
    "list_quarantine",
    "named_blocks",
    "parse_superblock",
    "purge_quarantine",
    "quarantined_superblocks",
    "redo_deletion",
    "settle_at_startup",
    "source_refusal",
    "start_tablet_copy_checks",
    "superblock_bytes",
    "wal_folder",
]
