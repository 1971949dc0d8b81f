"""Files on real disks: durable replace, rename and sync; the lock, identity and fence of a server's directory."""

from nyala.replica.types import CRASH_EXIT_CODE, CrashPoints

from .folder_watch import FolderWatch
from .instance import (
    FENCE,
    FOLDERS,
    INSTANCE,
    KNOWN_MASTERS,
    MARK,
    MASTER,
    RAFT_FOLDERS,
    TABLET_SERVER,
    Instance,
    check_folders,
    format_directory,
    has_mark,
    join_cluster,
    lost_raft_folders,
    mark_folders,
    open_or_format,
    raise_feature_level,
    read_instance,
    refuse_fenced,
    repair_instance,
    take_over,
)
from .lengths import FileLength, lost_file
from .map_reserve import RESERVE, MapReserve, memory_maps
from .os_errors import error_from_os, exhausted
from .real import RealDisk
from .root_lock import LOCK_NAME, lock_root, lock_stopped
from .supervised import say_ready, when_parent_ends
