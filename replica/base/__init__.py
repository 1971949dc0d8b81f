"""Value types, errors, limits and the doors to time, chance and disk. Imports the standard library only."""

from . import limits
from .build import __version__
from .check import check
from .crash_points import CRASH_EXIT_CODE, CrashPoints
from .errors import (
    Applied,
    Code,
    Corruption,
    DiskFailure,
    InvariantViolation,
    LaterFormat,
    Refused,
    ReplicaError,
    RowCode,
)
from .generation import generation_of, next_generation, offset_in_generation
from .ids import ZERO_OPID, Address, DataState, Entry, EntryKind, Member, OpId, RaftConfig, is_uuid, new_uuid
from .kafka_security import KAFKA_AWAY, PLAINTEXT, KafkaSecurity
from .protocols import Clock, Disk, DiskFile, Post, Rng, Timer
from .time import (
    LOGICAL_BITS,
    MAX_HYBRID_TIME,
    HybridClock,
    SystemClock,
    hybrid_from_us,
    staleness_problem,
    us_of_hybrid,
)

__all__ = [
    "CRASH_EXIT_CODE",
    "KAFKA_AWAY",
    "LOGICAL_BITS",
    "MAX_HYBRID_TIME",
    "PLAINTEXT",
    "ZERO_OPID",
    "Address",
    "Applied",
    "Clock",
    "Code",
    "Corruption",
    "CrashPoints",
    "DataState",
    "Disk",
    "DiskFailure",
    "DiskFile",
    "Entry",
    "EntryKind",
    "HybridClock",
    "InvariantViolation",
    "KafkaSecurity",
    "LaterFormat",
    "Member",
    "OpId",
    "Post",
    "RaftConfig",
    "Refused",
    "ReplicaError",
    "Rng",
    "RowCode",
    "SystemClock",
    "Timer",
    "__version__",
    "check",
    "generation_of",
    "hybrid_from_us",
    "is_uuid",
    "limits",
    "new_uuid",
    "next_generation",
    "offset_in_generation",
    "staleness_problem",
    "us_of_hybrid",
]
