"""Raft messages between servers: one gRPC stream for each ordered pair, shared by all tablets."""

from .channel import PeerChannelStatus
from .links import LinkChange, Links
from .network import PeerNetwork
from .options import CHANNEL_OPTIONS, PeerOptions
from .servicer import PeerServicer

__all__ = [
    "CHANNEL_OPTIONS",
    "LinkChange",
    "Links",
    "PeerChannelStatus",
    "PeerNetwork",
    "PeerOptions",
    "PeerServicer",
]
