"""The options of the jobs that plan, and their answers if one of them is wrong, or Kafka is away."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from nyala.pipeline import PlacementOptions, QueryInterrupted, QueryRefused, RebalanceOptions, Rebalancer
from nyala.pipeline.rebalance import Plan, describe, planned_of, servers_of
from nyala.replica.policy import Inputs
from nyala.replica.types import OpId, ReplicaReport, Report

KNOWN = ("1a2b3c", "1a2bff", "9f")


def test_servers_are_found_by_their_beginnings() -> None:
    """Goal: a server can be named by the beginning of its uuid. Method: a prefix and a whole uuid."""
    assert servers_of(["1a2b3", "9f"], KNOWN) == ("1a2b3c", "9f")


@pytest.mark.parametrize("prefix", ["1a2b", "77", ""])
def test_server_that_is_unknown_or_ambiguous_is_refused(prefix: str) -> None:
    """Goal: an unknown or ambiguous server is refused. Method: a prefix of two, of none, an empty one."""
    with pytest.raises(QueryRefused, match=r"servers begin with.*nothing was proposed.*nyala server list"):
        servers_of(["9f", prefix], KNOWN)


def test_rebalance_without_kafka_is_one_line() -> None:
    """Goal: if Kafka does not answer, the rebalance job ends with one line instead of a traceback. Method: nobody
    listens; the topic is looked for before Spark is."""
    with pytest.raises(QueryInterrupted, match="does not answer"):
        Rebalancer(None, RebalanceOptions(bootstrap="127.0.0.1:1")).plan()


class Told(Rebalancer):
    """A rebalancer whose readings of the topic are given."""

    def __init__(self, *readings: list[Report], wait_s: float = 60.0, options: RebalanceOptions | None = None) -> None:
        given = options or RebalanceOptions(bootstrap="b:1", inputs_wait_s=wait_s, topic_prefix="x.")
        super().__init__(None, given)
        self.readings = iter(readings)

    def planned(self, now_us: int) -> Plan | Inputs | QueryRefused:
        return planned_of(self._options, now_us, next(self.readings))


def server(uuid: str, age_s: float, **numbers: int) -> Report:
    at_us = time.time_ns() // 1000 - int(age_s * 1e6)
    return Report(server_uuid=uuid, catalog_term=1, at_us=at_us, numbers={"again_within_s": 60, "servers": 2} | numbers)


def test_a_plan_waits_for_its_inputs_and_is_refused_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no plan says "nothing to move" because reports are missing or old, and a job right after a master's start
    waits for them. Method: readings without a record, with one of two, and with both: planned, with the ages. Then no
    time to wait: refused. Then two clusters, which no wait mends: refused at once."""
    monkeypatch.setattr("nyala.pipeline.rebalance.POLL_S", 0.0)
    both = [server("a", 1), server("b", 100)]
    plan = Told([], both[:1], both).plan()
    assert [round(age) for age in plan.ages_s] == [1, 100]
    newest, oldest = plan.ages_s
    assert f"by reports that are from {newest:.1f} s to {oldest:.1f} s old" in describe(plan)
    lacks = r"nothing was planned of topic x.reports and nothing proposed: there are records of 1 servers"
    with pytest.raises(QueryRefused, match=lacks):
        Told(both[:1], both, wait_s=0.0).plan()
    with pytest.raises(QueryRefused, match="2 clusters"):
        Told([server("a", 1, cluster=1), server("b", 1, cluster=2)], both).plan()


def test_a_plan_says_what_it_could_not_judge() -> None:
    """Goal: a plan does not hide what it left out. Method: records that do not say when they come again; a server of
    long ago."""
    bare = [replace(server(u, 10**6), numbers={}) for u in "ab"]
    assert "no age was judged" in describe(Told(bare).plan())
    old = Told([server("a", 1, servers=1), server("b", 10**6)]).plan()
    assert "without 1 servers that have no replicas" in describe(old) and len(old.view.servers) == 1


def held(table: str, number: int, *servers: str, health: str = "HEALTHY") -> Report:
    """A record of a tablet on these servers, the first of which leads; the last one has this health."""
    found = (
        ReplicaReport(
            uuid=uuid,
            address="h:1",
            votes=True,
            promote=False,
            replace=False,
            health=health if uuid == servers[-1] else "HEALTHY",
            data_state=0,
            bytes_on_disk=1,
            rows=1,
            is_leader=uuid == servers[0],
            location="",
        )
        for uuid in servers
    )
    return Report(
        tablet_id=f"{table}{number}",
        table_id=f"id-{table}",
        table_name=table,
        leader_uuid=servers[0],
        config_opid=OpId(1, 1),
        replication_factor=len(servers),
        replicas=tuple(found),
        at_us=time.time_ns() // 1000,
        catalog_term=1,
    )


def test_a_placement_is_of_what_is_asked_and_of_nothing_else() -> None:
    """OP-08. Goal: options of the job become the goals of the plan, and a plan for tables names unsettled tablets of
    these alone. Method: two tables on one server of four, one with a lost replica: each option alone; a table without
    reports, and no goal."""
    four = [server(u, 1, servers=4, tablets=4) for u in "abcd"]
    readings = [
        *four,
        held("t", 1, "a"),
        held("t", 2, "a"),
        held("u", 1, "a", "b", "c", health="FAILED"),
        held("u", 2, "a"),
    ]

    def moves(**options: Any) -> tuple[list[tuple[str, str, str]], tuple[str, ...]]:
        plan = Told(readings, options=PlacementOptions(bootstrap="b:1", **options)).plan()
        return [(m.tablet_id, m.from_uuid, m.to_uuid) for m in plan.moves], plan.unsettled

    assert moves(tables=("t",)) == ([("t1", "a", "d")], ())
    assert moves(under_replicated=True) == ([("u1", "c", "d")], ())
    assert moves(tables=("t",), under_replicated=True) == ([("t1", "a", "d")], ())
    assert moves(spread=True) == ([], ("u1",))
    assert moves(drain=("a",), moves_per_server_max=9) == (
        [("t1", "a", "d"), ("t2", "a", "b"), ("u2", "a", "d")],
        ("u1",),
    )
    with pytest.raises(QueryRefused, match=r"no reports of table v: nothing was proposed. Reported are t, u;"):
        moves(tables=("t", "v"))
    with pytest.raises(QueryRefused, match="say what is to be placed, by one or more of --table, --under-replicated"):
        PlacementOptions(bootstrap="b:1")
