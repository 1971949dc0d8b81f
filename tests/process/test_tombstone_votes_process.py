"""Votes of real servers that have no running replica: they vote by the promises they kept, and not at all if those are
not known."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import RealDisk
from nyala.replica.raft import VoteReply
from nyala.replica.rpc import pb
from nyala.replica.types import CRASH_EXIT_CODE, Code, DataState, OpId
from nyala.replica.types.crash_points import CRASH_VARIABLE
from tests.harness.candidate import Candidate
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import change, copies, create, flush, lead, rows_of, start_copy, write

pytestmark = pytest.mark.process

KEPT, BLANK, LOST = "kept", "blank", "lost"


def delete(server: ServerProcess, tablet_id: str) -> None:
    request = pb.DeleteTabletRequest(dest_uuid=server.uuid, tablet_id=tablet_id)
    reply = server.tablets.DeleteTablet(request, timeout=30)
    assert not reply.error.code, reply.error


def promises(server: ServerProcess, tablet_id: str) -> tuple[int, str | None]:
    """Return term and vote on disk."""
    meta = ConsensusMeta.load(RealDisk(server.root), tablet_id)
    return meta.term, meta.voted_for


def pester_over_lives(
    cluster: LocalCluster, source: ServerProcess, server: ServerProcess, behind: Candidate, level: Candidate
) -> None:
    """Ask for a replica's pre-vote all the time, by two candidates, while it is deleted and copied again and again: the
    one that lacks its last entry never gets it, and each refusal states its reason. Terms stay, or the source's copies
    would be refused."""
    end = cluster.status(source, BLANK).last_logged
    term, last, over = cluster.status(source, BLANK).term + 1, OpId(end.term, end.index), threading.Event()
    for candidate in (behind, level):
        candidate.ask(server, BLANK, term, OpId(0, 0), pre_vote=True)  # opens the links

    refused: list[VoteReply] = []
    answered: list[VoteReply] = []

    def pester(candidate: Candidate, ends: OpId, answers: list[VoteReply]) -> None:
        while not over.is_set():
            answer = candidate.ask_now(server, BLANK, term, ends)
            if answer is not None:
                answers.append(answer)

    with ThreadPoolExecutor(2) as pool:
        asking = [
            pool.submit(pester, behind, OpId(last.term, last.index - 1), refused),
            pool.submit(pester, level, last, answered),
        ]
        try:
            for life in range(2, 12):
                delete(server, BLANK)
                assert not start_copy(source, server, term - 1, DataState.DELETED, tablet_id=BLANK).error.code
                wait_until(lambda n=life: [j.phase for j in copies(server)] == ["DONE"] * n, "copied")  # type: ignore[misc]
                if life > 4 and any(answer.code is Code.TABLET_FAILED for answer in [*refused]):
                    break  # it was asked in the middle of a copy
            delete(server, BLANK)
        finally:
            over.set()
        for asked in asking:
            asked.result(60)
    granted = level.ask_after_lease(server, BLANK, term, last)
    assert granted.granted
    assert refused and not any(answer.granted for answer in refused)
    assert all(answer.reason or answer.code for answer in (*refused, *answered) if not answer.granted)
    assert Code.TABLET_FAILED in {answer.code for answer in refused}, "nobody asked in the middle of a copy"


def test_servers_without_a_replica_vote_by_what_they_kept_and_not_if_they_cannot_tell() -> None:
    """TC-76, TC-77, TC-36; scenarios 69, 70, 73 (D-26). Goal: a tombstone's vote is as good as a replica's, and who
    does not know what it promised gives none. Method: one server has a tombstone, a copy that died before its
    consensus metadata, and a tombstone of a replica whose metadata were damaged; somebody asks it for votes, before
    and after a restart. The first votes by the rules, once per term; the others refuse and say why, and nothing of
    theirs appears on disk. The damaged one's group stays without a leader; the copy is made again, and ends. At last,
    and in short what scenario 74 is at length, two ask all the time while that replica comes and goes."""
    with local_cluster(1) as cluster, Candidate() as first, Candidate() as second:
        source = cluster.servers[0]
        server = cluster.add_server(env={CRASH_VARIABLE: "copy.1"})
        for tablet_id in (KEPT, LOST):
            create(cluster, [source, server], tablet_id=tablet_id)
            for leader in (server, source):  # one after the other, so that there was a term before the last entry's
                lead(cluster, leader, tablet_id)
            write(cluster, 0, 10, tablet_id=tablet_id)
        create(cluster, [source], tablet_id=BLANK)
        at = write(cluster, 0, 10, tablet_id=BLANK)
        flush(source, tablet_id=BLANK)
        lead(cluster, source, KEPT)
        change(cluster, "change", server.member(votes=False), tablet_id=KEPT)
        change(cluster, "remove", server.member(), tablet_id=KEPT)
        delete(server, KEPT)
        last = OpId(*(getattr(cluster.status(server, KEPT).last_logged, name) for name in ("term", "index")))
        assert last.index > 1 < last.term

        term_of_copy = cluster.status(source, BLANK).term
        with suppress(grpc.RpcError):
            start_copy(source, server, term_of_copy, DataState.DOES_NOT_EXIST, tablet_id=BLANK)
        assert server.wait_exit() == CRASH_EXIT_CODE
        metadata = server.root / "consensus-meta"
        assert not (metadata / BLANK).exists() and (server.root / "tablet-meta" / BLANK).exists()
        damaged = bytearray((metadata / LOST).read_bytes())
        damaged[len(damaged) // 2] ^= 1
        (metadata / LOST).write_bytes(damaged)
        source.kill()
        server.env.clear()
        server.start()
        failed = wait_until(lambda: (s := cluster.status(server, LOST)) and s.error and s, "it has failed")
        assert failed.phase == "FAILED", failed
        delete(server, LOST)

        new = promises(server, KEPT)[0] + 3
        for life in range(2):
            term = new + life
            granted = first.ask_after_lease(server, KEPT, term, last)
            assert granted.granted and granted.term == term, granted
            assert promises(server, KEPT) == (term, first.uuid)
            assert first.ask(server, KEPT, term, last).granted, "the same again"
            for asker, asked, ends, why in (
                (second, term, last, f"voted for {first.uuid}"),
                (second, term - 1, last, "is below"),
                (second, term + 1, OpId(last.term, last.index - 1), "was acknowledged here"),
                (second, term + 1, OpId(last.term - 1, last.index + 9), "was acknowledged here"),
            ):
                refused = asker.ask(server, KEPT, asked, ends)
                assert not refused.granted and why in refused.reason, refused
            for tablet_id in (BLANK, LOST):
                for pre_vote in (True, False):
                    refused = first.ask(server, tablet_id, term + 90, OpId(term + 89, 10**6), pre_vote=pre_vote)
                    assert (refused.granted, refused.code) == (False, Code.TABLET_FAILED) and refused.reason, refused
                assert cluster.status(server, tablet_id).data_state == DataState.DELETED
            if not life:
                server.kill()
                server.start()
                refused = second.ask(server, KEPT, term, last)
                assert not refused.granted and promises(server, KEPT) == (term, first.uuid), refused
        assert not (metadata / BLANK).exists() and (metadata / LOST).read_bytes() == damaged

        source.start()
        assert cluster.leader(BLANK) is source
        assert cluster.status(source, LOST).role != "LEADER"
        term_of_copy = cluster.status(source, BLANK).term
        assert not start_copy(source, server, term_of_copy, DataState.DELETED, tablet_id=BLANK).error.code
        wait_until(lambda: [j.phase for j in copies(server)] == ["DONE"], "it is copied")
        assert rows_of(server, at, tablet_id=BLANK) == rows_of(source, at, tablet_id=BLANK) is not None
        pester_over_lives(cluster, source, server, first, second)
