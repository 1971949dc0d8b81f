"""Raft messages between servers: one link for each ordered pair, shared by all tablets."""

from .channel import PeerChannelStatus
from .frame_reader import FrameReader
from .links import LinkChange, Links
from .listener import Listener, Taker
from .network import PeerNetwork
from .options import PeerOptions
from .servicer import PeerServicer
from .turn import Turn

__all__ = [
    "FrameReader",
    "LinkChange",
    "Links",
    "Listener",
    "PeerChannelStatus",
    "PeerNetwork",
    "PeerOptions",
    "PeerServicer",
    "Taker",
    "Turn",
]
