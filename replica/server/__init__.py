"""The tablet server process: tablet manager, services, heartbeats, maintenance."""

from .instance import (
    FOLDERS,
    INSTANCE,
    PROMISES,
    Instance,
    format_directory,
    join_cluster,
    need_promises,
    open_or_format,
    read_instance,
)
from .options import ServerOptions
from .remote_source import RemoteCopySource
from .replay_watch import ReplayWatch

__all__ = [
    "FOLDERS",
    "INSTANCE",
    "PROMISES",
    "Instance",
    "RemoteCopySource",
    "ReplayWatch",
    "ServerOptions",
    "format_directory",
    "join_cluster",
    "need_promises",
    "open_or_format",
    "read_instance",
]
