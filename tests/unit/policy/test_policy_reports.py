"""A view from single records of the `reports` topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.policy import Health, view_of_reports
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
