"""The findings that are errors to `nyala cluster check`, and so its exit status, and those that are only warnings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.requests.confirming import confirm_config
from nyala.replica.master.requests.infos import tablet_infos
from nyala.replica.master.tablets.proof import prove
from nyala.replica.rows import PartitionSpec
from nyala.replica.rpc import config_from_pb, config_to_pb, heartbeat_from_pb, pb, reported_replica_from_pb
from nyala.replica.tools import ClusterView, MasterView, ReplicaView, Severity, as_json, judge
from nyala.replica.tools.check import LAG_ENTRIES_MAX
from nyala.replica.types import Address, DataState, Member, OpId, RaftConfig
from tests.harness.leading_master import Masters, S
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
                phase="RUNNING",
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
    """Goal: a healthy cluster has no finding. Method: three replicas of three, three masters that serve."""
    masters = [MasterView(u, pb.MasterStatusReply(uuid=u)) for u in "xyz"]
    assert told(view("abc", masters=masters)) == []


def test_check_missing_replica_of_a_server_that_nobody_lists_is_an_error() -> None:
    """Goal: missing replicas are an error, even if the masters do not list their server. Method: c is dead and the
    master was restarted."""
    (finding,) = told(view("ab", listed="ab"))
    assert finding == (Severity.ERROR, "tablet 1 of t: voters without a replica: c")


def test_check_fewer_voters_than_wanted_is_an_error() -> None:
    """Goal: fewer voters than wanted are an error, not a warning. Method: a config of two where three are wanted."""
    (finding,) = told(view("ab", voters="ab"))
    assert finding == (Severity.ERROR, "tablet 1 of t: 2 voters of 3 wanted")


def test_check_replica_that_nobody_needs_is_a_warning() -> None:
    """Goal: a replica outside the config is a warning. Method: a replica outside the config."""
    (finding,) = told(view("abcd", listed="abcd"))
    assert finding == (Severity.WARNING, "tablet 1 of t: replicas outside the config: d")


def test_check_each_master_that_does_not_serve_is_an_error() -> None:
    """IN-21. Goal: the check asks each master, and each one that does not serve is an error. Method: sound, silent,
    failed, another one at the address, and one that goes on though it could not start again."""
    hurt = pb.ReplicaStatus(phase="RUNNING", error="a file of its log is missing")
    failed = pb.ReplicaStatus(phase="FAILED", error="its log is damaged")
    masters = [
        MasterView("v", pb.MasterStatusReply(uuid="v")),
        MasterView("w", None, "refused"),
        MasterView("x", pb.MasterStatusReply(uuid="x", replica=failed)),
        MasterView("y", pb.MasterStatusReply(uuid="z")),
        MasterView("z", pb.MasterStatusReply(uuid="z", replica=hurt)),
    ]
    assert told(view("abc", masters=masters)) == [
        (Severity.ERROR, "master w: does not answer: refused"),
        (Severity.ERROR, "master x: its catalog FAILED: its log is damaged"),
        (Severity.ERROR, "master y: another master, z, answers at its address"),
        (Severity.ERROR, "master z: a file of its log is missing"),
    ]


def test_check_copies_that_fail_again_and_again_are_an_error() -> None:
    """TC-65. Goal: copies that fail repeatedly are an error, which tells why a tablet does not heal. Method: a server
    says two failures of one copy, and three."""
    seen = view("abc")
    failing = (pb.FailingCopy(tablet_id="1", failures=3, error="no room"), pb.FailingCopy(tablet_id="2", failures=2))
    seen.servers[0].copies_failing.extend(failing)
    assert told(seen) == [
        (Severity.ERROR, "server a: copies of tablet 1 into it failed 3 times: no room"),
        (Severity.WARNING, "server a: copies of tablet 2 into it failed 2 times: "),
    ]


def test_check_tells_of_a_server_that_is_near_a_limit_of_its_process() -> None:
    """IN-32. Goal: the check warns, with the remedy, before a server has no file descriptors or memory maps left.
    Method: servers just below four fifths of a limit, at it, and of an older build, which says nothing."""
    seen = view("abc")
    for server, files, maps in ((seen.servers[0], 79, 80), (seen.servers[1], 80, 79)):
        server.open_files.MergeFrom(pb.ResourceUse(used=files, limit=100))
        server.memory_maps.MergeFrom(pb.ResourceUse(used=maps, limit=100))
    of_maps, of_files = (
        "80 of 100 memory maps are used (80%): raise vm.max_map_count or move tablets to other servers; at the limit "
        "no block can be opened",
        "80 of 100 open files are used (80%): raise the hard limit of open files (ulimit -Hn) or move tablets to other "
        "servers; at the limit no log and no block can be opened",
    )
    assert told(seen) == [(Severity.WARNING, f"server a: {of_maps}"), (Severity.WARNING, f"server b: {of_files}")]


def told_of_voters(**states: dict[str, Any]) -> list[tuple[Severity, str]]:
    """Return the findings for a tablet led by a on a, b and c, if the replicas on these servers are so."""
    seen = view("abc")
    for replica in seen.replicas["1"]:
        for name, value in states.get(replica.server_uuid, {}).items():
            setattr(replica.status, name, value)
    return [(severity, what.removeprefix("tablet 1 of t: ")) for severity, what in told(seen)]


COPYING: dict[str, Any] = {"data_state": DataState.COPYING, "phase": "STOPPED"}


@pytest.mark.parametrize(
    ("state", "severity", "says"),
    [
        (COPYING, Severity.ERROR, "takes no part: COPYING, STOPPED"),
        ({"data_state": DataState.COPYING}, Severity.ERROR, "takes no part: COPYING, RUNNING"),
        ({"phase": "STOPPED"}, Severity.ERROR, "takes no part: READY, STOPPED"),
        ({"phase": "BOOTSTRAPPING"}, Severity.ERROR, "takes no part: READY, BOOTSTRAPPING"),
        (
            {"phase": "CONFIGURING"},
            Severity.ERROR,
            "is CONFIGURING: in term 1 it follows nobody and has seen nothing committed",
        ),
        (
            {"phase": "CONFIGURING", "leader_uuid": "a"},
            Severity.WARNING,
            "is CONFIGURING: in term 1 it follows a and has seen nothing committed",
        ),
    ],
)
def test_check_voter_that_does_not_run_is_named(state: dict[str, Any], severity: Severity, says: str) -> None:
    """Goal: the check names a voter without rows, or whose replica is closed; one that is waiting for its leader's
    first message is not named. Method: each state in which the replica on c may be."""
    assert told_of_voters(c=state) == [(severity, f"voter on c {says}")]


def test_check_voters_that_take_no_part_make_no_majority() -> None:
    """Goal: the check reports that most voters cannot vote. Method: two of three are being copied; one is, one FAILED,
    which is told once; one is only about to hear its leader."""
    copying = [(Severity.ERROR, f"voter on {s} takes no part: COPYING, STOPPED") for s in "bc"]
    none = (Severity.ERROR, "no majority: 2 of 3 voters take no part")
    failed = {"phase": "FAILED", "error": "rot"}
    assert told_of_voters(b=COPYING, c=COPYING) == [none, *copying]
    assert told_of_voters(b=failed, c=COPYING) == [(Severity.ERROR, "replica on b FAILED: rot"), none, copying[1]]
    late = told_of_voters(b={"phase": "CONFIGURING", "leader_uuid": "a"}, c=COPYING)
    assert [severity for severity, _ in late] == [Severity.ERROR, Severity.WARNING] and none not in late


@pytest.mark.parametrize(
    ("voters", "lost", "found"),
    [("a", "a", True), ("abc", "ab", True), ("abc", "b", False), ("ab", "", False)],
    ids=["the only one", "two of three", "one of three", "none"],
)
def test_check_tablet_whose_voters_lost_the_ends_of_their_logs_is_told_with_what_to_do(
    voters: str, lost: str, found: bool
) -> None:
    """CN-22. Goal: the check finds a tablet whose voters wait for entries that no replica has, and names the repair.
    Method: a tablet without a leader; some voters have lost the ends of their logs. If those that are left can elect
    one, it is an election under way. Else the check says who lost what, and names the command; a program sees it
    too."""
    seen = view(voters, voters=voters, factor=len(voters))
    for replica in seen.replicas["1"]:
        status = replica.status
        status.role, status.phase, status.last_logged.term, status.last_logged.index = "FOLLOWER", "CONFIGURING", 3, 7
        if replica.server_uuid in lost:
            status.last_logged.index, status.withheld.term, status.withheld.index = 6, 3, 7
    leaderless, *more = told(seen)
    assert leaderless == (Severity.ERROR, f"tablet 1 of t: no leader among {len(voters)} replicas")
    (tablet,) = as_json(seen, [])["tablets"]
    assert {r["server"]: r["withheld"] for r in tablet["replicas"]} == {v: "3.7" if v in lost else None for v in voters}
    assert len(more) == found
    for severity, what in more:
        assert severity is Severity.ERROR and "none of them can be elected" in what
        assert all(f"{u} has lost the end of its log up to 3.7, and does not vote" in what for u in lost)
        assert "stop server a, and" in what and "`nyala unsafe recover --root <directory of a> --tablet 1`" in what


def test_check_voter_that_is_far_behind_is_a_warning_and_the_lag_is_told() -> None:
    """Goal: the check shows which voter lags, and by how many entries, also to programs. Method: what b has applied is
    as much behind as is borne, and one entry more; c is a tombstone and is behind nothing."""
    seen = view("abc", voters="ab", factor=2)
    leader, late, gone = (r.status for r in seen.replicas["1"])
    leader.commit_index = leader.applied_index = 1_000_000
    late.commit_index, late.applied_index = 1_000_000, 1_000_000 - LAG_ENTRIES_MAX
    gone.data_state = DataState.DELETED
    assert told(seen) == []
    late.applied_index -= 1
    assert told(seen) == [(Severity.WARNING, "tablet 1 of t: voter on b is 10,001 entries behind")]
    (tablet,) = as_json(seen, [])["tablets"]
    assert {r["server"]: r["lag"] for r in tablet["replicas"]} == {"a": 0, "b": 10_001, "c": None}


def test_check_names_who_sends_heartbeats_and_does_not_count() -> None:
    """IN-43. Goal: the check shows which senders of heartbeats the masters do not accept, and why, up to a bound.
    Method: one applicant of three is listed."""
    seen = view("abc")
    seen.applicants, seen.applicants_total = [pb.ServerInfo(uuid="d", not_counted="nobody answers at h:1")], 3
    assert told(seen) == [
        (Severity.WARNING, "server d: does not count: nobody answers at h:1"),
        (Severity.WARNING, "servers: 2 more senders of heartbeats do not count"),
    ]


def test_check_tells_what_a_server_says_and_is_not_believed() -> None:
    """IN-40. Goal: the check shows a report that the masters do not believe. Method: one such word of one server."""
    seen = view("abc")
    seen.servers[1].doubts.append("tablet 1: it reports that it leads, but is no voter of config 1.1")
    what = "is not believed: tablet 1: it reports that it leads, but is no voter of config 1.1"
    assert told(seen) == [(Severity.WARNING, f"server b: {what}")]


def unproven(m: Masters, *, teller: str, seconds: int) -> list[tuple[Severity, str]]:
    """Return the findings for the tablet after a server reported for so long, each second, that it is alone by a forced
    config."""
    forced = RaftConfig(OpId(1 << 32, 11), (Member(S[5]), Member(teller)), unsafe=True)
    status = pb.ReplicaStatus(tablet_id=m.tablet, uuid=teller, data_state=DataState.READY, term=1 << 32)
    status.committed_config.CopyFrom(config_to_pb(forced))
    beat = pb.HeartbeatRequest(server_uuid=teller, full_report=True, replicas=[status])
    for _ in range(seconds + 1):
        m.clock.now_us += 1_000_000
        m.state.soft.heartbeat(*heartbeat_from_pb(beat), m.clock.now_us)
    (table_id,) = (t for t, _ in m.box.catalog.items("table/"))
    (info,) = tablet_infos(m.state, table_id)
    seen = view("abc")
    seen.wanted = {"1": info}
    return told(seen)


@pytest.mark.parametrize("teller", [S[0], S[4]])
def test_check_config_that_nobody_can_prove_names_what_an_operator_can_do(teller: str) -> None:
    """IN-42. Goal: the check shows a config that waits for an operator's confirmation, with the command. Method: a
    member, or a server that is none, tells of a forced config: nothing is found for some seconds, as after any change;
    then the config, who tells of it and the command are; an operator confirms it, and nothing is found."""
    m = Masters()
    tablet = m.box.catalog.get(TABLET, m.tablet)
    assert tablet is not None
    m.box.commit(({TABLET + m.tablet: replace(tablet, config=m.config)}, [], "", None))
    m.report()
    assert unproven(m, teller=teller, seconds=9) == []
    ((severity, what),) = unproven(m, teller=teller, seconds=1)
    assert severity is (Severity.WARNING if teller == S[0] else Severity.ERROR)
    assert f"tablet 1 of t: config 4294967296.11 (voters {teller}, {S[5]}), told by {teller} for " in what
    assert f"members of config 1.1 (voters {', '.join(m.config.voters)}), the last one that" in what
    assert ("it is not believed" in what) is (teller == S[4])
    assert what.endswith(f"with `nyala unsafe confirm-config --tablet {m.tablet} --server {teller}`")
    forced = RaftConfig(OpId(1 << 32, 11), (Member(S[5]), Member(teller)), unsafe=True)
    m.box.commit(confirm_config(m.box.catalog, m.tablet, forced, 1))
    for seconds in (-1, 0):  # before anybody reports again, and then
        assert unproven(m, teller=teller, seconds=seconds) == []


@pytest.mark.parametrize("gone", [False, True], ids=["joined", "and the lost one was removed"])
def test_voter_of_two_that_is_lost_while_a_third_joins_is_named_with_the_command_that_ends_it(gone: bool) -> None:
    """IN-42. Goal: if one of two voters is lost while a third one joins, no member can confirm the serving config, and
    the check names the command that does. Method: a and b vote, c joins, b is lost, and perhaps left out since; the
    check names it and the command; what that command does is done with the config that its server holds: nothing is
    found any more, and from then on the two that are left confirm by themselves."""
    m = Masters()
    a, b, c = S[:3]
    m.members = [Member(u, (Address("h", 1),)) for u in (a, b)]
    tablet = m.box.catalog.get(TABLET, m.tablet)
    assert tablet is not None
    m.box.commit(({TABLET + m.tablet: replace(tablet, config=m.config)}, [], "", None))
    m.report()
    known, m.index = m.config, 5
    m.members = [Member(u, (Address(u, 1),)) for u in ((a, c) if gone else (a, b, c))]

    def status(uuid: str) -> pb.ReplicaStatus:
        held = pb.ReplicaStatus(
            tablet_id=m.tablet, uuid=uuid, data_state=DataState.READY, phase="RUNNING", term=1,
            role="LEADER" if uuid == a else "FOLLOWER",
        )  # fmt: skip
        held.committed_config.CopyFrom(config_to_pb(m.config))
        return held

    held = {uuid: status(uuid) for uuid in (a, c)}

    def found(seconds: int) -> list[tuple[Severity, str]]:
        for _ in range(seconds):
            m.clock.now_us += 1_000_000
            for uuid in held:
                beat = pb.HeartbeatRequest(server_uuid=uuid, full_report=True, replicas=[held[uuid]])
                m.state.soft.heartbeat(*heartbeat_from_pb(beat), m.clock.now_us)
        (table_id,) = (t for t, _ in m.box.catalog.items("table/"))
        seen = view("abc")
        seen.wanted = {"1": next(iter(tablet_infos(m.state, table_id)))}
        return told(seen)

    assert found(10) == [] and not prove(
        known, {u: reported_replica_from_pb(s) for u, s in held.items()}, 0
    ).leaves_out(b, known.opid)
    ((severity, what),) = found(1)
    assert severity is Severity.WARNING and "forced" not in what
    assert f"if {b} comes back; only if that server is lost for good" in what
    command = re.search(r"`(nyala unsafe confirm-config --tablet (\w+) --server (\w+))`$", what)
    assert command is not None and command[2] == m.tablet and command[3] in (a, c)
    config = config_from_pb(held[command[3]].committed_config)
    assert m.box.commit(confirm_config(m.box.catalog, command[2], config, 1)) is True
    assert found(20) == []
    m.index, m.members = 6, [Member(u, (Address("h", 1),)) for u in (a, c)]
    later = prove(config, {uuid: reported_replica_from_pb(status(uuid)) for uuid in (a, c)}, 0)
    assert later.config == m.config and later.leaves_out(b, known.opid)
