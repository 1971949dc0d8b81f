"""Real servers that are lost, frozen, wiped or damaged while a master heals: which are replaced, and when."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import nyala
from nyala.replica.rpc import pb
from nyala.replica.tools import COPY_OVER, Severity, gather, judge
from nyala.replica.types import Code, DataState
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import collect
from tests.harness.told import tell

pytestmark = [pytest.mark.process, pytest.mark.deep]

REPLACED_AFTER_S = 3.0
HEALS = (
    "--server-dead-ms=2000",
    f"--rereplicate-after-ms={REPLACED_AFTER_S * 1000:.0f}",
    "--policy-ms=100",
    "--execute-decisions=master",
)
NO_RETAINED_LOG = ("--log-retain-entries", "0", "--log-retain-bytes", "0")
ROUNDS_S = 1.0
"""Ten rounds of the policy: by then it has done what it was going to do."""
COPY_BYTES_PER_S = 131_072
SLOW_COPIES = ("--copy-rate-bytes-per-s", str(COPY_BYTES_PER_S))
"""Two megabytes take a quarter of a minute: no copy is over before the test has read its state."""


class Yard:
    """One master that replaces members silent for three seconds, its servers, and one table `t` at a time."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.master = cluster.add_master(*HEALS)
        self.nyala = nyala.connect(self.master.address)
        self.client = self.nyala.client

    def use(self, count: int) -> None:
        """Make so many servers live, and no other one; there are no tables."""
        for table in self.client.list_tables():
            self.client.drop_table(table.name)
        while len(self.cluster.servers) < count:
            self.cluster.add_server(*SLOW_COPIES, start=False)
        for server in self.cluster.servers[count:]:
            server.kill()
        self.start(*(s for s in self.cluster.servers[:count] if not s.alive))
        uuids = {s.uuid for s in self.cluster.servers[:count]}
        alive = lambda: {s.uuid for s in self.client.list_servers().servers if s.alive}  # noqa: E731
        wait_until(lambda: alive() == uuids, f"{count} servers are alive")

    @staticmethod
    def start(*processes: ServerProcess) -> None:
        for process in processes:
            process.start(wait=False)
        for process in processes:
            process.wait_ready()

    def create(self, buckets: int) -> list[pb.TabletInfo]:
        self.nyala.create_table("t", {"id": "int64", "v": "string"}, key="id", hash_buckets=buckets)
        wait_until(lambda: all(t.running for t in self.infos()), "every tablet has a leader")
        wait_until(lambda: all(map(self.all_run, self.infos())), "every replica runs")
        return self.infos()

    def all_run(self, info: pb.TabletInfo) -> bool:
        """Return whether all replicas run. One that its leader copied, because the leader was faster than the master's
        order, takes longer."""
        found = [self.cluster.status(self.cluster.server(m.uuid), info.tablet_id) for m in info.config.members]
        return len(found) == 3 and all(s is not None and s.phase == "RUNNING" for s in found)

    def infos(self) -> list[pb.TabletInfo]:
        return self.client.tablet_infos("t")

    def config(self, tablet_id: str) -> pb.RaftConfig:
        """Return the committed config, as the master knows it."""
        return next(t.config for t in self.infos() if t.tablet_id == tablet_id)

    def voters(self, tablet_id: str) -> set[str]:
        return {m.uuid for m in self.config(tablet_id).members if m.votes}

    def learners(self, tablet_id: str) -> list[ServerProcess]:
        return [self.cluster.server(m.uuid) for m in self.config(tablet_id).members if not m.votes]

    def members(self, tablet_id: str) -> list[ServerProcess]:
        """Return the servers that vote, the leader first."""
        leader = self.cluster.leader(tablet_id)
        others = sorted(self.voters(tablet_id) - {leader.uuid})
        return [leader, *map(self.cluster.server, others)]

    def silent(self, *servers: ServerProcess) -> bool:
        """Return whether the master has received nothing from them for so long that it would have replaced them."""
        ago = {s.uuid: s.last_heartbeat_us_ago / 1e6 for s in self.client.list_servers().servers}
        return all(ago[s.uuid] > REPLACED_AFTER_S + ROUNDS_S for s in servers)

    def unheard(self, server: ServerProcess, tablet_id: str) -> bool:
        """Return whether the tablet's leader has received nothing from this member for so long that it would be
        replaced."""
        status = self.cluster.status(self.cluster.leader(tablet_id), tablet_id)
        ago = [p.last_contact_us_ago / 1e6 for p in status.peers if p.uuid == server.uuid]
        return bool(ago) and ago[0] > REPLACED_AFTER_S + ROUNDS_S

    def look_around(self, *servers: ServerProcess) -> None:
        """Wait until the master has received these servers' heartbeats again, and has had time to decide."""
        since, uuids = time.monotonic() + ROUNDS_S, {s.uuid for s in servers}

        def heard() -> bool:
            now, told = time.monotonic(), self.client.list_servers().servers
            return all(now - s.last_heartbeat_us_ago / 1e6 > since for s in told if s.uuid in uuids)

        wait_until(heard, "they were heard of")

    def well(self, rows: int) -> None:
        """Check that nothing is wrong, every replica holds the same, and every row is there once."""

        def healthy() -> bool:
            found = judge(gather(self.client, checksum=True))
            return not [f for f in found if f.severity is Severity.ERROR and f.subject.startswith(("tablet", "table"))]

        wait_until(healthy, "three replicas of each tablet are the same")
        assert self.nyala.table("t").scan().count() == rows


@contextmanager
def frozen(*servers: ServerProcess) -> Iterator[None]:
    """Send SIGSTOP, and in the end SIGCONT in the same order."""
    for server in servers:
        server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for server in servers:
            server.signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with local_cluster() as cluster:
        made = Yard(cluster)
        with made.nyala:
            yield made


def opid(config: pb.RaftConfig) -> tuple[int, int]:
    return config.opid.term, config.opid.index


def test_nobody_leaves_while_the_rest_is_shaky_or_no_replacement_exists(yard: Yard) -> None:
    """Goal: scenarios 108 and 120, TC-81: a lost voter is replaced only where somebody can take its place and the rest
    can agree. Method: three servers, one frozen for longer than the master waits: nobody leaves. A fourth one comes at
    the same time as another of the three is killed: two of three are gone, and the config stays. All that are left are
    frozen, the leader too, and wake up: it stays. One returns: the other one is replaced, and ends as a tombstone."""
    yard.use(3)
    (info,) = yard.create(1)
    tablet, table = info.tablet_id, yard.nyala.table("t")
    table.insert([{"id": 1, "v": "a"}])
    leader, cold, dead = yard.members(tablet)
    before = opid(yard.config(tablet))
    with frozen(cold):
        wait_until(lambda: yard.silent(cold), "the frozen one would have been replaced")
        assert opid(yard.config(tablet)) == before, "as many servers as replicas: nobody is removed"
        table.insert([{"id": 2, "v": "b"}])
        dead.kill()
        spare = yard.cluster.add_server(*SLOW_COPIES)
        with frozen(leader):
            wait_until(lambda: yard.silent(dead, leader), "the killed one would have been replaced, and the leader too")
        yard.look_around(leader, spare)
        assert opid(yard.config(tablet)) == before, "two of three are gone: nobody is removed"
    kept = {leader.uuid, cold.uuid, spare.uuid}
    wait_until(lambda: yard.voters(tablet) == kept, "the one that stays away is replaced")
    table.insert([{"id": 3, "v": "c"}])
    dead.start()
    state = lambda: yard.cluster.status(dead, tablet).data_state  # noqa: E731
    wait_until(lambda: state() == DataState.DELETED, "it is a tombstone")

    wait_until(lambda: len(yard.config(tablet).members) == 3, "nobody is on the way any more")
    before, all_of_it = opid(yard.config(tablet)), yard.members(tablet)
    with frozen(*all_of_it):
        wait_until(lambda: yard.silent(*all_of_it), "everybody would have been replaced")
    yard.look_around(*all_of_it)
    assert opid(yard.config(tablet)) == before, "a leader that was stopped judges nobody by that time, nor itself"
    yard.well(3)


def test_replacements_that_fail_too_and_a_restart_of_everything_end_with_three_voters(yard: Yard) -> None:
    """Goal: scenarios 110 and 111: a replacement that is lost is replaced, and one under way goes on whoever dies.
    Method: five servers with slow copies; a voter is killed, then the server that its replacement is copied to: another
    one is added. In the middle of its copy the master and all servers are killed; without the two lost ones all start:
    it is promoted, the lost voter leaves. It is killed as soon as it votes: one of the first two, back with what it
    had, takes its place. Every row is there."""
    yard.use(5)
    usual = ("--masters", yard.master.address)
    (info,) = yard.create(1)
    tablet, table = info.tablet_id, yard.nyala.table("t")
    table.upsert([{"id": i, "v": f"{(i + 2) ** 800:0200d}"[:200]} for i in range(10_000)])
    leader, lost, _ = yard.members(tablet)
    yard.client.flush(next(s for s in yard.client.list_servers().servers if s.uuid == leader.uuid), tablet)

    def copying(*but: ServerProcess) -> ServerProcess | None:
        joining = [s for s in yard.learners(tablet) if s not in but]
        return joining[0] if joining and [j for j in copies(joining[0]) if j.bytes_done] else None

    lost.kill()
    first = wait_until(copying, "a replacement is copied")
    first.kill()
    second = wait_until(lambda: copying(first), "the replacement that died is replaced")
    assert lost.uuid in yard.voters(tablet) and first.uuid not in {m.uuid for m in yard.config(tablet).members}
    there = [s for s in yard.cluster.servers if s not in (lost, first)]
    assert second in there and second.uuid not in yard.voters(tablet)
    for process in (yard.master, *there):
        process.kill()
    for server in yard.cluster.servers:
        server.extra = usual
    yard.start(yard.master, *there)
    kept = {s.uuid for s in there}
    wait_until(lambda: yard.voters(tablet) == kept, "it is promoted, and the lost one has left")
    second.kill()
    yard.start(lost, first)
    wait_until(lambda: len(v := yard.voters(tablet)) == 3 and second.uuid not in v, "it is replaced as well")
    yard.well(10_000)


def copies(server: ServerProcess) -> list[Any]:
    """Return the copies that run into a server."""
    jobs = server.copies.ListCopies(pb.ListCopiesRequest(dest_uuid=server.uuid), timeout=30).jobs
    return [j for j in jobs if j.phase.startswith("COPY.")]


def ended(server: ServerProcess) -> list[Any]:
    """Return the copies into a server that have ended."""
    jobs = server.copies.ListCopies(pb.ListCopiesRequest(dest_uuid=server.uuid), timeout=30).jobs
    return [j for j in jobs if j.phase in COPY_OVER]


def test_damaged_replica_and_wiped_server_are_replaced_one_by_one(yard: Yard) -> None:
    """Goal: scenarios 116 and 117: one replica that cannot be opened costs itself alone, and a new server at an old
    address is nobody's member. Method: two tablets; a follower starts with damaged metadata of one of them: that one is
    FAILED and, once the master is back, replaced by a copy on the fourth server, the other one serves. Then a follower
    is wiped and starts at its address, as another: what is meant for the old one is refused, and its replicas come
    elsewhere."""
    yard.use(4)
    bad, good = (t.tablet_id for t in yard.create(2))
    table = yard.nyala.table("t")
    table.insert([{"id": i, "v": "a"} for i in range(200)])
    hurt = next(s for s in yard.members(bad)[1:] if s.uuid in yard.voters(good))
    yard.master.kill()  # a start may last longer than the master's patience: the other replica would be replaced too
    hurt.kill()
    path = hurt.root / "consensus-meta" / bad
    assert path.exists(), sorted(p.name for p in hurt.root.iterdir())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    hurt.start()
    wait_until(lambda: yard.cluster.status(hurt, good).phase == "RUNNING", "the other tablet serves")

    def heard() -> bool:
        leader = yard.cluster.leader(good)
        peers = yard.cluster.status(leader, good).peers
        return leader is hurt or any(p.uuid == hurt.uuid and p.health == "OK" for p in peers)

    wait_until(heard, "its leader hears of it")
    yard.master.start()
    wait_until(lambda: len(v := yard.voters(bad)) == 3 and hurt.uuid not in v, "the damaged one is replaced")
    assert hurt.uuid in yard.voters(good) and hurt.log_path.read_text().count("stays offline") == 1
    wait_until(lambda: yard.cluster.status(hurt, bad).data_state == DataState.DELETED, "it is a tombstone")
    table.insert([{"id": i, "v": "b"} for i in range(200, 300)])
    yard.well(300)

    wiped = yard.members(good)[1]
    old, held = wiped.uuid, [t for t in (bad, good) if wiped.uuid in yard.voters(t)]
    wiped.kill()
    shutil.rmtree(wiped.root)
    wiped.start()
    assert wiped.uuid != old
    request = pb.ListTabletsRequest(dest_uuid=old, tablet_ids=held)
    assert wiped.tablets.ListTablets(request, timeout=30).error.code == Code.INVALID_NAME
    healed = lambda: all(len(v := yard.voters(t)) == 3 and old not in v for t in held)  # noqa: E731
    wait_until(healed, "three others vote")
    yard.well(300)


def test_added_server_that_nobody_reaches_counts_against_the_copies_that_may_run(yard: Yard) -> None:
    """Goal: scenario 119: what is not known of a copy counts as one that runs. Method: a master that lets one copy run;
    a server that was just frozen is added to a tablet, and a move of another tablet is wanted: it does not begin
    though its target lives. The server wakes up; then the move is made."""
    try:
        yard.master.kill()
        yard.master.extra = ("--server-dead-ms=10000", "--rereplicate-after-ms=900000", *HEALS[2:], "--moves-max=1")
        yard.master.start()
        yard.use(5)
        one, other = (t.tablet_id for t in yard.create(2))
        servers = yard.cluster.servers
        added = next(s for s in servers if s.uuid not in yard.voters(one))
        target = next(s for s in servers if s is not added and s.uuid not in yard.voters(other))
        source = next(s for s in yard.members(other)[1:] if s is not added)
        before = opid(yard.config(other))
        with frozen(added):
            yard.client.add_replica(one, added.uuid, "PRE_VOTER")
            wait_until(lambda: [s.uuid for s in yard.learners(one)] == [added.uuid], "the master knows of it")
            yard.client.move_replica(other, source.uuid, target.uuid)
            yard.look_around(*(s for s in servers if s is not added))
            assert opid(yard.config(other)) == before, "one copy is under way, as far as anybody knows"
        moved = lambda: target.uuid in (v := yard.voters(other)) and source.uuid not in v  # noqa: E731
        wait_until(moved, "the move is made")
    finally:
        yard.master.kill()
        yard.master.extra = HEALS
        yard.master.start()


def test_slow_start_and_slow_copy_cost_no_member_its_place(yard: Yard) -> None:
    """CN-23. Goal: scenario 115: who answers and is busy is not dead; who fell behind meanwhile is copied to where it
    is, as 112 asks, however long that takes. Method: two tablets on the same three servers; one server is killed, rows
    are written, and the others, started anew, collect the log of one tablet. It starts and opens nothing until its
    leaders have not heard of it for longer than the master waits; a fourth server is free. Nobody leaves. Then it
    opens: the one tablet is caught up, the other one copied at a rate by which it takes longer than the master waits.
    The configs are what they were, and every row is there three times."""
    yard.use(3)
    spare = yard.cluster.servers[3] if yard.cluster.servers[3:] else yard.cluster.add_server(*SLOW_COPIES, start=False)
    stale, fresh = (t.tablet_id for t in yard.create(2))
    table = yard.nyala.table("t")
    table.upsert([{"id": i, "v": "a"} for i in range(100)])
    before = {t: opid(yard.config(t)) for t in (stale, fresh)}
    *others, slow = yard.cluster.servers[:3]
    yard.master.kill()  # a start may last longer than the master's patience
    slow.kill()
    draw = random.Random(115)
    table.upsert([{"id": i, "v": draw.randbytes(150).hex()} for i in range(100, 4_100)])
    for server in others:
        server.kill()
        server.extra = (*SLOW_COPIES, *NO_RETAINED_LOG, "--masters", yard.master.address)
    yard.start(*others)
    for server in others:
        yard.cluster.leader(stale)
        collect(server, tablet_id=stale)
    slow.module = "tests.harness.slow_server"
    tell(slow, "open", 1)
    yard.start(slow, spare, yard.master)

    def busy() -> bool:
        table.upsert([{"id": i, "v": "b"} for i in range(100)])
        return all(yard.unheard(slow, t) for t in before)

    wait_until(busy, "its leaders have not heard of it for long")
    yard.look_around(*others, slow, spare)
    assert {t: opid(yard.config(t)) for t in before} == before, "it talks to the master, and is busy"
    assert {yard.cluster.status(slow, t).phase for t in before} == {"BOOTSTRAPPING"}
    tell(slow, "open", 0)
    # A replica of a table that was dropped before may be copied once more, and ordered away again.
    done = lambda: [j for j in ended(slow) if j.phase == "DONE" and j.tablet_id in before]  # noqa: E731
    (job,) = wait_until(done, "what fell behind is copied")
    assert job.tablet_id == stale and job.bytes_total > COPY_BYTES_PER_S * (REPLACED_AFTER_S + ROUNDS_S)
    wait_until(lambda: all(map(yard.all_run, yard.infos())), "every replica runs")
    yard.well(4_100)
    assert {t: opid(yard.config(t)) for t in before} == before, "a slow copy costs nobody its place"
    assert [j.tablet_id for j in ended(slow) if j.tablet_id in before] == [stale], "the log of the other one was enough"
