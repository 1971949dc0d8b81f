"""Consensus of one replica without I/O: messages, ticks and completions in, one `Ready` out. See DESIGN.md."""

from .core import RaftCore
from .log_view import EntriesUnavailable, MemoryLogView
from .message_checks import invalid_config_reason, invalid_reason, is_position, needs_proof, too_far, unheld_reason
from .messages import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from .options import RaftOptions
from .ready import CopyNeeded, HardState, PeerStatus, Ready, Role
