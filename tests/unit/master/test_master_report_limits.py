"""Bounds on what an admitted tablet server may make the leading master keep, and on how fast it may report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import pytest
from google.protobuf.message import Message
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nyala.replica.master.heartbeats.report_limits import StatusRate, report_bytes
from nyala.replica.master.heartbeats.soft_state import SoftState
from nyala.replica.rpc import config_to_pb, heartbeat_from_pb, pb, reported_replica_from_pb
from nyala.replica.types import Address, Code, DataState, Member, OpId, RaftConfig, Refused, limits

MEMBERS = [f"{n:032x}" for n in range(1, 8)]
STRANGERS = ["e" * 32, "f" * 32]
CONFIG = RaftConfig(OpId(1, 1), tuple(Member(u, (Address("server-1.rack-2.example.com", 7050),)) for u in MEMBERS))


def status(tablet: str, uuid: str, *, members: int = 7, error: int = 0, deleted: bool = False) -> pb.ReplicaStatus:
    """Return a server's report of one replica."""
    found = pb.ReplicaStatus(tablet_id=tablet, uuid=uuid, table_id="a" * 32, table_name="flights", error="x" * error)
    found.data_state = DataState.DELETED if deleted else DataState.READY
    if not deleted:
        found.phase, found.role, found.term, found.leader_uuid = "RUNNING", "LEADER", 9, uuid
        found.rows = found.bytes_on_disk = found.applied_index = found.commit_index = 10**9
        found.committed_config.CopyFrom(config_to_pb(RaftConfig(CONFIG.opid, CONFIG.members[:members])))
        for member in CONFIG.members[:members]:
            found.peers.add(uuid=member.uuid, health="OK", match_index=10**9, last_contact_us_ago=10**6)
    return found


def beat(uuid: str, *replicas: pb.ReplicaStatus, full: bool = True) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(server_uuid=uuid, full_report=full, replicas=replicas)


def test_largest_honest_server_has_room_and_time() -> None:
    """IN-43. Goal: the bounds on reports hinder no server of the largest supported size. Method: the memory of 1,500
    tablets of seven members, led there, and of tombstones up to the number that is told; the statuses of a minute in
    which all of it is told to a new leader, twice, and then every tablet changes with each heartbeat; heartbeats each
    20 ms."""
    tablets, told = limits.TABLETS_PER_SERVER_MAX, limits.REPLICAS_REPORTED_MAX
    most = tablets * report_bytes(reported_replica_from_pb(status("1" * 32, MEMBERS[0])))
    most += (told - tablets) * report_bytes(reported_replica_from_pb(status("1" * 32, MEMBERS[0], deleted=True)))
    assert most < limits.REPORT_MEMORY_BYTES_MAX
    for first, each, pause_ms in ((told, tablets + 20, 500), (10, 10, 20)):
        rate, now_us = StatusRate(), 10_000_000
        for statuses in (first, 0, first, *[each] * (60_000 // pause_ms)):
            rate.take(statuses, now_us)
            now_us += pause_ms * 1000


def test_server_that_reports_too_fast_is_refused_and_changes_nothing() -> None:
    """IN-43. Goal: one server takes a bounded share of the leading master's time. Method: heartbeats at one moment,
    until one is refused; it says how long to wait, is not taken in, and is as soon as that time is over."""
    soft, now_us, taken = SoftState(0, lambda tablet: None), 1_000_000, 0
    late = beat(MEMBERS[0])
    late.location = "elsewhere"
    with pytest.raises(Refused, match="sends more than a master takes") as refused:
        while taken <= limits.REPORT_STATUSES_BURST_MAX:
            soft.heartbeat(*heartbeat_from_pb(beat(MEMBERS[0])), now_us)
            taken += limits.REPORT_STATUSES_OF_HEARTBEAT
    assert refused.value.code is Code.OVERLOADED and taken == limits.REPORT_STATUSES_BURST_MAX
    with pytest.raises(Refused) as refused:
        soft.heartbeat(*heartbeat_from_pb(late), now_us)
    assert soft.servers[MEMBERS[0]].last_report.location == ""
    soft.heartbeat(*heartbeat_from_pb(late), now_us + int(str(refused.value.values["wait_ms"])) * 1000)
    assert soft.servers[MEMBERS[0]].last_report.location == "elsewhere"


def test_master_keeps_what_it_decides_by_and_nothing_of_the_message() -> None:
    """IN-43. Goal: texts of a report, and the message that it came in, are not kept. Method: a status with a long error
    and a pending config: it is kept without the text, apart from the message, and of no leader without its peers."""
    soft = SoftState(0, lambda tablet: CONFIG)
    report = beat(MEMBERS[0], status("1", MEMBERS[0], error=60_000))
    report.replicas[0].pending_config.CopyFrom(config_to_pb(CONFIG))
    soft.heartbeat(*heartbeat_from_pb(report), 0)
    found = soft.servers[MEMBERS[0]].replicas["1"]
    report.replicas[0].term = 99
    assert found.term == 9 and len(found.peers) == 7 and found.pending and found.config == CONFIG
    assert not any(isinstance(getattr(found, f.name), Message) for f in fields(found)) and report_bytes(found) < 20_000
    report.replicas[0].role = "FOLLOWER"
    soft.heartbeat(*heartbeat_from_pb(report), 0)
    assert not soft.servers[MEMBERS[0]].replicas["1"].peers


STEPS = st.lists(
    st.tuples(
        st.sampled_from([*MEMBERS[:2], *STRANGERS]),
        st.lists(st.tuples(st.integers(0, 9), st.integers(5, 7), st.booleans()), max_size=6),
        st.booleans(),
    ),
    max_size=25,
)


def parts(uuid: str) -> list[tuple[str, list[tuple[int, int, bool]], bool]]:
    """A server that tells of more large replicas than it has room for, a part at a time."""
    first, more = ([(tablet, 7, False) for tablet in tablets] for tablets in ((0, 1, 2, 3), (4, 5, 6)))
    return [(uuid, first, True), (uuid, more, False)]


@pytest.mark.deep
@settings(max_examples=40)
@given(STEPS)
@example(parts(MEMBERS[0]))
@example(parts(STRANGERS[0]))
def test_memory_for_reports_is_bounded_and_members_have_theirs(
    steps: Sequence[tuple[str, list[tuple[int, int, bool]], bool]],
) -> None:
    """IN-43. Goal: the memory for reports is bounded, and reports of servers that are no members leave room for those
    of members. Method: members and strangers tell of tablets, in any order, with small bounds; after each report the
    room counts what is kept, a member's replica is kept if its own server has room, and forgotten servers leave
    nothing."""
    one = report_bytes(reported_replica_from_pb(status("1", MEMBERS[0])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "REPORT_MEMORY_BYTES_MAX", 3 * one)
        patch.setattr(limits, "REPORT_STRANGERS_MEMORY_BYTES_MAX", 2 * one)
        soft = SoftState(0, lambda tablet: CONFIG if tablet < "7" else None)
        for uuid, told, full in steps:
            once = {str(t): (m, d) for t, m, d in told}
            replicas = [status(t, uuid, members=m, deleted=d) for t, (m, d) in once.items()]
            soft.heartbeat(*heartbeat_from_pb(beat(uuid, *replicas, full=full)), 0)
            sums = {u: sum(map(report_bytes, s.replicas.values())) for u, s in soft.servers.items()}
            assert all(soft.room.of(u) == size <= 3 * one for u, size in sums.items())
            foreign = sum(
                report_bytes(r)
                for u, s in soft.servers.items()
                for t, r in s.replicas.items()
                if u in STRANGERS or t >= "7"
            )
            assert soft.room.of_strangers == foreign <= 2 * one
            mine = [r for r in replicas if r.tablet_id < "7"]
            if uuid in MEMBERS and full and len(mine) == len(replicas) <= 3:
                assert set(soft.servers[uuid].replicas) == set(once)
        for server in list(soft.servers.values()):
            for tablet in list(server.replicas):
                soft._forget(server, tablet)
        assert soft.room.of_strangers == 0 and not any(map(soft.room.of, soft.servers))
