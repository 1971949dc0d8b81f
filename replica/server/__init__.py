"""The tablet server process: tablet manager, services, heartbeats, maintenance."""

from .options import ServerOptions
from .startup.durable_state import check_durable_state
from .startup.replay_watch import ReplayMarker, ReplayWatch, marker_path
