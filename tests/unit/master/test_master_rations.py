"""Orders and reports of many tablets: bounded in each heartbeat, and all of them in the end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nyala.replica.master.catalog.records import TABLE, TABLET
from nyala.replica.master.heartbeats.soft_state import SoftState
from nyala.replica.master.tablets.descriptions import Descriptions
from nyala.replica.rpc import checked_request, heartbeat_from_pb, pb
from nyala.replica.server.heartbeats import reports
from nyala.replica.server.heartbeats.reports import ReportState, full_report, partial_report
from nyala.replica.types import DataState, limits
from tests.harness.catalogs import AppliedCatalog
from tests.harness.reachable import AskedAtOnce, orders_now
from tests.unit.master.test_master_lists import put, wide

SERVER = "a" * 32


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
    assert told == tablets and sent == 1 + (count > limits.REPORT_REPLICAS_MAX)
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
