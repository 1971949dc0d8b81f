"""Raft messages between servers: one link for each ordered pair, shared by all tablets."""

from .channel import PeerChannelStatus
from .frames import HEAD_BYTES, FrameReader, frame
from .links import LinkChange, Links
from .listener import Listener, Taker
from .network import PeerNetwork
from .options import PeerOptions
from .servicer import PeerServicer

__all__ = [
    "HEAD_BYTES",
    "FrameReader",
    "LinkChange",
    "Links",
    "Listener",
    "PeerChannelStatus",
    "PeerNetwork",
    "PeerOptions",
    "PeerServicer",
    "Taker",
    "frame",
]
