"""Operators' tools: looking at a cluster, and judging what is seen."""

from .check import (
    ClusterView,
    Finding,
    MasterView,
    ReplicaView,
    Severity,
    as_json,
    ask_masters,
    gather,
    judge,
    replica_json,
)
from .moves import has_moved, list_copies
from .verify import ReplicaSum, judge_compared, only_tables, plan_text, readable, table_lines, to_read, with_sums

__all__ = [
    "ClusterView",
    "Finding",
    "MasterView",
    "ReplicaSum",
    "ReplicaView",
    "Severity",
    "as_json",
    "ask_masters",
    "gather",
    "has_moved",
    "judge",
    "judge_compared",
    "list_copies",
    "only_tables",
    "plan_text",
    "readable",
    "replica_json",
    "table_lines",
    "to_read",
    "with_sums",
]
