"""Consensus of one replica without I/O: messages, ticks and completions in, one `Ready` out. See DESIGN.md."""

from .admission import impossible, impossible_config, is_position, too_far
from .core import RaftCore
from .log_view import EntriesUnavailable, MemoryLogView
from .messages import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from .options import RaftOptions
from .ready import CopyNeeded, HardState, PeerStatus, Ready, Role
