"""Maintenance of a server: nothing is moved off it or onto it until a stated time, under every later master too."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.replica.master import Catalog
from nyala.replica.master.catalog.records import DESIRED, MAINTENANCE, Desired
from nyala.replica.master.catalog.tables import create_table
from nyala.replica.master.requests import change_requests, desired
from nyala.replica.master.tablets.view import health_of, in_maintenance
from nyala.replica.policy import Health
from nyala.replica.rpc import heartbeat_from_pb, pb
from nyala.replica.types import Code, DataState, Refused
from tests.harness.catalogs import new_table
from tests.harness.leading_master import OPTIONS, Masters, S

LOST_US = (OPTIONS.rereplicate_after_ms + 1000) * 1000
STEP_US = OPTIONS.server_dead_ms * 500
WORK_S = 4 * LOST_US // 1_000_000


def maintain(m: Masters, uuid: str, seconds: int, **fields: Any) -> Any:
    return m.box.commit(desired.maintain(m.state, uuid, seconds, **fields))


def falls_silent(m: Masters, uuid: str) -> None:
    """Let the server be silent for longer than the re-replication delay, while the others go on."""
    m.servers = [u for u in m.servers if u != uuid]
    passes(m, LOST_US)


def passes(m: Masters, time_us: int) -> None:
    """Let time pass with heartbeats of those that are not silent."""
    end_us = m.clock.now_us + time_us
    while m.clock.now_us < end_us:
        m.clock.now_us = min(m.clock.now_us + STEP_US, end_us)
        m.report()


def test_silent_server_in_maintenance_is_replaced_only_after_it() -> None:
    """OP-01: a server that is silent while an operator works on it loses no replica, under a later master either. When
    the time is over, or the operator ends it, its silence counts, from its beginning."""
    for ended in (False, True):
        m = Masters()
        assert maintain(m, S[2], WORK_S, owner="ann", reason="new disk") is True
        falls_silent(m, S[2])
        assert m.decided() == []
        m.box.catalog.flush()
        m.box.catalog = Catalog.open(m.box.disk)
        m.lead()
        m.report()
        falls_silent(m, S[2])
        assert m.decided() == []
        (info,) = [i for i in m.infos() if i.uuid == S[2]] or [pb.ServerInfo()]
        if ended:
            assert maintain(m, S[2], 0) is True
        else:
            until_us = m.box.catalog.get(MAINTENANCE, S[2]).until_us  # type: ignore[union-attr]
            passes(m, until_us - 1 - m.clock.now_us)
            assert m.decided() == []
            m.clock.now_us += 1
        assert m.decided() == ["add d"]
        assert info.maintenance_until_us == 0, "a server that no master of this leadership has heard is not listed"


def test_maintenance_is_shown_until_its_end() -> None:
    """OP-01: the list of servers names end, owner and reason, and nothing once the time is over."""
    m = Masters()
    begun_us = m.clock.now_us
    maintain(m, S[2], 60, owner="ann", reason="new disk")
    shown = {i.uuid: (i.maintenance_until_us, i.maintenance_owner, i.maintenance_reason) for i in m.infos()}
    assert shown.pop(S[2]) == (begun_us + 60_000_000, "ann", "new disk") and set(shown.values()) == {(0, "", "")}
    m.clock.now_us += 60_000_000
    assert not any(i.maintenance_until_us or i.maintenance_owner for i in m.infos())


def test_replica_that_its_server_calls_failed_is_replaced_in_maintenance_too() -> None:
    """OP-01: only silence and contact are excused. A replica that its own server reports as failed is lost whatever the
    operator does, and is replaced."""
    m = Masters()
    maintain(m, S[2], WORK_S)
    status = pb.ReplicaStatus(tablet_id=m.tablet, uuid=S[2], data_state=DataState.READY, phase="FAILED", term=1)
    beat = pb.HeartbeatRequest(
        server_uuid=S[2], addresses=[pb.Address(host="h", port=1)], full_report=True, replicas=[status]
    )
    m.state.soft.heartbeat(*heartbeat_from_pb(beat), m.clock.now_us)
    works = in_maintenance(m.box.catalog, m.clock.now_us)
    found = health_of(m.state.soft, m.tablet, S[2], OPTIONS, m.clock.now_us, works)
    assert found is Health.FAILED_UNRECOVERABLE and m.decided() == ["add d"]


def test_server_in_maintenance_gets_no_replica() -> None:
    """OP-01: no replacement, no member that somebody names, no larger factor and no replica of a new table goes to a
    server in maintenance; each refusal gives the reason and changes nothing."""
    m = Masters()
    maintain(m, S[3], WORK_S)
    before = m.box.index
    with pytest.raises(Refused, match="in maintenance") as refused:
        m.want(change_requests.add, S[3])
    assert refused.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(Refused, match="no other server could take its place"):
        m.want(change_requests.remove, S[2])
    with pytest.raises(Refused, match=r"neither being retired nor in maintenance"):
        desired.set_replication(m.state, 5, table="flights")
    with pytest.raises(Refused, match="too few servers would be left"):
        m.retire(S[2])
    with pytest.raises(Refused, match=r"3 replicas need as many.*alive=2"):
        create_table(m.box.catalog, new_table("other", buckets=1, rf=3), m.state.servers()[1:], {}, 1)
    assert m.box.index == before
    falls_silent(m, S[2])
    assert m.decided() == []
    maintain(m, S[3], 0)
    assert m.decided() == ["add d"]


def test_maintenance_that_cannot_be_is_refused() -> None:
    """OP-01: a time below zero or beyond thirty days, an unknown server, and a request made for another state are
    refused, and nothing is written."""
    m = Masters()
    m.retire(S[3])
    before = m.box.index
    cases: list[tuple[str, int, dict[str, Any], Code]] = [
        (S[2], -1, {}, Code.INVALID_ARGUMENT),
        (S[2], desired.MAINTENANCE_S_MAX + 1, {}, Code.INVALID_ARGUMENT),
        ("f" * 32, 60, {}, Code.NOT_FOUND),
        ("f" * 32, 0, {}, Code.NOT_FOUND),
        (S[2], 60, {"seen": 0}, Code.CAS_FAILED),
        (S[2], 60, {"seen": 2}, Code.CAS_FAILED),
    ]
    for uuid, seconds, fields, code in cases:
        with pytest.raises(Refused) as refused:
            maintain(m, uuid, seconds, **fields)
        assert refused.value.code is code and m.box.index == before, (seconds, fields)
    assert maintain(m, S[2], 0) is False, "it was not in maintenance"
    assert maintain(m, S[2], desired.MAINTENANCE_S_MAX, seen=1) is True


def test_repeated_request_keeps_the_end_and_a_new_one_moves_it() -> None:
    """OP-01: a call that is repeated because its answer was lost does not move the end. A new call does, and one that
    comes late, after the maintenance was ended, does not begin it again."""
    m = Masters()
    request = {"owner": "ann", "reason": "new disk", "seen": 0}
    assert maintain(m, S[2], 60, **request) is True
    first = m.box.catalog.get(MAINTENANCE, S[2])
    m.clock.now_us += 5_000_000
    assert maintain(m, S[2], 60, **request) is False
    assert m.box.catalog.get(MAINTENANCE, S[2]) == first and m.box.catalog.get(DESIRED) == Desired(changes=1)
    assert maintain(m, S[2], 60, **request | {"seen": 1}) is True
    assert m.box.catalog.get(MAINTENANCE, S[2]).since_us == m.clock.now_us  # type: ignore[union-attr]
    assert maintain(m, S[2], 0, seen=2) is True
    with pytest.raises(Refused) as refused:
        maintain(m, S[2], 60, **request | {"seen": 1})
    assert refused.value.code is Code.CAS_FAILED and m.box.catalog.get(MAINTENANCE, S[2]) is None


def test_records_of_maintenance_are_bounded_and_removed_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-01: operators work on a bounded number of servers at once. Records of work that is over do not count, and the
    next request removes them."""
    monkeypatch.setattr(desired, "MAINTENANCE_MAX", 2)
    m = Masters()
    maintain(m, S[0], 10)
    maintain(m, S[1], 60, owner="o" * 200, reason="r" * 300)
    kept = m.box.catalog.get(MAINTENANCE, S[1])
    assert kept is not None and (len(kept.owner), len(kept.reason)) == (80, 200)
    with pytest.raises(Refused) as refused:
        maintain(m, S[2], 60)
    assert refused.value.code is Code.OVERLOADED
    assert maintain(m, S[1], 61) is True, "one that is known may go on"
    m.clock.now_us += 10_000_000
    assert maintain(m, S[2], 60) is True
    assert sorted(u for u, _ in m.box.catalog.items(MAINTENANCE)) == [S[1], S[2]]
