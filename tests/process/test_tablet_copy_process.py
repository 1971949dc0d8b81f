"""Tablet copies between real servers: many requests at once, a follower left behind, a death in the middle."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nyala.replica.rpc import pb
from nyala.replica.tablet_copy.wire.remote_source import RemoteCopySource
from nyala.replica.types import CRASH_EXIT_CODE, Code, DataState
from nyala.replica.types.crash_points import CRASH_VARIABLE
from tests.harness.cluster import STEADY, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import (
    TABLET,
    change,
    collect,
    copies,
    create,
    flush,
    leaders_by_term,
    start_copy,
    wait_equal,
    write,
)
from tests.harness.rows import batch, read_rows, table_info, write_request

pytestmark = pytest.mark.process

NO_RETAINED_LOG = ("--log-retain-entries", "0", "--log-retain-bytes", "0")


def state(cluster: LocalCluster, server: ServerProcess) -> tuple[int, str]:
    status = cluster.status(server, TABLET)
    return (status.data_state, status.role) if status is not None else (int(DataState.DOES_NOT_EXIST), "")


def is_voter(cluster: LocalCluster, server: ServerProcess) -> bool:
    config = cluster.status(cluster.leader(TABLET), TABLET).committed_config
    return any(m.uuid == server.uuid and m.votes for m in config.members)


def test_many_copy_requests_at_once_run_one_copy() -> None:
    """Goal: rows TC-27, TC-28 and TC-10. Method: 50 StartTabletCopy at once to a blank server with a throttled
    download: one is accepted, the others are told that it is in progress; one session serves it, and its files are all
    there are in the end; progress is visible; a late request that still believes in the blank server is refused once
    the replica is READY, and a stale term too."""
    with local_cluster(1) as cluster:
        source = create(cluster, cluster.servers[:1])
        time = write(cluster, 0, 20_000)
        flush(source)
        target = cluster.add_server("--copy-rate-bytes-per-s", "250000")  # eight seconds, for 50 requests
        term = cluster.status(source, TABLET).term
        with ThreadPoolExecutor(50) as pool:
            replies = list(pool.map(lambda _: start_copy(source, target, term, DataState.DOES_NOT_EXIST), range(50)))
        codes = [r.error.code for r in replies]
        assert codes.count(0) == 1 and codes.count(Code.ALREADY_INPROGRESS) == 49

        def progress() -> Any:
            jobs = target.copies.ListCopies(pb.ListCopiesRequest(dest_uuid=target.uuid), timeout=30).jobs
            return [j for j in jobs if 0 < j.bytes_done < j.bytes_total and j.phase.startswith("COPY.")]

        one = lambda: [j.phase for j in copies(source)] == ["SERVING"]  # noqa: E731
        wait_until(lambda: one() and progress(), "the one session's copy shows its progress in bytes")
        wait_until(lambda: state(cluster, target)[0] == DataState.READY, "the copy is READY")
        wait_until(lambda: [j.phase for j in copies(target)] == ["DONE"], "it was the only one")
        names = lambda s, folder: sorted(path.name for path in (s.root / folder).iterdir())  # noqa: E731
        assert names(target, "data") == names(source, "data") and not names(target, "quarantine")
        late = start_copy(source, target, term, DataState.DOES_NOT_EXIST)
        assert (late.error.code, late.error.detail) == (Code.ILLEGAL_STATE, "STATE")
        stale = start_copy(source, target, term - 1, DataState.READY)
        assert (stale.error.code, stale.current_term) == (Code.BAD_TERM, term)
        assert state(cluster, target)[0] == DataState.READY
        assert time > 0


@pytest.mark.deep
def test_strangers_request_does_not_replace_intact_replicas() -> None:
    """TC-28, TC-58. Goal: a process that is in no config cannot have the replicas of a tablet replaced by its own.
    Method: a fourth server makes a tablet of the same id for itself alone, in a later term, with other rows. Three
    replicas that have a leader are asked to copy from it, under its own uuid and under the leader's at its address;
    then one of them without a leader. Each stays READY with its config, and the rows are those that were
    acknowledged."""
    with local_cluster(4) as cluster:
        three, stranger = cluster.servers[:3], cluster.servers[3]
        create(cluster, three)
        write(cluster, 0, 100)
        leader = cluster.leader(TABLET)
        config = pb.RaftConfig(members=[stranger.member()])
        made = pb.CreateTabletRequest(
            dest_uuid=stranger.uuid, tablet_id=TABLET, table=table_info(), config=config, leader_hint=stranger.uuid
        )
        assert not stranger.tablets.CreateTablet(made, timeout=30).error.code
        for _ in range(3):
            wait_until(lambda: cluster.status(stranger, TABLET).role == "LEADER", "the stranger leads its own tablet")
            stranger.stop()
            stranger.start()
        false_rows = write_request(stranger.uuid, TABLET, batch(list(range(300)), ["false"] * 300))
        wait_until(
            lambda: not stranger.tablets.Write(false_rows, timeout=30).error.code, "the stranger leads its own tablet"
        )
        term = cluster.status(leader, TABLET).term + 5
        host, _, port = stranger.address.rpartition(":")

        def ask(target: ServerProcess, source_uuid: str) -> Any:
            request = pb.StartTabletCopyRequest(
                dest_uuid=target.uuid,
                from_uuid=source_uuid,
                from_addresses=[pb.Address(host=host, port=int(port))],
                tablet_id=TABLET,
                term=term,
                current_state=int(DataState.READY),
            )
            return target.copies.StartTabletCopy(request, timeout=20)

        def intact(target: ServerProcess) -> bool:
            status = cluster.status(target, TABLET)
            ready = status.data_state == DataState.READY
            return ready and {m.uuid for m in status.committed_config.members} == {s.uuid for s in three}

        for target in three:
            refused = ask(target, stranger.uuid).error
            assert (refused.code, refused.detail) == (Code.ILLEGAL_STATE, "LEADER")
            assert (ask(target, leader.uuid).error.detail == "LEADER") is (target is leader)
        wait_until(lambda: all(j.phase == "FAILED" for s in three for j in copies(s)), "no copy is under way")
        wait_until(lambda: all(map(intact, three)), "they serve again, as they were")
        (left, *others) = [s for s in three if s is not leader]
        for server in (leader, *others):
            server.stop()
        wait_until(lambda: not cluster.status(left, TABLET).leader_uuid, "it hears no leader")
        assert not ask(left, stranger.uuid).error.code
        wait_until(lambda: copies(left)[0].phase == "FAILED", "the offer is refused")
        assert "votes in no config" in copies(left)[0].error
        wait_until(lambda: intact(left), "it serves again, as it was")
        stranger.stop()
        for server in (leader, *others):
            server.start()
        leads = cluster.leader(TABLET)
        scan = pb.ScanRequest(dest_uuid=leads.uuid, tablet_id=TABLET, table_id="t1", all_columns=True)
        rows = read_rows(list(leads.tablets.Scan(scan, timeout=20)))
        assert len(rows[0]) == 100 and "false" not in str(rows[0])


def cancel(target: ServerProcess, **fields: Any) -> Any:
    request = pb.CancelCopyRequest(dest_uuid=target.uuid, tablet_id=TABLET, **fields)
    return target.copies.CancelCopy(request, timeout=30)


@pytest.mark.deep
def test_cancelled_copy_leaves_a_tombstone_and_a_later_one_succeeds() -> None:
    """Goal: row TC-12, by command. Method: a slow copy to a blank server is cancelled half-way, one whose source hangs
    is cancelled too: each time the target ends as a tombstone with last OpId 0.0, the source holds no session, no
    file is left over, a cancel that names another job misses. A deletion of the replica ends its copy likewise; then a
    copy at full speed ends READY."""
    with local_cluster(1) as cluster:
        source = create(cluster, cluster.servers[:1])
        time = write(cluster, 0, 20_000)
        flush(source)
        target = cluster.add_server("--copy-rate-bytes-per-s", "140000")
        term = cluster.status(source, TABLET).term
        assert cancel(target).error.code == Code.NOT_FOUND

        for believed, hang in ((DataState.DOES_NOT_EXIST, False), (DataState.DELETED, True)):
            assert not start_copy(source, target, term, believed).error.code
            (job,) = wait_until(
                lambda: [j for j in copies(target) if j.phase == "COPY.4" and j.bytes_done], "it copies"
            )
            assert cancel(target, started_us=job.started_us - 1).error.code == Code.NOT_FOUND
            if hang:
                source.signal(signal.SIGSTOP)
            reply = cancel(target, started_us=job.started_us)
            assert not reply.error.code, reply.error
            assert (reply.job.phase, reply.data_state) == ("CANCELLED", DataState.DELETED)
            assert "the copy was cancelled" in reply.job.error
            status = cluster.status(target, TABLET)
            assert (status.last_logged.term, status.last_logged.index) == (0, 0)
            assert not list((target.root / "data").iterdir()) and not (target.root / "wals" / TABLET).exists()
            if hang:
                source.signal(signal.SIGCONT)  # it could not be told: the next copy replaces that session
            else:
                wait_until(lambda: not [j for j in copies(source) if j.phase == "SERVING"], "the source has heard")

        assert not start_copy(source, target, term, DataState.DELETED).error.code
        wait_until(lambda: [j for j in copies(target) if j.phase == "COPY.4" and j.bytes_done], "it copies")
        doomed = pb.DeleteTabletRequest(dest_uuid=target.uuid, tablet_id=TABLET)
        assert not target.tablets.DeleteTablet(doomed, timeout=30).error.code
        assert copies(target)[0].phase == "CANCELLED" and state(cluster, target)[0] == DataState.DELETED
        assert not list((target.root / "data").iterdir()) and not (target.root / "wals" / TABLET).exists()

        target.stop()
        target.extra = ()
        target.start()
        assert not start_copy(source, target, term, DataState.DELETED).error.code
        wait_until(lambda: state(cluster, target)[0] == DataState.READY, "the copy is READY")
        size = cluster.status(source, TABLET).bytes_on_disk
        wait_until(lambda: cluster.status(target, TABLET).bytes_on_disk == size, "it holds what the source holds")
        assert cancel(target).error.code == Code.NOT_FOUND
        wait_until(lambda: not [j for j in copies(source) if j.phase == "SERVING"], "no session is left")
        assert time > 0


def test_source_that_dies_during_a_copy_leaves_a_tombstone_that_a_later_copy_revives() -> None:
    """Goal: TC-12, TC-51; scenario 67, the crash: a dead source costs an attempt and nothing else. Method: kill -9 the
    source in the middle of the blocks, twice: at a target that hosts another tablet, which goes on answering; each time
    the target ends as a tombstone without a file; then the source is back, and a copy at full speed brings every row.
    The session that expires: `test_copy_whose_session_ends_is_told_so_and_is_retried`."""
    with local_cluster(1, "--copy-rate-bytes-per-s", "140000") as cluster:
        source = create(cluster, cluster.servers[:1])
        write(cluster, 0, 20_000)
        flush(source)
        target = cluster.add_server()
        neighbour = pb.CreateTabletRequest(
            dest_uuid=target.uuid,
            tablet_id="neighbour",
            table=table_info(),
            config=pb.RaftConfig(members=[target.member()]),
            leader_hint=target.uuid,
        )
        assert not target.tablets.CreateTablet(neighbour, timeout=30).error.code
        row = write_request(target.uuid, "neighbour", batch([7], ["kept"]))
        wait_until(lambda: not target.tablets.Write(row, timeout=30).error.code, "the neighbour has its row")

        for believed in (DataState.DOES_NOT_EXIST, DataState.DELETED):
            term = cluster.status(source, TABLET).term
            assert not start_copy(source, target, term, believed).error.code
            wait_until(lambda: [j for j in copies(target) if j.phase == "COPY.4" and j.bytes_done], "it copies")
            source.kill()
            told = RemoteCopySource.SILENCE_S - 5  # at once, and not because nothing is heard for long
            wait_until(lambda: [j for j in copies(target) if j.phase == "FAILED"][:1], "the copy fails", told)
            # A job that has failed still tells its source, which is dead, before it ends.
            wait_until(lambda: cluster.status(target, TABLET).data_state != DataState.COPYING, "no copy runs")
            status = cluster.status(target, TABLET)
            assert (status.data_state, status.last_logged.index) == (DataState.DELETED, 0)
            assert not list((target.root / "data").iterdir()) and not (target.root / "wals" / TABLET).exists()
            request = pb.ScanRequest(dest_uuid=target.uuid, tablet_id="neighbour", all_columns=True)
            assert read_rows(target.tablets.Scan(request, timeout=30))[0] == {7: "kept"}
            source.extra = () if believed is DataState.DELETED else source.extra
            source.start()
            cluster.leader(TABLET)

        term = cluster.status(source, TABLET).term
        assert not start_copy(source, target, term, DataState.DELETED).error.code
        wait_until(lambda: state(cluster, target)[0] == DataState.READY, "the copy is READY")
        size = cluster.status(source, TABLET).bytes_on_disk
        wait_until(lambda: cluster.status(target, TABLET).bytes_on_disk == size, "it holds what the source holds")


def test_follower_left_behind_is_copied_anew() -> None:
    """Goal: rows TC-06 and TC-29, scenarios 90, 112. Method: stop a follower, write and collect the leader's log, stop
    all, and start it first: alone it asks for votes in vain, again and again. The others come and elect; it ends READY
    and equal, costs nobody a term, and its old log, metadata and superblock are in a quarantine."""
    with local_cluster(3, *NO_RETAINED_LOG, module=STEADY) as cluster:
        leader = create(cluster, cluster.servers)
        write(cluster, 0, 10)
        behind = next(s for s in cluster.servers if s is not leader)
        others = [s for s in cluster.servers if s is not behind]
        behind.kill()
        for start in range(0, 20_000, 4000):
            time = write(cluster, start, 4000)
        for server in others:
            collect(server)
        for server in others:
            server.kill()  # and with it what waited in its memory for the follower, whoever leads next
        behind.start()
        wait_until(lambda: cluster.status(behind, TABLET).role == "PRE_CANDIDATE", "it hears nobody")
        for server in others:
            server.start(wait=False)
        for server in others:
            server.wait_ready()
        elected = cluster.leader(TABLET)
        term = cluster.status(elected, TABLET).term
        wait_until(lambda: cluster.status(behind, TABLET).flush_index > 0, "the follower was copied")
        assert wait_equal(cluster.servers, time)[1] == 20_000
        assert {cluster.status(s, TABLET).term for s in cluster.servers} == {term} and elected.alive
        assert len(cluster.status(behind, TABLET).committed_config.members) == 3
        kept = list((behind.root / "quarantine").iterdir())
        assert len(kept) == 1 and {p.name for p in kept[0].iterdir()} == {"superblock", "cmeta", "wal"}


def test_voter_that_died_in_its_copy_elects_with_the_others_when_the_leader_is_gone() -> None:
    """Goal: TC-78: a group whose copier died in the middle, and then its leader, is not stuck. Method: of three voters
    one falls behind log GC; it dies at COPY.3, the leader is stopped, and only then it starts: deleted by itself, its
    vote is the one that the last server needs. That one leads the next term, copies to it, and no row is missing; the
    old leader comes back and all three are equal."""
    with local_cluster(3, *NO_RETAINED_LOG) as cluster:
        leader = create(cluster, cluster.servers)
        behind = next(s for s in cluster.servers if s is not leader)
        others = [s for s in cluster.servers if s is not behind]
        behind.kill()
        for start in range(0, 12_000, 4000):
            time = write(cluster, start, 4000)
        for server in others:
            collect(server)
        for server in others:
            server.kill()  # and with it what waited in its memory for the follower, whoever leads next
        for server in others:
            server.start(wait=False)
        for server in others:
            server.wait_ready()
        cluster.leader(TABLET)
        behind.start(wait=False, env={CRASH_VARIABLE: "copy.3"})
        assert behind.wait_exit() == CRASH_EXIT_CODE
        old = cluster.leader(TABLET)
        term = cluster.status(old, TABLET).term
        (last,) = (s for s in others if s is not old)
        old.kill()

        behind.start()
        wait_until(lambda: max(leaders_by_term(cluster)) > term, "somebody leads a later term", 60)
        assert "a copy was cut off: back to DELETED" in behind.log_path.read_text()
        by_term = leaders_by_term(cluster)
        assert by_term[min(t for t in by_term if t > term)] == {last.uuid}
        wait_until(lambda: state(cluster, behind)[0] == DataState.READY, "it is copied again")
        assert wait_equal([last, behind], time)[1] == 12_000
        old.start()
        assert wait_equal(cluster.servers, time)[1] == 12_000


@pytest.mark.parametrize("point", ["copy.3", "copy.5"])
def test_server_that_dies_while_copying_is_copied_again(point: str) -> None:
    """Goal: rows TC-60 and TC-25. Method: the new server dies at a crash point of its copy; restarted, it is a
    tombstone or READY, the leader asks again, and it becomes a voter with equal rows."""
    with local_cluster(1) as cluster:
        leader = create(cluster, cluster.servers[:1])
        write(cluster, 0, 5000)
        flush(leader)
        time = write(cluster, 5000, 10)
        target = cluster.add_server(env={"NYALA_CRASH_POINT": point})
        change(cluster, "add", target.member(votes=False, promote=True))
        assert target.wait_exit() == 85
        target.env.clear()
        target.start()
        wait_until(lambda: is_voter(cluster, target), "the new server is a voter")
        assert wait_equal(cluster.servers, time)[1] == 5010
        on_disk = sum(path.stat().st_size for path in (target.root / "data").iterdir())
        assert cluster.status(target, TABLET).bytes_on_disk == on_disk


def test_removed_server_that_is_added_again_is_revived_by_a_copy() -> None:
    """Goal: rows TC-08 and CC-29. Method: remove and delete a replica, add it again: it is copied over its
    tombstone, with a term no lower than it had; a delayed deletion with the older config's id then misses it."""
    with local_cluster(3) as cluster:
        leader = create(cluster, cluster.servers)
        write(cluster, 0, 100)
        doomed = next(s for s in cluster.servers if s is not leader)
        without = change(cluster, "remove", doomed.member())
        delete = pb.DeleteTabletRequest(
            dest_uuid=doomed.uuid, tablet_id=TABLET, committed_config_id=without.opid, has_cas=True
        )
        assert not doomed.tablets.DeleteTablet(delete, timeout=30).error.code
        term = cluster.status(doomed, TABLET).term
        time = write(cluster, 100, 100)
        change(cluster, "add", doomed.member(votes=False, promote=True))
        wait_until(lambda: is_voter(cluster, doomed), "the revived server is a voter")
        wait_until(lambda: cluster.status(doomed, TABLET).committed_config.opid.index > without.opid.index, "it knows")
        late = doomed.tablets.DeleteTablet(delete, timeout=30)
        assert late.error.code == Code.CAS_FAILED
        status = cluster.status(doomed, TABLET)
        assert status.data_state == DataState.READY and status.term >= term
        assert wait_equal(cluster.servers, time)[1] == 200
