"""The tablet server process: tablet manager, services, heartbeats, maintenance."""

from .options import ServerOptions
from .promises import need_promises
from .replay_watch import ReplayWatch

__all__ = [
    "ReplayWatch",
    "ServerOptions",
    "need_promises",
]
