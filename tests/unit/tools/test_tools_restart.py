"""Whether a server's process may end without an interruption."""

from __future__ import annotations

import pytest

from nyala.replica.rpc import pb
from nyala.replica.tools import at_risk, judge
from nyala.replica.tools.check import ClusterView


def tablet(voters: str, *, sick: str = "", witness: str = "", running: bool = True, others: str = "") -> pb.TabletInfo:
    members = [pb.Member(uuid=u, votes=True, holds_data=u not in witness) for u in voters]
    members += [pb.Member(uuid=u, holds_data=True) for u in others]
    health = {u: "UNKNOWN" if u in sick else "HEALTHY" for u in voters + others}
    return pb.TabletInfo(tablet_id="t", config=pb.RaftConfig(members=members), health=health, running=running)


def servers(**fields: pb.ServerInfo) -> list[pb.ServerInfo]:
    return [fields.get(u) or pb.ServerInfo(uuid=u, alive=True) for u in "abcde"]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (tablet("abc"), ""),
        (tablet("bcd"), ""),
        (tablet("bcd", others="a", sick="bcd"), ""),
        (tablet("abc", sick="a"), ""),
        (tablet("abcde", sick="b"), ""),
        (tablet("abc", sick="b"), "1 of 3 voters"),
        (tablet("abcde", sick="bc"), "2 of 5 voters"),
        (tablet("ab"), "1 of 2 voters"),
        (tablet("a"), "0 of 1 voters"),
        (tablet("abz"), "1 of 3 voters"),
        (tablet("abc", running=False), "has no leader"),
        (tablet("abc", witness="bc"), "no healthy voter with data"),
        (tablet("abc", witness="b"), ""),
    ],
)
def test_server_may_end_if_every_tablet_has_a_healthy_majority_without_it(found: pb.TabletInfo, reason: str) -> None:
    """OP-04. Goal: a restart interrupts no tablet. Method: server a, and tablets that it may leave or not."""
    lines = at_risk([found], servers(), "a")
    assert (reason in lines[0] and "tablet t" in lines[0]) if reason else lines == []


@pytest.mark.parametrize(
    "state", [pb.ServerInfo(alive=False), pb.ServerInfo(alive=True, quiescing=True),
              pb.ServerInfo(alive=True, maintenance_until_us=1)],
)  # fmt: skip
def test_server_that_may_end_itself_does_not_count(state: pb.ServerInfo) -> None:
    """OP-04. Goal: two servers are not restarted at once. Method: another voter's server is silent, quiesces, or is in
    maintenance."""
    state.uuid = "b"
    assert "1 of 3 voters" in at_risk([tablet("abc")], servers(b=state), "a")[0]
    assert at_risk([tablet("abcde")], servers(b=state), "a") == []


def test_check_names_servers_that_quiesce() -> None:
    """OP-03. Goal: a server that was left quiescing is noticed. Method: the check's findings."""
    infos = servers(b=pb.ServerInfo(uuid="b", alive=True, quiescing=True))
    found = [f for f in judge(ClusterView("c", infos)) if "quiesce" in f.what]
    assert [f.subject for f in found] == ["server b"]
