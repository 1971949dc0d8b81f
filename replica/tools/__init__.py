"""Operators' tools: looking at a cluster, and judging what is seen."""

from .check import ClusterView, Finding, ReplicaView, Severity, as_json, gather, judge, replica_json

__all__ = ["ClusterView", "Finding", "ReplicaView", "Severity", "as_json", "gather", "judge", "replica_json"]
