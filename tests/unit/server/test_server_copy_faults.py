"""What a copy between two servers ends with when something breaks: a tombstone, no orphan, a retry that works."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest

from nyala.replica.base import ZERO_OPID, Address, Code, DataState, EntryKind, RaftConfig, Refused
from nyala.replica.copy import CopyRequest, named_blocks
from nyala.replica.host import Phase
from nyala.replica.rows import WriteMeta, crc32c, encode_batch
from nyala.replica.rpc import Chunk, chunk_from_wire, chunk_to_wire, pb
from nyala.replica.tablet import Superblock
from tests.harness.copies import TABLET, superblock
from tests.harness.rows import batch
from tests.harness.server_pair import Pair, as_it_is, run_pair, until
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
    pair.on_chunk = as_it_is
    pair.cut = False
    await pair.voting()
    await until(lambda: pair.other.rows() == ROWS, "the member has applied every row")
    assert orphans(pair.other.disk) == []
    assert neighbour_rows(pair) == [7]


Tamper = Callable[[Pair, Any, Chunk], bytes | None]


def _expired(pair: Pair, request: Any, chunk: Chunk) -> bytes | None:
    pair.leader.manager.sessions.end(request.session_id, False)
    return chunk_to_wire(chunk)


def _stopped(pair: Pair, request: Any, chunk: Chunk) -> bytes | None:
    pair.leader.manager.sessions.end_tablet(TABLET)
    return chunk_to_wire(chunk)


def _flipped(chunk: Chunk) -> bytes:
    return bytes([chunk.data[0] ^ 1]) + chunk.data[1:]


DAMAGED = "a chunk was damaged on its way"
NOT_RECORDED = "a copied file is not what the source recorded"
TAMPERS: dict[str, tuple[Tamper, str]] = {
    "wrong checksum": (lambda p, r, c: chunk_to_wire(c._replace(crc=c.crc ^ 1)), DAMAGED),
    "flipped on its way": (lambda p, r, c: chunk_to_wire(c._replace(data=_flipped(c))), DAMAGED),
    "flipped at the source": (
        lambda p, r, c: chunk_to_wire(Chunk(c.byte_offset, _flipped(c), google_crc32c.value(_flipped(c)))),
        NOT_RECORDED,
    ),
    "wrong offset": (lambda p, r, c: chunk_to_wire(c._replace(byte_offset=c.byte_offset + 1)), DAMAGED),
    "sent twice": (
        lambda p, r, c: chunk_to_wire(Chunk(0, c.data * 2, google_crc32c.value(c.data * 2))),
        NOT_RECORDED,
    ),
    "no chunk at all": (lambda p, r, c: b"\xff" * 30, "a chunk cannot be read"),
    "cut short": (lambda p, r, c: None, NOT_RECORDED),
    "an error of a newer build": (
        lambda p, r, c: pb.FetchChunk(error=pb.Error(code=9999, message="new")).SerializeToString(),
        "ILLEGAL_STATE",
    ),
    "session expired": (_expired, "EXPIRED"),
    "source's replica stopped": (_stopped, "EXPIRED"),
}


@pytest.mark.parametrize("kind", [1, 2], ids=["block", "segment"])
@pytest.mark.parametrize("fault", TAMPERS)
def test_copy_whose_bytes_do_not_arrive_ends_as_a_tombstone_and_is_retried(fault: str, kind: int) -> None:
    """Goal: TC-12, TC-51 over the wire. Method: each fault meets the first chunk of a block, or of a log segment: the
    job fails by its code, nothing is left over, the neighbour goes on; once it is healed the leader's retry works."""
    tamper, why = TAMPERS[fault]

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)

        async def on_chunk(request: Any, chunk: bytes) -> bytes | None:
            if request.kind != kind:
                return chunk
            pair.cut = True
            if fault in ("session expired", "source's replica stopped"):
                # What is gone cannot be fetched any more: the next request or chunk finds that out.
                tamper(pair, request, chunk_from_wire(chunk))
                return pb.FetchChunk(error=pb.Error(code=int(Code.EXPIRED), message="gone")).SerializeToString()
            return tamper(pair, request, chunk_from_wire(chunk))

        pair.on_chunk = on_chunk
        await pair.add_other()
        await until_failed(pair, why)
        await retry_works(pair)

    run_pair(scenario)


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [("pwrite", "data/*"), ("pwrite", f"wals/{TABLET}/*"), ("replace", f"consensus-meta/{TABLET}")],
)
def test_copy_onto_a_full_disk_ends_as_a_tombstone_and_is_retried(operation: str, pattern: str) -> None:
    """Goal: TC-12: the target's disk is full at any of its files. Method: ENOSPC once at a block, at a segment, at the
    merged metadata: NO_SPACE, nothing is left over, the neighbour goes on; the retry works."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        pair.other.disk.fail_on(operation, pattern, "ENOSPC")
        pair.other.disk.hook = lambda op, path: setattr(pair, "cut", True) if "quarantine" in path else None
        await pair.add_other()
        await until_failed(pair, Code.NO_SPACE.name)
        pair.other.disk.hook = None
        await retry_works(pair)

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


def test_deletion_during_a_copy_is_refused_and_so_is_a_copy_during_a_deletion() -> None:
    """Goal: TC-27, TC-28: one transition at a time. Method: delete while a chunk is held on its way: refused, the copy
    goes on and ends; then ask for a copy while a deletion holds the replica: refused, it ends as a tombstone."""

    async def scenario(pair: Pair) -> None:
        await with_neighbour(pair)
        held, free = asyncio.Event(), asyncio.Event()

        async def on_chunk(request: Any, chunk: bytes) -> bytes | None:
            held.set()
            await free.wait()
            return chunk

        pair.on_chunk = on_chunk
        await pair.add_other()
        await asyncio.wait_for(held.wait(), 20)
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(pair.other.manager.delete(TABLET, None, "too early"), 20)
        assert refused.value.code is Code.ALREADY_INPROGRESS
        free.set()
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
                go_on.wait(20)

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
