"""Raft messages between servers: one link for each ordered pair, shared by all tablets."""

from .channel import PeerChannelStatus
from .links import LinkChange, Links
from .network import PeerNetwork
from .options import PeerOptions
from .servicer import PeerServicer

__all__ = [
    "LinkChange",
    "Links",
    "PeerChannelStatus",
    "PeerNetwork",
    "PeerOptions",
    "PeerServicer",
]
