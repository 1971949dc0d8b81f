"""How a replica comes to a server: asked for by its leader, copied from it, started, revived over a tombstone."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import grpc
import pytest

from nyala.infra.cli.copies import idle_text
from nyala.replica.consensus_metadata import encode_config
from nyala.replica.raft import AppendEntries, TimeoutNow
from nyala.replica.rpc import member_to_pb, opid_to_pb, pb, pb_grpc
from nyala.replica.server.maintenance.maintenance import GC_EVERY_S, Maintenance
from nyala.replica.server.requests.tablet_service import create_tablet, delete_tablet
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.tablets.status import replica_status
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import parse_superblock
from nyala.replica.types import (
    ZERO_OPID,
    Code,
    DataState,
    EditKind,
    Entry,
    EntryKind,
    OpId,
    RaftConfig,
    Refused,
    limits,
)
from tests.harness.copies import TABLET
from tests.harness.patience import patience_s
from tests.harness.rows import table_info
from tests.harness.server_calls import NOBODY
from tests.harness.server_pair import TIMEOUT_S, Pair, run_pair, until


def test_blank_member_is_copied_at_its_leaders_request() -> None:
    """TC-05, TC-07, TC-17. Goal: after a blank member's first answer the leader sends StartTabletCopy, and the member
    fetches from it; no server creates the tablet. Method: AddServer only; what each side received, in order."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1, 2)
        assert not pair.other.has_tablet
        await pair.add_other()
        await pair.voting()
        assert pair.calls("other")[:2] == ["AppendEntries", "StartTabletCopy"]
        assert pair.calls("leader") == ["BeginCopy", "OpenFetch", "Fetch", "EndCopy"]
        await until(lambda: pair.other.rows() == [1, 2] and pair.other.serving, "the voter has applied both rows")

    run_pair(scenario)


def test_tablet_that_is_being_copied_is_as_good_as_created() -> None:
    """TC-27. Goal: a creation of a tablet that is being copied succeeds and changes nothing. Method: the others have
    elected and copy to a server whose own creation comes late, while the copy is held up: it is answered well and adds
    nothing, and the copy's replica serves."""

    async def scenario(pair: Pair) -> None:
        held, go = threading.Event(), threading.Event()

        def on_request(request: Any) -> None:
            held.set()
            assert go.wait(patience_s(60))

        await pair.put(1, 2)
        pair.on_request = on_request
        await pair.add_other()
        await until(held.is_set, "the copy asks for bytes")
        members = [member_to_pb(server.member()) for server in (pair.leader, pair.other)]
        config = pb.RaftConfig(members=members)
        late = pb.CreateTabletRequest(dest_uuid=pair.other.uuid, tablet_id=TABLET, table=table_info(), config=config)
        try:
            assert not (await create_tablet(pair.other.manager, late)).error.code
            assert pair.other.hosted.data_state is DataState.COPYING
        finally:
            go.set()
        await pair.voting()
        await until(lambda: pair.other.rows() == [1, 2] and pair.other.serving, "the voter has applied both rows")

    run_pair(scenario)


def test_request_for_a_copy_names_both_ends_the_term_and_what_is_believed() -> None:
    """Goal: TC-26: from, to, tablet, term and believed state travel; the last OpId only where the leader knows one.
    Method: the request over a blank server, and over a tombstone that told where its log ended."""

    async def scenario(pair: Pair) -> None:
        row = await pair.put(1)
        await pair.add_other()
        await pair.voting()
        first = pair.request("StartTabletCopy")
        term = pair.leader.hosted.term
        assert (first.from_uuid, first.dest_uuid, first.tablet_id) == (pair.leader.uuid, pair.other.uuid, TABLET)
        assert (first.term, first.current_state) == (term, DataState.DOES_NOT_EXIST)
        assert not first.HasField("last_opid") and first.from_addresses[0].port == pair.leader.address.port
        await pair.change(EditKind.REMOVE, pair.other.member())
        await pair.other.manager.delete(TABLET, None, "removed")
        kept = Superblock.load(pair.other.disk, TABLET).last_logged
        assert kept is not None and kept >= row
        pair.trace.clear()
        await pair.add_other()
        await pair.voting()
        again = pair.request("StartTabletCopy")
        assert (again.term, again.current_state) == (pair.leader.hosted.term, DataState.DELETED)
        assert OpId(again.last_opid.term, again.last_opid.index) == kept

    run_pair(scenario)


def test_tombstone_is_revived_with_a_term_no_lower_than_it_had() -> None:
    """Goal: TC-08: DELETED is answered, and the answer brings a copy. Method: remove and delete the member, write on,
    add it again: READY, all rows, its old term kept or passed, tombstone's path and last OpId gone."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await pair.add_other()
        await pair.voting()
        await pair.change(EditKind.REMOVE, pair.other.member())
        await pair.other.manager.delete(TABLET, None, "removed")
        term = pair.other.hosted.term
        tombstone = Superblock.load(pair.other.disk, TABLET)
        assert tombstone.data_state is DataState.DELETED and pair.other.hosted.replica is None
        await pair.put(2)
        await pair.add_other()
        await pair.voting()
        revived = Superblock.load(pair.other.disk, TABLET)
        assert (revived.data_state, revived.last_logged, revived.quarantine) == (DataState.READY, None, "")
        assert pair.other.hosted.term >= term
        await until(lambda: pair.other.rows() == [1, 2], "the voter has applied both rows")

    run_pair(scenario)


def test_late_deletion_misses_a_replica_that_was_added_again() -> None:
    """Goal: CC-29: the deletion names the config that it follows from. Method: remove the member, delete it with that
    config's position, add it again; the same deletion once more is refused, and the replica runs on."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await pair.add_other()
        await pair.voting()
        without = await pair.change(EditKind.REMOVE, pair.other.member())
        await pair.other.manager.delete(TABLET, without.opid, "removed")
        assert pair.other.hosted.data_state is DataState.DELETED
        await pair.add_other()
        await pair.voting()
        with pytest.raises(Refused) as refused:
            await pair.other.manager.delete(TABLET, without.opid, "removed")
        assert refused.value.code is Code.CAS_FAILED
        assert pair.other.serving and pair.other.hosted.data_state is DataState.READY
        await until(lambda: pair.other.rows() == [1], "the voter has applied the row")

    run_pair(scenario)


@pytest.mark.parametrize("fillers", [0, 3], ids=["another entry is there", "it is behind the log's end"])
def test_config_that_was_rolled_back_keeps_no_abandoned_replica(fillers: int) -> None:
    """CC-10, CC-29. Goal: a config that only a replica of no config holds, from a leader that was cut off with it,
    keeps it from being deleted while it may be committed, and not once the group is past it. Method: the other is
    removed, then told an addition, behind `fillers`, that its leader never commits; the leader is deposed, leads in a
    later term and commits one entry. The deletion is refused as of before that entry, and done as of it."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await pair.change(EditKind.ADD, pair.other.member(votes=False))
        await until(lambda: pair.other.serving and pair.other.rows() == [1], "it is copied")
        here, leader = pair.other.hosted.replica, pair.leader.hosted.replica
        assert here is not None and leader is not None
        await until(lambda: here.last_logged == leader.last_logged, "it has the leader's log")
        prev = here.last_logged
        pair.cut = True
        without = await pair.change(EditKind.REMOVE, pair.other.member())
        time, term = leader.status().applied_time, leader.term

        def entry(index: int, config: RaftConfig | None = None) -> Entry:
            meta = b"" if config is None else encode_config(config)
            kind = EntryKind.NOOP if config is None else EntryKind.CONFIG
            return Entry(OpId(term, index), kind, time + index, 0, meta, b"", 0)

        index = without.opid.index + fillers + 1
        again = RaftConfig(OpId(term, index), (*without.members, pair.other.member()))
        entries = (
            entry(without.opid.index, without),
            *(entry(i) for i in range(without.opid.index + 1, index)),
            entry(index, again),
        )
        tells = {"from_uuid": pair.leader.uuid, "commit_index": without.opid.index}
        pair.other.manager.deliver(
            TABLET, AppendEntries(to_uuid=pair.other.uuid, term=term, prev=prev, entries=entries, **tells)
        )
        await until(lambda: here.status().committed_config == without, "it has the config that leaves it out")
        assert here.status().pending_config == again
        known = [ZERO_OPID, without.opid, leader.status().commit_opid, OpId(term, index - 1)]
        ends = {"to_uuid": pair.leader.uuid, "from_uuid": NOBODY, "term": term + 1}
        noop = Entry(OpId(term + 1, leader.last_logged.index + 1), EntryKind.NOOP, time + 100, 0, b"", b"", 0)
        pair.leader.manager.deliver(TABLET, AppendEntries(**ends, prev=leader.last_logged, entries=(noop,)))
        await until(lambda: leader.last_logged == noop.opid, "it follows somebody who hands over")
        assert not pair.leader.manager.deliver(TABLET, TimeoutNow(**ends, last=noop.opid))
        await until(lambda: leader.is_leader and leader.status().commit_opid.term > term, "it leads in a later term")
        status = replica_status(pair.leader.hosted, pair.leader.uuid, 1)
        past = OpId(status.commit_term, status.commit_index)
        assert past == leader.status().commit_opid > again.opid and leader.committed_config == without

        async def order(committed: OpId) -> None:
            cas = {"committed_config_id": opid_to_pb(without.opid), "has_cas": True}
            request = pb.DeleteTabletRequest(tablet_id=TABLET, committed=opid_to_pb(committed), **cas)
            await delete_tablet(pair.other.manager, request)

        for committed in known:
            with pytest.raises(Refused) as refused:
                await order(committed)
            assert refused.value.code is Code.CAS_FAILED
            assert pair.other.hosted.replica is here and pair.other.hosted.data_state is DataState.READY
        await order(past)
        left = Superblock.load(pair.other.disk, TABLET)
        assert (left.data_state, left.last_logged) == (DataState.DELETED, again.opid)

    run_pair(scenario)


def test_member_left_behind_by_log_gc_is_deleted_and_copied() -> None:
    """Goal: TC-06, TC-29: alive and READY, but its next entry is gone: its old files go to quarantine, then it is
    copied. Method: cut the two, let the leader, alone in its config, collect its log, and join again as a member."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await pair.add_other()
        await pair.voting()
        await pair.change(EditKind.REMOVE, pair.other.member())
        pair.cut = True
        hosted = pair.leader.hosted
        for key in range(2, 40):
            await pair.put(key)
        tablet, log, replica = hosted.tablet, hosted.log, hosted.replica
        assert tablet is not None and log is not None and replica is not None
        log.roll()
        await pair.put(40)  # the segment of the last entry is always kept
        tablet.flush()
        pair.leader.manager.sessions.end_tablet(TABLET)  # the anchor of the copy that brought it here
        needed = pair.other.hosted.last_opid.index + 1

        def collected() -> bool:
            replica.gc(lambda done: None)
            return log.first_index > needed

        await until(collected, "the log is collected")
        pair.trace.clear()
        pair.cut = False
        assert pair.other.hosted.superblock.data_state is DataState.READY
        await pair.add_other()
        await pair.voting()
        request = pair.request("StartTabletCopy")
        assert request.current_state == DataState.READY
        (kept,) = pair.other.disk.listdir("quarantine")
        old = parse_superblock(pair.other.disk.read(f"quarantine/{kept}/superblock"), "quarantine")
        assert old.data_state is DataState.READY
        assert sorted(pair.other.disk.listdir(f"quarantine/{kept}")) == ["cmeta", "superblock", "wal"]
        await until(lambda: pair.other.rows() == list(range(1, 41)), "the voter has applied every row")

    run_pair(scenario)


def test_members_own_progress_takes_the_log_over_from_its_copys_session_without_a_gap() -> None:
    """CC-18. Goal: from a copied member's first missing entry on the log is held, by the session's anchor first, by the
    member's progress after. Method: nothing of Raft reaches it from the middle of its copy on; the session ends, rows
    are written and flushed, and the log is collected; it hears, is cut off again, the anchor is let go, and the same:
    what it misses is there each time, what it has goes, and no second copy is made."""

    async def scenario(pair: Pair) -> None:
        hosted, sessions = pair.leader.hosted, pair.leader.manager.sessions
        tablet, log, replica = hosted.tablet, hosted.log, hosted.replica
        assert tablet is not None and log is not None and replica is not None
        assert replica._log_gc is not None
        replica._log_gc.options = replace(replica.options, log_retain_bytes_max=1 << 30)
        keys = iter(range(1, 1000))

        async def write_and_collect() -> int:
            for _ in range(5):
                await pair.put(next(keys))
            log.roll()
            await pair.put(next(keys))  # the segment of the last entry is always kept
            tablet.flush()
            await pair._done(replica.gc)
            return log.first_index

        assert await write_and_collect() > 1
        pair.on_request = lambda request: setattr(pair, "cut", True)
        await pair.change(EditKind.ADD, pair.other.member(votes=False))
        await until(lambda: "EndCopy" in pair.calls("leader") and not sessions.sessions(), "the session has ended")
        await until(lambda: pair.other.hosted.copy is None and pair.other.hosted.replica, "the copy has started")
        missed = pair.other.hosted.last_opid.index + 1
        assert await write_and_collect() <= missed < log.last.index
        pair.on_request, pair.cut = lambda request: None, False
        await until(lambda: pair.other.rows() == pair.leader.rows(), "it has caught up")
        pair.cut = True
        before, missed = missed, pair.other.hosted.last_opid.index + 1
        sessions.end_tablet(TABLET)  # as the anchor's time passes
        assert before < await write_and_collect() <= missed < log.last.index
        pair.cut = False
        await until(lambda: pair.other.rows() == pair.leader.rows(), "it has caught up again")
        assert [what for _, what, _ in pair.trace].count("BeginCopy") == 1

    run_pair(scenario)


def test_blank_server_gets_all_rows_though_the_first_segment_is_gone() -> None:
    """Goal: TC-01: a replica is built from data and what is left of the log when the log's beginning is gone. Method:
    write, flush and collect the leader's first segment, write on; add a blank server: READY, the same rows."""

    async def scenario(pair: Pair) -> None:
        hosted = pair.leader.hosted
        tablet, log, replica = hosted.tablet, hosted.log, hosted.replica
        assert tablet is not None and log is not None and replica is not None
        for key in range(1, 40):
            await pair.put(key)
        log.roll()
        await pair.put(40)
        tablet.flush()

        def collected() -> bool:
            replica.gc(lambda done: None)
            return log.first_index > 1

        await until(collected, "the first segment is collected")
        await pair.put(41)
        await pair.add_other()
        await pair.voting()
        await until(lambda: pair.other.rows() == list(range(1, 42)), "the voter has applied every row")
        assert pair.leader.rows() == list(range(1, 42))
        assert pair.other.hosted.superblock.data_state is DataState.READY

    run_pair(scenario)


def test_driver_sees_a_copy_begin_advance_and_end_at_the_new_server() -> None:
    """CC-08. Goal: a driver can ask the new server for the progress of its copy. Method: ask nothing but ListCopies
    until the job is DONE; it names both ends, and its bytes are complete then; nothing is listed before."""

    async def scenario(pair: Pair) -> None:
        await pair.put(*range(50))
        address = f"{pair.other.address.host}:{pair.other.address.port}"
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = pb_grpc.CopyServiceStub(channel)  # type: ignore[no-untyped-call]

            async def jobs() -> list[Any]:
                reply = await stub.ListCopies(pb.ListCopiesRequest(dest_uuid=pair.other.uuid), timeout=30)
                assert not reply.error.code
                return list(reply.jobs)

            assert await jobs() == []
            await pair.add_other()
            seen: list[Any] = []
            async with asyncio.timeout(TIMEOUT_S):
                while not (seen and seen[-1].phase == "DONE"):
                    seen += await jobs()
            last = seen[-1]
            assert last.phase == "DONE" and last.bytes_done == last.bytes_total > 0 and last.error == ""
            assert (last.tablet_id, last.source_uuid, last.target_uuid) == (TABLET, pair.leader.uuid, pair.other.uuid)
            assert [j.bytes_done for j in seen] == sorted(j.bytes_done for j in seen)

    run_pair(scenario)


def test_blocks_of_a_copy_are_checked_as_they_come_and_by_a_start_but_not_in_between() -> None:
    """TC-51. Goal: a copy reads no byte of its blocks again, and a start reads all. Method: what the target's disk is
    asked for while blocks come and the replica opens, and then when its server starts anew."""

    async def scenario(pair: Pair) -> None:
        await pair.put(*range(50))
        tablet = pair.leader.hosted.tablet
        assert tablet is not None and tablet.flush() is not None
        read: set[str] = set()
        pair.other.disk.hook = lambda operation, path: read.add(path) if operation == "pread" else None
        await pair.add_other()
        await pair.voting()
        other = pair.other.hosted.tablet
        assert other is not None
        await until(lambda: pair.other.rows() == list(range(50)), "the voter has applied every row")
        blocks = {path for path, _, _ in other.block_files()}
        assert blocks and not blocks & read
        await pair.restart_other()
        await until(lambda: pair.other.serving, "it is open again")
        assert blocks <= read

    run_pair(scenario)


def test_session_of_a_dead_target_is_seen_idle_and_let_go_although_nobody_asks() -> None:
    """TC-10, CC-17. Goal: the session of a dead target is shown as idle, and ends after its time to live, so that its
    log and blocks are released. Method: a target opens a session and is not heard again; the source tells it as idle;
    its maintenance ends it after the time to live, and log GC passes what the session held, with no other copy under
    way."""

    async def scenario(pair: Pair) -> None:
        clock, manager, log = [0.0], pair.leader.manager, pair.leader.hosted.log
        maintenance = Maintenance(manager, MemoryGuard(1 << 30, lambda: 0), now=lambda: clock[0])
        await pair.put(*range(50))
        address = f"{pair.leader.address.host}:{pair.leader.address.port}"
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                stub: Any = pb_grpc.CopyServiceStub(channel)  # type: ignore[no-untyped-call]
                request = pb.BeginCopyRequest(
                    dest_uuid=pair.leader.uuid, tablet_id=TABLET, requestor_uuid=pair.other.uuid
                )
                assert not (await stub.BeginCopy(request, timeout=30)).error.code
                reply = await stub.ListCopies(pb.ListCopiesRequest(dest_uuid=pair.leader.uuid), timeout=30)
            (job,) = reply.jobs
            assert (job.phase, job.target_uuid, job.ttl_us) == ("SERVING", pair.other.uuid, limits.COPY_SESSION_TTL_US)
            assert job.started_us > 0 and 0 <= job.idle_us < job.ttl_us
            assert idle_text(job).endswith("of 60 s") and not idle_text(pb.CopyJob(phase="DONE"))
            clock[0] += GC_EVERY_S + 1
            await maintenance.once()
            assert manager.sessions.sessions(), "it may be asked again"
            manager.sessions.ttl_us = 0
            tablet = pair.leader.hosted.tablet
            assert tablet is not None and log is not None
            tablet.flush()
            await pair.put(50)
            assert log.gc(log.last.index) == 0, "held"
            clock[0] += GC_EVERY_S + 1
            await maintenance.once()
            assert manager.sessions.sessions() == []
            await until(lambda: log.first_index > 1, "log GC passed what was held")
        finally:
            maintenance.close()

    run_pair(scenario)


def test_copied_replica_starts_and_its_match_rises() -> None:
    """Goal: TC-52, TC-62: COPY.6 starts the replica, and so does a plain restart. Method: after the copy a write
    reaches it; restart the server: READY, started from its own log without another copy, and the next write comes."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await pair.add_other()
        await pair.voting()
        await pair.put(2)
        await until(lambda: pair.other.rows() == [1, 2], "the write is applied")
        last = pair.other.hosted.last_opid
        pair.trace.clear()
        await pair.restart_other()
        assert pair.other.hosted.superblock.data_state is DataState.READY
        assert pair.other.hosted.last_opid >= last
        await pair.put(3)
        await until(lambda: pair.other.rows() == [1, 2, 3], "the write is applied")
        assert "StartTabletCopy" not in pair.calls("other")
        assert pair.other.hosted.last_opid > ZERO_OPID

    run_pair(scenario)
