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

__all__ = [
    "ClusterView",
    "Finding",
    "MasterView",
    "ReplicaView",
    "Severity",
    "as_json",
    "ask_masters",
    "gather",
    "has_moved",
    "judge",
    "list_copies",
    "replica_json",
]
