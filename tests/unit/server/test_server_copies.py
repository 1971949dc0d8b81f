"""Copy jobs of a server whose replica still makes promises between the leader's request and the copy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from nyala.replica.raft import AppendEntries, VoteRequest
from nyala.replica.raft_driver import Phase
from nyala.replica.rows import crc32c
from nyala.replica.server.copies.copy_jobs import CopyJobs
from nyala.replica.server.tablets import manager as manager_module
from nyala.replica.server.tablets.hosted import HostedTablet
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import WHOLE, CopyFile, CopyManifest, CopyRequest, CopyWanted
from nyala.replica.types import (
    ZERO_OPID,
    Address,
    Code,
    DataState,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    Refused,
    hybrid_from_us,
    limits,
)
from tests.harness.copies import (
    SOURCE_UUID,
    TABLET,
    TARGET_UUID,
    RestingReplica,
    Source,
    new_disk,
    superblock,
    write_entry,
)
from tests.harness.managers import new_manager
from tests.harness.patience import patience_s
from tests.harness.server_pair import until

WHERE, LINKED = [Address("127.0.0.1", 1)], Address("127.0.0.1", 3)
PAIR = RaftConfig(OpId(0, 0), (Member(SOURCE_UUID, (WHERE[0],)), Member(TARGET_UUID, (Address("127.0.0.1", 2),))))


class WatchedSource:
    """A copy source with something that happens once BEGIN was answered."""

    def __init__(self, copy_source: Any, begun: Callable[[], None]) -> None:
        self._copy_source = copy_source
        self._begun = begun
        self.begins = 0

    def begin(
        self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool, wanted: CopyWanted = WHOLE
    ) -> CopyManifest:
        manifest: CopyManifest = self._copy_source.begin(tablet_id, requestor_uuid, allow_leaderless, wanted)
        self.begins += 1
        self._begun()
        return manifest

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        yield from self._copy_source.fetch(session_id, file, byte_offset, length_bytes)

    def end(self, session_id: str, success: bool, doubted: str = "") -> None:
        self._copy_source.end(session_id, success, doubted)


class Server:
    """A tablet manager with one tablet, whose other voter leads it, and copy jobs from that one, `source`."""

    def __init__(self, source: Source) -> None:
        loop = asyncio.get_running_loop()
        self.fatal: list[BaseException] = []
        self.manager = new_manager(new_disk(), self.fatal.append)
        self.loop = loop
        self.copy_source = WatchedSource(source.copy_source, lambda: self.in_between())
        self.in_between: Callable[[], None] = lambda: None
        self.called: list[tuple[str, list[Address]]] = []
        """The sources that were asked, and where."""

        def make_source(uuid: str, addresses: list[Address]) -> Any:
            self.called.append((uuid, addresses))
            return self.copy_source

        self.jobs = CopyJobs(self.manager, make_source, lambda member: LINKED)

    @property
    def hosted(self) -> HostedTablet:
        return self.manager.get(TABLET)

    async def begin(self) -> None:
        """Create the tablet and append the leader's first entry; the log then ends at 1.1."""
        await self.manager.start()
        await self.manager.create(superblock(), PAIR, campaign=False)
        await self.append(Entry(OpId(1, 1), EntryKind.NOOP, 1 << 12, 0, b"", b"", crc32c(b"")))

    async def append(self, entry: Entry) -> None:
        """Append the leader's next entry, and apply it."""
        last = OpId(1, entry.opid.index - 1) if entry.opid.index > 1 else ZERO_OPID
        message = AppendEntries(
            to_uuid=TARGET_UUID,
            from_uuid=SOURCE_UUID,
            term=1,
            prev=last,
            entries=(entry,),
            commit_index=entry.opid.index,
        )
        assert self._replica.step(message) == ""
        await self.applied(entry.opid.index)

    @property
    def _replica(self) -> Any:
        replica = self.hosted.replica
        assert replica is not None
        return replica

    async def _done(self, ask: Callable[[Callable[[Any], None]], None]) -> Any:
        answer: asyncio.Future[Any] = self.loop.create_future()
        ask(answer.set_result)
        return await asyncio.wait_for(answer, 20)

    async def applied(self, index: int) -> None:
        """Wait until the entry at `index` is applied."""
        await self._done(lambda done: self._replica.wait_applied(index, done))

    async def put(self, key: int) -> None:
        """One acknowledged row."""
        await self.append(write_entry(self._replica.last_logged.index + 1, [key], "mine", 1))

    async def vote(self, term: int) -> None:
        """Another candidate asks in a later term; this server's promise of it is on disk."""
        last = self._replica.last_logged
        self._replica.step(VoteRequest(to_uuid=TARGET_UUID, from_uuid=SOURCE_UUID, term=term, last=last, transfer=True))
        while self.hosted.cmeta is not None and self.hosted.cmeta.term < term:
            await self._done(lambda done: self.hosted.meta_lane.run(lambda: None, done))

    def during_begin(self, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do that on the loop while the job waits for BEGIN."""
        self.in_between = lambda: asyncio.run_coroutine_threadsafe(what(), self.loop).result(20)

    def ask(self, config: OpId = ZERO_OPID, source: str = SOURCE_UUID) -> None:
        """The leader's request, as of now; or that of another `source`."""
        local = self.jobs.local(TABLET)
        self.jobs.start(
            CopyRequest(
                dest_uuid=TARGET_UUID,
                from_uuid=source,
                tablet_id=TABLET,
                term=local.term,
                current_state=local.data_state,
                config=config,
            ),
            WHERE,
        )

    async def ended(self) -> str:
        """How the job ended."""
        job = self.hosted.copy or self.jobs.ended[-1]
        await asyncio.wait_for(job.ended.wait(), patience_s(30))
        return job.error

    def rows(self) -> list[int]:
        """Keys of the running replica."""
        tablet = self.hosted.tablet
        assert tablet is not None and self._replica.phase in (Phase.CONFIGURING, Phase.RUNNING)
        return sorted(key for found in tablet.scan() for key in found.column("k").to_pylist())

    async def close(self) -> None:
        await self.jobs.stop()
        if self.hosted.replica is not None:
            await self.manager.shutdowns.halt_for_deletion(self.hosted)
        assert self.fatal == []


def run(scenario: Callable[[Server, Source], Coroutine[Any, Any, None]], *, entries: int, term: int = 1) -> None:
    """`scenario(server, source)` with a source of that term that has so many entries, all of them in blocks only."""
    replica = RestingReplica(new_disk(), term=term)
    for index in range(entries):
        replica.write([100 + index], "theirs")
    replica.tablet.flush()
    source = Source(replica)

    async def all_of_it() -> None:
        server = Server(source)
        await server.begin()
        try:
            await scenario(server, source)
        finally:
            await server.close()

    try:
        asyncio.run(all_of_it())
    finally:
        replica.close()


def test_copy_job_over_a_replica_that_acknowledged_more_meanwhile_loses_nothing() -> None:
    """TC-58, TC-28: a stale leader never wipes what we acknowledged. Method: the source's log ends at 1.3 and ours at
    1.2 when it asks; while it answers BEGIN, two more writes are acknowledged here: refused, they run on."""

    async def scenario(server: Server, source: Source) -> None:
        await server.put(1)

        async def more() -> None:
            await server.put(2)
            await server.put(3)

        server.during_begin(more)
        server.ask()
        error = await server.ended()
        assert "ends below what this server has acknowledged" in error
        assert server.hosted.last_opid == OpId(1, 4)
        await server.put(4)
        assert server.rows() == [1, 2, 3, 4]
        assert server.hosted.superblock.data_state is DataState.READY
        assert source.sessions.sessions() == []

    run(scenario, entries=3)


def test_copy_job_from_a_source_of_an_earlier_term_loses_nothing() -> None:
    """TC-58: a later term than the source's may hold what we cannot name. Method: the source's log is longer than ours,
    but while it answers BEGIN this server votes in term 9: refused, the replica runs on."""

    async def scenario(server: Server, source: Source) -> None:
        await server.put(1)
        server.during_begin(lambda: server.vote(9))
        server.ask()
        assert Code.BAD_TERM.name in await server.ended()
        assert server.hosted.superblock.data_state is DataState.READY
        assert server.hosted.term == 9 and server.hosted.last_opid == OpId(1, 2)

    run(scenario, entries=50)


def test_copy_job_that_waited_is_checked_again_before_it_asks_the_source() -> None:
    """TC-32: the request's checks hold when the job runs. Method: both threads of the pool are busy while a later term
    is promised here; then the job runs: BAD_TERM, the source was not asked, the replica was not stopped."""

    async def scenario(server: Server, source: Source) -> None:
        await server.put(1)
        running, free = server.hosted.replica, threading.Event()
        for _ in range(server.manager.options.copy_jobs_max):
            server.jobs._pool.submit(free.wait)
        server.ask()
        await server.vote(9)
        free.set()
        assert Code.BAD_TERM.name in await server.ended()
        assert server.copy_source.begins == 0 and server.hosted.replica is running
        assert server.rows() == [1]

    run(scenario, entries=50)


@pytest.mark.parametrize(
    ("path", "committed"), [(f"tablet-meta/{TABLET}", False), ("quarantine/*/cmeta", True)], ids=["step 4", "step 5"]
)
def test_deletion_without_room_forgets_nothing_and_ends_once_there_is_room(
    path: str, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-40, TC-36. Goal: a deletion on a full disk loses neither the tombstone's last OpId nor its vote. Method:
    ENOSPC once as the tombstone's superblock is written, or the metadata's copy behind it: NO_SPACE; before the commit
    point the next deletion ends it, behind it the tombstone is finished by itself. Either way it knows the end of the
    log."""
    monkeypatch.setattr(manager_module, "REOPEN_AFTER_S", 0.0)

    async def scenario(server: Server, source: Source) -> None:
        await server.put(1)
        last, manager = server.hosted.last_opid, server.manager
        manager.disk.fail_on("replace", path, "ENOSPC", times=1 + committed)
        with pytest.raises(Refused) as refused:
            await manager.delete(TABLET, None, "for a test")
        assert refused.value.code is Code.NO_SPACE
        if not committed:
            await manager.delete(TABLET, None, "for a test")
        await until(lambda: not manager.disk.exists(f"wals/{TABLET}"), "the log is put aside")
        left = Superblock.load(manager.disk, TABLET)
        assert (left.data_state, left.last_logged, left.last_logged_known) == (DataState.DELETED, last, True)
        assert server.hosted.superblock == left and server.hosted.cmeta.vote_floor_term == 0

    run(scenario, entries=1)


def test_deletion_ends_a_job_that_waits_and_then_the_replica_that_is_here() -> None:
    """TC-12, TC-36. Goal: a deletion also ends a copy that waits in the queue. Method: both threads of the pool are
    busy. A copy over a running replica waits, for config 1.9: a deletion as of 1.8 is refused, the job and the replica
    stay; as of 1.9 both end, the tombstone has the log's end and term, the source was not asked. Likewise a tombstone,
    which stays as it was, and a server that never had the tablet: it has none then."""

    async def scenario(server: Server, source: Source) -> None:
        await server.put(1)
        manager, running, free = server.manager, server.hosted.replica, threading.Event()
        for _ in range(manager.options.copy_jobs_max):
            server.jobs._pool.submit(free.wait)
        try:
            server.ask(OpId(1, 9))
            (job,) = server.jobs.running()
            last, term = server.hosted.last_opid, server.hosted.term
            with pytest.raises(Refused) as refused:
                await manager.delete(TABLET, OpId(1, 8), "late")
            assert refused.value.code is Code.CAS_FAILED
            assert server.jobs.running() == [job] and not job.cancelled.is_set()
            assert server.hosted.replica is running and server.rows() == [1]
            for known in (OpId(1, 9), None):
                await asyncio.wait_for(manager.delete(TABLET, known, "for a test"), 20)
                assert job.progress.phase == "CANCELLED" and server.jobs.running() == []
                left = Superblock.load(manager.disk, TABLET)
                assert (left.data_state, left.last_logged, left.last_logged_known) == (DataState.DELETED, last, True)
                assert server.hosted.superblock == left and server.hosted.term == term
                assert manager.disk.listdir("quarantine") == [f"{TABLET}-000001"]
                server.ask(OpId(1, 9))
                (job,) = server.jobs.running()
            await asyncio.wait_for(manager.delete(TABLET, None, "again"), 20)

            request = CopyRequest(
                dest_uuid=TARGET_UUID,
                from_uuid=SOURCE_UUID,
                tablet_id="other",
                term=1,
                current_state=DataState.DOES_NOT_EXIST,
            )
            server.jobs.start(request, WHERE)
            await asyncio.wait_for(manager.delete("other", None, "for a test"), 20)
            assert "other" not in manager.tablets and not Superblock.exists(manager.disk, "other")
            assert server.jobs.running() == [] and server.copy_source.begins == 0
        finally:
            free.set()

    run(scenario, entries=5)


def test_copy_job_replaces_a_replica_that_lags() -> None:
    """TC-29: what must be refused above is else a copy. Method: nothing happens in between: the source's rows are here,
    the old replica is in quarantine."""

    async def scenario(server: Server, source: Source) -> None:
        await server.put(1)
        server.ask()
        assert await server.ended() == ""
        assert server.hosted.last_opid == OpId(1, 5)
        assert server.manager.disk.listdir("quarantine") == [f"{TABLET}-000001"]

    run(scenario, entries=5)


STRANGER = "f" * 32


def test_copy_over_an_intact_replica_comes_from_a_voter_at_its_known_address_only() -> None:
    """TC-28, TC-58. Goal: one request of any process does not replace an intact replica by what another process serves.
    Method: requests that name a stranger as the source, while the leader is heard and while there is none: the first
    is refused, the second ends when the source has offered its config; the replica runs on. A request that names the
    leader at an address of the caller's choice: the leader is asked where this server knows it. A tombstone is copied
    to from the address that the caller gives."""

    async def scenario(server: Server, source: Source) -> None:
        await server.put(1)
        running = server.hosted.replica
        with pytest.raises(Refused, match="follows another leader"):
            server.ask(source=STRANGER)
        assert server.called == [] and server.jobs.running() == []
        await server.vote(9)
        source.replica.cmeta.save_hard_state(9, SOURCE_UUID)
        server.ask(source=STRANGER)
        assert "votes in no config" in await server.ended()
        assert server.hosted.replica is running and server.rows() == [1] and server.hosted.copy is None
        (reported,) = server.manager.copy_failures.lasting(())
        assert "run `nyala local-replica delete DIR TABLET`, and start it" in reported.reason and reported.count == 1
        server.ask()
        assert await server.ended() == ""
        assert server.called == [(STRANGER, WHERE), (SOURCE_UUID, [LINKED, *WHERE])]
        await server.manager.delete(TABLET, None, "for a test")
        server.ask()
        await server.ended()
        assert server.called[-1] == (SOURCE_UUID, WHERE)

    run(scenario, entries=5)


def test_copy_of_a_log_far_ahead_of_the_clock_here_does_not_move_the_clock() -> None:
    """IN-50. Goal: a copy brings no times to a server that it would refuse from a leader. Method: a tablet that is not
    here, and of which the source's log has an entry an hour ahead of this server's clock: the copy fails, and tells by
    how much; the tablet is a tombstone, and the clock has not moved."""

    async def scenario(server: Server, source: Source) -> None:
        manager = server.manager
        await manager.delete(TABLET, None, "for a test")
        hour = hybrid_from_us(manager.clock.wall_us() + 3_600_000_000)
        source.replica.index += 1
        entry = write_entry(source.replica.index, [1], "far", 1)._replace(hybrid_time=hour)
        source.replica.log.append([entry], lambda outcome: None)
        source.replica.log.drain()
        server.ask()
        error = await server.ended()
        assert "too far ahead of the clock here" in error and f"time={hour}" in error
        assert server.hosted.superblock.data_state is DataState.DELETED and server.hosted.replica is None
        assert manager.hybrid_clock.ahead_us(hour) > limits.CLOCK_AHEAD_OF_PEERS_US_MAX

    run(scenario, entries=5)
