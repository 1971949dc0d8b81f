"""`nyala server prepare-restart` on a server that is in maintenance already."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from nyala.infra.cli import prepare_restart
from nyala.replica.client import Client
from nyala.replica.rpc import pb, pb_grpc
from tests.harness.played_grpc import listening

UUID = "a" * 32


class Master(pb_grpc.MasterServiceServicer):
    """Keeps what it is told of maintenance."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str, str]] = []

    def MaintainServer(self, request: Any, context: Any) -> pb.SimpleReply:
        self.told.append((request.seconds, request.owner, request.reason))
        return pb.SimpleReply()

    def ListServers(self, request: Any, context: Any) -> pb.ListServersReply:
        return pb.ListServersReply()


@pytest.fixture
def master() -> Iterator[tuple[Master, Client]]:
    played = Master()
    with listening(played) as address, Client([address]) as client:
        yield played, client


@pytest.mark.parametrize(
    "left_s, told",
    [
        (None, (0, "", "")),
        (-5, (0, "", "")),
        (3600, (3600, "ann", "disk swap")),
    ],
    ids=["none", "one that is over", "one of an hour"],
)
def test_preparation_that_is_given_up_leaves_the_maintenance_that_was_there(
    master: tuple[Master, Client], left_s: int | None, told: tuple[int, str, str]
) -> None:
    """OP-04. Goal: what another operator said of a server holds again. Method: a server that was in no maintenance, in
    one that is over by now, and in one of an hour; a master over gRPC is told the same end, owner and reason."""
    played, client = master
    server = pb.ServerInfo(uuid=UUID)
    if left_s is not None:
        until_us = int((time.time() + left_s) * 1e6)
        server = pb.ServerInfo(
            uuid=UUID, maintenance_until_us=until_us, maintenance_owner="ann", maintenance_reason="disk swap"
        )
    prepare_restart._take_back(client, server, quiesced_before=True)
    ((seconds, owner, reason),) = played.told
    assert (owner, reason) == told[1:] and told[0] - 60 <= seconds <= told[0]


def test_longer_maintenance_stays_as_it_is() -> None:
    """OP-04. Goal: a preparation never ends another operator's maintenance earlier. Method: the seconds that are left
    of one, against the minutes of the restart."""
    now_us = int(time.time() * 1e6)
    hour = pb.ServerInfo(uuid=UUID, maintenance_until_us=now_us + 3_600_000_000)
    over = pb.ServerInfo(uuid=UUID, maintenance_until_us=now_us - 1)
    assert prepare_restart.holds(hour, 15) and prepare_restart.holds(hour, 59)
    assert not any(prepare_restart.holds(server, 15) for server in (over, pb.ServerInfo(uuid=UUID)))
    assert not prepare_restart.holds(hour, 61)
