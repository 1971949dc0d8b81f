"""The tablet server process: tablet manager, services, heartbeats, maintenance."""

from .instance import Instance, join_cluster, open_or_format
from .options import ServerOptions

__all__ = ["Instance", "ServerOptions", "join_cluster", "open_or_format"]
