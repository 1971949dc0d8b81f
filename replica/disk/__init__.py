"""The only door to files: durable replace, rename and sync, an exclusive lock on a root, crash points."""

from nyala.replica.base import CRASH_EXIT_CODE, CrashPoints

from .descriptors import raise_open_files_limit
from .fence import FENCE, refuse_fenced
from .folder_watch import FolderWatch
from .real import RealDisk
from .root_lock import RootLock, lock_root, lock_stopped

__all__ = [
    "CRASH_EXIT_CODE",
    "FENCE",
    "CrashPoints",
    "FolderWatch",
    "RealDisk",
    "RootLock",
    "lock_root",
    "lock_stopped",
    "raise_open_files_limit",
    "refuse_fenced",
]
