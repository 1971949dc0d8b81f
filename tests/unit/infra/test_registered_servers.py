"""A start waits until the masters count its tablet servers, and a table that comes too early waits as well."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nyala.infra.local import registered
from nyala.infra.local.registered import wait_until_registered
from nyala.replica.master.catalog.tables import create_table
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.types import Address, Code, Refused
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.leading_master import Masters, S
from tests.harness.played_grpc import listening


class SlowMaster(pb_grpc.MasterServiceServicer):
    """A master that counts one more server each time it is asked, up to `most`; the others are candidates."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked = 0

    def ListServers(self, request: Any, context: Any) -> Any:
        counted = min(self.asked, self.most)
        self.asked += 1
        waiting = [pb.ServerInfo(uuid=u, alive=True, not_counted="nobody answers") for u in S[counted:3]]
        return pb.ListServersReply(servers=[pb.ServerInfo(uuid=u, alive=True) for u in S[:counted]], candidates=waiting)


@pytest.mark.parametrize(("most", "missing"), [(3, {}), (2, {S[2]: "nobody answers"})])
def test_start_waits_until_every_server_counts(
    most: int, missing: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-43. Goal: a started stack is ready to create tables. Method: a master that accepts one more server with each
    look, until all; then one that never accepts the last, whose reason is shown after the wait. Each pause takes a
    third of the wait."""
    master, now_s = SlowMaster(most), [0.0]
    monkeypatch.setattr(registered, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def pause(_: float) -> None:
        now_s[0] += 20.0

    with listening(master) as address:
        assert wait_until_registered(str(address), S[:3], 60.0, pause) == missing
    assert master.asked > most


def test_table_that_comes_before_its_servers_count_waits_for_them() -> None:
    """IN-43. Goal: too few servers are an error of the request only if no others are about to count. Method: two
    servers and a table of three replicas: just after a master began to lead, later, and while a third is called."""
    m = Masters(servers=2)
    box = AppliedCatalog()

    def refusal() -> Code:
        with pytest.raises(Refused) as refused:
            create_table(
                box.catalog, new_table(buckets=1), m.state.servers(), {}, 1, more_may_come=m.state.servers_may_come
            )
        return refused.value.code

    later: Callable[[int], None] = lambda ms: setattr(m.clock, "now_us", m.clock.now_us + 1000 * ms)  # noqa: E731
    dead_ms = m.state.options.server_dead_ms
    assert refusal() is Code.NOT_READY, "others have not been heard yet"
    later(dead_ms)
    m.report()
    assert refusal() is Code.INVALID_ARGUMENT
    m.state.admission._applicant(S[2], (Address("h", 9),), 0, "h")
    assert refusal() is Code.NOT_READY, "a third one is being called"
    later(dead_ms)
    m.report()
    assert refusal() is Code.INVALID_ARGUMENT, "it is silent again"
