"""Every call of a master with every field as a careless, broken or hostile caller would send it, over gRPC."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from nyala.replica.master.catalog.records import TABLET
from nyala.replica.rpc import pb
from nyala.replica.types import Address, Code, Member, Refused
from tests.harness.hostile_fields import Served, play
from tests.harness.master_calls import MasterWorld
from tests.harness.request_table import Row
from tests.unit.master.test_master_requests_table import ROWS, run


@pytest.mark.a_third
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
    """IN-43. Goal: a host that uses many IPv6 addresses of one /64 has the share of one host. Method: unknown servers
    from two addresses of one /64, and from one IPv4 address written in both ways."""

    async def scenario(world: MasterWorld) -> None:
        peers = "ipv6:[2001:db8::1]:47", "ipv6:[2001:db8::f:2]:48", "ipv4:10.0.0.1:5", "ipv6:[::ffff:10.0.0.1]:6"
        for n, peer in enumerate(peers):
            request = pb.HeartbeatRequest(server_uuid=f"{n:032x}", addresses=[pb.Address(host="void", port=1)])
            reply = await world.service.Heartbeat(request, SimpleNamespace(peer=lambda peer=peer: peer))
            assert reply.error.code == Code.NOT_READY
        told = [c.not_counted.rpartition("come from ")[2] for c in world.master.admission.shown()]
        assert sorted(told) == ["10.0.0.1)"] * 2 + ["2001:db8::/64)"] * 2

    run(scenario)


def test_config_that_no_master_could_read_again_is_refused_before_it_is_in_the_log() -> None:
    """IN-82, IN-50. Goal: no request puts a record into the catalog that would end every master at each start. Method:
    an operator confirms a config with an address that has no host, and a change of the catalog that no check of a
    request has seen has one: each is refused, nothing has changed, and the next change succeeds."""

    async def scenario(world: MasterWorld) -> None:
        before = world.group.catalog.records
        member = pb.Member(uuid="a" * 32, addresses=[pb.Address(port=1)], votes=True, holds_data=True)
        config = pb.RaftConfig(opid=pb.OpId(term=1, index=9), members=[member])
        request = pb.ConfirmConfigRequest(tablet_id=world.tablet, config=config)
        reply = await world.call("MasterService", "ConfirmConfig", request)
        assert reply.error.code == Code.INVALID_ARGUMENT and "nothing was changed" in reply.error.message
        tablet = world.group.catalog.get(TABLET, world.tablet)
        assert tablet is not None
        nowhere = (Member("a" * 32, (Address("", 1),)),)
        with pytest.raises(Refused, match="could not read such a record again; nothing was changed"):
            await world.group.change(lambda: ({TABLET + world.tablet: replace(tablet, members=nowhere)}, [], "", None))
        assert world.group.catalog.records == before and world.fatal == []
        await world.done("RetireServer", pb.RetireServerRequest(server_uuid="d" * 32))

    run(scenario)
