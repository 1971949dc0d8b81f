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
    ResourcesExhausted,
    RowCode,
    may_pass,
)
from .generation import generation_of, next_generation, offset_in_generation
from .ids import ZERO_OPID, Address, DataState, Entry, EntryKind, Member, OpId, RaftConfig, is_uuid, new_uuid
from .kafka_reach import reach_kafka
from .kafka_security import KAFKA_AWAY, PLAINTEXT, KafkaSecurity
from .names import (
    CONTROL_TOPICS,
    check_column_name,
    check_id,
    check_number,
    check_seconds,
    check_source_topic,
    check_table_name,
    check_text,
    check_token,
    check_topic,
    parse_json,
    shown,
)
from .on_demand import on_demand
from .protocols import Clock, Disk, DiskFile, Post, Rng, Timer
from .resource_use import MEMORY_MAPS, OPEN_FILES, ResourceUse
from .time import (
    LOGICAL_BITS,
    MAX_HYBRID_TIME,
    HybridClock,
    SystemClock,
    hybrid_from_us,
    staleness_problem,
    us_of_hybrid,
    utc_text,
)
from .workers import started_pool

__all__ = [
    "CONTROL_TOPICS",
    "CRASH_EXIT_CODE",
    "KAFKA_AWAY",
    "LOGICAL_BITS",
    "MAX_HYBRID_TIME",
    "MEMORY_MAPS",
    "OPEN_FILES",
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
    "ResourceUse",
    "ResourcesExhausted",
    "Rng",
    "RowCode",
    "SystemClock",
    "Timer",
    "__version__",
    "check",
    "check_column_name",
    "check_id",
    "check_number",
    "check_seconds",
    "check_source_topic",
    "check_table_name",
    "check_text",
    "check_token",
    "check_topic",
    "generation_of",
    "hybrid_from_us",
    "is_uuid",
    "limits",
    "may_pass",
    "new_uuid",
    "next_generation",
    "offset_in_generation",
    "on_demand",
    "parse_json",
    "reach_kafka",
    "shown",
    "staleness_problem",
    "started_pool",
    "us_of_hybrid",
    "utc_text",
]
