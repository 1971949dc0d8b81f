"""The follower's steps at every crash point, over a tombstone and over nothing; damage on the way; sources that lag."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.tablet import Superblock, superblock_path, sweep_orphans
from nyala.replica.tablet_copy import (
    WHOLE,
    CopyFile,
    CopyManifest,
    CopyProgress,
    CopyWanted,
    FileKind,
    named_blocks,
)
from nyala.replica.types import Code, Corruption, DataState, OpId, Refused
from tests.harness.copies import (
    CONFIG,
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
    wal_places,
)
from tests.harness.patience import patience_s
from tests.harness.sim_disk import SimCrash, SimDisk
from tests.unit.server.test_server_file_check import HURTS, Hurt

OLD_LAST = OpId(5, 90)
ROWS = {1: "a", 2: "b", 3: "b", 4: "c"}


class BlockFirst:
    """A source that hands out a block's other files once `written` says that its rows are written."""

    def __init__(self, copy_source: Any, written: threading.Event) -> None:
        self._copy_source = copy_source
        self._written = written
        self.begin = copy_source.begin
        self.end = copy_source.end

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        assert file.kind is not FileKind.BLOCK or file.name.endswith(".arrow") or self._written.wait(patience_s(60))
        yield from self._copy_source.fetch(session_id, file, byte_offset, length_bytes)


class Crumbling:
    """A source whose bytes arrive in small chunks."""

    def __init__(self, copy_source: Any) -> None:
        self._copy_source = copy_source
        self.begin = copy_source.begin
        self.end = copy_source.end

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        for chunk in self._copy_source.fetch(session_id, file, byte_offset, length_bytes):
            for at in range(0, len(chunk), 100):
                yield chunk[at : at + 100]


@pytest.fixture
def source() -> Iterator[Source]:
    """A leader in term 6 with one block, entries after it, and a vote for itself."""
    made = leading_source(flushed=[([1, 2], "a"), ([2, 3], "b")], logged=[([4], "c")])
    yield made
    made.replica.close()


def old_tombstone(disk: SimDisk) -> Superblock:
    """A replica that was deleted with last OpId 5.90, term 5 and a vote."""
    return tombstone(disk, OLD_LAST, term=5, voted_for="c" * 32)


def assert_equals_source(disk: SimDisk) -> None:
    replica = RestingReplica(disk, TARGET_UUID)
    assert replica.rows() == ROWS
    assert replica.log.last == OpId(6, 3)
    replica.close()


class Hurting:
    """A source that damages the target's superblock before it sends the first file, and sends none if it `fails`."""

    def __init__(self, copy_source: Any, hurt: Callable[[], None], *, fails: bool) -> None:
        self._copy_source = copy_source
        self._hurt: list[Callable[[], None]] = [hurt]
        self._fails = fails
        self.begin = copy_source.begin
        self.end = copy_source.end

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        while self._hurt:
            self._hurt.pop()()
        if self._fails:
            raise Refused(Code.UNAVAILABLE, "no bytes")
        yield from self._copy_source.fetch(session_id, file, byte_offset, length_bytes)


@pytest.mark.a_third
@pytest.mark.parametrize("hurt", HURTS, ids=lambda hurt: hurt.__name__)
@pytest.mark.parametrize("over_tombstone", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_copy_whose_superblock_is_damaged_meanwhile_ends_as_any_other(
    source: Source, fails: bool, over_tombstone: bool, hurt: Hurt
) -> None:
    """IN-21. Goal: damage of the superblock during a copy loses neither the copy nor the last OpId that was
    acknowledged here. Method: damage it after COPY.1. The copy ends READY with every row; if its source fails, it ends
    as a tombstone that keeps its last OpId."""
    disk = new_disk()
    local = old_tombstone(disk) if over_tombstone else None
    kept = local.last_logged if local else OpId(0, 0)
    hurting = Hurting(source.copy_source, lambda: hurt(disk, superblock_path(TABLET)), fails=fails)
    copy = copy_over(local, attempt(disk, hurting))
    if not fails:
        assert copy.run() == Superblock.load(disk, TABLET)
        assert_equals_source(disk)
        return
    with pytest.raises(Refused, match="no bytes"):
        copy.run()
    found = Superblock.load(disk, TABLET)
    assert (found.data_state, found.last_logged) == (DataState.DELETED, kept) and data_files(disk) == []


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("over_tombstone", [False, True])
def test_copy_ends_ready_and_equal_to_its_source(source: Source, streams: int, over_tombstone: bool) -> None:
    """Goal: rows TC-50, TC-53, TC-55, TC-56. Method: copy over nothing and over a tombstone; rows, log end and merged
    metadata are the source's, its vote is not taken, quarantine path and last logged OpId are dropped."""
    disk = new_disk()
    local = old_tombstone(disk) if over_tombstone else None
    progress = CopyProgress()
    ready = copy_over(local, attempt(disk, source.copy_source, streams=streams, progress=progress)).run()
    assert (ready.data_state, ready.last_logged, ready.quarantine) == (DataState.READY, None, "")
    assert Superblock.load(disk, TABLET) == ready
    assert progress.bytes_done == progress.bytes_total > 0
    cmeta = ConsensusMeta.load(disk, TABLET)
    assert (cmeta.term, cmeta.voted_for, cmeta.committed_config) == (6, None, CONFIG)
    assert_equals_source(disk)
    assert source.sessions.sessions() == []


@pytest.mark.a_third
@pytest.mark.parametrize("power_seed", [None, 1, 2])
@pytest.mark.parametrize("over_tombstone", [False, True])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_copy_cut_off_at_any_step(source: Source, step: int, over_tombstone: bool, power_seed: int | None) -> None:
    """Goal: rows TC-30, TC-47, TC-49, TC-60. Method: die after each step, by kill or power loss: before step 5
    the replica is DELETED with the last OpId it had and a new quarantine, and can be copied again; after it, READY. The
    progress names the step."""
    disk = new_disk()
    local = old_tombstone(disk) if over_tombstone else None
    kept = local.last_logged if local else OpId(0, 0)
    progress = CopyProgress()
    disk.arm(f"copy.{step}")
    with pytest.raises(SimCrash):
        copy_over(local, attempt(disk, source.copy_source, progress=progress)).run()
    assert progress.phase == f"COPY.{step}"
    if step == 1:
        marked = Superblock.load(disk, TABLET)
        assert (marked.data_state, marked.last_logged, marked.quarantine) == (DataState.COPYING, kept, "")
        claimed = marked.flush_opid, marked.flush_time, marked.blocks, marked.state
        assert claimed == (OpId(0, 0), 0, (), b""), "nothing of the source's is claimed before it is here"
    die(disk, power_seed)
    settled = start(disk)
    if step == 5:
        assert settled.data_state is DataState.READY
        assert_equals_source(disk)
        return
    assert settled.data_state is DataState.DELETED
    assert settled.last_logged == kept and settled.last_logged_known
    if local is not None:
        assert settled.quarantine not in ("", local.quarantine)
        assert ConsensusMeta.load(disk, TABLET).voted_for == ("c" * 32 if step == 1 else None)
    assert f"wals/{TABLET}" not in wal_places(disk)
    assert data_files(disk) == [], "blocks that nobody names are reclaimed"
    copy_over(settled, attempt(disk, source.copy_source)).run()
    assert_equals_source(disk)


def test_log_of_a_copy_has_a_later_number_than_the_one_before(source: Source) -> None:
    """TC-60. Goal: what was noted of the old log, and a quarantine of a deletion, is never taken for the new one's.
    Method: a copy over a tombstone of a numbered log fails, and the next one over what it left is complete."""
    disk = new_disk()
    local = replace(old_tombstone(disk), wal_generation=4)
    disk.fail_on("pwrite", "data/*", "ENOSPC")
    with pytest.raises(Refused):
        copy_over(local, attempt(disk, source.copy_source)).run()
    settled = Superblock.load(disk, TABLET)
    assert settled.wal_generation > 4
    assert copy_over(settled, attempt(disk, source.copy_source)).run().wal_generation > settled.wal_generation


@pytest.mark.a_third
@pytest.mark.parametrize("power_seed", [None, 1, 2])
@pytest.mark.parametrize("over_tombstone", [False, True])
@pytest.mark.parametrize("folder", [f"wals/{TABLET}", "data"])
@pytest.mark.parametrize(
    ("operation", "good"), [("open", 0), ("pwrite", 0), ("pwrite", 1), ("sync", 0), ("sync_dir", 0)]
)
def test_copy_cut_off_within_a_file_is_never_ready(
    source: Source, operation: str, good: int, folder: str, over_tombstone: bool, power_seed: int | None
) -> None:
    """Goal: TC-49: no file that is not whole and synced is ever part of a READY replica. Method: files come in chunks
    of a few bytes; die before a segment, or a block, is opened, written, written on, synced, or named for good, by kill
    or power loss: DELETED with the last OpId it had, no block, and the next copy is whole."""
    disk = new_disk()
    local = old_tombstone(disk) if over_tombstone else None
    pattern = folder if operation == "sync_dir" else f"{folder}/*"
    disk.fail_on(operation, pattern, "CRASH", skip=good)
    with pytest.raises(SimCrash):
        copy_over(local, attempt(disk, Crumbling(source.copy_source))).run()
    assert disk.fired[operation, "CRASH"] == 1
    assert Superblock.load(disk, TABLET).data_state is DataState.COPYING
    die(disk, power_seed)
    settled = start(disk)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, local.last_logged if local else OpId(0, 0))
    assert data_files(disk) == [] and f"wals/{TABLET}" not in wal_places(disk)
    copy_over(settled, attempt(disk, Crumbling(source.copy_source))).run()
    assert_equals_source(disk)


@pytest.mark.a_third
@pytest.mark.parametrize("dies", [False, True], ids=["fails", "dies"])
@pytest.mark.parametrize("over_tombstone", [False, True])
def test_copies_that_never_end_take_the_room_of_one(source: Source, over_tombstone: bool, dies: bool) -> None:
    """Goal: TC-64: disk use is bounded, however often a copy is begun. Method: twenty copies that fail at their blocks,
    or die there: what the disk holds after the second never grows, the deleted replica's quarantine is as it was, and
    so is the last OpId; then a copy ends."""
    disk = new_disk()
    local = old_tombstone(disk) if over_tombstone else None
    first = {path: disk.read(path) for path in disk.files if path.startswith("quarantine/")}
    held = []
    for _ in range(20):
        if dies:
            disk.arm("copy.4")
            with pytest.raises(SimCrash):
                copy_over(local, attempt(disk, source.copy_source)).run()
            disk.restart()
            local = start(disk)
        else:
            disk.fail_on("pwrite", "data/*", "ENOSPC")
            with pytest.raises(Refused):
                copy_over(local, attempt(disk, source.copy_source)).run()
            local = Superblock.load(disk, TABLET)
        held.append((disk.used_bytes, len(disk.listdir("quarantine"))))
        assert local.last_logged == (OLD_LAST if over_tombstone else OpId(0, 0))
    assert max(held[2:]) <= max(held[:2]) and held[-1][1] == 1 + over_tombstone, held
    assert disk.listdir(f"{local.quarantine}/wal"), "the last one's is there for a look"
    assert {path: disk.read(path) for path in first} == first
    copy_over(local, attempt(disk, source.copy_source)).run()
    assert_equals_source(disk)


class Damaging:
    """A source whose chunks arrive with one bit flipped in files of one kind; `told` is how its sessions ended."""

    def __init__(self, copy_source: Any, kind: int) -> None:
        self._copy_source = copy_source
        self._kind = kind
        self.told: list[tuple[bool, str]] = []

    def begin(
        self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool, wanted: CopyWanted = WHOLE
    ) -> CopyManifest:
        manifest: CopyManifest = self._copy_source.begin(tablet_id, requestor_uuid, allow_leaderless, wanted)
        return manifest

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        for chunk in self._copy_source.fetch(session_id, file, byte_offset, length_bytes):
            yield bytes([chunk[0] ^ 1]) + chunk[1:] if file.kind == self._kind else chunk

    def end(self, session_id: str, success: bool, doubted: str = "") -> None:
        self.told.append((success, doubted))
        self._copy_source.end(session_id, success, doubted)


def test_copy_whose_source_withholds_a_block_ends_deleted(source: Source) -> None:
    """Goal: TC-16, IN-50: no READY superblock names a block that is not here. Method: a source that offers all files
    but one that its superblock names; then one that offers them all."""
    disk = new_disk()
    local = old_tombstone(disk)
    withholding = Damaging(source.copy_source, 0)
    begin = withholding.begin

    def begins(*given: Any) -> CopyManifest:
        manifest = begin(*given)
        first = next(file for file in manifest.files if file.kind is FileKind.BLOCK)
        return replace(manifest, files=tuple(file for file in manifest.files if file != first))

    withholding.begin = begins  # type: ignore[method-assign]
    with pytest.raises(Refused, match="does not offer a block its superblock names") as refused:
        copy_over(local, attempt(disk, withholding)).run()
    assert refused.value.code is Code.CORRUPTION
    settled = Superblock.load(disk, TABLET)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, OLD_LAST) and data_files(disk) == []
    copy_over(settled, attempt(disk, source.copy_source)).run()
    assert_equals_source(disk)


def test_source_is_told_whether_its_copy_succeeded(source: Source) -> None:
    """Goal: TC-12: a source knows what became of its session. Method: a whole copy; one that is cancelled as bytes
    arrive. Nothing is wrong with a block in either case."""
    heard = Damaging(source.copy_source, 0)
    copy_over(None, attempt(new_disk(), heard)).run()
    arrived: list[int] = []
    with pytest.raises(Refused, match="cancelled"):
        copy_over(None, attempt(new_disk(), heard, pace=arrived.append, cancelled=lambda: bool(arrived))).run()
    assert heard.told == [(True, ""), (False, "")]


def test_copy_that_cannot_tell_its_source_of_its_end_is_whole_all_the_same(source: Source) -> None:
    """TC-12. Goal: TC-12: a copy is complete even if its source does not answer the end of the session. Method: the end
    of a session is refused."""
    gone = Damaging(source.copy_source, 0)

    def ends(*_: Any) -> None:
        raise Refused(Code.UNAVAILABLE, "nobody answers")

    gone.end = ends  # type: ignore[method-assign]
    disk = new_disk()
    copy_over(None, attempt(disk, gone)).run()
    assert_equals_source(disk)


@pytest.mark.parametrize("kind", [1, 2])
def test_copy_with_a_flipped_byte_ends_deleted(source: Source, kind: int) -> None:
    """Goal: rows TC-51 and TC-12. Method: flip one bit of a block or a segment on its way: Corruption, the replica is
    DELETED with its last OpId, blocks are gone, and the next copy succeeds without a restart. The source is told which
    block to look at; of a segment it is told no name."""
    disk = new_disk()
    local = old_tombstone(disk)
    damaging = Damaging(source.copy_source, kind)
    with pytest.raises(Corruption):
        copy_over(local, attempt(disk, damaging)).run()
    ((success, doubted),) = damaging.told
    assert not success and (doubted in data_files(source.replica.disk)) == (kind == FileKind.BLOCK) == bool(doubted)
    settled = Superblock.load(disk, TABLET)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, OLD_LAST)
    assert data_files(disk) == []
    copy_over(settled, attempt(disk, source.copy_source)).run()
    assert_equals_source(disk)


def test_copy_whose_blocks_cannot_be_removed_ends_deleted_all_the_same(source: Source) -> None:
    """Goal: TC-12 on a failing disk. Method: a bit of a block flipped on its way, and EIO for whoever removes it:
    Corruption, a tombstone with its last OpId; what is left of the blocks is nobody's, and a sweep takes it."""
    disk = new_disk()
    local = old_tombstone(disk)
    disk.fail_on("remove", "data/*", times=None)
    with pytest.raises(Corruption):
        copy_over(local, attempt(disk, Damaging(source.copy_source, 1))).run()
    settled = Superblock.load(disk, TABLET)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, OLD_LAST)
    assert data_files(disk) and disk.fired["remove", "EIO"]
    disk.heal()
    sweep_orphans(disk, named_blocks(disk))
    assert data_files(disk) == []


class Dying:
    """A source that is gone after so many chunks, and cannot be told anything any more."""

    def __init__(self, copy_source: Any, chunks: int) -> None:
        self._copy_source = copy_source
        self.left = chunks

    def begin(
        self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool, wanted: CopyWanted = WHOLE
    ) -> CopyManifest:
        manifest: CopyManifest = self._copy_source.begin(tablet_id, requestor_uuid, allow_leaderless, wanted)
        return manifest

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        for chunk in self._copy_source.fetch(session_id, file, byte_offset, length_bytes):
            if self.left == 0:
                raise Refused(Code.UNAVAILABLE, "connection refused")
            self.left -= 1
            yield chunk

    def end(self, session_id: str, success: bool, doubted: str = "") -> None:
        raise Refused(Code.UNAVAILABLE, "connection refused")


@pytest.mark.parametrize("chunks", [0, 1])
def test_copy_whose_source_dies_starts_again_from_the_beginning(source: Source, chunks: int) -> None:
    """Goal: CC-09: a source that crashes ends the copy, and the next one, from another leader, begins anew. Method: a
    source that is gone after so many chunks: DELETED, last OpId kept, no block left; then a copy from a healthy source
    fetches every byte and ends READY."""
    disk = new_disk()
    local = old_tombstone(disk)
    with pytest.raises(Refused, match="connection refused"):
        copy_over(local, attempt(disk, Dying(source.copy_source, chunks))).run()
    settled = Superblock.load(disk, TABLET)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, OLD_LAST)
    assert data_files(disk) == [] and f"wals/{TABLET}" not in wal_places(disk)
    progress = CopyProgress()
    copy_over(settled, attempt(disk, source.copy_source, progress=progress)).run()
    assert progress.bytes_done == progress.bytes_total > 0
    assert_equals_source(disk)


def test_copy_cancelled_at_any_moment_ends_as_before_or_deleted(source: Source) -> None:
    """Goal: row TC-12. Method: cancel at the first, second, ... moment that the copy asks, until it is too late: before
    COPY.1 nothing has changed, later there is a tombstone with the last OpId it had and no block; the source holds no
    session; each following attempt starts from what the one before left, and the last one succeeds."""
    disk = new_disk()
    local = old_tombstone(disk)
    seen = []
    for moment in range(1, 100):
        before = Superblock.load(disk, TABLET)
        asked = iter(range(1, 1000))
        cancelled = lambda asked=asked, moment=moment: next(asked) >= moment  # noqa: E731
        made = attempt(disk, source.copy_source, cancelled=cancelled)
        try:
            copy_over(before, made).run()
        except Refused as refused:
            assert refused.what == "the copy was cancelled"
        else:
            break
        settled = Superblock.load(disk, TABLET)
        assert (settled.data_state, settled.last_logged) == (DataState.DELETED, OLD_LAST)
        assert data_files(disk) == [] and source.sessions.sessions() == []
        seen.append((made.progress.phase, settled == before))
    assert local.last_logged == OLD_LAST
    assert seen[:2] == [("BEGIN", True), ("BEGIN", True)]
    assert {phase for phase, _ in seen[2:]} <= {f"COPY.{n}" for n in range(1, 6)} and not any(s for _, s in seen[2:])
    assert len(seen) >= 5, "between chunks of log and blocks, and before the commit"
    assert_equals_source(disk)


def test_copy_cancelled_when_all_bytes_are_here_does_not_commit(source: Source) -> None:
    """TC-12. Goal: until the commit a cancel counts. Method: cancel as the last byte is here: a tombstone."""
    disk, progress = new_disk(), CopyProgress()
    local = old_tombstone(disk)
    whole = lambda: 0 < progress.bytes_total == progress.bytes_done  # noqa: E731
    with pytest.raises(Refused, match="cancelled"):
        copy_over(local, attempt(disk, source.copy_source, progress=progress, cancelled=whole)).run()
    settled = Superblock.load(disk, TABLET)
    assert (settled.data_state, settled.last_logged, data_files(disk)) == (DataState.DELETED, OLD_LAST, [])


@pytest.mark.parametrize("over_tombstone", [False, True])
def test_copy_that_cannot_begin_changes_nothing(source: Source, over_tombstone: bool) -> None:
    """TC-12. Goal: a full disk is told as that, and costs nothing. Method: no room for the first record of a copy; all
    files are as before, and with room again the copy succeeds."""
    disk = new_disk()
    local = old_tombstone(disk) if over_tombstone else None
    before = {path: disk.read(path) for path in disk.files}
    disk.fail_on("replace", "tablet-meta/*", "ENOSPC")
    with pytest.raises(Refused) as refused:
        copy_over(local, attempt(disk, source.copy_source)).run()
    assert refused.value.code is Code.NO_SPACE
    assert {path: disk.read(path) for path in disk.files} == before
    copy_over(local, attempt(disk, source.copy_source)).run()
    assert_equals_source(disk)


def test_log_that_no_superblock_names_is_moved_aside(source: Source) -> None:
    """TC-47. Goal: a log that may hold promises is neither lost nor read as part of the new one. Method: a segment in
    the place of a tombstone's log, as a deletion leaves it whose last step failed."""
    disk = new_disk()
    local = old_tombstone(disk)
    disk.mkdir(f"wals/{TABLET}")
    disk.poke(f"wals/{TABLET}/wal-000000099", b"promises")
    copy_over(local, attempt(disk, source.copy_source)).run()
    (moved,) = [path for path in disk.files if path.endswith("/wal-000000099")]
    assert moved.startswith(f"quarantine/{TABLET}-") and disk.read(moved) == b"promises"
    assert_equals_source(disk)


@pytest.mark.parametrize(("leader", "kept"), [(True, OpId(7, 1)), (False, OpId(1, 1))])
def test_copy_from_a_lagging_or_leaderless_source_touches_nothing(source: Source, leader: bool, kept: OpId) -> None:
    """Goal: row TC-58. Method: the source's last OpId is below ours, or it does not lead: refused, and the READY
    replica here was neither stopped nor changed."""
    disk = new_disk()
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([8], "mine")
    source.is_leader = leader
    cleared: list[bool] = []
    stop_and_delete = lambda check_source: cleared.append(True)  # noqa: E731
    with pytest.raises(Refused) as refused:
        copy_over(None, attempt(disk, source.copy_source), own_last_opid=kept, stop_and_delete=stop_and_delete).run()
    assert refused.value.code is (Code.ILLEGAL_STATE if leader else Code.NOT_LEADER)
    assert not cleared and Superblock.load(disk, TABLET).data_state is DataState.READY
    assert replica.rows() == {8: "mine"}
    assert source.sessions.sessions() == [], "the refused copy ended its session"
    replica.close()


@pytest.mark.parametrize(
    ("last", "term", "code"), [(OpId(6, 4), 6, Code.ILLEGAL_STATE), (OpId(6, 3), 7, Code.BAD_TERM)]
)
def test_copy_over_a_replica_that_promised_more_meanwhile_touches_nothing(
    source: Source, last: OpId, term: int, code: Code
) -> None:
    """Goal: row TC-58, at the last moment. Method: the source was accepted, but the replica, once it is stopped, has
    acknowledged one entry more, or knows a later term: nothing is deleted, the session ends."""
    disk = new_disk()
    superblock().save(disk)
    deleted: list[bool] = []

    def stop_and_delete(check_source: Any) -> Superblock:
        check_source(last, term)
        deleted.append(True)
        raise AssertionError("the replica would have been deleted")

    with pytest.raises(Refused) as refused:
        copy_over(
            None,
            attempt(disk, source.copy_source),
            own_last_opid=OpId(6, 3),
            own_term=6,
            stop_and_delete=stop_and_delete,
        ).run()
    assert refused.value.code is code
    assert not deleted and Superblock.load(disk, TABLET).data_state is DataState.READY
    assert source.sessions.sessions() == []


def test_source_whose_own_log_ends_below_what_is_committed_serves_no_copy(source: Source) -> None:
    """Goal: row TC-58: what only the followers hold is not forgotten by copying one of them from a leader with a slow
    disk. Method: the leader knows 6.4 to be committed, its log ends at 6.3: refused, to be tried again."""
    source.commit_index = 4
    with pytest.raises(Refused) as refused:
        copy_over(None, attempt(new_disk(), source.copy_source)).run()
    assert refused.value.code is Code.NOT_READY
    source.commit_index = 3
    copy_over(None, attempt(new_disk(), source.copy_source)).run()


@pytest.mark.parametrize("at_the_source", [True, False])
def test_copy_of_a_block_that_a_disk_cannot_read_or_write_ends_deleted(source: Source, at_the_source: bool) -> None:
    """Goal: a bad data folder ends a copy or a replica, no server. Method: EIO on a block, read there or written here:
    Corruption, not DiskFailure; the target is a tombstone that a later copy revives."""
    disk = new_disk()
    local = old_tombstone(disk)
    broken, operation = (source.replica.disk, "pread") if at_the_source else (disk, "sync")
    broken.fail_on(operation, "data/*", "EIO")
    with pytest.raises(Corruption, match="cannot be read or written"):
        copy_over(local, attempt(disk, source.copy_source)).run()
    settled = Superblock.load(disk, TABLET)
    assert (settled.data_state, settled.last_logged, data_files(disk)) == (DataState.DELETED, OLD_LAST, [])
    copy_over(settled, attempt(disk, source.copy_source)).run()
    assert_equals_source(disk)


def test_full_disk_during_a_copy_ends_deleted(source: Source) -> None:
    """Goal: row TC-12: an I/O refusal ends on the delete path. Method: ENOSPC on the first block write."""
    disk = new_disk()
    local = old_tombstone(disk)
    disk.fail_on("pwrite", "data/*", "ENOSPC")
    with pytest.raises(Refused) as refused:
        copy_over(local, attempt(disk, source.copy_source)).run()
    assert refused.value.code is Code.NO_SPACE
    settled = Superblock.load(disk, TABLET)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, OLD_LAST)


@pytest.mark.parametrize("streams", [1, 3])
def test_copy_that_fills_the_disk_with_blocks_makes_room_for_its_own_tombstone(source: Source, streams: int) -> None:
    """Goal: row TC-12: a disk that a copy has filled is not full for ever, and its neighbours can write again. Method:
    the disk has no byte more than it holds once a block's rows have come: NO_SPACE, and in the room that the copy had
    taken there is a tombstone with its last OpId, without block or log; with room again the next copy succeeds."""
    disk, written = new_disk(), threading.Event()
    local = old_tombstone(disk)
    disk.hook = lambda what, path: written.set() if what == "sync" and path.endswith(".arrow") else None

    def full(length_bytes: int) -> None:
        if disk.capacity_bytes is None and written.is_set():
            disk.capacity_bytes = disk.used_bytes

    with pytest.raises(Refused) as refused:
        copy_over(local, attempt(disk, BlockFirst(source.copy_source, written), streams=streams, pace=full)).run()
    assert refused.value.code is Code.NO_SPACE
    settled = Superblock.load(disk, TABLET)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, OLD_LAST)
    assert data_files(disk) == [] and f"wals/{TABLET}" not in wal_places(disk)
    assert f"{settled.quarantine}/wal" in wal_places(disk), "the blocks' room was enough"
    disk.heal()
    copy_over(settled, attempt(disk, source.copy_source, streams=streams)).run()
    assert_equals_source(disk)


@pytest.mark.parametrize("dies", [False, True], ids=["fails", "dies"])
def test_copy_that_fills_the_disk_with_its_log_makes_room_for_its_own_tombstone(source: Source, dies: bool) -> None:
    """Goal: row TC-12, as for blocks. Method: the disk has no byte more than it holds once bytes of the log have come;
    the copy fails, or dies and the server starts: a tombstone with its last OpId, and no log; then a copy succeeds."""
    disk = new_disk()
    local = old_tombstone(disk)

    def full(length_bytes: int) -> None:
        if disk.capacity_bytes is None and any(size and path.startswith("wals/") for path, size in disk.files.items()):
            disk.capacity_bytes = disk.used_bytes
            if dies:
                raise SimCrash

    with pytest.raises(SimCrash if dies else Refused):
        copy_over(local, attempt(disk, source.copy_source, pace=full)).run()
    if dies:
        capacity = disk.used_bytes
        disk.restart()
        disk.capacity_bytes = capacity
        start(disk)
    settled = Superblock.load(disk, TABLET)
    assert (settled.data_state, settled.last_logged) == (DataState.DELETED, OLD_LAST)
    assert f"wals/{TABLET}" not in wal_places(disk) and data_files(disk) == []
    disk.heal()
    copy_over(settled, attempt(disk, source.copy_source)).run()
    assert_equals_source(disk)


def test_copy_of_a_wholly_flushed_source_brings_no_log(source: Source) -> None:
    """Goal: a copy costs what the data costs. Method: flush everything, copy: no WAL segment is named, the replica
    opens at the flush index with all rows and takes the entry that follows."""
    disk = new_disk()
    source.replica.tablet.flush()
    copy_over(None, attempt(disk, source.copy_source)).run()
    assert disk.listdir(f"wals/{TABLET}") == []
    replica = RestingReplica(disk, TARGET_UUID)
    assert (replica.tablet.flush_opid, replica.rows()) == (OpId(6, 3), ROWS)
    assert replica.write([5], "d", term=6) == OpId(6, 4)
    replica.close()
    again = RestingReplica(disk, TARGET_UUID)
    assert again.rows() == {**ROWS, 5: "d"}
    again.close()


def test_config_that_metadata_does_not_have_yet_travels_in_the_log(source: Source) -> None:
    """Goal: row CC-22: no committed config is lost by leaving flushed segments out. Method: a source whose metadata
    lags behind its committed config by entries that are flushed."""
    source.replica.tablet.flush()
    source.config_index = 3
    manifest = source.copy_source.begin(TABLET, TARGET_UUID, False)
    assert manifest.first_retained_index <= CONFIG.opid.index + 1
