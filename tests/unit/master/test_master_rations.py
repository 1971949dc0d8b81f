"""Orders and reports of many tablets: bounded in each heartbeat, and all of them in the end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nyala.replica.master.catalog.records import TABLE, TABLET
from nyala.replica.master.heartbeats.full_reports import FullReports
from nyala.replica.master.heartbeats.soft_state import SoftState
from nyala.replica.master.tablets.descriptions import Descriptions
from nyala.replica.rpc import ReportState, checked_request, heartbeat_from_pb, pb
from nyala.replica.rpc import report_state as reports
from nyala.replica.rpc.report_state import full_report, partial_report
from nyala.replica.types import DataState, limits
from tests.harness.catalogs import AppliedCatalog
from tests.harness.reachable import AskedAtOnce, orders_now
from tests.unit.master.test_master_lists import put, wide

SERVER = "a" * 32


@pytest.mark.a_third
@pytest.mark.parametrize("columns", [2, 300])
def test_orders_are_bounded_and_every_one_is_given_in_the_end(columns: int) -> None:
    """IN-80. Goal: the orders in a heartbeat's reply are bounded, and every order is given in the end. Method: a server
    with 400 tablets to create, 80 of which it never can, and 160 to delete; it carries out some of each reply. Every
    tablet is ordered, those that fail again and again, and deletions come beside creations."""
    box = AppliedCatalog()
    table = wide(columns)
    for column in table["schema"]["columns"]:
        column["name"] = column["name"].ljust(columns, "x")
    put(box, {f"{TABLE}wide": table | {"table_id": "wide", "name": "wide"}})
    members = [{"uuid": SERVER, "addresses": ["h:1"]}]
    new = {f"{n:032x}": {"table_id": "wide", "bucket": n, "range_pos": 0, "members": members} for n in range(400)}
    put(box, {TABLET + t: record for t, record in new.items()})
    old = {f"{n:032x}" for n in range(5_000, 5_160)}
    put(
        box,
        {
            TABLET + t: {"table_id": "gone", "bucket": 0, "range_pos": 0, "dropped_us": 1, "members": members}
            for t in old
        },
    )
    asked = AskedAtOnce(box.known)
    never = set(sorted(new)[:80])
    soft, rng, known = SoftState(0, box.known), random.Random(3), Descriptions()
    here = set(old)
    given: dict[str, int] = {}
    for beat in range(400):
        replicas = [pb.ReplicaStatus(tablet_id=t, data_state=DataState.READY) for t in sorted(here)]
        request = pb.HeartbeatRequest(server_uuid=SERVER, full_report=True, replicas=replicas)
        soft.heartbeat(*heartbeat_from_pb(request), beat)
        orders = orders_now(box.catalog, soft, asked, SERVER, beat, 0, known)
        assert sum(o.ByteSize() for o in orders) <= limits.ORDERS_BYTES_MAX
        kinds = ["create" if o.HasField("create") else "delete" for o in orders]
        assert kinds == sorted(kinds), "deletions come last"
        if here & old:
            assert "delete" in kinds
        for order in rng.sample(orders, min(len(orders), 32)):
            made, deleted = order.create.tablet_id, order.delete.tablet_id
            given[made or deleted] = given.get(made or deleted, 0) + 1
            here.discard(deleted)
            if made and made not in never:
                here.add(made)
        if here == set(new) - never and len(given) == 560:
            break
    assert here == set(new) - never
    assert set(given) == set(new) | old


def status_of(sizes: dict[str, int]) -> Any:
    return lambda tablet_id: pb.ReplicaStatus(
        tablet_id=tablet_id, error="x" * sizes[tablet_id], rows=sizes[tablet_id], data_state=DataState.READY
    )


@pytest.mark.a_third
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("slices", [True, False], ids=["in slices", "an older master"])
def test_reports_in_slices_end_in_what_is_there(seed: int, slices: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-80. Goal: a server with more tablets than fit in one heartbeat is known as it is, as soon as nothing changes.
    Method: tablets come, go and change at random; heartbeats and answers are lost; masters forget everything; then
    all is quiet, and the master knows exactly what is there. Each heartbeat is bounded, unless the master takes no
    slices. While slices of a first report are missing, nothing is taken for gone."""
    rng = random.Random(seed)
    monkeypatch.setattr(limits, "REPORT_BYTES_MAX", 400)
    monkeypatch.setattr(reports, "REFRESH_PER_BEAT", 2)
    sizes = {f"{n:02}": rng.randrange(60) for n in range(12)}
    changed: set[str] = set()
    complete = False
    soft, state = SoftState(0, lambda tablet_id: None), ReportState()

    def beat(number: int, *, lost: bool = False, unheard: bool = False) -> None:
        report = state.next(sorted(sizes), changed, status_of(dict(sizes)))
        assert not slices or len(report.statuses) <= 1 or sum(s.ByteSize() + 8 for s in report.statuses) <= 400
        if lost:
            state.not_taken()
            return
        request = pb.HeartbeatRequest(
            server_uuid=SERVER, process=1, sequence=number, full_report=report.full, replicas=report.statuses,
            slice_after=report.after, slice_until=report.until,
        )  # fmt: skip
        full = soft.heartbeat(*heartbeat_from_pb(request), number)
        nonlocal complete
        complete = complete or (report.full and not report.until)
        assert complete or not soft.servers[SERVER].reported, "not every slice of the first report has come"
        until = soft.servers[SERVER].heard_until
        assert soft.servers[SERVER].reported is not full
        if unheard:
            state.not_taken()
        else:
            state.taken(pb.HeartbeatReply(need_full_report=full, takes_slices=slices, heard_until=until))

    for number in range(1, 120):
        for _ in range(rng.randrange(3)):
            tablet = f"{rng.randrange(40):02}"
            if tablet in sizes and rng.random() < 0.4:
                del sizes[tablet]
            else:
                sizes[tablet] = rng.randrange(60)
            changed.add(tablet)
        if rng.random() < 0.03:
            soft.reset(number)
            complete = False
        beat(number, lost=rng.random() < 0.1, unheard=rng.random() < 0.1)
    for number in range(120, 180):
        beat(number)
    known = {t: r.rows for t, r in soft.servers[SERVER].replicas.items()}
    assert (known, changed) == (sizes, set())
    changed.add("never was here")  # only a full report tells that
    for number in range(180, 200):
        beat(number)
        assert soft.servers[SERVER].replicas.keys() == sizes.keys(), "what another slice covers is not gone"


def tombstone_of(tablet_id: str) -> Any:
    """The status of a tablet that was deleted."""
    return pb.ReplicaStatus(tablet_id=tablet_id, table_id="t1", uuid=SERVER, data_state=DataState.DELETED, term=1)


@pytest.mark.a_third
@pytest.mark.parametrize("count", [limits.REPORT_REPLICAS_MAX, limits.REPORT_REPLICAS_MAX + 1, 15_000])
def test_report_of_many_small_statuses_is_taken_by_a_master_slice_by_slice(count: int) -> None:
    """IN-80, IN-60. Goal: a server that remembers many deleted tablets counts as alive after a master's failover.
    Method: small statuses, as many as one heartbeat may have, one more, and half as many again: each slice of a full
    report, and each report of what has changed, passes the checks of a master's server, and all are told."""
    assert limits.REPEATED["HeartbeatRequest.replicas"] == limits.REPORT_REPLICAS_MAX
    tablets = [f"{n:032x}" for n in range(count)]
    told: list[str] = []
    after, sent = "", 0
    while after or not sent:
        report = full_report(tablets, set(), tombstone_of, after=after, slices=True)
        told += taken(report)
        after, sent = report.until, sent + 1
    assert told == tablets and sent == -(-count // reports.SLICE_REPLICAS_MAX)
    changed = set(tablets)
    while changed:
        report = partial_report(changed, [], tombstone_of)
        assert {*taken(report)} == report.told
        changed -= report.told


def taken(report: Any) -> list[str]:
    """The tablets that a master's server reads in it; Refused if it takes it not."""
    request = pb.HeartbeatRequest(
        server_uuid=SERVER, full_report=report.full, replicas=report.statuses,
        slice_after=report.after, slice_until=report.until,
    )  # fmt: skip
    found = checked_request("MasterService.Heartbeat", request.SerializeToString(), pb.HeartbeatRequest)
    return [replica.tablet_id for replica in found.replicas]


class PlayedMaster:
    """A server's reports to a master that keeps them, and counts the replicas that it is sent."""

    def __init__(self, tablets: int) -> None:
        self.tablets = [f"{n:04}" for n in range(tablets)]
        self.rows = dict.fromkeys(self.tablets, 0)
        self.changed: set[str] = set()
        self.soft, self.state = SoftState(0, lambda tablet_id: None), ReportState()
        self.beats = self.looked_at = 0

    def beat(self, *, late: bool = False, lost: bool = False) -> bool:
        """A heartbeat; `late`: its reply comes too late; `lost`: it never comes to the master. Whether the next is due
        at once."""
        report = self.state.next(self.tablets, self.changed, self._status)
        self.beats += 1
        if lost:
            self.state.not_taken()
            return False
        self.looked_at += len(report.statuses)
        request = pb.HeartbeatRequest(
            server_uuid=SERVER, process=1, sequence=self.beats, full_report=report.full, replicas=report.statuses,
            slice_after=report.after, slice_until=report.until,
        )  # fmt: skip
        needs = self.soft.heartbeat(*heartbeat_from_pb(request), self.beats)
        if late:
            self.state.not_taken()
            return False
        waits = needs and not self.soft.full_reports.may_send(SERVER, self.beats)
        until = self.soft.servers[SERVER].heard_until
        return self.state.taken(
            pb.HeartbeatReply(
                need_full_report=needs, takes_slices=True, heard_until=until, full_report_waits=waits
            )
        )  # fmt: skip

    def _status(self, tablet_id: str) -> pb.ReplicaStatus:
        return pb.ReplicaStatus(tablet_id=tablet_id, rows=self.rows[tablet_id], data_state=DataState.READY)


@pytest.mark.parametrize("late", range(1, 10))
@pytest.mark.parametrize("lost", [False, True], ids=["reply is late", "heartbeat is lost"])
def test_late_reply_repeats_a_slice_at_most_and_no_whole_report(
    late: int, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-80. Goal: a reply that comes too late costs the master one slice more at most, and loses no change; nor does a
    lost heartbeat. Method: 40 replicas in slices of 10; one of the replies is late, in the slices and after them, and a
    replica changes with each heartbeat. The master looks at 40 replicas, at one slice that the late reply may repeat,
    and at what has changed."""
    monkeypatch.setattr(reports, "SLICE_REPLICAS_MAX", 10)
    monkeypatch.setattr(reports, "REFRESH_PER_BEAT", 0)
    played = PlayedMaster(40)
    for beat in range(1, 20):
        played.beat(late=beat == late and not lost, lost=beat == late and lost)
        if beat < 10:
            played.rows[f"{3 * beat:04}"] = beat
            played.changed.add(f"{3 * beat:04}")
    known = {t: r.rows for t, r in played.soft.servers[SERVER].replicas.items()}
    assert (known, played.changed) == (played.rows, set())
    assert played.looked_at <= 40 + 10 + 9, "a late reply repeats a slice, and each of nine changes is told once"


def test_slices_follow_each_other_at_once_and_a_waiting_server_sends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-80. Goal: a full report ends soon, and a server that has to wait for others is heard without it. Method: a
    master whose places are taken: the server's heartbeats count and have no replicas. A place is free: the slices
    follow at once, until the last."""
    monkeypatch.setattr(reports, "SLICE_REPLICAS_MAX", 10)
    played = PlayedMaster(40)
    others = [f"{n:032x}" for n in range(limits.FULL_REPORTS_MAX)]
    assert all(played.soft.full_reports.may_send(uuid, 0) for uuid in others)
    assert [played.beat() for _ in range(3)] == [False] * 3 and played.looked_at == 0
    server = played.soft.servers[SERVER]
    assert server.last_heard_us == 3 and not server.reported
    played.soft.full_reports.end(others[0])
    assert [played.beat() for _ in range(5)] == [True, True, True, True, False]
    assert server.reported and server.replicas.keys() == played.rows.keys()


@pytest.mark.parametrize("seed", range(10))
def test_full_reports_under_way_are_bounded_and_every_server_comes_to_its_turn(seed: int) -> None:
    """IN-80. Goal: a master takes the full reports of a bounded number of servers at a time, of all in the end, and
    newcomers do not keep others out. Method: 100 servers ask in random order each second, some fall silent with their
    place or in the queue, and one starts again each time that its report is complete. All others have reported after a
    bounded number of requests."""
    rng, places, now_us = random.Random(seed), FullReports(), 0
    uuids = [f"{n:032x}" for n in range(100)]
    silent = set(rng.sample(uuids[1:], 20))
    slices = {uuid: rng.randrange(1, 4) for uuid in uuids}
    left = set(uuids) - silent
    for uuid in [*silent, *uuids]:
        places.may_send(uuid, now_us)
    for _ in range(60):
        now_us += 1_000_000
        for uuid in rng.sample(sorted(left | {uuids[0]}), len(left | {uuids[0]})):
            if places.may_send(uuid, now_us):
                slices[uuid] -= 1
                if not slices[uuid]:
                    places.end(uuid)
                    slices[uuid] = 1
                    left.discard(uuid)
            assert places.under_way <= limits.FULL_REPORTS_MAX
    assert not left


def test_first_request_gets_no_place_while_others_wait() -> None:
    """IN-80. Goal: servers that start again and again do not keep a waiting one out. Method: all places are taken and a
    server waits; a place becomes free, and a new server asks before the waiting one."""
    places = FullReports()
    first = [f"{n:032x}" for n in range(limits.FULL_REPORTS_MAX + 1)]
    assert [places.may_send(uuid, 0) for uuid in first] == [True] * limits.FULL_REPORTS_MAX + [False]
    places.end(first[0])
    assert not places.may_send("f" * 32, 1) and places.may_send(first[-1], 2)


def test_complete_report_gives_up_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-80. Goal: the next server comes to its turn as soon as a full report is complete. Method: a server reports in
    four slices; it has a place until the last one has come, and none then."""
    monkeypatch.setattr(reports, "SLICE_REPLICAS_MAX", 10)
    played, under_way = PlayedMaster(40), []
    for _ in range(6):
        played.beat()
        under_way.append(played.soft.full_reports.under_way)
    assert under_way == [1, 1, 1, 1, 0, 0]
