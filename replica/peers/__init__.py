"""Raft messages between servers: one gRPC stream for each ordered pair, shared by all tablets."""

from .network import PeerNetwork
from .options import CHANNEL_OPTIONS, SERVER_OPTIONS, PeerOptions
from .servicer import PeerServicer

__all__ = ["CHANNEL_OPTIONS", "SERVER_OPTIONS", "PeerNetwork", "PeerOptions", "PeerServicer"]
