"""The played cluster of `nyala bench masters-at-scale`: its tablets, their places, and what it reports of them."""

from __future__ import annotations

from collections import Counter

import pytest

from nyala.infra.bench.options import ScaleOptions
from nyala.infra.bench.played_servers import Played, config_of, members_of, uuid_of
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
    told = {s.tablet_id for server in played.servers for s in server.changed if s.role == "LEADER" and s.term == 2}
    assert told == set(led) and not played.servers[0].changed, "another member leads each of them, and says so"


def test_scale_options_refuse_what_no_played_cluster_can_be() -> None:
    """Goal: an impossible size ends in one line. Method: each bound."""
    wrong: dict[str, int]
    for wrong in ({"servers": 3}, {"servers": 1001}, {"replicas": 0}, {"tablets": 4}, {"beat_ms": 99}, {"watch_s": 0}):
        with pytest.raises(ValueError, match="there are"):
            ScaleOptions(**wrong)
    assert ScaleOptions().rereplicate_ms > ScaleOptions().beat_ms
