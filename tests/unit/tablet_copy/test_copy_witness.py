"""A witness's files: made without data, joined by it; a death after each step leaves a witness or a whole replica."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.tablet import Superblock, Tablet, Witness, block_names
from nyala.replica.tablet_copy import (
    CopyFile,
    CopyManifest,
    CopyProgress,
    CopyWanted,
    FileKind,
    WitnessJoin,
    delete_replica,
    parse_superblock,
    wal_folder,
)
from nyala.replica.types import Code, DataState, InvariantViolation, OpId, Refused
from nyala.replica.wal import Log, WalOptions
from tests.harness.copies import (
    TABLET,
    TARGET_UUID,
    RestingReplica,
    Source,
    attempt,
    copy_over,
    data_files,
    die,
    leading_source,
    new_disk,
    start,
    superblock,
    tombstone,
    write_entry,
)
from tests.harness.sim_disk import SimCrash, SimDisk

BASE = OpId(6, 3)
TERM = 7


@pytest.fixture
def source() -> Iterator[Source]:
    """A leader in term 6 with a block, entries after it, 6.3 of them known to be committed, and one that is not."""
    made = leading_source(logged=[([3], "b"), ([4], "c"), ([5], "d")])
    made.committed, made.commit_index, made.config_index = BASE, BASE.index, 1
    yield made
    made.replica.close()


def vivify(
    disk: SimDisk,
    source: Source,
    *,
    kept: OpId = OpId(0, 0),
    own_last_known: bool = True,
    local: Superblock | None = None,
) -> Superblock:
    """Make a witness of nothing, or of the tombstone `local`."""
    made = attempt(disk, source.copy_source)
    return copy_over(local, made, own_last_opid=kept, log_only=True, own_last_known=own_last_known).run()


def log_of(disk: SimDisk) -> Log:
    return Log.open(disk, wal_folder(TABLET), TABLET, WalOptions())[0]


def append(disk: SimDisk, source: Source, through: int) -> None:
    """Append the leader's entries after the base to the witness's log."""
    log = log_of(disk)
    entries = source.replica.log.read(BASE.index + 1, through + 1, 1 << 20)
    log.append(entries, lambda outcome: None)
    log.drain()
    log.close()


def join(disk: SimDisk, source: Source, **options: Any) -> WitnessJoin:
    """One run; the log is there already, and the swap is the rewrite."""
    options.setdefault("await_log", lambda flushed: None)
    options.setdefault("swap", lambda whole: whole.save(disk))
    return WitnessJoin(attempt(disk, source.copy_source), witness=Superblock.load(disk, TABLET), **options)


def witness_with_a_promise(source: Source) -> SimDisk:
    """A witness at its base with two entries behind it, which voted in a later term."""
    disk = new_disk()
    vivify(disk, source)
    source.replica.write([6], "e")
    append(disk, source, 5)
    ConsensusMeta.load(disk, TABLET).save_hard_state(TERM, "c" * 32)
    return disk


def assert_promises(disk: SimDisk) -> None:
    cmeta, log = ConsensusMeta.load(disk, TABLET), log_of(disk)
    assert (cmeta.term, cmeta.voted_for) == (TERM, "c" * 32)
    assert (log.first_index, log.last) == (BASE.index + 1, OpId(6, 5))
    log.close()


def test_witness_begins_at_what_is_committed_and_fetches_nothing(source: Source) -> None:
    """CC-47, CC-56. Goal: a witness is there after two round trips, however much data there is. Method: a log-only copy
    of a source with a block and a log: no file is offered; the superblock says witness, its base is the commit index,
    metadata are merged, the log is empty; such a record is written under a feature that an older build refuses."""
    disk = new_disk()
    made = vivify(disk, source)
    assert made == Superblock.load(disk, TABLET)
    assert made.witness and made.data_state is DataState.READY and made.flush_opid == BASE
    assert made.blocks == () and made.ledger == {"sources": [], "clients": []}
    assert made.to_avro()["incompatible_features"] == ["witness"]
    assert data_files(disk) == [] and disk.listdir(wal_folder(TABLET)) == []
    cmeta = ConsensusMeta.load(disk, TABLET)
    assert (cmeta.term, cmeta.voted_for) == (6, None)
    assert source.sessions.sessions() == []


def test_base_of_a_witness_is_never_below_what_it_may_have_acknowledged(source: Source) -> None:
    """CC-47, TC-58. Goal: becoming a witness forgets no acknowledgement. Method: the leader does not know yet that
    anything of its term is committed, or the tombstone here acknowledged an entry above the commit index: then the
    log from the flush on is copied too; one that acknowledged more than the source has is refused."""
    source.committed = OpId(5, 3)
    disk = new_disk()
    assert vivify(disk, source).flush_opid == OpId(6, 1)
    with_log = log_of(disk)
    assert (with_log.first_index, with_log.last) == (1, OpId(6, 4))
    with_log.close()
    source.committed = BASE
    disk = new_disk()
    assert vivify(disk, source, kept=OpId(6, 4)).flush_opid == OpId(6, 1)
    with_log = log_of(disk)
    assert with_log.last == OpId(6, 4)
    with_log.close()
    with pytest.raises(Refused) as refused:
        vivify(disk := new_disk(), source, kept=OpId(6, 9))
    assert refused.value.code is Code.ILLEGAL_STATE and not Superblock.exists(disk, TABLET)


def test_witness_of_who_cannot_tell_its_acknowledgements_gets_the_log_too(source: Source) -> None:
    """CC-47, TC-61. Goal: an unknown acknowledgement counts as any. Method: a tombstone whose last logged OpId is only
    a lower bound: the log comes along; one that turns out to be such when the session was fixed already is refused."""
    disk = new_disk()
    unknown = tombstone(disk, OpId(6, 1), term=6, known=False)
    assert not unknown.last_logged_known
    with pytest.raises(Refused, match="the next attempt copies the source's log, too"):
        vivify(disk, source, kept=OpId(6, 1), local=unknown)
    assert Superblock.load(disk, TABLET) == unknown
    assert vivify(disk, source, kept=OpId(6, 1), own_last_known=False, local=unknown).flush_opid == OpId(6, 1)
    with_log = log_of(disk)
    assert with_log.last == OpId(6, 4)
    with_log.close()


def test_log_or_rows_of_the_source_are_enough_for_who_cannot_tell_its_acknowledgements(source: Source) -> None:
    """CC-47, TC-61. Goal: a tombstone of which only a lower bound is known is copied over wherever that is safe.
    Method: the source sends its log to a witness anyway, or has flushed all of it, and was asked for all; a source
    without block or log offers a whole replica."""
    source.committed = OpId(5, 3)
    disk = new_disk()
    unknown = tombstone(disk, OpId(6, 1), term=6, known=False)
    assert vivify(disk, source, kept=OpId(6, 1), local=unknown).last_logged_known
    with_log = log_of(disk)
    assert with_log.last == OpId(6, 4)
    with_log.close()
    source.replica.tablet.flush()
    disk = new_disk()
    unknown = tombstone(disk, OpId(6, 1), term=6, known=False)
    base = vivify(disk, source, kept=OpId(6, 1), own_last_known=False, local=unknown).flush_opid
    assert base == source.replica.log.last
    empty, disk = new_disk(), new_disk()
    superblock(flush_opid=BASE).save(empty)
    without_files = Source(RestingReplica(empty, term=6))
    unknown = tombstone(disk, OpId(6, 1), term=1, known=False)
    ready = copy_over(unknown, attempt(disk, without_files.copy_source)).run()
    assert (ready.data_state, ready.flush_opid, ready.witness) == (DataState.READY, BASE, False)
    assert ready.last_logged_known and not data_files(disk)
    without_files.replica.close()


def test_witness_over_a_lost_superblock_gets_the_log_too(source: Source) -> None:
    """CC-47, IN-21. Goal: an unknown acknowledgement counts as any. Method: a log and metadata without the superblock
    that they went with; the source's log comes along, whatever is committed."""
    disk = witness_with_a_promise(source)
    disk.remove(Superblock.load(disk, TABLET).path)
    source.replica.cmeta.save_hard_state(TERM + 1, None)
    made = vivify(disk, source)
    assert made.witness and made.flush_opid < BASE
    with_log = log_of(disk)
    assert with_log.last == source.replica.log.last
    with_log.close()


def test_copy_with_rows_takes_no_source_that_offers_none(source: Source) -> None:
    """CC-47. Goal: a replica that should have rows never becomes a witness. Method: a source that answers every request
    as it would answer a witness's: refused, and nothing has changed here; a witness takes the same offer."""
    begin = source.copy_source.begin
    source.copy_source.begin = lambda *args: begin(*args[:3], CopyWanted(log_only=True))  # type: ignore[method-assign]
    disk = new_disk()
    with pytest.raises(Refused, match="offers a log without rows") as refused:
        copy_over(None, attempt(disk, source.copy_source)).run()
    assert refused.value.code is Code.ILLEGAL_STATE and not disk.files and source.sessions.sessions() == []
    assert vivify(disk, source).witness


@pytest.mark.parametrize("power_seed", [None, 1])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_making_of_a_witness_cut_off_at_any_step(source: Source, step: int, power_seed: int | None) -> None:
    """CC-47. Goal: half a witness is none. Method: die after each step, by kill and by power loss: before the fifth it
    is a tombstone, which can be made a witness again; after it a witness."""
    disk = new_disk()
    disk.arm(f"copy.{step}")
    with pytest.raises(SimCrash):
        vivify(disk, source)
    die(disk, power_seed)
    settled = start(disk)
    if step == 5:
        assert settled.witness and settled.flush_opid == BASE
        return
    assert settled.data_state is DataState.DELETED and not settled.witness
    assert vivify(disk, source, local=settled).witness


@pytest.mark.a_third
@pytest.mark.parametrize("power_seed", [None, 1, 2])
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_join_cut_off_at_any_step_leaves_a_witness_or_a_whole_replica(
    source: Source, step: int, power_seed: int | None
) -> None:
    """CC-53, CC-55. Goal: one rewrite makes the difference, and promises stand all the while. Method: die after each
    step, by kill and by power loss: before the fourth it is the witness that it was, with no block left, and a second
    try ends whole; after it, it is whole. Term, vote and log are the same in each case, and rows of blocks and log are
    all there."""
    disk = witness_with_a_promise(source)
    before = Superblock.load(disk, TABLET)
    source.replica.tablet.flush()
    disk.arm(f"join.{step}")
    with pytest.raises(SimCrash):
        join(disk, source).run()
    die(disk, power_seed)
    settled = start(disk)
    assert_promises(disk)
    assert settled.witness == (step < 4)
    if step < 4:
        assert settled == before and data_files(disk) == []
        join(disk, source).run()
        assert_promises(disk)
    whole = RestingReplica(disk, TARGET_UUID)
    assert whole.rows() == source.replica.rows()
    whole.close()


def test_join_waits_for_blocks_that_reach_the_witness_log(source: Source) -> None:
    """CC-55. Goal: no gap between what the blocks hold and the first entry of the log. Method: the source's blocks end
    below the base: the session is refused, and so is a source that offers them all the same; once it has flushed, the
    join ends. While the log here ends below what the blocks hold, the rewrite waits."""
    disk = witness_with_a_promise(source)
    with pytest.raises(Refused, match="not flushed"):
        join(disk, source).run()
    older = Source(source.replica)
    begin = older.copy_source.begin
    older.copy_source.begin = lambda *args: begin(*args[:3])  # type: ignore[method-assign]
    with pytest.raises(Refused, match="would be missing"):
        join(disk, older).run()
    source.replica.tablet.flush()
    asked: list[OpId] = []

    def short(flushed: OpId) -> None:
        asked.append(flushed)
        raise Refused(Code.TIMED_OUT, "not yet")

    with pytest.raises(Refused, match="not yet"):
        join(disk, source, await_log=short).run()
    assert asked == [source.replica.tablet.flush_opid]
    assert Superblock.load(disk, TABLET).witness and data_files(disk) == []
    assert not join(disk, source).run().witness


def test_join_of_blocks_that_end_where_the_log_here_begins() -> None:
    """CC-55. Goal: nothing is missing between blocks and log if they touch. Method: a source whose blocks end at the
    very entry behind which the witness's log begins."""
    source = leading_source(logged=[([3], "b"), ([4], "c")])
    source.committed, source.commit_index, source.config_index = BASE, BASE.index, 1
    disk = new_disk()
    assert vivify(disk, source).flush_opid == BASE
    source.replica.tablet.flush()
    assert join(disk, source).run().flush_opid == BASE
    source.replica.close()


@pytest.mark.parametrize(
    "offered",
    [
        superblock(tablet_id="tablet-2", flush_opid=OpId(6, 5)),
        superblock(data_state=DataState.COPYING, flush_opid=OpId(6, 5)),
        superblock(flush_opid=OpId(6, 5)).without_rows(),
    ],
    ids=["another tablet's", "an unfinished copy's", "a witness's"],
)
def test_join_takes_rows_of_its_own_tablet_and_of_a_whole_replica_alone(source: Source, offered: Superblock) -> None:
    """CC-53, IN-50. Goal: no other server's mistake makes a witness a replica without its rows. Method: a source that
    offers something else; it is refused, and the witness goes on as it was."""
    disk = witness_with_a_promise(source)
    source.replica.tablet.flush()
    begin = source.copy_source.begin
    forged = offered.encode()
    source.copy_source.begin = lambda *args: replace(begin(*args), superblock=forged)  # type: ignore[method-assign]
    with pytest.raises(Refused, match="no rows of this tablet"):
        join(disk, source).run()
    assert Superblock.load(disk, TABLET).witness and data_files(disk) == []


def test_join_fetches_the_blocks_that_the_superblock_names_and_nothing_else(source: Source) -> None:
    """CC-53, IN-50. Goal: what a source offers beside its blocks costs nothing. Method: a block that its superblock
    does not name, and a segment of the log with the name of one that it does: neither can be fetched there."""
    disk = witness_with_a_promise(source)
    source.replica.tablet.flush()
    begin = source.copy_source.begin

    def begins(*args: Any) -> CopyManifest:
        manifest = begin(*args)
        named = next(file.name for file in manifest.files if file.kind is FileKind.BLOCK)
        more = (CopyFile(FileKind.BLOCK, "stray.arrow", 1, 0), CopyFile(FileKind.WAL_SEGMENT, named, 1, 0))
        return replace(manifest, files=(*manifest.files, *more))

    source.copy_source.begin = begins  # type: ignore[method-assign]
    whole = join(disk, source).run()
    assert sorted(f"data/{name}" for name in data_files(disk)) == sorted(block_names(whole))


def test_join_tells_its_phase_and_how_much_is_there(source: Source) -> None:
    """TC-10, CC-53. Goal: an operator sees what a join waits for. Method: the phase as the session begins, as bytes
    arrive, as the log is waited for and as the replica is swapped in; the bytes are those of the blocks alone."""
    disk, progress, seen = witness_with_a_promise(source), CopyProgress(), list[str]()
    source.replica.tablet.flush()
    source.replica.write([7], "f")
    begin = source.copy_source.begin

    def begins(*args: Any) -> CopyManifest:
        seen.append(progress.phase)
        manifest = begin(*args)
        assert {file.kind for file in manifest.files} == set(FileKind)
        return manifest

    def swaps(whole: Superblock) -> None:
        seen.append(progress.phase)
        whole.save(disk)

    source.copy_source.begin = begins  # type: ignore[method-assign]
    made = attempt(disk, source.copy_source, progress=progress, pace=lambda length_bytes: seen.append(progress.phase))
    witness = Superblock.load(disk, TABLET)
    whole = WitnessJoin(made, witness=witness, await_log=lambda flushed: seen.append(progress.phase), swap=swaps).run()
    assert list(dict.fromkeys(seen)) == ["JOIN.1", "JOIN.2", "JOIN.3", "JOIN.4"]
    size = sum(length_bytes for block in whole.blocks for _, length_bytes, _ in block.files)
    assert progress.bytes_done == progress.bytes_total == size > 0


def test_join_that_nobody_wants_any_more_ends_before_the_swap(source: Source) -> None:
    """CC-53. Goal: a cancelled join leaves a witness. Method: it is cancelled while it waits for the log."""
    disk, cancelled = witness_with_a_promise(source), list[OpId]()
    source.replica.tablet.flush()
    made = attempt(disk, source.copy_source, cancelled=lambda: bool(cancelled))
    witness = Superblock.load(disk, TABLET)
    with pytest.raises(Refused, match="the copy was cancelled"):
        WitnessJoin(made, witness=witness, await_log=cancelled.append, swap=lambda whole: whole.save(disk)).run()
    assert Superblock.load(disk, TABLET) == witness and data_files(disk) == []


@pytest.mark.parametrize("record", ["whole", "lost"])
def test_join_whose_swap_fails_keeps_the_blocks_if_the_superblock_names_them(source: Source, record: str) -> None:
    """CC-53. Goal: no superblock names a block that is gone. Method: the swap is refused after its rewrite, so that the
    replica is whole; or the superblock is lost meanwhile. What is raised is the swap's refusal."""
    disk = witness_with_a_promise(source)
    source.replica.tablet.flush()

    def swaps(whole: Superblock) -> None:
        if record == "whole":
            whole.save(disk)
        else:
            disk.remove(whole.path)
        raise Refused(Code.OVERLOADED, "it does not start")

    with pytest.raises(Refused, match="it does not start"):
        join(disk, source, swap=swaps).run()
    assert bool(data_files(disk)) == (record == "whole")
    if record == "whole":
        replica = RestingReplica(disk, TARGET_UUID)
        assert replica.rows() == source.replica.rows()
        replica.close()


def test_rows_are_not_given_up_in_place() -> None:
    """CC-47. Goal: no rewrite turns rows into none. Method: a whole replica's superblock is saved as a witness's, a
    witness is opened as a tablet, a tablet as a witness: each is a broken invariant."""
    disk = new_disk()
    Tablet.create(disk, superblock()).close()
    with pytest.raises(InvariantViolation, match="given up"):
        superblock().without_rows().save(disk)
    with pytest.raises(InvariantViolation, match="no rows to open"):
        Tablet.open(disk, superblock().without_rows())
    with pytest.raises(InvariantViolation, match="opened as a tablet"):
        Witness(superblock())


def test_witness_counts_what_it_would_apply() -> None:
    """CC-55. Goal: what log GC goes by never moves. Method: entries are given to a witness: it has applied them, and
    its flush position stays where its log begins."""
    base = superblock().without_rows()
    base.flush_opid = BASE
    machine = Witness(base)
    assert machine.apply([write_entry(4, [1], "x", 6), write_entry(5, [2], "y", 6)]) == [None, None]
    assert (machine.applied_opid, machine.flush_opid, machine.applied_time) == (OpId(6, 5), BASE, 5 << 12)
    machine.close()


def test_deleted_witness_is_a_tombstone_as_any_other(source: Source) -> None:
    """TC-37, CC-47. Goal: what was a witness may come back as a whole replica, also with an earlier build. Method: a
    witness that acknowledged entries is deleted: its end is kept, and the record names no feature of a witness."""
    disk = witness_with_a_promise(source)
    deleted = delete_replica(disk, Superblock.load(disk, TABLET), OpId(6, 5), stop=lambda: None)
    assert (deleted.data_state, deleted.last_logged, deleted.witness) == (DataState.DELETED, OpId(6, 5), False)
    assert deleted.to_avro()["incompatible_features"] == []


def test_session_of_a_witness_names_no_block(source: Source) -> None:
    """CC-47. Method: a log-only session and an ordinary one of one source: the first names no file, the second a block
    and a segment."""
    sessions = [
        source.copy_source.begin(TABLET, u, False, w)
        for u, w in (("x", CopyWanted(log_only=True)), ("y", CopyWanted()))
    ]
    assert [sorted({f.kind for f in m.files}) for m in sessions] == [[], [FileKind.BLOCK, FileKind.WAL_SEGMENT]]
    assert [parse_superblock(m.superblock, "here").witness for m in sessions] == [True, False]
    assert sessions[0].last_opid == BASE
    for manifest in sessions:
        source.copy_source.end(manifest.session_id, True)
