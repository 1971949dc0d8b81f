"""When a master is ready: with a catalog, and with a leader that was not lost for long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nyala.replica.master.readiness import Readiness
from tests.harness.leading_master import Masters


def test_master_without_a_leader_is_ready_for_as_long_as_elections_take() -> None:
    """Goal: a master is ready once it has a catalog and knows a leader. The restart or loss of a leader does not make
    all masters unready at once, and a lost majority does after half a minute. Method: a clock, and a master that has no
    catalog, knows no leader, leads, follows, and knows none again; both sides of the bound; its end."""
    now_s, ending = [0.0], [False]
    masters: Any = Masters()
    group = masters.state.group = SimpleNamespace(is_leader=False, replica=SimpleNamespace(leader_hint=""))
    readiness = Readiness(lambda: ending[0], lambda: now_s[0])
    readiness.observe()
    assert "no catalog yet" in readiness.reasons()[0]
    readiness.state = masters.state
    readiness.observe()
    assert readiness.reasons() == ["the master knows no leading master yet"]
    group.is_leader = True
    readiness.observe()
    assert readiness.reasons() == []
    group.is_leader, group.replica.leader_hint = False, "u@h:1"
    now_s[0] = 100.0
    readiness.observe()
    group.replica.leader_hint = ""
    now_s[0] = 130.0
    readiness.observe()
    assert readiness.reasons() == []
    now_s[0] = 130.5
    assert "no leading master for 30 s" in readiness.reasons()[0]
    group.replica.leader_hint = "u@h:1"
    readiness.observe()
    assert readiness.reasons() == []
    ending[0] = True
    assert readiness.reasons() == ["the master is stopping"]
