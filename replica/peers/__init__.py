"""Raft messages between servers: one gRPC stream for each ordered pair, shared by all tablets."""

from .channel import PeerChannelStatus
from .network import PeerNetwork
from .options import CHANNEL_OPTIONS, PeerOptions
from .servicer import PeerServicer

__all__ = ["CHANNEL_OPTIONS", "PeerChannelStatus", "PeerNetwork", "PeerOptions", "PeerServicer"]
