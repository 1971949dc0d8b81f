"""The tablet server process: tablet manager, services, heartbeats, maintenance."""

from .options import ServerOptions
from .startup.promises import need_promises
from .startup.replay_watch import ReplayMarker, ReplayWatch, marker_path

__all__ = [
    "ReplayMarker",
    "ReplayWatch",
    "ServerOptions",
    "marker_path",
    "need_promises",
]
