"""Which parts of a report the masters believe: those about a tablet's config, about its leader, and about the reporting
server."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nyala.replica.master.heartbeats.belief import believed, reported_config
from nyala.replica.master.heartbeats.soft_state import DOUBT_US, LEADER_SILENT_US
from nyala.replica.master.requests.infos import server_infos
from nyala.replica.master.tablets.view import health_of
from nyala.replica.rpc import config_to_pb, heartbeat_from_pb, pb, reported_replica_from_pb
from nyala.replica.types import Address, Code, DataState, Member, OpId, RaftConfig, Refused, limits
from tests.harness.leading_master import Masters, S

A, B, C, D, E, L = S
FAR = 1 << 40


def config(index: int, names: str, term: int = 1) -> RaftConfig:
    """Voters by their letter, committed at `term`.`index`; a capital letter is a member without a vote."""
    members = (Member(n.lower() * 32, (Address("h", 1),), votes=n.islower()) for n in names)
    return RaftConfig(OpId(term, index), tuple(members))


KNOWN = config(5, "abc")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, KNOWN),
        ({"a": config(4, "abcd")}, KNOWN),
        ({"a": config(7, "abcd")}, config(7, "abcd")),
        ({"a": config(7, "abcd"), "b": config(6, "abcD")}, config(7, "abcd")),
        ({"a": config(7, "abcD"), "d": config(9, "abcd")}, config(9, "abcd")),
        ({"d": config(9, "abcd")}, KNOWN),
        ({"d": config(9, "d")}, KNOWN),
        ({"a": config(7, "ade"), "d": config(9, "def"), "f": config(11, "f")}, config(11, "f")),
        ({"a": config(7, "bcd"), "d": config(9, "def")}, config(9, "def")),
        ({"a": config(7, "abc"), "d": config(9, "def")}, config(7, "abc")),
        ({"a": config(3, "a", term=1 << 32), "b": config(99, "abc")}, config(3, "a", term=1 << 32)),
    ],
)
def test_only_a_member_tells_of_a_later_config(told: dict[str, RaftConfig], expected: RaftConfig) -> None:
    """IN-40. Goal: the masters believe a later config only from a server that is a member of the known config, or that
    a member has reported as added. Method: reports of members and of other servers; of a new member before and after a
    member reported it; chains of such reports."""
    assert believed(KNOWN, {n * 32: c for n, c in told.items()}) == expected


def status(uuid: str, tablet: str, committed: RaftConfig | None, **fields: Any) -> pb.ReplicaStatus:
    found = pb.ReplicaStatus(**{"tablet_id": tablet, "uuid": uuid, "data_state": DataState.READY, "term": 1} | fields)
    if committed is not None:
        found.committed_config.CopyFrom(config_to_pb(committed))
    return found


def test_impossible_configs_tell_nothing() -> None:
    """IN-40. Goal: the masters ignore a config that no replica can have. Method: configs committed in a term that the
    replica has not entered, before the first entry, without voters, with a member twice, with too many members, with
    none."""
    assert reported_config(reported_replica_from_pb(status(A, "t", KNOWN))) == KNOWN
    many = RaftConfig(OpId(1, 1), tuple(Member(f"{n:032x}") for n in range(limits.CONFIG_MEMBERS_MAX + 1)))
    twice = status(A, "t", KNOWN)
    twice.committed_config.members.add().CopyFrom(twice.committed_config.members[0])
    impossible = [
        status(A, "t", config(5, "abc", term=2)),
        status(A, "t", config(-1, "abc")),
        status(A, "t", config(1, "abc", term=-1)),
        status(A, "t", config(5, "AB")),
        status(A, "t", many),
        status(A, "t", None),
        twice,
    ]
    assert [reported_config(reported_replica_from_pb(s)) for s in impossible] == [None] * len(impossible)


BEAT = {"server_uuid": A, "full_report": True}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"memory_bytes": -1}, "memory_bytes"),
        ({"disk_bytes_free": -1}, "disk_bytes_free"),
        ({"tablets_max": -1}, "tablets_max"),
        ({"sequence": -1}, "sequence"),
        ({"open_files": pb.ResourceUse(used=-1)}, "open_files"),
        ({"memory_maps": pb.ResourceUse(limit=-1)}, "memory_maps"),
        ({"loop_lag_ms_max": math.nan}, "loop_lag_ms_max"),
        ({"gil_hold_ms_max": math.inf}, "gil_hold_ms_max"),
        ({"replicas": [status(B, "t", KNOWN)]}, "its own replicas"),
        ({"replicas": [status(A, "t", KNOWN, error="x" * (limits.REPLICA_STATUS_BYTES_MAX + 1))]}, "too long"),
        ({"replicas": [pb.ReplicaStatus()] * (limits.REPLICAS_REPORTED_MAX + 1)}, "more replicas"),
        ({"copies_failing": [pb.FailingCopy(error="x" * (limits.REPLICA_STATUS_BYTES_MAX + 1))]}, "too long"),
        ({"copies_failing": [pb.FailingCopy()] * (limits.REPLICAS_REPORTED_MAX + 1)}, "more replicas"),
        *(
            ({"replicas": [status(A, "t", KNOWN, **{name: -1})]}, name)
            for name in (
                "data_state", "term", "commit_index", "applied_index", "rows", "bytes_on_disk", "memory_bytes",
                "wal_bytes", "flush_index", "commit_term", "write_rows_per_s", "read_rows_per_s",
            )
        ),
    ],
)  # fmt: skip
def test_impossible_reports_are_refused_whole(fields: dict[str, Any], says: str) -> None:
    """IN-40. Goal: a report that no server of this system sends is refused as a whole. Method: each field out of its
    range."""
    with pytest.raises(Refused, match=says) as caught:
        heartbeat_from_pb(pb.HeartbeatRequest(**BEAT | fields))[1](lambda tablet_id, wire: None)
    assert caught.value.code is Code.INVALID_ARGUMENT


class Reports(Masters):
    """A tablet on a, b and c, which a leads; heartbeats with one replica each."""

    def __init__(self) -> None:
        super().__init__(4)
        for uuid in (E, L):
            self.state.soft.admit(uuid, (Address("liar", 1),), self.clock.now_us)

    def say(self, uuid: str, committed: RaftConfig | None, **fields: Any) -> None:
        replicas = [status(uuid, self.tablet, committed, **fields)]
        beat = pb.HeartbeatRequest(server_uuid=uuid, full_report=True, replicas=replicas)
        beat.addresses.add(host="h", port=1)
        self.state.soft.heartbeat(*heartbeat_from_pb(beat), self.clock.now_us)

    @property
    def seen(self) -> tuple[str, str, int]:
        """Voters by letter, leader by letter, its term."""
        known = self.state.soft.tablets[self.tablet]
        assert known.config is not None
        return "".join(u[0] for u in known.config.voters), known.leader_uuid[:1], known.leader_term

    def orders(self) -> list[tuple[str, str]]:
        """Return the orders to servers other than the stranger."""
        return [
            (u[0], kind)
            for u, server in self.state.soft.servers.items()
            for kind in ("delete", "renew")
            if u != L and server.reported and any(o.HasField(kind) for o in self.said(u))
        ]


def test_server_that_is_no_member_changes_nothing_of_a_tablet() -> None:
    """IN-40, IN-41. Goal: one forged heartbeat cannot delete a table. Method: a server that is no member claims to lead
    in a far term, with a config of itself alone, of itself and the members, and with the true one. The masters believe,
    decide and order nothing. After a while they show the claim to operators, and remove it when the server withdraws
    it."""
    m = Reports()
    before = m.seen
    for claimed in (config(FAR, "f"), config(FAR, "abcf"), config(FAR, "bf"), KNOWN, None):
        m.say(L, claimed, role="LEADER", term=FAR, leader_uuid=L)
        for uuid in S[:4]:
            m.report(only=uuid)
        assert m.seen == before == ("abc", "a", 1)
        assert m.orders() == [] and m.decided() == []
    m.say(L, config(FAR, "f"), role="LEADER", term=FAR)
    assert m.state.soft.doubts(L, m.clock.now_us) == []
    m.clock.now_us += DOUBT_US
    (told,) = m.state.soft.doubts(L, m.clock.now_us)
    assert f"config 1.{FAR}" in told and m.tablet in told
    (info,) = [i for i in m.infos() if i.uuid == L]
    assert list(info.doubts) == [told]
    m.say(L, None)
    assert m.state.soft.doubts(L, m.clock.now_us) == []


def test_leader_is_a_voter_by_its_own_word_and_in_no_lower_term() -> None:
    """IN-40. Goal: the masters take a server for the leader only if it is a voter of the config that they believe,
    reports so itself, and no voter has reported a higher term. Method: a member without a vote, a server that a member
    names but that is no member, a voter of a lower term, then a voter of a higher one."""
    m = Reports()
    m.say(A, config(7, "abcD"), role="LEADER", term=3)
    m.say(D, config(7, "abcD"), role="LEADER", term=9)
    assert m.seen == ("abc", "a", 3)
    m.say(B, config(7, "abcD"), role="LEADER", term=2)
    assert m.seen == ("abc", "a", 3)
    m.say(A, config(7, "abcD"), term=4)
    m.say(B, config(7, "abcD"), term=4, leader_uuid=L)
    assert m.seen == ("abc", "", 4)
    m.say(D, config(9, "abcd"), role="LEADER", term=5)
    assert m.seen == ("abcd", "d", 5), "a member may tell of the config in which it votes"
    assert m.decided() == ["remove d"] or m.decided() == []


def test_lie_under_a_members_uuid_ends_with_the_members_next_report() -> None:
    """IN-40, IN-41. Goal: a report under a stolen uuid is believed only until the true member's next report, and
    nothing is deleted meanwhile. Method: under b's uuid, a config of a stranger alone, in a far term; then b's own
    heartbeat, and a's."""
    m = Reports()
    m.say(B, config(FAR, "f"), role="LEADER", term=FAR)
    m.say(L, config(FAR, "f"), role="LEADER", term=FAR)
    assert m.seen == ("f", "f", FAR) and m.orders() == []
    m.report()
    assert m.seen == ("abc", "a", 1) and m.orders() == []


LIE = config(FAR, "f")


@pytest.mark.parametrize(
    ("moved", "reports", "seen"),
    [
        pytest.param("b", [(B, LIE, "LEADER", FAR), (L, LIE, "LEADER", FAR)], ("abc", "a", 1), id="another config"),
        pytest.param("b", [(B, KNOWN, "LEADER", FAR)], ("abc", "a", 1), id="that it leads"),
        pytest.param("b", [(A, KNOWN, "", 2), (B, KNOWN, C, FAR), (A, KNOWN, "LEADER", 3)], ("abc", "a", 3), id="hint"),
        pytest.param("a", [(A, KNOWN, "LEADER", FAR), (C, KNOWN, "LEADER", 2)], ("abc", "c", 2), id="led before"),
        pytest.param(
            "a",
            [(A, KNOWN, "LEADER", FAR), (A, KNOWN, "", FAR), (C, KNOWN, "LEADER", 2)],
            ("abc", "c", 2),
            id="led once",
        ),
        pytest.param("b", [(None, None, "", 0), (B, KNOWN, "LEADER", 2)], ("abc", "b", 2), id="others are silent"),
        pytest.param("b", [(A, KNOWN, "", 2), (B, KNOWN, "LEADER", 2)], ("abc", "b", 2), id="elected"),
        pytest.param("ab", [(B, KNOWN, "LEADER", 2)], ("abc", "b", 2), id="two moved"),
        pytest.param("abc", [(B, config(7, "abcd"), "LEADER", 2)], ("abcd", "b", 2), id="all moved"),
        pytest.param(
            "b", [(A, config(7, "abcd"), "", 2), (B, config(7, "abcd"), "LEADER", 2)], ("abcd", "b", 2), id="two tell"
        ),
    ],
)
def test_server_that_is_not_proven_tells_of_a_tablet_only_what_no_proven_member_contradicts(
    moved: str, reports: list[tuple[str | None, RaftConfig, str, int]], seen: tuple[str, str, int]
) -> None:
    """IN-40. Goal: a process that took the uuid of a server that is down gives a tablet no config and no leader while
    its other members are heard; servers that truly moved are heard. Method: members of which some are at other
    addresses than the catalog has; reports of their config, role (or the leader that they follow) and term; None: the
    others are silent for a while."""
    m = Reports()
    for letter in moved:
        m.state.soft.admit(letter * 32, (Address("elsewhere", 1),), m.clock.now_us, 6, instead_of=(Address("h", 1),))
    for uuid, told, role, term in reports:
        if uuid is None:
            m.clock.now_us += LEADER_SILENT_US + 1
            continue
        leads = role == "LEADER"
        m.say(uuid, told, role="LEADER" if leads else "FOLLOWER", term=term, leader_uuid="" if leads else role)
    assert m.seen == seen and m.orders() == []


def test_server_that_is_not_proven_does_not_make_its_replicas_failed_or_move_the_records() -> None:
    """IN-40, IN-43. Goal: such a server cannot have replicas replaced, and its address goes into no config that the
    masters write. Method: it reports that its replica and copies into it failed; then its address is proven."""
    m = Reports()
    at, elsewhere = Address("h", 1), Address("elsewhere", 1)
    m.state.soft.admit(B, (elsewhere,), m.clock.now_us, 6, instead_of=(at,))
    failing = [pb.FailingCopy(tablet_id=m.tablet, failures=limits.COPY_FAILURES_MAX)]
    beat = pb.HeartbeatRequest(server_uuid=B, process=6, sequence=1, full_report=True, copies_failing=failing)
    beat.addresses.add(host=elsewhere.host, port=elsewhere.port)
    beat.replicas.append(status(B, m.tablet, KNOWN, phase="FAILED"))
    for proven in (False, True):
        beat.sequence += 1
        m.state.soft.heartbeat(*heartbeat_from_pb(beat), m.clock.now_us)
        assert health_of(m.state.soft, m.tablet, B, m.state.options, m.clock.now_us).failed is proven
        (view,) = [s for s in m.state.servers() if s.uuid == B]
        assert view.member.addresses == m.state.places_of(B) == (elsewhere if proven else at,)
        assert m.state.soft.places([B])[0].addresses == (elsewhere,), "others look for it where it answers"
        m.state.soft.prove_place(B)


def test_new_member_is_heard_as_soon_as_an_old_one_tells_of_it() -> None:
    """IN-40. Goal: the masters follow a true change in whatever order the reports arrive. Method: the new member, which
    leads already, reports before any old member does, and then is silent; the masters take it for the leader as soon as
    an old member reports the change."""
    m = Reports()
    m.say(D, config(9, "bcd"), role="LEADER", term=4)
    assert m.seen == ("abc", "a", 1)
    m.say(B, config(8, "abcd"), term=4)
    assert m.seen == ("bcd", "d", 4)


def test_disk_of_a_server_is_that_of_its_replicas_blocks_and_logs() -> None:
    """IN-71. Goal: `server list` shows what is on the disk, though nothing is flushed yet. Method: a replica with
    blocks and a log, and one with a log only."""
    m = Reports()
    m.say(A, KNOWN, bytes_on_disk=5, wal_bytes=103 << 20)
    m.say(B, KNOWN, wal_bytes=7)
    shown = {i.uuid: i.bytes_on_disk for i in server_infos(m.state, [A, B])}
    assert (shown[A], shown[B]) == (5 + (103 << 20), 7)


def test_open_files_and_maps_of_a_server_are_shown_as_it_says() -> None:
    """IN-32. Goal: `server list` and the check show the numbers of open files and memory maps that a server reports.
    Method: a heartbeat with both numbers, and one of an older build, which has none."""
    m = Reports()
    files, maps = pb.ResourceUse(used=30, limit=1000), pb.ResourceUse(used=60_000, limit=65_530)
    m.state.soft.heartbeat(
        *heartbeat_from_pb(pb.HeartbeatRequest(server_uuid=A, open_files=files, memory_maps=maps)), m.clock.now_us
    )
    m.state.soft.heartbeat(*heartbeat_from_pb(pb.HeartbeatRequest(server_uuid=B)), m.clock.now_us)
    told, silent = server_infos(m.state, [A, B])
    assert (told.open_files, told.memory_maps) == (files, maps)
    assert (silent.open_files, silent.memory_maps) == (pb.ResourceUse(), pb.ResourceUse())


def test_equal_configs_of_a_tablet_are_converted_once() -> None:
    """IN-80. Goal: the reports of a tablet share one config, so a new leader of the masters converts one for all its
    replicas. Method: four servers report it, and the first one again; then one of them reports another one."""
    m = Reports()
    later = config(9, "abcd")
    for uuid in (A, B, C, D, A):
        m.say(uuid, later)
    replicas = [m.state.soft.replica(uuid, m.tablet) for uuid in (A, B, C, D)]
    assert all(r is not None and r.config == later for r in replicas)
    assert len({id(r.config) for r in replicas if r}) == 1
    m.say(B, config(10, "abc"))
    assert [r.config for u in (A, B) if (r := m.state.soft.replica(u, m.tablet))] == [later, config(10, "abc")]
