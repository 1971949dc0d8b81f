"""Forged links to real servers and masters, by a process that is in no config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent import futures
from itertools import count, permutations
from typing import Any

import grpc
import pytest

from nyala.replica.consensus_metadata import encode_config
from nyala.replica.raft import AppendEntries
from nyala.replica.rpc import config_to_pb, message_to_pb, opid_from_pb, pb, pb_grpc
from nyala.replica.types import Address, DataState, Entry, EntryKind, Member, OpId, RaftConfig
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.links import HandMadeLink, ask_for_link, played_sender
from tests.harness.one_tablet import TABLET, at_leader, create
from tests.harness.rows import batch, write_request
from tests.harness.three_masters import Masters
from tests.process.test_forged_heartbeats_process import LIAR, Listener, beat
from tests.process.test_master_process import Stack

pytestmark = [pytest.mark.process, pytest.mark.deep]
KEYS = count()


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(3) as made:
        create(made)
        yield made


def put(cluster: LocalCluster) -> None:
    """Write a row that the leader must acknowledge."""
    rows = batch([next(KEYS)], ["v"])
    reply = at_leader(cluster, lambda s: s.tablets.Write(write_request(s.uuid, TABLET, rows), timeout=30))
    assert not reply.error.code, reply.error


def forge(cluster: LocalCluster, tablet_id: str, config: RaftConfig | None, at: Address) -> None:
    """Send to each replica one append of a later term that it must not commit, under a strange uuid and under each
    other member's."""
    for server in cluster.servers:
        last = opid_from_pb(cluster.status(server, tablet_id).last_logged)
        opid = OpId(last.term + 5, last.index + 1)
        kind, meta = (EntryKind.CONFIG, encode_config(config)) if config else (EntryKind.NOOP, b"")
        entry = Entry(opid, kind, 1, 0, meta, b"", 0)
        for sender in (LIAR, *(s.uuid for s in cluster.servers if s is not server)):
            append = AppendEntries(
                to_uuid=server.uuid, from_uuid=sender, term=opid.term, prev=last, entries=(entry,), round=1,
                commit_index=opid.index,
            )  # fmt: skip
            granted = ask_for_link(server.channel, sender, server.uuid, at)
            assert not granted.error.code
            link = HandMadeLink(granted.port, granted.ticket)
            messages = [message_to_pb(tablet_id, append)]
            link.send(pb.PeerBatch(from_uuid=sender, dest_uuid=server.uuid, messages=messages).SerializeToString())
            link.finish()


def seen(cluster: LocalCluster, tablet_id: str) -> list[Any]:
    """Return the term, the role and the config of each replica."""
    found = [cluster.status(server, tablet_id) for server in cluster.servers]
    return [(s.term, s.role, opid_from_pb(s.committed_config.opid), s.phase) for s in found]


def test_forged_appends_commit_nothing_and_depose_no_leader(cluster: LocalCluster) -> None:
    """IN-50. Goal: a process outside the config cannot make a replica commit. Method: an append of a later term with an
    empty entry, and one with a config of the forger alone, each with a commit index, to all three replicas, under a
    strange uuid and under those of the members; the forger answers where it says. Terms, leader and configs stay, and
    rows are written."""
    put(cluster)
    wait_until(lambda: {phase for *_, phase in seen(cluster, TABLET)} == {"RUNNING"}, "all three follow")
    before = seen(cluster, TABLET)
    with played_sender() as (_, at):
        forge(cluster, TABLET, None, at)
        forge(cluster, TABLET, RaftConfig(OpId(1, 1), (Member(LIAR, (at,)),)), at)
    put(cluster)
    assert seen(cluster, TABLET) == before


def redirect(processes: Sequence[ServerProcess], at: Address) -> None:
    """Tell each process that each other one is at this address."""
    for one, other in permutations(processes, 2):
        reply = ask_for_link(one.channel, other.uuid, one.uuid, at)
        assert not reply.error.code, reply.error


def test_calls_that_give_another_address_of_a_member_redirect_nothing(cluster: LocalCluster) -> None:
    """IN-50, CN-34. Goal: an address counts only if the member's process answers there. Method: OpenLink calls give
    each server an address of the forger for each other one, where it answers and grants links. No server asks it for a
    link, and rows are written under the same leader; a server that restarts meanwhile comes back to its group."""
    put(cluster)
    before = cluster.leader(TABLET)
    with played_sender() as (forger, at):
        redirect(cluster.servers, at)
        for _ in range(10):
            put(cluster)
        assert cluster.leader(TABLET) is before
        follower = next(s for s in cluster.servers if s is not before)
        follower.kill()
        redirect([s for s in cluster.servers if s is not follower], at)
        follower.start()
        redirect(cluster.servers, at)
        put(cluster)
        wait_until(lambda: cluster.status(follower, TABLET).phase == "RUNNING", "the follower is back")
        assert forger.asked_for_links == []


def test_masters_links_are_not_redirected() -> None:
    """IN-50, MF-10. Goal: the same among masters. Method: three masters; the same calls; a table is made, and no master
    asks the forger for a link."""
    with local_cluster() as cluster, played_sender() as (forger, at):
        masters = Masters(cluster, 3)
        leader = masters.leader()
        redirect(cluster.masters, at)
        cluster.add_server(*("--masters", ",".join(masters.addresses)))
        masters.create("made")
        assert masters.leader() is leader and forger.asked_for_links == []


def test_forged_configs_and_heartbeats_delete_no_replica() -> None:
    """IN-40, IN-50. Goal: no stranger makes the masters delete replicas by what it tells the replicas. Method: a config
    of the liar alone is forged into all three replicas of a tablet; the liar reports the same config to the master
    while it answers all its calls. Every replica stays, and the catalog names the three servers."""
    with local_cluster() as cluster:
        stack = Stack(cluster)
        stack.create(buckets=1)
        [tablet] = stack.wait_formed()
        listener, server = Listener(), grpc.server(futures.ThreadPoolExecutor(4))
        pb_grpc.add_TabletServiceServicer_to_server(listener, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            alone = RaftConfig(OpId(9, 9), (Member(LIAR, (Address("127.0.0.1", port),)),))
            forge(cluster, tablet.tablet_id, alone, Address("127.0.0.1", port))
            real = cluster.status(cluster.servers[0], tablet.tablet_id)
            claim = pb.ReplicaStatus(
                tablet_id=tablet.tablet_id, uuid=LIAR, data_state=DataState.READY, phase="RUNNING", role="LEADER",
                term=real.term + 5, leader_uuid=LIAR, committed_config=config_to_pb(alone),
            )  # fmt: skip
            claim.committed_config.opid.CopyFrom(pb.OpId(term=claim.term, index=real.last_logged.index + 1))
            listener.claims = [claim]
            wait_until(lambda: not beat(stack, LIAR, port, [claim]).error.code, "the one that listens counts")
            for _ in range(8):
                assert not beat(stack, LIAR, port, [claim]).error.code
                [formed] = stack.wait_formed()
                assert {m.uuid for m in formed.config.members} == {s.uuid for s in cluster.servers}
        finally:
            server.stop(None)
        for one in cluster.servers:
            assert cluster.status(one, tablet.tablet_id).data_state == DataState.READY
