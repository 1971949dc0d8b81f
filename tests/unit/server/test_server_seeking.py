"""The servers whose addresses a server requests from the masters: none while all is well, and all in turn if none is
reached."""

from __future__ import annotations

from nyala.replica.server.heartbeats.seeking import PAUSE_MAX_S, Seeker
from nyala.replica.types import limits


def test_reached_servers_are_not_asked_for_and_a_lost_one_ever_more_rarely() -> None:
    """CN-34. Goal: a dead server is no load, a moved one is found at once. Method: an hour of heartbeats."""
    seeker = Seeker()
    assert seeker.due([], 0.0) == []
    asked = [step / 2 for step in range(7200) if seeker.due(["b"], step / 2)]
    assert asked[:5] == [0.0, 0.5, 1.5, 3.5, 7.5]
    assert len(asked) <= 3600 / PAUSE_MAX_S + 5 and asked[-1] > 3600 - 2 * PAUSE_MAX_S
    assert seeker.due([], 3600.0) == [] and seeker.due(["b"], 3600.5) == ["b"], "lost anew: asked for at once"


def test_many_lost_servers_are_asked_for_in_turn() -> None:
    """CN-34. Goal: one heartbeat names a bounded number, and none is left out. Method: three times that many."""
    seeker = Seeker()
    lost = [f"s{n:03}" for n in range(3 * limits.PEERS_SOUGHT_MAX)]
    turns = [seeker.due(lost, 0.01 * turn) for turn in range(4)]
    assert [len(turn) for turn in turns] == [limits.PEERS_SOUGHT_MAX] * 3 + [0]
    assert sorted(uuid for turn in turns for uuid in turn) == lost
