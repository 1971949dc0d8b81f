"""The meaning of the sums of replicas: equal, different, missing."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.rows import PartitionSpec, RowSum
from nyala.replica.rpc import config_to_pb, pb
from nyala.replica.tools import (
    ClusterView,
    ReplicaSum,
    ReplicaView,
    Severity,
    checked,
    judge_compared,
    left_out,
    next_reads,
    only_tables,
    plan_text,
    readable,
    table_lines,
    to_read,
    with_sums,
)
from nyala.replica.tools.check import checksum_timeout_s
from nyala.replica.types import Address, Code, DataState, Member, OpId, RaftConfig, Refused, limits
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
                    phase="STOPPED" if s in copying else "RUNNING",
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
        ReplicaSum(s, tablet, None if number is None else RowSum(number, 10), "" if number is not None else "silent")
        for s, number in zip(SERVERS, numbers, strict=True)
    ]


def test_verify_equal_sums_of_all_voters_are_sound() -> None:
    """Goal: equal checksums give no finding, and the report counts them. Method: three equal sums for each of two
    tablets."""
    seen = with_sums(only_tables(view(), ["t"]), [*sums("1", 5, 5, 5), *sums("2", 6, 6, 6)], 7 << 12)
    assert errors(seen) == [] and to_read(seen) == set() and left_out(seen) == []
    assert table_lines(seen)[1:] == ["t: 20 rows, 6 replicas read, 2 of 2 tablets the same"]


def test_verify_a_replica_that_differs_is_an_error_of_its_tablet() -> None:
    """Goal: the sums are shown beside each other. Method: one of three differs."""
    seen = with_sums(only_tables(view(), []), [*sums("1", 5, 5, 4), *sums("2", 6, 6, 6)], 1)
    (error,) = errors(seen)
    assert error.startswith("tablet 1 of t: replicas differ") and "0000000000000004" in error
    assert table_lines(seen)[1].endswith("1 of 2 tablets the same")


def test_verify_a_voter_that_was_not_read_is_an_error() -> None:
    """Goal: a voter without a checksum is an error, because it may differ. Method: an unanswered replica, one being
    copied, nothing read, nobody leading."""
    seen = with_sums(view("1"), sums("1", 5, None, 5), 1)
    assert to_read(seen) == {"1"}
    assert [text.rpartition(": ")[2] for text in errors(seen)] == ["silent", "b"]
    copying = view("1", copying="c")
    assert [(server.uuid, tablet) for server, tablet in readable(copying)][:2] == [("a", "1"), ("b", "1")]
    seen = with_sums(copying, sums("1", 5, 5, 5)[:2], 1)
    assert sorted(errors(seen)) == [
        "tablet 1 of t: 1 voters were not compared: c",
        "tablet 1 of t: voter on c takes no part: COPYING, STOPPED",
    ]
    assert left_out(seen) == ["1 on c (COPYING)"]
    assert errors(view("1")) == ["tablet 1 of t: 3 voters were not compared: a, b, c"]
    leaderless = view("1")
    leaderless.replicas["1"] = leaderless.replicas["1"][1:]
    assert any("nobody leads it" in text for text in errors(leaderless))


def test_verify_names_what_was_left_out_of_the_comparison() -> None:
    """Goal: the report names the replicas that were not compared. Method: a witness, a member without a vote that is
    being copied, a tombstone, which is none, and a tablet of no table."""
    seen = with_sums(view("1"), sums("1", 5, 5, 5)[:2], 1)
    seen.replicas["1"][2].status.witness = True
    for server, state in (("d", DataState.COPYING), ("e", DataState.DELETED)):
        seen.replicas["1"].append(ReplicaView(server, pb.ReplicaStatus(tablet_id="1", data_state=state)))
    assert left_out(seen) == ["1 on c (WITNESS)", "1 on d (COPYING)"]


def test_verify_reads_only_the_chosen_tables() -> None:
    """Goal: other tables are left alone, and an unknown one is refused. Method: a view with a stray replica."""
    assert set(only_tables(view(), ["t"]).replicas) == {"1", "2"}
    assert plan_text(only_tables(view(), ["t"])).endswith("would read 6 replicas of 2 tablets at the time of the run")
    with pytest.raises(Refused) as refusal:
        only_tables(view(), ["t", "u"])
    assert refusal.value.code is Code.NOT_FOUND and "table=u" in str(refusal.value)


class Planted:
    """A client of one server `a` that holds table `t` of one replica, and of one more per letter of `differing`, whose
    rows are others. `looks`: what each look at the cluster meets; one more look than these is an error."""

    def __init__(self, *looks: str, differing: str = "") -> None:
        self.looks = list(looks)
        self._servers = "a" + differing
        members = tuple(Member(s, (Address("h", 1),)) for s in self._servers)
        self._config = config_to_pb(RaftConfig(OpId(1, 1), members))
        spec, tablet = PartitionSpec(("k",), 1), TabletHandle("1", 0, 0, 0)
        self._table = TableHandle("id", "t", SCHEMA, spec, len(members), 0, 0, tablets=(tablet,))

    def list_servers(self) -> pb.ListServersReply:
        self._now = self.looks.pop(0)
        if self._now == "no master":
            raise Refused(Code.UNAVAILABLE, "no master answers")
        return pb.ListServersReply(cluster_id="c", servers=[pb.ServerInfo(uuid=s, alive=True) for s in self._servers])

    def list_tablets(self, server: pb.ServerInfo) -> list[pb.ReplicaStatus]:
        role = "FOLLOWER" if server.uuid != "a" or self._now == "no leader" else "LEADER"
        status = pb.ReplicaStatus(tablet_id="1", data_state=DataState.READY, phase="RUNNING", role=role, term=1)
        status.committed_config.CopyFrom(self._config)
        return [status]

    def list_tables(self) -> list[TableHandle]:
        return [self._table]

    def get_table(self, _name: str) -> TableHandle:
        return self._table

    def tablet_infos(self, _name: str) -> list[pb.TabletInfo]:
        return []

    def snapshot_time(self, _table: TableHandle) -> int:
        return 7

    def checksum(self, server: pb.ServerInfo, _tablet_id: str, _at: int, *, timeout_s: float) -> RowSum:
        return RowSum(ord(server.uuid), 10)


def test_check_looks_again_while_something_is_found_and_time_is_left() -> None:
    """Goal: with a time limit the check repeats while it finds something that may pass; without one it runs once.
    Method: masters that do not answer, then a tablet without a leader, then no finding; the same without time. Replicas
    that differ are reported by the first check, where a second one would be an error."""
    planted: Any = Planted("no master", "no leader", "well")
    view, findings = checked(planted, checksum=True, wait_s=3600)
    assert (findings, planted.looks, view.checksum_time) == ([], [], 7)
    planted = Planted("no leader", "well")
    assert {f.severity for f in checked(planted)[1]} == {Severity.ERROR} and planted.looks == ["well"]
    with pytest.raises(Refused, match="no master answers"):
        checked(Planted("no master", "well"))  # type: ignore[arg-type]
    (differ,) = checked(Planted("well", differing="b"), checksum=True, wait_s=3600)[1]  # type: ignore[arg-type]
    assert "replicas differ" in differ.what


def test_checksum_may_take_as_long_as_what_its_tablet_holds_needs() -> None:
    """IN-04. Goal: the time for a checksum follows what the replicas say that they hold, on disk and in memory, and the
    cells of narrow rows; the largest replica counts for all, because one that is behind catches up. Method: replicas of
    one tablet, one of them with 40 GB in wide rows or with 600 million rows of five columns, and what each is given."""
    second_of_bytes, second_of_rows = limits.CHECKSUM_BYTES_PER_S_MIN, limits.CHECKSUM_CELLS_PER_S_MIN // 5
    cases = [
        ([], 0.0),
        ([{}], 0.0),
        ([{"bytes_on_disk": 2000 * second_of_bytes}, {}], 2000.0),
        ([{}, {"bytes_on_disk": 3 * second_of_bytes, "memory_bytes": 4 * second_of_bytes}], 7.0),
        ([{"bytes_on_disk": 2 * second_of_bytes, "rows": 3000 * second_of_rows}], 3002.0),
    ]
    for held, seconds in cases:
        replicas = [pb.ReplicaStatus(**fields) for fields in held]
        assert checksum_timeout_s(replicas, 5) == pytest.approx(limits.CHECKSUM_WAIT_S + seconds)

    class Full(Planted):
        def list_tablets(self, server: pb.ServerInfo) -> list[pb.ReplicaStatus]:
            (status,) = super().list_tablets(server)
            status.bytes_on_disk = 100 * second_of_bytes if server.uuid == "b" else 0
            return [status]

        def checksum(self, server: pb.ServerInfo, _tablet_id: str, _at: int, *, timeout_s: float) -> RowSum:
            asked[server.uuid] = timeout_s
            return RowSum(1, 10)

    asked: dict[str, float] = {}
    checked(Full("well", differing="b"), checksum=True)  # type: ignore[arg-type]
    assert asked == {"a": limits.CHECKSUM_WAIT_S + 100, "b": limits.CHECKSUM_WAIT_S + 100}


def test_verify_job_gives_a_checksum_as_long_as_its_server_may_need() -> None:
    """IN-04. Goal: `nyala job verify` goes by the size, as `nyala cluster check --checksum` does. It asks a server for
    several replicas at a time, which wait for each other there, so the largest of them count together. Method: three
    tablets that need 10, 40 and 700 s on three servers, one of which has only the first two; then what was given."""
    tablets = view("123")
    for tablet_id, seconds in (("1", 10), ("2", 40), ("3", 700)):
        for replica in tablets.replicas[tablet_id]:
            replica.status.bytes_on_disk = seconds * limits.CHECKSUM_BYTES_PER_S_MIN
    (away,) = [replica for replica in tablets.replicas["3"] if replica.server_uuid == "c"]
    away.status.data_state = DataState.COPYING
    for at_a_time, of_two, of_three in ((1, 40, 700), (2, 50, 740), (8, 50, 750)):
        given = {(s.uuid, id_): time_s - limits.CHECKSUM_WAIT_S for s, id_, time_s in next_reads(tablets, at_a_time)}
        assert {key for key in given if key[1] != "9"} == {
            (s, id_) for id_ in "123" for s in SERVERS if (s, id_) != ("c", "3")
        }
        assert {round(given["c", id_]) for id_ in "12"} == {of_two}
        assert {round(given[s, id_]) for id_ in "123" for s in "ab"} == {of_three}
    assert {time_s for _, _, time_s in next_reads(tablets, 2, 5.0)} == {5.0}
    read = with_sums(tablets, [ReplicaSum(s, id_, RowSum(1, 1)) for s in SERVERS for id_ in "13"], 7)
    assert {id_ for _, id_, _ in next_reads(read, 1)} - {"9"} == {"2"}, "what was read is not read again"
