"""What is an error to `nyala cluster check`, and so its exit status, and what only a warning."""

from __future__ import annotations

from collections.abc import Sequence

from nyala.replica.base import Address, DataState, Member, OpId, RaftConfig
from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.rows import PartitionSpec
from nyala.replica.rpc import config_to_pb, pb
from nyala.replica.tools import ClusterView, MasterView, ReplicaView, Severity, judge
from tests.harness.stack import SCHEMA


def view(
    held_by: str, *, voters: str = "abc", listed: str = "abc", masters: Sequence[MasterView] = (), factor: int = 3
) -> ClusterView:
    """One tablet, led by a, whose config names `voters`; `held_by` have a replica, `listed` are the known servers."""
    config = RaftConfig(OpId(1, 1), tuple(Member(s, (Address("h", 1),)) for s in voters))
    handle = TabletHandle("1", 0, 0, 0)
    table = TableHandle("id", "t", SCHEMA, PartitionSpec(("k",), 1), factor, 0, 0, tablets=(handle,))
    replicas = [
        ReplicaView(
            s,
            pb.ReplicaStatus(
                tablet_id="1",
                data_state=DataState.READY,
                role="LEADER" if s == "a" else "FOLLOWER",
                term=1,
                committed_config=config_to_pb(config),
            ),
        )
        for s in held_by
    ]
    servers = [pb.ServerInfo(uuid=s, alive=True) for s in listed]
    return ClusterView("c", servers, list(masters), tables=[table], replicas={"1": replicas})


def told(seen: ClusterView) -> list[tuple[Severity, str]]:
    return [(f.severity, f"{f.subject}: {f.what}") for f in judge(seen)]


def test_check_sound_cluster_has_no_finding() -> None:
    """Goal: no false alarm. Method: three replicas of three, three masters that serve."""
    masters = [MasterView(u, pb.MasterStatusReply(uuid=u)) for u in "xyz"]
    assert told(view("abc", masters=masters)) == []


def test_check_missing_replica_of_a_server_that_nobody_lists_is_an_error() -> None:
    """Goal: a third of all replicas gone is not exit status 0. Method: c is dead and the master was restarted."""
    (finding,) = told(view("ab", listed="ab"))
    assert finding == (Severity.ERROR, "tablet 1 of t: voters without a replica: c")


def test_check_fewer_voters_than_wanted_is_an_error() -> None:
    """Goal: under-replication is wrong, not untidy. Method: a config of two where three are wanted."""
    (finding,) = told(view("ab", voters="ab"))
    assert finding == (Severity.ERROR, "tablet 1 of t: 2 voters of 3 wanted")


def test_check_replica_that_nobody_needs_is_a_warning() -> None:
    """Goal: what is only untidy does not fail. Method: a replica outside the config."""
    (finding,) = told(view("abcd", listed="abcd"))
    assert finding == (Severity.WARNING, "tablet 1 of t: replicas outside the config: d")


def test_check_each_master_that_does_not_serve_is_an_error() -> None:
    """Goal: masters are asked one by one. Method: sound, silent, failed, another one at the address."""
    failed = pb.ReplicaStatus(phase="FAILED", error="its log is damaged")
    masters = [
        MasterView("v", pb.MasterStatusReply(uuid="v")),
        MasterView("w", None, "refused"),
        MasterView("x", pb.MasterStatusReply(uuid="x", replica=failed)),
        MasterView("y", pb.MasterStatusReply(uuid="z")),
    ]
    assert told(view("abc", masters=masters)) == [
        (Severity.ERROR, "master w: does not answer: refused"),
        (Severity.ERROR, "master x: its catalog FAILED: its log is damaged"),
        (Severity.ERROR, "master y: another master, z, answers at its address"),
    ]


def test_check_copies_that_fail_again_and_again_are_an_error() -> None:
    """TC-65. Goal: an operator sees why nothing heals. Method: a server says two failures of one copy, and three."""
    seen = view("abc")
    failing = (pb.FailingCopy(tablet_id="1", failures=3, error="no room"), pb.FailingCopy(tablet_id="2", failures=2))
    seen.servers[0].copies_failing.extend(failing)
    assert told(seen) == [
        (Severity.ERROR, "server a: copies of tablet 1 into it failed 3 times: no room"),
        (Severity.WARNING, "server a: copies of tablet 2 into it failed 2 times: "),
    ]
