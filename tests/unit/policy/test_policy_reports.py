"""A view from single records of the `reports` topic."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.policy import Health, desired_numbers, inputs_of, not_settled, plan_rebalance, view_of_reports
from nyala.replica.types import Address, ReplicaReport, Report

REPLICA = ReplicaReport(
    uuid="a", address="h:1", votes=True, promote=False, replace=False, health="HEALTHY", data_state=3, bytes_on_disk=0,
    rows=0, is_leader=False, location="",
)  # fmt: skip


def record(**fields: Any) -> Report:
    """A report of nothing, with the fields that a view is made of."""
    return Report(catalog_term=1, at_us=1, **fields)


def test_report_of_a_tablet_has_its_members_as_they_are() -> None:
    """Goal: a report tells who votes, who has data, where and how much. Method: a voter, a learner, a witness that
    waits for its data, one whose health has a newer name and whose address is not known; a tablet without a report of
    any."""
    replicas = (
        replace(REPLICA, bytes_on_disk=5),
        replace(REPLICA, uuid="b", votes=False, promote=True, bytes_on_disk=9),
        replace(REPLICA, uuid="c", promote=True, bytes_on_disk=0),
        replace(REPLICA, uuid="d", address="", health="ODD", bytes_on_disk=1),
    )
    (empty, full) = view_of_reports([record(tablet_id="t", replicas=replicas), record(tablet_id="s")], 0).tablets
    assert [(m.votes, m.promote, m.holds_data) for m in full.config.members] == [
        (True, False, True),
        (False, True, True),
        (True, True, False),
        (True, False, True),
    ]
    assert [m.addresses for m in full.config.members][2:] == [(Address("h", 1),), ()]
    assert full.health_of("a") is Health.HEALTHY and full.health_of("d") is Health.UNKNOWN
    assert (full.bytes_on_disk, empty.bytes_on_disk) == (9, 0)


@pytest.mark.parametrize("draining", [["s"], ["r"]])
def test_report_of_a_server_is_seen_with_what_the_job_is_told(draining: list[str]) -> None:
    """Goal: the server that a job is to empty is the one that it empties; a record of neither is passed over. Method:
    a server named as draining, and another one."""
    view = view_of_reports([record(server_uuid="s"), record()], 7, draining)
    assert [s.draining for s in view.servers] == [draining == ["s"]] and view.tablets == () and view.now_us == 7


NOW_US = 5_000_000_000
STATED = {"again_within_s": 60, "cluster": 1, "servers": 2, "tablets": 1}


def told(age_s: float, **fields: Any) -> Report:
    """A record of that age; of a server with the numbers that a master of two servers and one tablet states."""
    numbers = STATED if "server_uuid" in fields else {"again_within_s": 600, "cluster": 1}
    fields = {"numbers": numbers, "catalog_term": 1} | fields
    return Report(at_us=NOW_US - int(age_s * 1e6), **fields)


TWO = (told(1, server_uuid="a"), told(2, server_uuid="b"))
TABLET = told(300, tablet_id="t", table_name="flights", replicas=(REPLICA, replace(REPLICA, uuid="b")))


def test_inputs_say_how_old_they_are() -> None:
    """Goal: a plan says how old its newest and its oldest inputs are, and leaves out a server of long ago that has no
    replicas, and says so. Method: whole inputs; with an older record of the same server; with one of long ago."""
    whole = inputs_of([*TWO, TABLET], NOW_US)
    assert (whole.lacks, whole.dated, whole.left_out, len(whole.records)) == ("", True, (), 3)
    assert (NOW_US - whole.newest_us, NOW_US - whole.oldest_us) == (1_000_000, 300_000_000)
    more = inputs_of([told(900, server_uuid="a"), told(4_000, server_uuid="z"), *TWO, TABLET], NOW_US)
    assert (more.lacks, more.left_out, more.records) == ("", ("z",), whole.records)


BARE = {"numbers": {}}
REFUSED = {
    "nothing": ([], True, r"records of 0 tablets and of no server.*nyala cluster check"),
    "no server": ([TABLET], True, r"records of 1 tablets and of no server"),
    "one of two servers": ([TWO[0], told(1, tablet_id="t", replicas=(REPLICA,))], True, r"1 servers, and.*publishes 2"),
    "no tablet": (TWO, True, r"0 tablets, and the leading master publishes 1"),
    "a server that holds a replica": ([TWO[0], TABLET], True, r"no record of 1 servers that have replicas \(b\)"),
    "an old tablet": (
        [*TWO, replace(TABLET, at_us=NOW_US - 1_261_000_000)], True,
        r"1 of 3 records are out of date.*tablet t of table flights: 1261 s old.*again within 600 s",
    ),
    "an old server": ([TWO[0], told(181, server_uuid="b"), TABLET], True, r"that of server b: 181 s old"),
    "all of them old, as while no master publishes": (
        [told(400, server_uuid="a"), told(400, server_uuid="b"), replace(TABLET, at_us=1)], True,
        r"3 of 3 records are out of date",
    ),
    "an old one of an older build": (
        [*TWO, replace(TABLET, at_us=NOW_US - 1_261_000_000, **BARE)], True, r"1 of 3 records are.* 1261 s old: look",
    ),
    "the future": ([*TWO, told(-61, tablet_id="t")], False, r"tablet t of table  is of 61 s in the future: set the"),
    "two clusters": (
        [*TWO, TABLET, told(3, server_uuid="z", numbers=STATED | {"cluster": 2})], False, r"recent records of 2 cl",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_missing_and_stale_inputs_are_refused(case: str) -> None:
    """Goal: no plan is made of records that are missing, out of date, of two clusters or of another time, and the
    error says which, and what to do. Method: a table of inputs; each differs from whole ones in one thing."""
    reports, passing, words = REFUSED[case]
    found = inputs_of(reports, NOW_US)
    assert re.search(words, found.lacks) and found.passing is passing


@pytest.mark.parametrize("age_s", [0, 10**4])
def test_records_of_a_build_that_does_not_repeat_them_are_used_at_any_age(age_s: int) -> None:
    """Goal: jobs of this build plan with masters of 0.2.0, whose records do not say when they come again. Method: such
    records; the inputs say that no age was judged."""
    reports = [replace(r, at_us=NOW_US - age_s * 10**6, **BARE) for r in (*TWO, TABLET)]
    found = inputs_of(reports, NOW_US)
    assert (found.lacks, found.dated, len(found.records)) == ("", False, 3)
    led_before = told(10**4, server_uuid="b")  # of a leader of this build, before one of the former leads
    last = replace(reports[0], catalog_term=2)
    assert inputs_of([last, led_before, reports[2]], NOW_US).lacks == ""


@pytest.mark.parametrize("named", [False, True])
def test_plan_leaves_to_the_masters_what_they_move(named: bool) -> None:
    """Goal: nothing is moved twice, by the masters who empty a retired server and by a plan; a server that the job's
    caller names is emptied by the plan. Method: a retired server with the only replica of two tablets, beside an empty
    one."""
    well = replace(REPLICA, is_leader=True)
    tablets = [told(1, tablet_id=t, table_id="T", leader_uuid="a", replicas=(well,)) for t in "tu"]
    hosts = [told(1, server_uuid="a", numbers=STATED | {"retired": 1}), told(1, server_uuid="b")]
    view = view_of_reports([*hosts, *tablets], NOW_US, ["a"] if named else [])
    assert [m.to_uuid for m in plan_rebalance(view)] == (["b", "b"] if named else [])
    assert not_settled(view) == (() if named else ("t", "u"))


@pytest.mark.parametrize(
    ("within_s", "age_us", "old"),
    [
        (1, 62_000_000, False),
        (1, 62_000_001, True),
        (600, 1_260_000_000, False),
        (600, 1_260_000_001, True),
        (0, 4_000_000_000, False),
    ],
)
def test_record_is_out_of_date_after_twice_its_time_and_a_minute(within_s: int, age_us: int, old: bool) -> None:
    """Goal: a record's age is judged as the page says, to the microsecond; one that says no time never ages. Method:
    tablet records of several times, just within their age and just beyond."""
    tablet = replace(TABLET, at_us=NOW_US - age_us, numbers={"again_within_s": within_s, "cluster": 1})
    assert ("out of date" in inputs_of([*TWO, tablet], NOW_US).lacks) is old


def test_record_without_a_time_ages_by_the_longest_time_that_another_one_says() -> None:
    """Goal: a record of an older build is judged by the others, and not at all if none says a time. Method: servers
    that say none, and a bare tablet record of an hour ago."""
    servers = [replace(server, numbers=STATED | {"again_within_s": 0}) for server in TWO]
    found = inputs_of([*servers, replace(TABLET, at_us=NOW_US - 3_600_000_000, **BARE)], NOW_US)
    assert (found.lacks, found.dated) == ("", True)


def test_record_of_nothing_and_one_of_a_server_with_a_tablets_name_are_no_tablets() -> None:
    """Goal: each record counts once. Method: a record without any name, and one with the names of a server and of a
    tablet, which is the server's."""
    found = inputs_of([TWO[0], told(1, server_uuid="b", tablet_id="t"), TABLET, told(1)], NOW_US)
    assert [(r.server_uuid, r.tablet_id) for r in found.records] == [("a", ""), ("b", "t"), ("", "t")]


def test_no_records_have_no_age() -> None:
    """Goal: a plan without inputs shows no made-up time. Method: none."""
    found = inputs_of([], NOW_US)
    assert (found.newest_us, found.oldest_us, found.records) == (0, 0, ())


def test_old_record_of_another_cluster_is_out_of_date_and_no_conflict() -> None:
    """Goal: the remedy fits: what is left of a former cluster ages, and only recent records show two clusters. Method:
    a server of another cluster that holds a replica, long ago."""
    stranger = told(4_000, server_uuid="b", numbers=STATED | {"cluster": 2})
    found = inputs_of([TWO[0], stranger, TABLET], NOW_US)
    assert found.passing and "that of server b: 4000 s old" in found.lacks


def test_record_of_the_next_minute_is_taken() -> None:
    """Goal: clocks may differ by a minute. Method: a record of 60 s in the future; the refusals have one of 61 s."""
    assert inputs_of([*TWO, replace(TABLET, at_us=NOW_US + 60_000_000)], NOW_US).lacks == ""


def test_refusal_names_the_oldest_record() -> None:
    """Goal: the operator sees how bad it is. Method: a tablet's and a server's record out of date, in both orders."""
    old = [told(900, server_uuid="a"), replace(TABLET, at_us=NOW_US - 2_000_000_000)]
    for reports in ([*old, TWO[1]], [TWO[1], *reversed(old)]):
        assert "2 of 3 records are out of date, the oldest is that of tablet t" in inputs_of(reports, NOW_US).lacks


def test_numbers_that_the_latest_leader_states_count() -> None:
    """Goal: after servers or tablets are gone, no plan waits for their records. Method: an earlier record of a server
    states more; and a build that states none."""
    earlier = replace(TWO[1], numbers=STATED | {"servers": 5, "tablets": 9})
    assert inputs_of([TWO[0], earlier, TABLET], NOW_US).lacks == ""
    silent = [replace(server, numbers={"again_within_s": 60}) for server in TWO]
    assert inputs_of(silent, NOW_US).lacks == ""


def test_desired_change_is_numbers_of_the_uuids_that_it_names() -> None:
    """Goal: a record says what it must and no more. Method: a tablet with a replica that moves, and one at rest."""
    moving = replace(TABLET, numbers={"joins/c": 1, "leaves/a": 1})
    (tablet,) = view_of_reports([moving], NOW_US).tablets
    assert desired_numbers(tablet) == {"joins/c": 1, "leaves/a": 1}
    (still,) = view_of_reports([TABLET], NOW_US).tablets
    assert desired_numbers(still) == {}
