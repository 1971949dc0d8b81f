"""Every call of a master with every field as a careless, broken or hostile caller would send it, over gRPC."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nyala.replica.rpc import pb
from nyala.replica.types import Code
from tests.harness.hostile_fields import Served, play
from tests.harness.master_calls import MasterWorld
from tests.harness.request_table import Row
from tests.unit.master.test_master_requests_table import ROWS, run


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_hostile_field_of_any_call_is_refused_and_leaves_everything_as_it_was(row: Row) -> None:
    """IN-82, IN-60. Goal: names, ids and numbers are checked where they come in, so that none gets into the catalog or
    ends the master. Method: the good request of every call, with each field at any depth as NUL, too long, a path,
    other alphabets, below zero, beyond the range, NaN and JSON without end, to a server as the product makes it:
    INVALID_ARGUMENT, and nothing on disk or in memory has changed; then what may be answered, whatever the answer."""

    async def scenario(world: MasterWorld) -> None:
        await row.prepare(world)
        async with Served(world.services()) as served:
            await play(row, world, served, "MasterService")

    run(scenario)


def test_senders_of_heartbeats_are_counted_by_host_as_callers_are() -> None:
    """IN-43. Goal: a host that gives itself one IPv6 address after another has the places of one host. Method:
    strangers from two addresses of one /64, and from one IPv4 address that is written in both ways."""

    async def scenario(world: MasterWorld) -> None:
        peers = "ipv6:[2001:db8::1]:47", "ipv6:[2001:db8::f:2]:48", "ipv4:10.0.0.1:5", "ipv6:[::ffff:10.0.0.1]:6"
        for n, peer in enumerate(peers):
            request = pb.HeartbeatRequest(server_uuid=f"{n:032x}", addresses=[pb.Address(host="void", port=1)])
            reply = await world.service.Heartbeat(request, SimpleNamespace(peer=lambda peer=peer: peer))
            assert reply.error.code == Code.NOT_READY
        told = [c.not_counted.rpartition("come from ")[2] for c in world.master.admission.infos()]
        assert sorted(told) == ["10.0.0.1)"] * 2 + ["2001:db8::/64)"] * 2

    run(scenario)
