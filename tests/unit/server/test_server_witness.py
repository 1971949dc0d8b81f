"""Witnesses on servers: made without data, voting and logging, joined by their data; two servers that connect."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from nyala.replica.raft import Role
from nyala.replica.tablet import Superblock, superblock_path
from nyala.replica.tablet_copy import FileKind
from nyala.replica.types import Code, DataState, EditKind, Member, Refused
from tests.harness.copies import TABLET
from tests.harness.server_pair import TIMEOUT_S, Pair, Part, run_pair, until
from tests.unit.server.test_server_file_check import HURTS, Hurt


def member_of(pair: Pair) -> Member | None:
    """The other server as the leader's committed config has it."""
    replica = pair.leader.hosted.replica
    return replica.committed_config.member(pair.other.uuid) if replica is not None else None


def stands_in(pair: Pair) -> bool:
    member = member_of(pair)
    return member is not None and member.votes and not member.holds_data


async def add_witness(pair: Pair, *, promote: bool) -> None:
    """A witness on the other server; without `promote` it stays one.

    It hears of that once the leader's metadata on disk have its config: until then the leader's log would go along.
    """
    leader, pair.cut = pair.leader.hosted, True
    joining = await pair.change(EditKind.ADD, pair.other.member(votes=False, promote=promote, holds_data=False))
    await until(lambda: leader.cmeta and leader.cmeta.committed_config == joining, "the leader has saved the config")
    pair.cut = False
    if promote:
        await until(lambda: (m := member_of(pair)) is not None and m.votes, "the witness votes")
        return
    await until(lambda: pair.other.serving, "the witness runs")
    await pair.change(EditKind.CHANGE, pair.other.member(holds_data=False))


def on_disk(pair: Pair) -> Superblock:
    return Superblock.load(pair.other.disk, TABLET)


def test_witness_commits_and_serves_no_reads() -> None:
    """CC-47. Goal: a member that logs and votes without rows. Method: a leader alone with 20 rows gets a witness:
    neither blocks nor log are fetched, its log begins at the leader's commit index. With it cut off nothing commits,
    with it back everything does; it applies no row, opens no tablet, and refuses a reader with the leader's name."""

    async def scenario(pair: Pair) -> None:
        for key in range(20):
            await pair.put(key)
        await add_witness(pair, promote=False)
        assert "Fetch" not in pair.calls("leader")
        disk = on_disk(pair)
        assert disk.witness and disk.data_state is DataState.READY and disk.blocks == ()
        assert disk.flush_opid.index > 20
        pair.cut = True
        held = asyncio.ensure_future(pair.put(100))
        await asyncio.sleep(0)
        leader = pair.leader.hosted.replica
        assert leader is not None
        before = leader.commit_index
        await until(lambda: leader.last_logged.index > before, "the write is in the log")
        assert leader.commit_index == before
        pair.cut = False
        last = await held
        hosted = pair.other.hosted
        assert hosted.replica is not None and hosted.tablet is None
        assert hosted.replica.last_logged == last
        assert hosted.replica.role is Role.FOLLOWER
        with pytest.raises(Refused) as refused:
            hosted.serving()
        assert refused.value.code is Code.NOT_LEADER and pair.leader.uuid in refused.value.detail
        assert stands_in(pair), "a witness that nobody marked stays one"
        assert pair.other.disk.listdir("data") == []

    run_pair(scenario)


def test_witness_gets_no_log_while_the_config_that_makes_it_one_is_on_its_way_to_disk() -> None:
    """CC-47. Goal: a slow disk of the source does not cost a witness the download of a log. Method: the leader's
    metadata cannot be written while it commits the config with a witness; that one asks for its copy; then they can:
    nothing was fetched, and its log begins at the leader's commit index."""
    free = threading.Event()

    async def scenario(pair: Pair) -> None:
        for key in range(20):
            await pair.put(key)
        lane = pair.leader.hosted.meta_lane
        lane.run(lambda: free.wait(TIMEOUT_S), lambda _: None)
        await pair.change(EditKind.ADD, pair.other.member(votes=False, holds_data=False))
        fetched = lambda: "Fetch" in pair.calls("leader")  # noqa: E731
        await until(lambda: lane.depth > 1 or fetched(), "the copy waits for the config, or goes on without it")
        free.set()
        await until(lambda: pair.other.serving, "the witness runs")
        assert not fetched() and on_disk(pair).flush_opid.index > 20

    run_pair(scenario)


def test_witness_keeps_term_vote_and_log_over_restarts() -> None:
    """CC-47. Goal: a start makes nothing else of a witness. Method: entries behind its base, restart: the same
    superblock, the same log and term, and the group commits with it again."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await add_witness(pair, promote=False)
        last = await pair.put(2, 3)
        before, term = on_disk(pair), pair.other.hosted.term
        await pair.restart_other()
        assert on_disk(pair) == before and before.witness
        assert pair.other.hosted.last_opid == last and pair.other.hosted.term == term
        await pair.put(4)
        assert pair.other.hosted.tablet is None

    run_pair(scenario)


def test_witness_keeps_its_log_while_its_data_is_slow() -> None:
    """CC-55. Goal: nothing of a witness's log goes before its data is joined, and nothing is missing between. Method:
    its blocks are held up on their way while the leader writes, flushes and lets its own log go, and log GC runs at the
    witness: its first entry stays. Then the blocks come: it is made whole, its rows are the leader's."""
    held, free = threading.Event(), threading.Event()

    def slowly(request: Any, part: Part) -> Part | None:
        if request.kind == FileKind.BLOCK:
            held.set()
            free.wait(TIMEOUT_S)
        return part

    async def scenario(pair: Pair) -> None:
        for key in range(10):
            await pair.put(key)
        pair.on_part = slowly
        await add_witness(pair, promote=True)
        await until(held.is_set, "blocks are on their way")
        base = on_disk(pair).flush_opid
        for turn in range(5):
            await pair.put(*range(100 * turn, 100 * turn + 50))
            await pair.leader.maintenance.flush(pair.leader.hosted)
            assert pair.other.hosted.log is not None
            await asyncio.to_thread(pair.other.hosted.log.roll)  # a segment that could go
        leader, witness = pair.leader.hosted, pair.other.hosted
        assert leader.replica is not None and witness.replica is not None and witness.log is not None
        await until(lambda: witness.replica.applied_index == leader.replica.applied_index, "the witness has it all")
        for hosted in (leader, witness):
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            hosted.replica.gc(done.set_result)
            assert not isinstance(await asyncio.wait_for(done, 20), BaseException)
        assert witness.log.first_index == base.index + 1
        assert stands_in(pair)
        free.set()
        await until(lambda: (m := member_of(pair)) is not None and m.holds_data and m.votes, "it is whole")
        last = await pair.put(7777)
        await until(lambda: pair.other.serving and pair.other.hosted.replica.applied_index >= last.index, "it applied")
        assert pair.other.rows() == pair.leader.rows()
        whole = on_disk(pair)
        assert not whole.witness and whole.flush_opid >= base
        assert member_of(pair) == pair.other.member()

    run_pair(scenario)


@pytest.mark.a_third
@pytest.mark.parametrize("hurt", HURTS, ids=lambda hurt: hurt.__name__)
def test_witness_whose_superblock_is_damaged_meanwhile_is_joined_by_its_data(hurt: Hurt) -> None:
    """IN-21. Goal: a damaged superblock does not end a witness that gets its data. Method: its blocks are held up on
    their way, its superblock is damaged, and the blocks come: it is whole, and has the leader's rows."""
    held, free = threading.Event(), threading.Event()

    def slowly(request: Any, part: Part) -> Part | None:
        if request.kind == FileKind.BLOCK:
            held.set()
            free.wait(TIMEOUT_S)
        return part

    async def scenario(pair: Pair) -> None:
        await pair.put(*range(50))
        pair.on_part = slowly
        await add_witness(pair, promote=True)
        await until(held.is_set, "blocks are on their way")
        hurt(pair.other.disk, superblock_path(TABLET))
        free.set()
        await until(lambda: pair.other.serving and not pair.other.hosted.superblock.witness, "it is whole")
        await until(lambda: pair.other.rows() == pair.leader.rows(), "its rows are the leader's")
        await until(lambda: len(pair.other.jobs.ended) == 2, "the copy that made it and the one that joined it ended")
        assert [job.progress.phase for job in pair.other.jobs.ended] == ["DONE", "DONE"] and not on_disk(pair).witness

    run_pair(scenario)


def test_witness_that_is_not_wanted_whole_any_more_stops_its_copy() -> None:
    """CC-52. Goal: the copy ends with the need for it. Method: with half of the blocks on their way, the config says
    that the witness leaves: its job is cancelled, its files go, it goes on voting; wanted again, it is made whole."""
    held, free = threading.Event(), threading.Event()

    def slowly(request: Any, part: Part) -> Part | None:
        if request.kind == FileKind.BLOCK:
            held.set()
            free.wait(TIMEOUT_S)
        return part

    async def scenario(pair: Pair) -> None:
        await pair.put(*range(50))
        pair.on_part = slowly
        await add_witness(pair, promote=True)
        await until(held.is_set, "blocks are on their way")
        await pair.change(EditKind.CHANGE, pair.other.member(holds_data=False))
        await until(lambda: [j.progress.phase for j in pair.other.jobs.ended][-1:] == ["CANCELLED"], "the copy ends")
        assert on_disk(pair).witness and pair.other.disk.listdir("data") == []
        await pair.put(60)
        free.set()
        await pair.change(EditKind.CHANGE, pair.other.member(promote=True, holds_data=False))
        await until(lambda: (m := member_of(pair)) is not None and m.holds_data, "it is whole")
        await until(lambda: pair.other.serving and pair.other.rows() == pair.leader.rows(), "its rows are the leader's")

    run_pair(scenario)


def test_witness_is_not_called_whole_before_its_data_is_there() -> None:
    """CC-53. Goal: a witness without data cannot be marked as one that has it. Method: a change that says the witness
    holds data is refused, nothing is applied."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await add_witness(pair, promote=False)
        with pytest.raises(AssertionError, match="does not have its data"):
            await pair.change(EditKind.CHANGE, pair.other.member())
        assert stands_in(pair)

    run_pair(scenario)
