"""What copies, quarantines, source positions and long requests cost the threads on which they run, in steps, beside
what is stated."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.rpc import checked_request, count_fields, pb
from nyala.replica.tablet import Superblock
from nyala.replica.tablet.superblock import BlockInfo
from nyala.replica.tablet_copy import CopySourceSession, FileKind, SourceSessions, capture_session, list_some
from nyala.replica.tablet_copy.quarantine import purge_quarantine
from nyala.replica.tablet_copy.wire.copy_rate import CopyRate
from nyala.replica.tablet_copy.wire.fetch_serving import FetchServing
from nyala.replica.types import Code, Disk, Refused, SystemClock, limits
from tests.harness.catalogs import table_info
from tests.harness.copies import SOURCE_UUID, TABLET, TARGET_UUID, RestingReplica, superblock
from tests.harness.master_calls import MasterWorld, S
from tests.unit.master.test_master_loop_steps import advancing, opening
from tests.unit.rpc.test_rpc_thread_costs import Spent, spent

FOLDERS = ("consensus-meta", "data", "quarantine", "tablet-meta", "wals")


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    made = RealDisk(tmp_path)
    for folder in FOLDERS:
        made.mkdir(folder)
    return made


class Copied(NamedTuple):
    """A replica of which a session is open."""

    disk: Disk
    replica: RestingReplica
    sessions: SourceSessions

    def capture(self, session_id: str, ttl_us: int, stop: Callable[[], None] = lambda: None) -> CopySourceSession:
        return capture_session(
            disk=self.disk,
            tablet_id=TABLET,
            requestor_uuid=TARGET_UUID,
            session_id=session_id,
            ttl_us=ttl_us,
            state=self.replica.tablet,
            cmeta=self.replica.cmeta,
            log=self.replica.log,
            is_leader=True,
            stop=stop,
        )


@pytest.fixture
def copied(disk: RealDisk) -> Copied:
    """Two blocks, and a log of many segments after them, of which one is longer than a piece."""
    replica = RestingReplica(disk)  # type: ignore[arg-type]
    for number in range(2):
        replica.write(list(range(number, number + 4)), "x" * 900_000)
        replica.tablet.flush()
    replica.write(list(range(4)), "y" * 900_000)
    for number in range(20):
        replica.write([number], "x" * 40_000)
    return Copied(disk, replica, SourceSessions(SystemClock()))


def test_capture_of_a_copy_takes_no_more_steps_than_is_stated(copied: Copied) -> None:
    """IN-62. Goal: a copy session is opened within a bound, and its work ends soon after the caller has left. Method: a
    log of many segments and of a long one; steps are counted, in total and between two looks at the caller. A caller
    that leaves at any look leaves nothing held."""
    sessions: list[CopySourceSession] = []
    took = spent(lambda stop: sessions.append(copied.capture("s", 1000, stop)))
    (session,) = sessions
    files, bound = session.manifest.files, limits.THREADS["capture of a copy"]
    pieces = sum(-(-f.length_bytes // limits.COPY_CHUNK_BYTES) for f in files if f.kind is FileKind.WAL_SEGMENT)
    assert len(files) > 10 and pieces > len(files) - 4
    assert took.longest <= bound.look, took
    assert took.steps <= bound.most(files=len(files), pieces=pieces), took
    session.close()
    for leaves in (0, 1, pieces - 1):
        looks = iter(range(leaves))

        def stop(looks: Any = looks) -> None:
            if next(looks, None) is None:
                raise Refused(Code.TIMED_OUT, "the caller left")

        with pytest.raises(Refused, match="the caller left"):
            copied.capture("s", 1000, stop)
        assert not copied.replica.tablet._contents.holds


def test_end_of_a_copy_and_each_part_of_it_take_no_more_steps_than_is_stated(copied: Copied) -> None:
    """IN-62. Goal: a block that a target doubts is read within a bound, and so is each part that it fetches. Method: a
    block of three pieces is verified, and served over a connection, whole and in part; steps are counted."""
    session = copied.sessions.open(TABLET, TARGET_UUID, copied.capture)
    block = max(session.manifest.files, key=lambda file: (file.kind is FileKind.BLOCK, file.length_bytes))
    pieces = -(-block.length_bytes // limits.COPY_CHUNK_BYTES)
    assert block.kind is FileKind.BLOCK and pieces > 2
    took, bound = spent(lambda stop: session.verify_block(block.name)), limits.THREADS["end of a copy"]
    assert took.steps <= bound.most(pieces=pieces), took

    class Process:
        uuid, disk, sessions = SOURCE_UUID, copied.disk, copied.sessions
        copy_rate = CopyRate(SystemClock(), 0, 0)
        on_fatal = staticmethod(lambda error: None)

    serving = FetchServing(Process(), lambda session_id, error: None)
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    for length in (1, 100_000):
        request = pb.FetchRequest(
            dest_uuid=SOURCE_UUID,
            session_id=session.manifest.session_id,
            kind=int(block.kind),
            name=block.name,
            length_bytes=length,
        )
        took = spent(lambda stop, request=request: serving._answer(here, request))  # type: ignore[misc]
        assert took.steps <= limits.THREADS["part of a copy"].most(), took
    for sock in (here, there):
        sock.close()
    serving.close()
    session.close()


FILES, QUARANTINES, TABLETS = 20, 30, 60
"""Blocks and segments of each quarantine; other tablets."""


def block(tablet_id: str, number: int) -> BlockInfo:
    name = f"data/{tablet_id}-{number:06}"
    return BlockInfo(f"{name}.arrow", 9, 1, 1, 1, 1, 0, 1, f"{name}.idx", 9, 1, f"{number}")


@pytest.fixture
def quarantines(disk: RealDisk, tmp_path: Path) -> RealDisk:
    """As many quarantines of a tablet, each with its own blocks and log, and of other tablets, that are here too."""
    superblock().save(disk)
    for number in range(TABLETS):
        superblock(tablet_id=f"{number:032}", blocks=(block(f"{number:032}", 1),)).save(disk)
    for number in range(2 * QUARANTINES):
        tablet_id = TABLET if number % 2 else f"{number:032}"
        blocks = tuple(block(tablet_id, 100 * number + n) for n in range(FILES))
        folder = tmp_path / "quarantine" / f"{tablet_id}-{number:06}"
        (folder / "wal").mkdir(parents=True)
        (folder / "superblock").write_bytes(superblock(tablet_id=tablet_id, blocks=blocks).encode())
        for n in range(FILES):
            (folder / "wal" / f"wal-{n:09}").write_bytes(b"log")
            for name, _, _ in blocks[n].files:
                (tmp_path / name).write_bytes(b"rows")
    return disk


@pytest.mark.deep
def test_list_of_quarantines_takes_no_more_steps_than_is_stated(quarantines: RealDisk) -> None:
    """IN-60, IN-80. Goal: a page of the list of quarantines looks at a bounded number of them, and ends soon after its
    caller has left. Method: sixty of many files, listed at once, and in pages; steps are counted."""
    pages: list[tuple[list[Any], str]] = []
    took = spent(lambda stop: pages.append(list_some(quarantines, stop=stop)))
    (everything, after), bound = pages[0], limits.THREADS["list of quarantines"]
    assert len(everything) == 2 * QUARANTINES and not after
    assert took.longest <= bound.look + bound.each["files"] * 3 * FILES, took
    assert took.steps <= bound.most(quarantines=len(everything), files=len(everything) * 3 * FILES), took
    found: list[Any] = []
    while page := list_some(quarantines, TABLET, after=after, most=7):
        found, after = found + page[0], page[1]
        assert len(page[0]) <= 7
        if not after:
            break
    assert found == [q for q in everything if q.tablet_id == TABLET] and len(found) == QUARANTINES


@pytest.mark.deep
def test_purge_of_quarantines_takes_no_more_steps_than_is_stated(quarantines: RealDisk) -> None:
    """IN-60, IN-80. Goal: one purge removes a bounded number of files, and ends soon after its caller has left. Method:
    thirty quarantines of many files; one purge with a bound, others whose callers leave, and one that removes the rest;
    steps are counted. Blocks and quarantines of other tablets stay."""
    blocks, bound = 2 * FILES * QUARANTINES, limits.THREADS["purge of quarantines"]
    purged = purge_quarantine(quarantines, TABLET, most=300)
    assert len(purged.removed) == 300 and len(list_some(quarantines, TABLET)[0]) == QUARANTINES
    for leaves in (0, 500):
        looks, before = iter(range(leaves)), len(quarantines.listdir("data"))

        def stop(looks: Any = looks) -> None:
            if next(looks, None) is None:
                raise Refused(Code.TIMED_OUT, "the caller left")

        with pytest.raises(Refused, match="the caller left"):
            purge_quarantine(quarantines, TABLET, stop=stop)
        assert before - len(quarantines.listdir("data")) < leaves or not leaves
    rest: list[int] = []
    took = spent(lambda stop: rest.append(len(purge_quarantine(quarantines, TABLET, stop=stop).removed)))
    superblocks = 2 * TABLETS + 4 * QUARANTINES
    assert took.longest <= bound.look + bound.each["files"] * FILES, took
    assert took.steps <= bound.most(superblocks=superblocks, files=blocks + FILES * QUARANTINES), took
    assert rest[0] > QUARANTINES and len(quarantines.listdir("data")) == blocks
    assert len(list_some(quarantines)[0]) == QUARANTINES
    assert Superblock.load(quarantines, TABLET) == superblock()


def count_on_threads(monkeypatch: pytest.MonkeyPatch, took: list[Spent]) -> None:
    """Count the steps of all that the loop has run on threads from now on."""
    to_thread = asyncio.to_thread

    async def counted(function: Any, *args: Any) -> Any:
        def work() -> Any:
            results: list[Any] = []
            took.append(spent(lambda stop: results.append(function(*args))))
            return results[0]

        return await to_thread(work)

    monkeypatch.setattr(asyncio, "to_thread", counted)


@pytest.mark.deep
@pytest.mark.parametrize("replicas", [1, 5])
def test_tablets_of_a_table_take_no_more_steps_of_a_thread_than_is_stated(
    replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-60. Goal: placing, building and encoding the tablets of a new table costs a thread what is stated. Method:
    tables of 100 and of 200 tablets are created, lost, replaced and dropped; steps on the thread are counted."""

    async def scenario() -> None:
        world, took = MasterWorld(), list[Spent]()
        await world.begin()
        count_on_threads(monkeypatch, took)

        async def done(what: str, request: Any, tablets: int) -> Any:
            took.clear()
            reply = await world.done(what, request)
            most = limits.THREADS["tablets of a table"].most(tablets=tablets, places=tablets * replicas * len(S))
            assert took and sum(t.steps for t in took) <= most, (what, tablets, most, took)
            return reply

        try:
            for tablets in (100, 200):
                info = table_info(f"t{tablets}", buckets=tablets, rf=replicas)
                made = await done("CreateTable", pb.CreateTableRequest(table=info, request_id=info.name), tablets)
                world.clock.now_us += 100_000_000
                await world.report()
                lost = pb.ReplaceTabletsRequest(tablet_ids=[t.tablet_id for t in made.tablets])
                await done("ReplaceTablets", lost, 2 * tablets)  # the lost ones are written, too
                await done("DropTable", pb.TableRequest(name=info.name), tablets)
        finally:
            await world.end()

    asyncio.run(scenario())


@pytest.mark.deep
def test_source_positions_take_no_more_steps_of_a_thread_than_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: opening and advancing sources costs a thread what is stated. Method: 1,000 positions are opened,
    opened again and advanced; one more is opened beside them; steps on the thread are counted."""

    async def scenario() -> None:
        world, took = MasterWorld(), list[Spent]()
        await world.begin()
        count_on_threads(monkeypatch, took)
        try:
            many, bound = 1000, limits.THREADS["source positions"]
            for request in (opening(many), opening(many), advancing(world, many), opening(1)):
                asked = len(getattr(request, "opens", ())) or len(request.advances)
                await world.done("AdvanceSources" if hasattr(request, "advances") else "OpenSources", request)
                assert took and sum(t.steps for t in took) <= bound.most(positions=asked, sources=many), (asked, took)
                took.clear()
        finally:
            await world.end()

    asyncio.run(scenario())


def test_long_request_takes_no_more_steps_of_a_thread_than_is_stated() -> None:
    """IN-60. Goal: counting, parsing and checking a request costs a thread what is stated for each of its fields.
    Method: a heartbeat with thousands of replicas, each with peers and a config; steps are counted."""
    request = pb.HeartbeatRequest(server_uuid=SOURCE_UUID, full_report=True)
    for number in range(1000):
        status = request.replicas.add(
            tablet_id=f"{number:032}", uuid=SOURCE_UUID, phase="RUNNING", term=1, role="LEADER"
        )
        for uuid in (SOURCE_UUID, TARGET_UUID):
            status.peers.add(uuid=uuid)
            status.committed_config.members.add(uuid=uuid).addresses.add(host="h", port=1)
    method, data = "MasterService.Heartbeat", request.SerializeToString()
    fields = count_fields(method, data, request.DESCRIPTOR)
    took = spent(
        lambda stop: (count_fields(method, data, request.DESCRIPTOR), checked_request(method, data, type(request)))
    )
    assert fields > 10_000
    assert took.steps <= limits.THREADS["reading of a long request"].most(fields=fields), (fields, took)
