"""Faults of the host under real servers: stopped processes, no descriptor and no memory map left.

docs/operate/repair.md, "When the host is at fault", states what must hold. Disks: `test_host_faults_disk.py`; slow
disks: `test_slow_servers_process.py`; clocks that are set: `test_times_process.py`.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.fs.map_reserve import COUNT_EVERY_S
from nyala.replica.rpc import pb
from nyala.replica.types import Code
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.memory_maps import AT_ONCE, maps_max, server_env
from tests.harness.one_tablet import TABLET, create, flush, lead, leaders_by_term, scan_leader, wait_equal, write
from tests.harness.rows import batch, read_rows, write_request
from tests.harness.steady_cluster import steady_cluster

pytestmark = [pytest.mark.process, pytest.mark.deep]

SHORT_S = 1.0
"""A pause shorter than the three seconds that a follower with the tick of steady servers waits at least."""
LONG_S = float(os.environ.get("NYALA_TEST_PAUSE_S", "8"))
"""A pause longer than the five seconds that such a follower waits at most, and that a leader's lease lasts. By hand:
60."""
SECOND_US = 1_000_000


@pytest.fixture
def steady() -> Iterator[LocalCluster]:
    with steady_cluster() as made:
        yield made


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(3) as made:
        yield made


def put(server: ServerProcess, key: int, value: str) -> Any:
    request = write_request(server.uuid, TABLET, batch([key], [value]))
    return server.tablets.Write(request, timeout=LONG_S + 60)


def strong_read(server: ServerProcess) -> dict[int, str | None] | int:
    """Return the rows as the server reads them as the leader, or the code of its refusal."""
    request = pb.ScanRequest(
        dest_uuid=server.uuid, tablet_id=TABLET, table_id="t1", all_columns=True, timeout_us=60 * SECOND_US
    )
    chunks = list(server.tablets.Scan(request, timeout=LONG_S + 120))
    return int(chunks[-1].error.code) or read_rows(chunks)[0]


def test_leader_that_is_stopped_for_less_than_the_election_timeout_leads_on(steady: LocalCluster) -> None:
    """Goal: a pause of the host that is shorter than an election timeout costs time only. Method: the leader of three
    servers is stopped for a second, a third of what followers wait; a write sent meanwhile is acknowledged by it
    afterwards, in the same term, and three replicas are equal."""
    leader = create(steady)
    write(steady, 0, 10)
    wait_equal(steady.servers, write(steady, 10, 1))
    term = steady.status(leader, TABLET).term
    with ThreadPoolExecutor(1) as pool:
        leader.signal(signal.SIGSTOP)
        sent = pool.submit(put, leader, 20, "while it was stopped")
        time.sleep(SHORT_S)
        leader.signal(signal.SIGCONT)
        reply = sent.result()
    assert not reply.error.code, reply.error
    assert steady.leader(TABLET) is leader and steady.status(leader, TABLET).term == term
    wait_equal(steady.servers, reply.hybrid_time)


def test_leader_that_wakes_behind_its_lease_serves_no_old_row_and_keeps_no_promise_of_others(
    steady: LocalCluster,
) -> None:
    """CN-26. Goal: a process that was stopped for longer than its lease and an election cannot tell how late it is, and
    is right all the same. Method: the leader is stopped, and a strong read and a write wait in its sockets; another
    leads, and the row is changed; it wakes: the read is refused or has the new value, never the old one; the write is
    refused as not applied, or is there. No term has two leaders, every acknowledged row is everywhere, and it votes."""
    leader = create(steady)
    write(steady, 0, 10)
    assert not put(leader, 1, "old").error.code
    wait_equal(steady.servers, write(steady, 20, 1))
    others = [s for s in steady.servers if s is not leader]
    with ThreadPoolExecutor(2) as pool:
        leader.signal(signal.SIGSTOP)
        began = time.monotonic()
        read, written = pool.submit(strong_read, leader), pool.submit(put, leader, 30, "late")
        try:
            successor = next_leader(steady, others)
            assert not put(successor, 1, "new").error.code
            time.sleep(max(0.0, began + LONG_S - time.monotonic()))
            assert not put(successor, 2, "new").error.code
        finally:
            leader.signal(signal.SIGCONT)
        found, reply = read.result(), written.result()
    if isinstance(found, dict):
        assert found[1] == found[2] == "new", found
    else:
        assert found in (Code.NOT_LEADER, Code.NOT_READY, Code.TIMED_OUT), found
    at = write(steady, 40, 1)
    assert wait_equal(steady.servers, at)[1] >= 12
    rows = scan_leader(steady)
    assert (rows[1], rows[2]) == ("new", "new") and set(range(10)) | {20, 40} <= set(rows)
    assert rows.get(30, "late") == "late" and (30 in rows or reply.error.code), reply
    if reply.error.code and not reply.error.outcome_unknown:
        assert 30 not in rows, reply.error
    assert all(len(uuids) == 1 for uuids in leaders_by_term(steady).values())


def next_leader(cluster: LocalCluster, among: list[ServerProcess]) -> ServerProcess:
    """Return which of the servers leads, once one does and its term is open."""

    def found() -> ServerProcess | None:
        for server in among:
            barrier = pb.LedgerRequest(dest_uuid=server.uuid, tablet_id=TABLET)
            status = cluster.status(server, TABLET)
            leads = status is not None and status.role == "LEADER"
            if leads and not server.tablets.Ledger(barrier, timeout=30).error.code:
                return server
        return None

    return wait_until(found, "another server leads")


def open_files(server: ServerProcess) -> int:
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def limited(server: ServerProcess, what: int, to: int) -> Callable[[], None]:
    """Set the soft limit of a running server; returns a function that sets it back."""
    assert server.process is not None
    pid = server.process.pid
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (to, before[1]))
    return lambda: resource.prlimit(pid, what, before) and None


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_server_without_a_descriptor_left_says_so_loses_nothing_and_heals(cluster: LocalCluster, role: str) -> None:
    """IN-30. Goal: a lack of descriptors costs no row, no replica and no process. Method: a leader, or a follower, may
    open nothing more. Segments of its log are full by then, new tablets are requested and new connections come: 12 MB
    of rows are acknowledged by the leader of the moment, a new tablet there is refused or fails by name, and its log
    names the limit. With the former limit, and without a restart, it accepts the tablet, and three replicas are
    equal."""
    leader = create(cluster)
    write(cluster, 0, 10)
    wait_equal(cluster.servers, write(cluster, 10, 1))
    server = leader if role == "leader" else next(s for s in cluster.servers if s is not leader)
    process = server.process
    give_back = limited(server, resource.RLIMIT_NOFILE, open_files(server))
    at = write_much(cluster)
    wanted = re.compile(r"too many files are open in this process: raise its limit|open files are used")
    wait_until(lambda: wanted.search(server.log_path.read_text()), "it says what it lacks")
    assert server.alive and server.process is process
    give_back()
    at = max(at, write(cluster, 1000, 1))
    create(cluster, tablet_id="after")
    assert wait_equal(cluster.servers, at)[1] == 12 + MUCH_ROWS
    assert server.process is process and cluster.status(server, TABLET).phase == "RUNNING"
    lead(cluster, server)


def test_servers_with_hardly_a_memory_map_say_so_lose_nothing_and_heal(tmp_path: Path) -> None:
    """IN-30, IN-32. Goal: a lack of memory maps costs no row, no replica and no process. Method: other work of all
    three servers really uses up 99 % of their maps. Rows are acknowledged, another server is elected, and the log of
    each says why nothing is flushed. With maps again, and without a restart, all three flush, lead in turn, and are
    equal; none was FAILED."""
    with three_with_maps_left(tmp_path, 0.01) as cluster:
        leader = create(cluster)
        wait_equal(cluster.servers, write(cluster, 0, 10))
        processes = [server.process for server in cluster.servers]
        use_up_maps(cluster.servers)
        write(cluster, 100, 10)
        lead(cluster, next(s for s in cluster.servers if s is not leader))
        wait_equal(cluster.servers, write(cluster, 200, 10))
        for server in cluster.servers:
            flush(server, tablet_id=TABLET)
            assert "maintenance refused: OVERLOADED: too many memory maps are in use" in server.log_path.read_text()
            assert cluster.status(server, TABLET).phase == "RUNNING"
            assert not cluster.status(server, TABLET).flush_index
        give_maps_back(cluster.servers)
        assert wait_equal(cluster.servers, write(cluster, 300, 10))[1] == 40
        for server in cluster.servers:
            lead(cluster, server)
            flush(server)
            assert cluster.status(server, TABLET).flush_index
            assert "FAILED" not in server.log_path.read_text()
        assert [server.process for server in cluster.servers] == processes


def test_server_that_starts_with_hardly_a_memory_map_waits_until_there_are_some(tmp_path: Path) -> None:
    """IN-30, IN-32. Goal: a replica that cannot be opened for lack of memory maps is not given up. Method: a follower
    with a flushed block is killed, and starts while other work really uses 98.5 % of its maps: its replica is
    BOOTSTRAPPING, and the status has the remedy; the others serve, and flush. With maps again it opens by itself and is
    equal to them; it was never FAILED."""
    with three_with_maps_left(tmp_path, 0.015) as cluster:
        leader = create(cluster)
        wait_equal(cluster.servers, write(cluster, 0, 10))
        follower = next(s for s in cluster.servers if s is not leader)
        flush(follower)
        assert cluster.status(follower, TABLET).flush_index
        follower.stop(signal.SIGKILL)
        follower.start(env=AT_ONCE)
        process = follower.process
        wait_until(lambda: cluster.status(follower, TABLET).error, "it says why it waits")
        status = cluster.status(follower, TABLET)
        assert status.phase == "BOOTSTRAPPING" and "raise vm.max_map_count" in status.error, status
        assert not status.damaged
        at = write(cluster, 100, 10)
        give_maps_back([follower])
        assert wait_equal(cluster.servers, at)[1] == 20
        assert follower.process is process and cluster.status(follower, TABLET).phase == "RUNNING"
        assert "FAILED" not in follower.log_path.read_text()


@contextmanager
def three_with_maps_left(folder: Path, share: float) -> Iterator[LocalCluster]:
    """Three servers that can be made to use up all but this share of their memory maps."""
    with local_cluster(0) as made:
        for _ in range(3):
            made.add_server(env=server_env(folder / "site", int(maps_max() * share)))
        yield made


def used_share(server: ServerProcess) -> float:
    assert server.process is not None
    with open(f"/proc/{server.process.pid}/maps", "rb") as lines:
        return sum(1 for _ in lines) / maps_max()


def use_up_maps(servers: Sequence[ServerProcess]) -> None:
    for server in servers:
        server.signal(signal.SIGUSR1)
        wait_until(lambda server=server: used_share(server) > 0.95, "its maps are used up")
    time.sleep(COUNT_EVERY_S)  # a server goes by an older count for so long


def give_maps_back(servers: Sequence[ServerProcess]) -> None:
    for server in servers:
        server.signal(signal.SIGUSR2)
        wait_until(lambda server=server: used_share(server) < 0.5, "it has maps again")
    time.sleep(COUNT_EVERY_S)


MUCH_ROWS, MUCH_BYTES = 1200, 10_000


def write_much(cluster: LocalCluster) -> int:
    """Write 12 MB of rows, acknowledged by the leader of the moment: more than the first segments of a log hold."""
    time_of_last = 0
    for first in range(2000, 2000 + MUCH_ROWS, 100):
        time_of_last = write(cluster, first, 100, size=MUCH_BYTES)
    return time_of_last
