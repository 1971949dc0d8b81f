"""Consensus of one replica without I/O: messages, ticks and completions in, one `Ready` out. See DESIGN.md."""

from .admission import impossible, impossible_config, is_position, too_far
from .core import RaftCore
from .log_view import EntriesUnavailable, LogView, MemoryLogView
from .messages import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from .options import RaftOptions
from .ready import CopyNeeded, EntriesNeeded, HardState, PeerStatus, Ready, Role

__all__ = [
    "AppendEntries",
    "AppendReply",
    "CopyNeeded",
    "EntriesNeeded",
    "EntriesUnavailable",
    "HardState",
    "LogView",
    "MemoryLogView",
    "Message",
    "PeerStatus",
    "RaftCore",
    "RaftOptions",
    "Ready",
    "Role",
    "TimeoutNow",
    "VoteReply",
    "VoteRequest",
    "impossible",
    "impossible_config",
    "is_position",
    "too_far",
]
