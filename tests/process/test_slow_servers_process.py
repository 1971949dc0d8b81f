"""Real servers that are alive and slow: late votes, and logs whose syncs take longer than an election timeout."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from time import monotonic

import grpc.aio
import pytest

from nyala.replica.raft import Message, VoteReply, VoteRequest
from nyala.replica.rpc import SERVER_OPTIONS, pb_grpc
from nyala.replica.transport import PeerNetwork, PeerServicer
from nyala.replica.types import Address, OpId, new_uuid
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.links import trusting
from tests.harness.one_tablet import create, leaders_by_term, wait_equal, write
from tests.harness.steady_cluster import steady_cluster
from tests.harness.told import tell

pytestmark = [pytest.mark.process, pytest.mark.deep]

LATE_S = 1.5
"""Longer than any election timeout of servers with the usual tick, which is a second at most."""
STEADY_S = 5.5
"""Longer than any election timeout of servers with the tick of steady ones, which is five seconds at most."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(5, module="tests.harness.slow_server") as made:
        yield made


@pytest.fixture
def steady() -> Iterator[LocalCluster]:
    with steady_cluster() as made:
        yield made


def test_group_elects_with_two_of_five_whose_votes_are_late_and_never_two_leaders(cluster: LocalCluster) -> None:
    """Goal: scenario 98. Method: five voters, two of which send each vote, and each request for one, a second and a
    half late, from the first election on. The leader is stopped until others ask for votes, and goes on: some server
    leads, rows are accepted, and no term ever had two leaders; once the votes are in time the leader's death costs no
    row."""
    tablet = "late-votes"
    for server in cluster.servers[3:]:
        tell(server, "votes", LATE_S)
    create(cluster, tablet_id=tablet)
    write(cluster, 0, 10, tablet_id=tablet)
    leader = cluster.leader(tablet)
    others = [s for s in cluster.servers if s is not leader]
    leader.signal(signal.SIGSTOP)
    try:
        asks = lambda: any(cluster.status(s, tablet).role in ("PRE_CANDIDATE", "CANDIDATE", "LEADER") for s in others)  # noqa: E731
        wait_until(asks, "the others notice")
    finally:
        leader.signal(signal.SIGCONT)
    write(cluster, 10, 10, tablet_id=tablet)
    for server in cluster.servers:
        tell(server, "votes", 0)
    leader = cluster.leader(tablet)
    leader.kill()
    time = write(cluster, 20, 10, tablet_id=tablet)
    leader.start()
    asked = [s for s in cluster.servers if s is not leader]
    assert wait_equal_rows(asked, time, tablet) == 30
    found = leaders_by_term(cluster, tablet)
    assert len(found) >= 2 and all(len(uuids) == 1 for uuids in found.values()), found


def wait_equal_rows(servers: list[ServerProcess], time: int, tablet_id: str) -> int:
    return wait_equal(servers, time, tablet_id=tablet_id)[1]


class Rogue:
    """A server of the group's peers that is in no config: it asks for votes in ever higher terms, and receives the
    answers."""

    def __init__(self, tablet_id: str, voters: list[ServerProcess]) -> None:
        self.answers: list[VoteReply] = []
        self._tablet_id, self._voters = tablet_id, voters
        self._end = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._ask()), daemon=True)

    def __enter__(self) -> Rogue:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _hear(self, _: str, message: Message) -> None:
        if isinstance(message, VoteReply):
            self.answers.append(message)

    async def _ask(self) -> None:
        uuid = new_uuid()
        server = grpc.aio.server(options=list(SERVER_OPTIONS))
        servicer = PeerServicer(uuid, self._hear, trusting())
        pb_grpc.add_PeerServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        await servicer.listen("127.0.0.1")
        await server.start()
        network = PeerNetwork(uuid, Address("127.0.0.1", port))
        for voter in self._voters:
            network.learn(voter.uuid, [Address.parse(voter.address)])
        term = 1000
        while not self._end.is_set():
            term += 1
            ahead = OpId(term - 1, 1 << 40)
            for voter in self._voters:
                for pre_vote in (True, False):
                    ask = VoteRequest(to_uuid=voter.uuid, from_uuid=uuid, term=term, last=ahead, pre_vote=pre_vote)
                    network.send([(self._tablet_id, ask)])
            await asyncio.sleep(0.05)
        await network.close()
        await server.stop(0)
        await servicer.close()


def test_rogue_gets_no_vote_while_a_healthy_leaders_appends_take_long(steady: LocalCluster) -> None:
    """Goal: scenario 91. Method: three voters whose logs take longer to sync than an election timeout; a server with an
    endless log asks each for its pre-vote and its vote, in ever higher terms, all the while that rows are written. It
    gets none, the rows are acknowledged, and leader and term are the same."""
    cluster, tablet, voters = steady, "slow-log", steady.servers
    create(cluster, tablet_id=tablet)
    write(cluster, 0, 10, tablet_id=tablet)
    leader = cluster.leader(tablet)
    term = cluster.status(leader, tablet).term
    for server in voters:
        tell(server, "sync", STEADY_S)
    try:
        with Rogue(tablet, voters) as rogue:
            wait_until(lambda: len({m.from_uuid for m in rogue.answers}) == 3, "all hear it and answer")
            for first in (10, 20):
                before, began = len(rogue.answers), monotonic()
                time = write(cluster, first, 10, tablet_id=tablet)
                assert monotonic() - began >= STEADY_S, "the logs are slow"
                asked = {m.from_uuid for m in rogue.answers[before:]}
                assert asked == {s.uuid for s in voters}, "all of them were asked while it was written"
    finally:
        for server in voters:
            tell(server, "sync", 0)
    assert not [m for m in rogue.answers if m.granted]
    assert cluster.leader(tablet) is leader and cluster.status(leader, tablet).term == term
    assert wait_equal_rows(voters, time, tablet) == 30
