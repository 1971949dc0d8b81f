"""Members that may vote, lead and change a group: real servers that lost their disks, or whose configs are under
way."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nyala.replica.rpc import pb
from nyala.replica.types import Code
from tests.harness.candidate import Ear, Voter
from tests.harness.cluster import STEADY, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.links import ask_for_link
from tests.harness.one_tablet import TABLET, change, create, lead, leaders_by_term, rows_of, wait_equal, write
from tests.harness.rows import batch, table_info, write_request

pytestmark = [pytest.mark.process, pytest.mark.deep]


def status_of(cluster: LocalCluster, server: ServerProcess) -> Any:
    """Return the status of a replica that exists."""
    status = cluster.status(server, TABLET)
    assert status is not None, server.name
    return status


def config_of(cluster: LocalCluster, server: ServerProcess) -> set[str]:
    """Return the voters of the config that is committed as far as the server knows."""
    status = cluster.status(server, TABLET)
    return {m.uuid for m in status.committed_config.members if m.votes} if status is not None else set()


def change_at(server: ServerProcess, kind: str, member: Any) -> Any:
    """Begin a call: one config change at this server."""
    edits = [pb.ConfigEdit(kind=kind, member=member)]
    request = pb.ChangeConfigRequest(dest_uuid=server.uuid, tablet_id=TABLET, edits=edits)
    return server.tablets.ChangeConfig.future(request, timeout=60)


def wiped(server: ServerProcess) -> str:
    """Remove its disk's content and start a new server at its address; returns the former uuid."""
    before = server.uuid
    server.kill()
    shutil.rmtree(server.root)
    server.start()
    assert server.uuid != before
    return before


def test_server_that_lost_its_disk_is_nobody_until_it_is_added_and_two_of_them_elect_nobody() -> None:
    """Goal: scenario 5. Method: a and c have acknowledged what b has not; a dies, c loses its disk and comes back at
    its address under another name: it refuses what is meant for c, and b, which asks it for votes, leads nothing.
    With a back the rows are there; the new server is added, as one that does not vote until it was copied to. Then it
    and b lose their disks: a alone asks in vain, and nobody leads."""
    with local_cluster(3) as cluster:
        a, b, c = cluster.servers
        create(cluster)
        write(cluster, 0, 10)
        b.kill()
        at = write(cluster, 10, 10)
        lead(cluster, a)
        a.kill()
        before = wiped(c)
        assert ask_for_link(c.channel, b.uuid, before).error.code == Code.INVALID_NAME
        b.start()

        def in_vain(server: ServerProcess) -> bool:
            """Return whether it asks for votes, and is answered by another server than it means."""
            status = cluster.status(server, TABLET)
            return status is not None and status.role == "PRE_CANDIDATE" and c.uuid in server.log_path.read_text()

        wait_until(lambda: in_vain(b), "b asks for votes")
        term = status_of(cluster, b).term
        assert cluster.status(c, TABLET) is None

        a.start()
        assert cluster.leader(TABLET) is a, "b lacks what was acknowledged"
        assert status_of(cluster, b).term > term
        assert wait_equal([a, b], at)[1] == 20
        change(cluster, "remove", pb.Member(uuid=before))  # first: once c is copied to, a change is under way
        added = change(cluster, "add", c.member(votes=False, promote=True))
        assert [m.votes for m in added.members if m.uuid == c.uuid] == [False], "not before it was copied to"
        wait_until(lambda: config_of(cluster, a) == {a.uuid, b.uuid, c.uuid}, "it votes")
        assert wait_equal(cluster.servers, at)[1] == 20

        a.kill()
        for server in (b, c):
            wiped(server)
        a.start()
        wait_until(lambda: in_vain(a), "a asks for votes")
        assert [cluster.status(server, TABLET) for server in (b, c)] == [None, None]
        assert rows_of(a, at) != (0, 0) and status_of(cluster, a).role == "PRE_CANDIDATE"


def test_config_change_at_a_leader_whose_term_is_not_open_is_refused_by_a_clear_code() -> None:
    """Goal: scenario 21. Method: a real server, elected by two voters that the test plays: they give their votes and
    hear heartbeats, and take no entry. A change, and a write, are NOT_READY, and change nothing; once the voters take
    entries both are carried out."""
    with local_cluster(1) as cluster, Voter() as one, Voter() as two:
        (server,) = cluster.servers
        config = pb.RaftConfig(members=[server.member(), one.member(), two.member()])
        request = pb.CreateTabletRequest(
            dest_uuid=server.uuid, tablet_id=TABLET, table=table_info(), config=config, leader_hint=server.uuid
        )
        assert not server.tablets.CreateTablet(request, timeout=30).error.code
        wait_until(lambda: status_of(cluster, server).role == "LEADER", "it is elected")
        voters = {server.uuid, one.uuid, two.uuid}
        removal = pb.Member(uuid=two.uuid)
        rows = write_request(server.uuid, TABLET, batch([1], ["a"]))

        def in_one_term() -> tuple[Any, ...] | None:
            """Return the status, the answers to a change and a write, and the status then; None if it did not lead all
            along in one term, whose first entry it has."""
            before = status_of(cluster, server)
            changed = change_at(server, "remove", removal).result().error
            written = server.tablets.Write(rows, timeout=30).error
            after = status_of(cluster, server)
            led = before.role == after.role == "LEADER" and before.term == after.term == before.last_logged.term
            return (before, changed, written, after) if led else None

        before, refused, written, after = wait_until(in_one_term, "it leads while it is asked")
        assert refused.code == Code.NOT_READY and "no entry of this term is committed" in refused.message, refused
        assert written.code == Code.NOT_READY
        assert (after.last_logged, config_of(cluster, server)) == (before.last_logged, voters)
        one.takes = two.takes = True
        wait_until(lambda: not server.tablets.Write(rows, timeout=30).error.code, "the term is open")
        assert {m.uuid for m in change(cluster, "remove", removal).members} == voters - {two.uuid}


def test_voter_of_a_config_under_way_is_elected_by_it() -> None:
    """Goal: scenario 24. Method: of five one is removed, and added back while three are down: the change is in two
    logs, and under way. The leader steps down, hearing too few, and is stopped; two come back that know the four only,
    and cannot elect one of themselves: the fifth is elected, as the config in its log has it, and all five converge.
    The two know the fifth by another tablet: they take votes and appends only of servers that they know."""
    with local_cluster(5, module=STEADY) as cluster:
        a, b, c, d, e = cluster.servers
        create(cluster)
        create(cluster, tablet_id="another")
        lead(cluster, a)
        wait_equal(cluster.servers, write(cluster, 0, 10))
        change(cluster, "remove", pb.Member(uuid=e.uuid))
        four = {server.uuid for server in (a, b, c, d)}
        wait_until(lambda: all(config_of(cluster, s) == four for s in (a, b, c, d)), "four know that they are four")
        lead(cluster, a)
        for server in (b, c, d):
            server.signal(signal.SIGKILL)  # all at once: the leader steps down after five seconds
        for server in (b, c, d):
            server.kill()
        adding = change_at(a, "add", e.member())

        def arrived() -> bool:
            here, there = status_of(cluster, a), status_of(cluster, e)
            return len(there.pending_config.members) == 5 and here.last_logged == there.last_logged

        wait_until(arrived, "the change is in both logs")
        wait_until(lambda: status_of(cluster, a).role != "LEADER", "the leader steps down")
        term = status_of(cluster, a).term
        a.signal(signal.SIGSTOP)
        for server in (b, c):
            server.start(wait=False)
        later = lambda: {t: who for t, who in leaders_by_term(cluster, TABLET).items() if t > term}  # noqa: E731
        found = wait_until(later, "somebody is elected")
        assert found[min(found)] == {e.uuid}, "the fifth is elected"
        a.signal(signal.SIGCONT)
        d.start(wait=False)
        for server in (b, c, d):
            server.wait_ready()
        adding.cancel()
        five = {server.uuid for server in cluster.servers}
        wait_until(lambda: all(config_of(cluster, s) == five for s in cluster.servers), "all know that they are five")
        assert wait_equal(cluster.servers, write(cluster, 10, 10))[1] == 20


CLOCK = "clock-"
"""The prefix of the names of tablets of one server and a listener: there is no majority, so its server asks in every
timeout."""


def create_at(server: ServerProcess, tablet_id: str, members: list[Any]) -> None:
    request = pb.CreateTabletRequest(
        dest_uuid=server.uuid, tablet_id=tablet_id, table=table_info(), config=pb.RaftConfig(members=members)
    )
    reply = server.tablets.CreateTablet(request, timeout=30)
    assert not reply.error.code, reply.error


def who_asks(
    ear: Ear, servers: list[ServerProcess], at_least: Sequence[ServerProcess] = (), meanwhile: Callable[[], Any] = int
) -> set[str]:
    """Return which of these ask for votes of the tablet while the longest election timeout passes at each of them:
    between a request of its clock and the next but one, two timeouts, which are more than the longest one; and until
    these have asked. `meanwhile` is called again and again."""
    since = len(ear.asked)

    def pleas(server: ServerProcess) -> list[str]:
        """Return the server's requests, from its clock's first one on."""
        found = [tablet_id for tablet_id, uuid in ear.asked[since:] if uuid == server.uuid]
        return found[found.index(CLOCK + server.uuid) :] if CLOCK + server.uuid in found else []

    def over() -> bool:
        meanwhile()
        clocks = all(pleas(s).count(CLOCK + s.uuid) >= 3 for s in servers)
        return clocks and all(TABLET in pleas(s) for s in at_least)

    wait_until(over, "their clocks go, and who must ask has asked")
    return {s.uuid for s in servers if TABLET in pleas(s)}


def test_election_timer_runs_on_followers_that_vote_and_on_nobody_else() -> None:
    """CN-31. Goal: scenario 97. Method: three servers, of which two vote and one learns, and a voter that hears all
    pleas for votes and answers none. While the leader is well nobody asks, it included; while it is stopped the other
    voter asks and the learner does not; made a voter, it asks as well; demoted, it does not. How long nobody asks is
    told by the same server: it asks in every timeout for a tablet of its own, which cannot have a leader."""
    with local_cluster(3) as cluster, Ear() as ear:
        first, follower, learner = cluster.servers
        members = [s.member(votes=s is not learner) for s in cluster.servers]
        for server in cluster.servers:
            create_at(server, TABLET, [*members, ear.member()])
            create_at(server, CLOCK + server.uuid, [server.member(), ear.member()])

        def all_well() -> bool:
            """Return whether one leads for a while, in one term, and no member asks; its group shall not go quiet."""
            before = status_of(cluster, leader := cluster.leader(TABLET))
            asking = who_asks(ear, cluster.servers, meanwhile=lambda: write(cluster, 0, 1))
            after = status_of(cluster, leader)
            return not asking and before.role == after.role == "LEADER" and before.term == after.term

        def while_the_first_is_stopped(*must: ServerProcess) -> set[str]:
            """Return which of the others ask, when the first server led."""
            write(cluster, 0, 1)
            lead(cluster, first)
            first.signal(signal.SIGSTOP)
            try:
                return who_asks(ear, [follower, learner], must)
            finally:
                first.signal(signal.SIGCONT)

        wait_until(all_well, "one leads, and nobody asks")
        assert while_the_first_is_stopped(follower) == {follower.uuid}
        change(cluster, "change", learner.member(votes=False, promote=True))
        everybody = {s.uuid for s in cluster.servers} | {ear.uuid}
        wait_until(lambda: all(config_of(cluster, s) == everybody for s in cluster.servers), "it votes")
        while_the_first_is_stopped(follower, learner)
        change(cluster, "change", learner.member(votes=False))
        voters = everybody - {learner.uuid}
        wait_until(lambda: all(config_of(cluster, s) == voters for s in cluster.servers), "it does not vote")
        assert while_the_first_is_stopped(follower) == {follower.uuid}
