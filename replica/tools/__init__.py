"""Operators' tools: looking at a cluster, and judging what is seen."""

from .check import ClusterView, Finding, ReplicaView, Severity, as_json, gather, judge, replica_json
from .moves import has_moved, list_copies

__all__ = [
    "ClusterView",
    "Finding",
    "ReplicaView",
    "Severity",
    "as_json",
    "gather",
    "has_moved",
    "judge",
    "list_copies",
    "replica_json",
]
