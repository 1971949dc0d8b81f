"""The played cluster of `nyala bench masters-at-scale`: its tablets, their places, and what it reports of them."""

from __future__ import annotations

from collections import Counter

import pytest

from nyala.infra.bench.options import ScaleOptions
from nyala.infra.bench.played_servers import Played, config_of, members_of, uuid_of
from nyala.infra.bench.report import slopes_told
from nyala.infra.bench.reports_watch import Published
from nyala.replica.rpc import config_from_pb
from nyala.replica.types import Address


def test_played_replicas_are_spread_and_each_tablet_has_one_leader() -> None:
    """Goal: the load is one that masters would place. Method: 100 servers and 10,000 tablets: a tablet's servers
    differ, each server has as many replicas as any other, and what it shares with one other server is a small part of
    them. All statuses of a tablet tell the catalog's config, and one of them leads."""
    servers, tablets, replicas = 100, 10_000, 3
    placed = [members_of(t, servers, replicas) for t in range(tablets)]
    assert all(len(set(members)) == replicas for members in placed)
    held = Counter(n for members in placed for n in members)
    assert set(held.values()) == {tablets * replicas // servers}
    beside = Counter(n for members in placed if 0 in members for n in members if n)
    assert max(beside.values()) < held[0] / 10, "the loss of two servers costs few tablets two replicas"

    played = Played(5, 40, replicas, 1.0)
    played.listen_at([Address("127.0.0.1", 1000 + n) for n in range(5)])
    addresses = [s.address for s in played.servers]
    leaders: Counter[str] = Counter()
    for server in played.servers:
        for status in server.statuses:
            assert status.uuid == uuid_of(server.number)
            assert config_from_pb(status.committed_config) == config_of(int(status.tablet_id, 16), replicas, addresses)
            leaders[status.tablet_id] += status.role == "LEADER"
    assert len(leaders) == 40 and set(leaders.values()) == {1}

    led = [s.tablet_id for s in played.servers[0].statuses if s.role == "LEADER"]
    played.obey({"silence": 0})
    changed = [server.by_id[tablet_id] for server in played.servers for tablet_id in server.changed]
    told = {s.tablet_id for s in changed if s.role == "LEADER" and s.term == 2}
    assert told == set(led) and not played.servers[0].changed, "another member leads each of them, and says so"


def test_scale_options_refuse_what_no_played_cluster_can_be() -> None:
    """Goal: an impossible size ends in one line. Method: each bound."""
    wrong: dict[str, int]
    for wrong in ({"servers": 3}, {"servers": 1001}, {"replicas": 0}, {"tablets": 4}, {"beat_ms": 99}, {"watch_s": 0}):
        with pytest.raises(ValueError, match="there are"):
            ScaleOptions(**wrong)
    for curve in ((4, 100), (100, 100), (1000, 100)):
        with pytest.raises(ValueError, match=r"there are|the smallest first"):
            ScaleOptions(curve=curve)
    assert ScaleOptions().rereplicate_ms > ScaleOptions().beat_ms


def test_published_reports_are_whole_when_each_server_and_tablet_has_one() -> None:
    """Goal: how long a master takes to publish everything is told once everything is there, and not before. Method:
    records of two servers and two tablets, one of them twice; before the last there are no figures. Rates count the
    first round alone, and the oldest record is the oldest of those that stand."""
    seen = Published(servers=2, tablets=2)
    for key, at_s in (("server:a", 10.0), ("server:b", 11.0), ("t1", 11.5), ("t1", 12.0)):
        with pytest.raises(KeyError, match="records are there"):
            seen.figures(9.0)
        seen.add(key, 100, at_s)
    seen.add("t2", 100, 14.0)
    seen.add("server:a", 900, 40.0)
    figures = seen.figures(9.0)
    assert figures == {
        "scale_reports_servers_s": 2.0,
        "scale_reports_whole_s": 5.0,
        "scale_reports_per_s": 5 / 4,
        "scale_reports_kb_per_s": 0.5 / 4,
    }
    assert seen.ages(50.0) == {"scale_reports_server_age_s": 39.0, "scale_reports_tablet_age_s": 38.0}


def test_slopes_of_a_curve_are_powers_of_its_size() -> None:
    """Goal: what is flat and what grows with the number of tablets is told in one number. Method: a constant, a
    proportional and a quadratic figure over three sizes; what was asked for and what is 0 somewhere have no slope."""
    sizes = (100, 1000, 10_000)
    curve: dict[int, list[dict[str, float]]] = {
        n: [
            {
                "scale_tablets": float(n),
                "scale_small_lookup_cpu_us": 300.0,
                "scale_memory_mb": n / 10,
                "scale_start_s": n * n / 1e6,
                "scale_decided_s": 0.0 if n == 100 else 1.0,
            }
        ]
        for n in sizes
    }
    told = slopes_told(curve)
    assert [line.rsplit(": ", 1)[1] for line in told] == ["1.00, 1.00", "0.00, 0.00", "2.00, 2.00"]
    assert told[0].startswith("slope of the master's memory: ")
    assert slopes_told({100: curve[100]}) == []
