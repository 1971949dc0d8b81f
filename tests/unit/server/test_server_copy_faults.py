"""The end of a copy between two servers after a fault: a tombstone, no orphan, a retry that works."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nyala.replica.raft_driver import Phase
from nyala.replica.rows import WriteMeta, crc32c, encode_batch
from nyala.replica.rpc import pb
from nyala.replica.server.tablets import manager as manager_module
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import CopyRequest, named_blocks
from nyala.replica.types import (
    ZERO_OPID,
    Address,
    Code,
    ConfigEdit,
    DataState,
    EditKind,
    EntryKind,
    Member,
    RaftConfig,
    Refused,
)
from tests.harness.copies import TABLET, superblock
from tests.harness.rows import batch
from tests.harness.server_pair import TIMEOUT_S, Pair, Part, as_it_is, run_pair, until
from tests.harness.sim_disk import SimDisk

NEIGHBOUR = "neighbour"
ROWS = list(range(1, 40))


async def with_neighbour(pair: Pair) -> None:
    """The leader has blocks and a log; the other server hosts another tablet alone, with one row."""
    await pair.put(*ROWS[:20])
    tablet = pair.leader.hosted.tablet
    assert tablet is not None
    await pair.leader.manager.in_thread(tablet.flush)
    await pair.put(*ROWS[20:])
    config = RaftConfig(ZERO_OPID, (pair.other.member(),))
    await pair.other.manager.create(superblock(tablet_id=NEIGHBOUR), config, campaign=True)
    neighbour = pair.other.manager.get(NEIGHBOUR)
    await until(lambda: neighbour.replica and neighbour.replica.phase is Phase.RUNNING, "the neighbour serves")
    assert neighbour.replica is not None
    payload, done = encode_batch(batch([7], ["kept"])), asyncio.get_running_loop().create_future()
    meta = WriteMeta((1, 2), 1).encode()
    neighbour.replica.write(EntryKind.WRITE, 1, meta, payload, crc32c(payload), done.set_result)
    result = await asyncio.wait_for(done, 20)
    assert not isinstance(result, BaseException) and not result.row_errors, result


def neighbour_rows(pair: Pair) -> list[int]:
    tablet = pair.other.manager.get(NEIGHBOUR).tablet
    assert tablet is not None
    return sorted(key for found in tablet.scan() for key in found.column("k").to_pylist())


def orphans(disk: SimDisk) -> list[str]:
    """Files in `data/` that no superblock names."""
    return sorted({f"data/{name}" for name in disk.listdir("data")} - named_blocks(disk))


async def until_failed(pair: Pair, why: str) -> None:
    """Wait for the first job's end, and look at what it left behind; the leader has not heard of it yet."""
    await until(lambda: pair.other.jobs.ended, "the copy ends")
    job = pair.other.jobs.ended[0]
    assert job.progress.phase == "FAILED" and why in job.error, job.error
    disk = pair.other.disk
    left = Superblock.load(disk, TABLET)
    assert (left.data_state, left.last_logged) == (DataState.DELETED, ZERO_OPID)
    assert pair.other.hosted.data_state is DataState.DELETED and pair.other.hosted.copy is None
    assert orphans(disk) == [] and not disk.exists(f"wals/{TABLET}")
    await until(lambda: pair.leader.manager.sessions.sessions() == [], "the source holds no session")
    assert neighbour_rows(pair) == [7] and pair.other.manager.get(NEIGHBOUR).running


async def retry_works(pair: Pair) -> None:
    pair.on_part = as_it_is
    pair.cut = False
    await pair.voting()
    await until(lambda: pair.other.rows() == ROWS, "the member has applied every row")
    assert orphans(pair.other.disk) == []
    assert neighbour_rows(pair) == [7]


def _head(part: Part, **changes: int) -> bytes:
    head = pb.FetchPart.FromString(part.head)
    for name, by in changes.items():
        setattr(head, name, getattr(head, name) + by)
    return bytes(head.SerializeToString())


def _refusal(code: int) -> Part:
    return Part(pb.FetchPart(error=pb.Error(code=code, message="new")).SerializeToString(), b"")


NOT_RECORDED = "a copied file is not what the source recorded"
NOT_ASKED = "the source sent other bytes than it was asked for"
SILENT = "the copy source does not answer"
TAMPERS: dict[str, tuple[Callable[[Part], Part | None], str]] = {
    "flipped on its way": (lambda p: p._replace(data=bytes([p.data[0] ^ 1]) + p.data[1:]), NOT_RECORDED),
    "wrong offset": (lambda p: p._replace(head=_head(p, byte_offset=1)), NOT_ASKED),
    "more than was asked for": (lambda p: Part(_head(p, length_bytes=len(p.data)), p.data * 2), NOT_ASKED),
    "less than nothing": (
        lambda p: p._replace(head=_head(p, length_bytes=-len(p.data) - 1)),
        "length_bytes: a number from 0",
    ),
    "no message at all": (lambda p: p._replace(head=b"\xff" * 30), "a message of a copy cannot be read"),
    "a message without end": (lambda p: p._replace(head=bytes(1 << 20)), "a message of a copy is too long"),
    "cut short": (lambda p: None, SILENT),
    "cut within a part": (lambda p: Part(p.head, p.data[:-1]), SILENT),
    "an error of a newer build": (lambda p: _refusal(9999), "ILLEGAL_STATE"),
}


@pytest.mark.a_third
@pytest.mark.parametrize("kind", [1, 2], ids=["block", "segment"])
@pytest.mark.parametrize("fault", TAMPERS)
def test_copy_whose_bytes_do_not_arrive_ends_as_a_tombstone_and_is_retried(fault: str, kind: int) -> None:
    """Goal: TC-12, TC-51 over the wire. Method: each fault meets the first part of a block, or of a log segment: the
    job fails by its code, nothing is left over, the neighbour goes on; once it is healed the leader's retry works."""
    tamper, why = TAMPERS[fault]

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)

        def on_part(request: Any, part: Part) -> Part | None:
            if request.kind != kind:
                return part
            pair.cut = True
            return tamper(part)

        pair.on_part = on_part
        await pair.add_other()
        await until_failed(pair, why)
        assert pair.other.manager.copy_failures.lasting(()) == [], "none of its own"
        await retry_works(pair)

    run_pair(scenario)


@pytest.mark.a_third
@pytest.mark.parametrize("kind", [1, 2], ids=["block", "segment"])
@pytest.mark.parametrize("how", ["session expired", "replica stopped"])
def test_copy_whose_session_ends_is_told_so_and_is_retried(how: str, kind: int) -> None:
    """TC-12. Goal: each request of a session checks that it still exists, and the target gets the code of a refusal.
    Method: the session is gone, or the source's replica stopped, when a block or a segment is asked for: EXPIRED, a
    tombstone, a retry."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)

        def on_request(request: Any) -> None:
            if request.kind != kind or pair.cut:
                return
            pair.cut = True
            sessions = pair.leader.manager.sessions
            if how == "session expired":
                sessions.end(request.session_id, False)
            else:
                sessions.end_tablet(TABLET)

        pair.on_request = on_request
        await pair.add_other()
        await until_failed(pair, "EXPIRED")
        pair.on_request = lambda request: None
        await retry_works(pair)

    run_pair(scenario)


def test_block_that_went_bad_at_the_source_fails_the_replica_there() -> None:
    """TC-51, TC-63. Goal: a leader whose block was damaged stops offering it for copies. Method: a bit is flipped on
    the source's disk: the target ends as a tombstone, the source finds the damage too, its replica has FAILED and names
    the block, its server lives."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        leader = pair.leader
        replica, block = leader.hosted.replica, sorted(named_blocks(leader.disk))[0]
        leader.disk.corrupt(block, leader.disk.size(block) // 2)
        pair.on_request = lambda request: setattr(pair, "cut", True)
        await pair.add_other()
        await until_failed(pair, NOT_RECORDED)
        await until(lambda: replica is None or replica.phase is Phase.FAILED, "the source's replica has failed")
        assert replica is not None and block in replica.error

    run_pair(scenario)


@pytest.mark.parametrize("gone", [False, True], ids=["unreadable", "gone"])
def test_block_that_cannot_be_read_for_a_copy_is_told_and_fails_the_replica(gone: bool) -> None:
    """TC-51. Goal: a source that cannot read one of its blocks fails its replica. Method: EIO as the source's disk
    sends a block, or its file is not there: the target ends as a tombstone, the source's replica has FAILED, its server
    lives."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        disk, replica = pair.leader.disk, pair.leader.hosted.replica

        def on_request(request: Any) -> None:
            if request.kind == 1 and not pair.cut:
                pair.cut = True
                if gone:
                    disk.remove(f"data/{request.name}")
                else:
                    disk.fail_on("send_to", "data/*", "EIO")

        pair.on_request = on_request
        await pair.add_other()
        await until_failed(pair, "is gone" if gone else SILENT)
        await until(lambda: replica is None or replica.phase is Phase.FAILED, "the source's replica has failed")

    run_pair(scenario)


@pytest.mark.a_third
@pytest.mark.parametrize(
    ("operation", "pattern"),
    [("pwrite", "data/*"), ("pwrite", f"wals/{TABLET}/*"), ("replace", f"consensus-meta/{TABLET}")],
)
def test_copy_onto_a_full_disk_ends_as_a_tombstone_and_is_retried(operation: str, pattern: str) -> None:
    """Goal: TC-12: the target's disk is full at any of its files. Method: ENOSPC once at a block, at a segment, at the
    merged metadata: NO_SPACE, nothing is left over, the neighbour goes on; that is counted until the retry works."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        pair.other.disk.fail_on(operation, pattern, "ENOSPC")
        pair.other.disk.hook = lambda op, path: setattr(pair, "cut", True) if "quarantine" in path else None
        await pair.add_other()
        await until_failed(pair, Code.NO_SPACE.name)
        (failed,) = pair.other.manager.copy_failures.lasting(())
        assert (failed.tablet_id, failed.count) == (TABLET, 1) and Code.NO_SPACE.name in failed.reason
        pair.other.disk.hook = None
        await retry_works(pair)
        assert pair.other.manager.copy_failures.lasting(()) == []

    run_pair(scenario)


def test_copy_that_finds_no_room_for_its_tombstone_either_is_one_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-12. Goal: a full disk does not leave a copy under way for ever, which would refuse all later ones. Method:
    ENOSPC at a segment, then four times at the tombstone's superblock: which counts as two more failures; without a
    restart the tombstone is there, and a retry works."""
    monkeypatch.setattr(manager_module, "REOPEN_AFTER_S", 0.0)

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        pair.other.disk.fail_on("pwrite", f"wals/{TABLET}/*", "ENOSPC")
        pair.other.disk.fail_on("replace", f"tablet-meta/{TABLET}", "ENOSPC", skip=1, times=4)
        pair.other.disk.hook = lambda op, path: setattr(pair, "cut", True) if "quarantine" in path else None
        await pair.add_other()
        await until(lambda: pair.other.jobs.ended, "the copy ends")
        assert Code.NO_SPACE.name in pair.other.jobs.ended[0].error
        await until(lambda: pair.other.hosted.superblock.data_state is DataState.DELETED, "a tombstone is there")
        (failed,) = pair.other.manager.copy_failures.lasting(())
        assert failed.count == 3, "a tombstone that finds no room is a failure too: no copy is taken meanwhile"
        pair.other.disk.hook = None
        await retry_works(pair)
        assert pair.other.disk.fired["replace", "ENOSPC"] == 4

    run_pair(scenario)


def test_copy_that_finds_no_room_for_its_first_mark_changes_nothing() -> None:
    """Goal: TC-12 before COPY.1. Method: ENOSPC as the blank target's superblock is written: the server knows of no
    such tablet, its disk has no trace of one; the retry works."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        pair.other.disk.fail_on("replace", f"tablet-meta/{TABLET}", "ENOSPC")
        await pair.add_other()
        await until(lambda: pair.other.jobs.ended, "the copy ends")
        assert Code.NO_SPACE.name in pair.other.jobs.ended[0].error
        await retry_works(pair)

    run_pair(scenario)


def test_copy_from_a_full_disk_needs_no_room_there() -> None:
    """Goal: a replica can leave a disk that is full. Method: not one more byte fits on the source's disk when the copy
    is asked for: it rolls its log, serves, and the copy is READY; with room again the member catches up and votes."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        source = pair.leader
        source.disk.capacity_bytes = source.disk.used_bytes
        request = CopyRequest(
            dest_uuid=pair.other.uuid,
            from_uuid=source.uuid,
            tablet_id=TABLET,
            term=source.hosted.term,
            current_state=DataState.DOES_NOT_EXIST,
        )
        pair.other.jobs.start(request, [source.address])
        await until(lambda: pair.other.jobs.ended, "the copy ends")
        assert pair.other.jobs.ended[0].progress.phase == "DONE", pair.other.jobs.ended[0].error
        await until(lambda: source.manager.sessions.sessions() == [], "the source holds no session")
        source.disk.heal()
        assert source.serving
        await pair.add_other()
        await retry_works(pair)

    run_pair(scenario)


def test_replica_is_deleted_while_all_is_under_way() -> None:
    """Goal: scenario 80: a deletion ends although scans, copies, changes and writes are under way, and all of those end
    too. Method: at the only voter, a scan that has read some of its rows, a copy that it serves, held in the middle of
    a part, a change that cannot be committed and a write behind it; then the deletion. The scan has every row, change
    and write are refused, the copy ends as a tombstone (D-25), and nobody has a file of the tablet open."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        held, free = threading.Event(), threading.Event()

        def on_part(request: Any, part: Part) -> Part | None:
            held.set()
            free.wait(TIMEOUT_S)
            return part

        pair.on_part = on_part
        replica, tablet = pair.leader.hosted.serving()
        scan = iter(tablet.scan())
        batches = [next(scan)]
        assert batches[0].num_rows < len(ROWS)
        await pair.add_other()
        await until(held.is_set, "a part is held")
        loop = asyncio.get_running_loop()
        change, row = loop.create_future(), loop.create_future()
        silent = ConfigEdit(EditKind.ADD, Member("f" * 32, (Address("127.0.0.1", 1),)))
        replica.change_config([silent], None, (0, 0), change.set_result)
        payload = encode_batch(batch([-1], ["late"]))
        meta = WriteMeta((1, 3), 1).encode()
        replica.write(EntryKind.WRITE, 1, meta, payload, crc32c(payload), row.set_result)
        await until(lambda: replica.last_logged.index == replica.commit_index + 2, "both are logged")
        try:
            await asyncio.wait_for(pair.leader.manager.delete(TABLET, None, "for a test"), 20)
        finally:
            free.set()
        left = Superblock.load(pair.leader.disk, TABLET)
        assert left.data_state is DataState.DELETED and left.last_logged == replica.last_logged
        for answer in (await asyncio.wait_for(change, 20), await asyncio.wait_for(row, 20)):
            assert isinstance(answer, Refused), answer
        batches += scan
        assert sorted(k for found in batches for k in found.column("k").to_pylist()) == ROWS
        await until_failed(pair, "session")
        del scan
        await until(lambda: not any(list(pair.leader.disk.handles.values())), "no file is open")
        await pair.leader.manager.delete(TABLET, None, "again")

    run_pair(scenario)


@pytest.mark.parametrize("kind", [1, 2], ids=["block", "segment"])
def test_deletion_ends_a_copy_under_way_unless_it_is_for_a_later_config(kind: int) -> None:
    """TC-12. Goal: a deletion ends a copy under way, unless the copy is for a later config in which the replica was
    added again. Method: a part of a block, or of a log segment, is held on its way; a deletion that knows only the
    config before the member is refused and the copy stays, one that knows its config ends it: a tombstone with last
    OpId 0.0, nothing left over, no session, the neighbour serves; asked again, the copy comes."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        held, free = threading.Event(), threading.Event()

        def on_part(request: Any, part: Part) -> Part | None:
            if request.kind == kind:
                held.set()
                free.wait(TIMEOUT_S)
            return part

        pair.on_part = on_part
        leader, manager = pair.leader.hosted.replica, pair.other.manager
        assert leader is not None
        before = leader.committed_config.opid
        await pair.add_other()
        await until(held.is_set, "a part is held")
        pair.cut = True
        (job,) = pair.other.jobs.running()
        assert before < job.config == leader.active_config.opid
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(manager.delete(TABLET, before, "late"), 20)
        assert refused.value.code is Code.CAS_FAILED and not job.cancelled.is_set()
        try:
            await asyncio.wait_for(manager.delete(TABLET, job.config, "for a test"), 20)
            assert job.progress.phase == "CANCELLED" and pair.other.jobs.running() == []
            left = Superblock.load(pair.other.disk, TABLET)
            assert (left.data_state, left.last_logged) == (DataState.DELETED, ZERO_OPID)
            assert pair.other.hosted.superblock == left and pair.other.hosted.copy is None
            assert orphans(pair.other.disk) == [] and not pair.other.disk.exists(f"wals/{TABLET}")
            assert neighbour_rows(pair) == [7] and manager.get(NEIGHBOUR).running
        finally:
            free.set()
        await until(lambda: pair.leader.manager.sessions.sessions() == [], "the source holds no session")
        await retry_works(pair)

    run_pair(scenario)


def test_copy_during_a_deletion_is_refused() -> None:
    """Goal: TC-27: one transition at a time. Method: ask for a copy while a deletion holds the replica: refused, it
    ends as a tombstone that knows its log's end."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        await pair.add_other()
        await retry_works(pair)

        pair.cut = True
        local = pair.other.jobs.local(TABLET)
        request = CopyRequest(
            dest_uuid=pair.other.uuid,
            from_uuid=pair.leader.uuid,
            tablet_id=TABLET,
            term=local.term,
            current_state=DataState.READY,
        )
        begun, go_on = threading.Event(), threading.Event()

        def hook(operation: str, path: str) -> None:
            if path.startswith("quarantine") and not begun.is_set():
                begun.set()
                go_on.wait(TIMEOUT_S)

        pair.other.disk.hook = hook
        deletion = asyncio.create_task(pair.other.manager.delete(TABLET, None, "for a test"))
        await until(begun.is_set, "the deletion has begun")
        with pytest.raises(Refused) as refused:
            pair.other.jobs.start(request, [Address("127.0.0.1", 1)])
        assert refused.value.code is Code.ALREADY_INPROGRESS
        go_on.set()
        await asyncio.wait_for(deletion, 20)
        left = Superblock.load(pair.other.disk, TABLET)
        assert left.data_state is DataState.DELETED and left.last_logged == local.last_opid
        assert neighbour_rows(pair) == [7]

    run_pair(scenario)
