"""Shortcuts of tests that drive a few simulated replicas by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google_crc32c import value as crc

from nyala.replica.raft_driver import Replica
from nyala.replica.types import EntryKind
from tests.harness.sim_cluster import SimCluster, SimNode


class Answers:
    """A `done` callback that keeps its arguments."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, result: Any) -> None:
        self.all.append(result)

    @property
    def one(self) -> Any:
        """Return the only answer so far."""
        [answer] = self.all
        return answer


def started(cluster: SimCluster, hinted: str = "a") -> Replica:
    """Boot all servers, `hinted` first to campaign; returns the running leader."""
    cluster.start(hinted=hinted)
    cluster.run_until(lambda: cluster.leader() is not None, "a leader")
    leader = cluster.leader()
    assert leader is not None
    return leader


def put(cluster: SimCluster, replica: Replica, payload: bytes) -> Answers:
    """Begin one write at `replica`."""
    answers = Answers()
    on(cluster, replica, lambda: replica.write(EntryKind.WRITE, 1, b"", payload, crc(payload), answers))
    return answers


def on(cluster: SimCluster, replica: Replica, function: Callable[[], None]) -> None:
    """Run `function` as a step of the server that has `replica`."""
    cluster.nodes[replica.uuid].do(function)


def put_and_wait(cluster: SimCluster, replica: Replica, payload: bytes) -> Any:
    """Make one write; returns its answer."""
    answers = put(cluster, replica, payload)
    cluster.run_until(lambda: bool(answers.all), f"an answer to {payload!r}")
    return answers.one


def node_of(cluster: SimCluster, replica: Replica) -> SimNode:
    """Return the server of `replica`."""
    return cluster.nodes[replica.uuid]


def level(cluster: SimCluster) -> bool:
    """Return whether all servers are up and have applied the same."""
    replicas = cluster.replicas
    return len(replicas) == len(cluster.nodes) and len({r.applied_index for r in replicas}) == 1
