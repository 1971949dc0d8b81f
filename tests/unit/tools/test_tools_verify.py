"""What sums of replicas mean: equal, different, missing."""

from __future__ import annotations

import pytest

from nyala.replica.base import Address, Code, DataState, Member, OpId, RaftConfig, Refused
from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.rows import PartitionSpec
from nyala.replica.rpc import config_to_pb, pb
from nyala.replica.tools import (
    ClusterView,
    ReplicaSum,
    ReplicaView,
    Severity,
    judge_compared,
    only_tables,
    plan_text,
    readable,
    table_lines,
    to_read,
    with_sums,
)
from tests.harness.stack import SCHEMA

SERVERS = "abc"
CONFIG = RaftConfig(OpId(1, 1), tuple(Member(s, (Address("h", 1),)) for s in SERVERS))


def view(tablets: str = "12", copying: str = "") -> ClusterView:
    """Table `t` with these tablets, each led by a on servers a, b and c; replicas on `copying` are no good yet."""
    handles = tuple(TabletHandle(name, pos, pos, 0) for pos, name in enumerate(tablets))
    table = TableHandle("id", "t", SCHEMA, PartitionSpec(("k",), len(tablets)), 3, 0, 0, tablets=handles)
    replicas = {
        name: [
            ReplicaView(
                s,
                pb.ReplicaStatus(
                    tablet_id=name,
                    data_state=DataState.COPYING if s in copying else DataState.READY,
                    role="LEADER" if s == "a" else "FOLLOWER",
                    term=1,
                    committed_config=config_to_pb(CONFIG),
                ),
            )
            for s in SERVERS
        ]
        for name in tablets
    }
    replicas["9"] = [ReplicaView("a", pb.ReplicaStatus(tablet_id="9", data_state=DataState.READY))]
    servers = [pb.ServerInfo(uuid=s, alive=True) for s in SERVERS]
    return ClusterView("c", servers, tables=[table], replicas=replicas)


def errors(seen: ClusterView) -> list[str]:
    return [f"{f.subject}: {f.what}" for f in judge_compared(seen) if f.severity is Severity.ERROR]


def sums(tablet: str, *numbers: int | None) -> list[ReplicaSum]:
    """One for each server; None: it could not be read."""
    return [
        ReplicaSum(s, tablet, None if number is None else (number, 10), "" if number is not None else "silent")
        for s, number in zip(SERVERS, numbers, strict=True)
    ]


def test_verify_equal_sums_of_all_voters_are_sound() -> None:
    """Goal: no false alarm, and the report counts. Method: three equal sums for each of two tablets."""
    seen = with_sums(only_tables(view(), ["t"]), [*sums("1", 5, 5, 5), *sums("2", 6, 6, 6)], 7 << 12)
    assert errors(seen) == [] and to_read(seen) == set()
    assert table_lines(seen)[1:] == ["t: 20 rows, 6 replicas read, 2 of 2 tablets the same"]


def test_verify_a_replica_that_differs_is_an_error_of_its_tablet() -> None:
    """Goal: the sums are shown beside each other. Method: one of three differs."""
    seen = with_sums(only_tables(view(), []), [*sums("1", 5, 5, 4), *sums("2", 6, 6, 6)], 1)
    (error,) = errors(seen)
    assert error.startswith("tablet 1 of t: replicas differ") and "0000000000000004" in error
    assert table_lines(seen)[1].endswith("1 of 2 tablets the same")


def test_verify_a_voter_that_was_not_read_is_an_error() -> None:
    """Goal: silence is not equality. Method: an unanswered replica, one being copied, nothing read, nobody leading."""
    seen = with_sums(view("1"), sums("1", 5, None, 5), 1)
    assert to_read(seen) == {"1"}
    assert [text.rpartition(": ")[2] for text in errors(seen)] == ["silent", "b"]
    copying = view("1", copying="c")
    assert [(server.uuid, tablet) for server, tablet in readable(copying)][:2] == [("a", "1"), ("b", "1")]
    (error,) = errors(with_sums(copying, sums("1", 5, 5, 5)[:2], 1))
    assert error == "tablet 1 of t: 1 voters were not compared: c"
    assert errors(view("1")) == ["tablet 1 of t: 3 voters were not compared: a, b, c"]
    leaderless = view("1")
    leaderless.replicas["1"] = leaderless.replicas["1"][1:]
    assert any("nobody leads it" in text for text in errors(leaderless))


def test_verify_reads_only_the_chosen_tables() -> None:
    """Goal: other tables are left alone, and an unknown one is refused. Method: a view with a stray replica."""
    assert set(only_tables(view(), ["t"]).replicas) == {"1", "2"}
    assert plan_text(only_tables(view(), ["t"])).endswith("would read 6 replicas of 2 tablets at the time of the run")
    with pytest.raises(Refused) as refusal:
        only_tables(view(), ["t", "u"])
    assert refusal.value.code is Code.NOT_FOUND and "table=u" in str(refusal.value)
