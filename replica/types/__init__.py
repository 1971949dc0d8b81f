"""Value types, errors, limits, interfaces to clocks, random numbers and disk. Imports the standard library only."""

from . import limits
from .allocator import give_back_free_memory, keep_memory_low
from .arguments import as_given, check_flag, check_kind, check_list, check_measure, check_names, check_whole, real_of
from .crash_points import CRASH_EXIT_CODE, CrashPoints
from .decisions import (
    Action,
    Decision,
    EventKind,
    HistoryEvent,
    Outcome,
    Proposal,
    ReplicaReport,
    Report,
    Result,
    Subject,
    Wanted,
)
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
    check,
    is_transient,
    known_value,
    only_reads,
    printable,
    read_number,
    text_of,
)
from .generation import generation_of, next_generation, offset_in_generation
from .heartbeats import FailingCopy, Heartbeat
from .ids import (
    PORT_MAX,
    ZERO_OPID,
    Address,
    ConfigEdit,
    DataState,
    EditKind,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    is_uuid,
    new_uuid,
    place_to_listen,
)
from .kafka_reach import kafka_addresses, reach_kafka
from .kafka_security import KAFKA_AWAY, PLAINTEXT, KafkaSecurity
from .lazy_imports import lazy_imports
from .names import (
    check_column_name,
    check_id,
    check_number,
    check_source_topic,
    check_table_name,
    check_text,
    check_token,
    check_topic,
    parse_json,
    shown,
    some_of,
)
from .process import __version__, started_pool
from .protocols import Clock, Disk, DiskFile, Post, Rng, Timer
from .reported_replicas import PeerReport, ReportedReplica
from .resource_use import MEMORY_MAPS, OPEN_FILES, REMEDIES, ResourceUse
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
