"""Forged heartbeats, sent to a real master of a real table."""

from __future__ import annotations

import time
from collections import Counter
from concurrent import futures
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from nyala.replica.client import Client
from nyala.replica.fs import TABLET_SERVER
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.tools import gather, judge
from nyala.replica.types import Code, DataState
from tests.harness.cluster import local_cluster, wait_until
from tests.process.test_master_process import Stack

pytestmark = pytest.mark.process
LIAR = "f" * 32
FAR = 1 << 40
LIARS_PROCESS = 4711


class Listener(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """Answers with the liar's uuid, and reports of any tablet whatever the liar claims."""

    def __init__(self, uuid: str = LIAR) -> None:
        self.uuid = uuid
        self.claims: list[pb.ReplicaStatus] = []
        self.port = 0

    def GetIdentity(self, request: Any, context: Any) -> pb.IdentityReply:
        return pb.IdentityReply(uuid=self.uuid, kind=TABLET_SERVER)

    def IsProcess(self, request: Any, context: Any) -> pb.ProcessReply:
        return pb.ProcessReply(same=request.process in (0, LIARS_PROCESS))

    def ListTablets(self, request: Any, context: Any) -> pb.ListTabletsReply:
        return pb.ListTabletsReply(replicas=self.claims)


def test_forged_heartbeats_delete_nothing_and_their_sender_is_named() -> None:
    """IN-40, IN-41, IN-43. Goal: a process that only sends to the master cannot make it delete a replica. Method: three
    servers and a table. A stranger that listens nowhere, and one that gives a real server's address, count for nothing.
    One that listens counts, and claims by its own uuid to lead every tablet alone in a far term. Heartbeats with the
    same claim under the uuid and address of the real leader do not count, because that leader did not send them. After
    three more heartbeats of each server every replica stays, led as before, and `cluster check` names the liar."""
    with local_cluster() as cluster:
        stack = Stack(cluster)
        tablets = (stack.create(), stack.wait_formed())[1]
        listener = Listener()
        server = grpc.server(futures.ThreadPoolExecutor(2))
        pb_grpc.add_TabletServiceServicer_to_server(listener, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            claimed = [far(t.tablet_id, LIAR) for t in tablets]
            real = stack.cluster.servers[0]
            for at, code in ((1, Code.NOT_READY), (int(real.address.rpartition(":")[2]), Code.NOT_READY)):
                assert beat(stack, LIAR, at, claimed).error.code == code
            listener.claims = claimed
            wait_until(lambda: not beat(stack, LIAR, port, claimed).error.code, "the one that listens counts")
            for tablet in tablets:
                place = next(s for s in stack.cluster.servers if s.uuid == tablet.leader_uuid)
                reply = beat(
                    stack, place.uuid, int(place.address.rpartition(":")[2]), [far(tablet.tablet_id, place.uuid)]
                )
                assert reply.error.code == Code.NOT_READY and not reply.orders, reply

            client = Client([stack.master.address])
            try:

                def named() -> bool:
                    beat(stack, LIAR, port, claimed)
                    found = [f for f in judge(gather(client)) if "is not believed" in f.what]
                    return {f.subject for f in found} == {f"server {LIAR}"} and len(found) == len(tablets)

                wait_until(named, "the liar is named")
                # A deletion that was ordered for it would come with the answers to the servers' own heartbeats.
                beats = Beats(stack, {s.uuid for s in stack.cluster.servers})
                wait_until(lambda: named() and beats.each(3), "each server had three more heartbeats answered")
            finally:
                client.close()
            for one in stack.cluster.servers:
                listed = one.tablets.ListTablets(pb.ListTabletsRequest(dest_uuid=one.uuid), timeout=30)
                assert [r.data_state for r in listed.replicas] == [DataState.READY] * len(tablets)
            real_uuids = {s.uuid for s in stack.cluster.servers}
            assert all({m.uuid for m in t.config.members} == real_uuids for t in stack.wait_formed())
        finally:
            server.stop(None)


@pytest.mark.deep
def test_stranger_under_the_uuids_of_restarting_servers_locks_none_out_and_deletes_nothing() -> None:
    """IN-40, IN-41, IN-43. Goal: a process elsewhere that takes the uuid of each server of a tablet during a rolling
    restart is refused as soon as the server is back, and causes no deletion. Method: two of three servers are stopped
    and started, one after the other; a listener counts under each one's uuid meanwhile, and goes on. With a third
    one they claim a config of the third one alone. The servers count at their own addresses, look-ups name these, the
    catalog has the true config, every replica stays."""
    with local_cluster() as cluster, ExitStack() as ends:
        stack = Stack(cluster)
        (tablet,) = (stack.create(buckets=1), stack.wait_formed())[1]
        listeners: list[Listener] = []

        def listen(uuid: str) -> Listener:
            listener, server = Listener(uuid), grpc.server(futures.ThreadPoolExecutor(2))
            pb_grpc.add_TabletServiceServicer_to_server(listener, server)  # type: ignore[no-untyped-call]
            listener.port = server.add_insecure_port("127.0.0.1:0")
            listener.claims = [far(tablet.tablet_id, uuid)]
            server.start()
            ends.callback(server.stop, None)
            listeners.append(listener)
            return listener

        def lie() -> list[int]:
            return [beat(stack, one.uuid, one.port, one.claims, LIARS_PROCESS).error.code for one in listeners]

        def places() -> dict[str, int]:
            return {s.uuid: s.addresses[0].port for s in stack.table().servers}

        true = {s.uuid: int(s.address.rpartition(":")[2]) for s in cluster.servers}
        for victim in cluster.servers[:2]:
            victim.stop()
            listen(victim.uuid)
            wait_until(lambda: lie()[-1] == Code.OK, "the stranger counts while the server is down")
            victim.start()
            wait_until(lambda: lie()[-1] == Code.ILLEGAL_STATE and places() == true, "the server counts again")
        listen(LIAR)
        for _ in range(12):
            lie()
            time.sleep(0.25)
        assert {*lie()[:2]} <= {Code.ILLEGAL_STATE, Code.NOT_READY} and lie()[2] == Code.OK
        assert places() == true
        assert {m.uuid for m in stack.tablet(tablet.tablet_id).config.members} == set(true)
        for one in cluster.servers:
            assert cluster.status(one, tablet.tablet_id).data_state == DataState.READY


class Beats:
    """Counts the heartbeats of servers, from when each was last heard."""

    APART_S = 0.1
    """Less than between two heartbeats, and more than the time of a call differs."""

    def __init__(self, stack: Stack, uuids: set[str]) -> None:
        self._stack = stack
        self._heard = dict.fromkeys(uuids, time.monotonic())
        self._counts = Counter[str]()

    def each(self, count: int) -> bool:
        """Whether so many came from each server since this object was made. To be asked more often than they come."""
        for server in self._stack.stub.ListServers(pb.ListServersRequest(), timeout=30).servers:
            heard = time.monotonic() - server.last_heartbeat_us_ago / 1e6
            if server.uuid in self._heard and heard > self._heard[server.uuid] + self.APART_S:
                self._heard[server.uuid] = heard
                self._counts[server.uuid] += 1
        return all(self._counts[uuid] >= count for uuid in self._heard)


def far(tablet_id: str, uuid: str) -> pb.ReplicaStatus:
    """Return a claim to lead the tablet, with a config of the liar alone."""
    members = [pb.Member(uuid=LIAR, votes=True, holds_data=True)]
    return pb.ReplicaStatus(
        tablet_id=tablet_id,
        uuid=uuid,
        data_state=DataState.READY,
        phase="RUNNING",
        role="LEADER",
        term=FAR,
        leader_uuid=uuid,
        committed_config=pb.RaftConfig(opid=pb.OpId(term=FAR, index=FAR), members=members),
    )


def beat(stack: Stack, uuid: str, port: int, claims: list[pb.ReplicaStatus], process: int = 0) -> pb.HeartbeatReply:
    """Send a heartbeat from here, whatever sender it names."""
    addresses = [pb.Address(host="127.0.0.1", port=port)]
    request = pb.HeartbeatRequest(server_uuid=uuid, addresses=addresses, full_report=True, replicas=claims)
    if process:
        request.process, request.sequence = process, time.monotonic_ns()
    reply: pb.HeartbeatReply = stack.stub.Heartbeat(request, timeout=30)
    return reply
