"""Tools on the files of a stopped server: what they find, what they keep, and what a death in the middle leaves."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.fs import FOLDERS, INSTANCE, MARK, RealDisk, format_directory, open_or_format, read_instance
from nyala.replica.server import ReplayMarker, marker_path
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import delete_replica, wal_folder
from nyala.replica.tools import (
    DirectoryView,
    Severity,
    check_directory,
    copy_replica,
    directory_json,
    erase,
    format_root,
    identity,
    make_tombstone,
    plan_wipe,
    remove_orphans,
    wipe,
)
from nyala.replica.types import (
    ZERO_OPID,
    Code,
    Corruption,
    DataState,
    LaterFormat,
    Member,
    OpId,
    RaftConfig,
    Refused,
)
from nyala.schemas import frame, unframe
from tests.harness.copies import (
    SOURCE_UUID,
    TABLET,
    TARGET_UUID,
    RestingReplica,
    Source,
    TestClock,
    cmeta_bytes,
    data_files,
    new_disk,
    superblock,
    wal_places,
)
from tests.harness.sim_disk import SimCrash, SimDisk

WAL = wal_folder(TABLET)
SEGMENT = f"{WAL}/wal-000000001"


def stopped_server(uuid: str = SOURCE_UUID) -> tuple[SimDisk, OpId]:
    """A directory with one READY replica: a block, a log behind it, a vote; and its log's last OpId."""
    disk = new_disk()
    format_directory(disk, TestClock(), uuid=uuid)
    replica = RestingReplica(disk, uuid)
    replica.write([1, 2], "a")
    replica.tablet.flush()
    last = replica.write([2, 3], "b", term=4)
    replica.cmeta.save_hard_state(5, "c" * 32)
    replica.close()
    return disk, last


def errors(view: DirectoryView) -> list[str]:
    return [f"{f.path}: {f.what}" for f in view.all_findings if f.severity is Severity.ERROR]


def warnings(view: DirectoryView) -> list[str]:
    return [f"{f.path}: {f.what}" for f in view.all_findings if f.severity is Severity.WARNING]


def test_whole_directory_has_no_finding_and_is_not_changed() -> None:
    """Goal: the check of an undamaged directory has no finding and changes nothing. Method: check a replica with block,
    log and vote; compare all files; the document for programs says what the replica promised."""
    disk, last = stopped_server()
    files = {path: disk.read(path) for folder in (*FOLDERS, "") for path in _below(disk, folder)}
    view = check_directory(disk)
    assert view.healthy and not view.all_findings
    assert {path: disk.read(path) for path in files} == files
    document = directory_json(view)
    (tablet,) = document["tablets"]
    assert (document["uuid"], document["healthy"]) == (SOURCE_UUID, True)
    assert (tablet["last_logged"], tablet["data_state"]) == (str(last), "READY")
    assert tablet["consensus_metadata"]["term"] == 5 and len(tablet["blocks"]) == 2
    assert tablet["log"]["first_index"] == 1


def test_kept_room_for_a_vote_is_no_strangers_file(tmp_path: Path) -> None:
    """Goal: the hidden file beside consensus metadata has no finding, and an erased replica leaves none. Method:
    two terms on real files; the check; an erasure."""
    uuid = format_root(tmp_path, kind="TABLET_SERVER").uuid
    disk = RealDisk(tmp_path)
    meta = ConsensusMeta.create(disk, TABLET, uuid, RaftConfig(ZERO_OPID, (Member(uuid),)))
    meta.save_hard_state(1, None)
    spare = tmp_path / "consensus-meta" / f".{TABLET}.tmp"
    assert spare.exists()
    assert [f.path for f in check_directory(disk).all_findings] == [f"consensus-meta/{TABLET}"]
    erase(disk, TABLET)
    assert [path.name for path in (tmp_path / "consensus-meta").iterdir()] == [MARK]


def test_replica_that_failed_at_an_entry_is_told_as_such() -> None:
    """IN-03. Goal: the check reports a replica that failed at an entry, although its files are undamaged. Method: the
    notes of a replica that failed at an entry, and of a server that crashed three times at one; an earlier log's are
    mute."""
    disk, _ = stopped_server()
    failed = ReplayMarker(wal_generation=0, failed_index=7, failed_build="1.0+aa", failed="ValueError: no")
    suspect = ReplayMarker(wal_generation=0, first=7, last=7, suspect_first=5, suspect_last=9, build="1.0+aa")
    dead = replace(suspect, died_alone=7)
    for marker, what in (
        (failed, "failed when it applied entry 7"),
        (dead, "crashed three times while it applied entry 7"),
    ):
        disk.replace(marker_path(TABLET), marker.encode())
        (told,) = errors(check_directory(disk))
        assert told.startswith(marker_path(TABLET)) and what in told and "1.0+aa" in told
    for marker in (replace(failed, wal_generation=9), ReplayMarker(wal_generation=0, first=3, last=4), suspect):
        disk.replace(marker_path(TABLET), marker.encode())
        assert check_directory(disk).healthy


def _below(disk: SimDisk, folder: str) -> list[str]:
    names = [f"{folder}/{name}" if folder else name for name in disk.listdir(folder)]
    return [n for n in names if not disk.listdir(n) and n not in FOLDERS]


def _flip(path: str, at: int) -> Callable[[SimDisk], None]:
    return lambda disk: disk.corrupt(path, at)


def _block(disk: SimDisk) -> str:
    return f"data/{data_files(disk)[0]}"


DAMAGE: list[tuple[str, Callable[[SimDisk], None], str]] = [
    ("identity damaged", _flip(INSTANCE, 30), "instance: the instance file is damaged"),
    ("identity gone", lambda d: d.remove(INSTANCE), "instance: the identity is missing"),
    ("superblock", _flip(f"tablet-meta/{TABLET}", 40), f"tablet-meta/{TABLET}: the superblock cannot be read"),
    ("metadata", _flip(path_of(TABLET), 25), f"consensus-meta/{TABLET}: consensus metadata does not read back"),
    ("metadata gone", lambda d: d.remove(path_of(TABLET)), "term and vote are forgotten"),
    ("log", _flip(SEGMENT, 1400), f"{WAL}: a segment is damaged (segment=wal-000000001, byte_offset="),
    ("log emptied", lambda d: d.poke(SEGMENT, bytes(4096)), f"{WAL}: a segment was emptied"),
    ("log gone", lambda d: d.remove_tree(WAL), f"{WAL}: the log's folder is missing"),
    ("block", lambda d: d.corrupt(_block(d), 100), "a block's file has another CRC-32C"),
    ("block gone", lambda d: d.remove(_block(d)), "a block's file is missing"),
    ("folder of blocks", lambda d: d.fail_on("listdir", "data", times=None), "data: it cannot be read: the disk"),
    (
        "metadata's folder",
        lambda d: d.remove_tree("consensus-meta"),
        "consensus-meta: no server starts: a folder that held",
    ),
]


@pytest.mark.parametrize(("harm", "says"), [d[1:] for d in DAMAGE], ids=[d[0] for d in DAMAGE])
def test_damaged_file_is_an_error_that_names_it(harm: Callable[[SimDisk], None], says: str) -> None:
    """Goal: the check reads every kind of file, and names the place of the damage. Method: damage one at a time."""
    disk, _ = stopped_server()
    harm(disk)
    view = check_directory(disk)
    assert not view.healthy
    assert any(says in error for error in errors(view)), errors(view)
    assert not directory_json(view)["healthy"]


def test_older_metadata_beside_a_newer_log_is_an_error() -> None:
    """Goal: the check finds a file that was restored from a backup. Method: put the first version of the consensus
    metadata, of term 1, beside a log of term 4; then another server's metadata."""
    disk, _ = stopped_server()
    disk.remove(path_of(TABLET))
    ConsensusMeta.create(disk, TABLET, SOURCE_UUID, RestingReplica(new_disk()).cmeta.committed_config, 1)
    assert any("term 1 is below the log's, 4" in e for e in errors(check_directory(disk)))
    disk.remove(path_of(TABLET))
    ConsensusMeta.create(disk, TABLET, TARGET_UUID, RestingReplica(new_disk()).cmeta.committed_config, 9)
    assert any(f"term and vote of server {TARGET_UUID}" in e for e in errors(check_directory(disk)))


def test_untidiness_is_a_warning_and_only_orphans_are_removed_on_demand() -> None:
    """Goal: what the next start repairs is only a warning. Method: an orphaned block, metadata and a log without a
    superblock, a stranger's file, a torn end, a copy and a deletion that were cut off; then remove the orphans."""
    disk, last = stopped_server()
    disk.poke("data/other-000001.arrow", b"orphan")
    disk.poke("consensus-meta/gone", disk.read(path_of(TABLET)))
    disk.mkdir("wals/gone")
    disk.poke("notes.txt", b"mine")
    disk.poke(SEGMENT, disk.read(SEGMENT) + b"\x02\x40torn")
    superblock(tablet_id="half", data_state=DataState.COPYING).save(disk)
    view = check_directory(disk)
    assert view.healthy, errors(view)
    for says in (
        "data/other-000001.arrow",
        "consensus-meta/gone",
        "wals/gone",
        "notes.txt",
        "cuts the end",
        "was cut off",
    ):
        assert any(says in w for w in warnings(view)), says
    assert remove_orphans(disk) == view.orphans == ["data/other-000001.arrow"]
    disk.arm("delete.4")
    with pytest.raises(SimCrash):
        delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)
    disk.restart()
    view = check_directory(disk)
    assert view.healthy and any("a deletion was cut off" in w for w in warnings(view))
    disk.corrupt(f"tablet-meta/{TABLET}", 40)
    view = check_directory(disk)
    assert not view.orphans and any("no orphan is told from a block" in w for w in warnings(view))


@pytest.mark.parametrize("mounted", [False, True], ids=["gone", "empty"])
@pytest.mark.parametrize("lost", ["tablet-meta", "consensus-meta", "wals", INSTANCE])
def test_blocks_are_no_orphans_where_what_names_them_is_lost(lost: str, mounted: bool) -> None:
    """TC-46. Goal: blocks do not count as orphans if the superblock folder is not mounted. Method: lose each, a folder
    also in favour of an empty mount point; nothing is called an orphan, the check says that no server starts, and a
    repair is refused and removes nothing."""
    disk, _ = stopped_server()
    blocks = data_files(disk)
    (disk.remove if lost == INSTANCE else disk.remove_tree)(lost)
    if mounted and lost != INSTANCE:
        disk.mkdir(lost)
    view = check_directory(disk)
    assert not view.healthy and any("no server starts" in error for error in errors(view))
    assert not view.orphans and any(f"because {lost} is missing" in w for w in warnings(view))
    with pytest.raises(Refused, match=rf"mount its disk again.*missing={lost}"):
        remove_orphans(disk)
    assert blocks and data_files(disk) == blocks


def test_directory_with_data_of_somebody_else_is_no_servers(tmp_path: Path) -> None:
    """Goal: a directory of another program is not taken for a server's because of the names of its folders. Method:
    folders `data`, `quarantine` and `replay`; then, of a server, each state in which a wipe may have been cut off."""
    for name in ("data", "quarantine", "replay"):
        (tmp_path / "kafka" / name).mkdir(parents=True)
    with pytest.raises(Refused, match=r"no server's directory.*looked_for=instance"):
        plan_wipe(tmp_path / "kafka")
    (tmp_path / "kafka" / "data" / "log").write_text("mine")
    with pytest.raises(Refused, match=r"not empty.*found=data"):
        format_root(tmp_path / "kafka", kind="TABLET_SERVER")
    format_root(tmp_path / "server", kind="TABLET_SERVER")
    names = plan_wipe(tmp_path / "server").names
    assert names[0] == INSTANCE and set(names) == {INSTANCE, MARK, *FOLDERS}
    for done in range(1, len(names)):
        wipe(RealDisk(tmp_path / "server"), names[done - 1 : done])
        assert plan_wipe(tmp_path / "server").names == names[done:]


def test_deleted_replica_keeps_what_it_promised() -> None:
    """Goal: rows TC-13 and TC-36 hold for the tool as for the server. Method: delete offline: state, last logged OpId
    of the log, term and vote; the quarantine has the log; again is a no-op."""
    disk, last = stopped_server()
    promises = cmeta_bytes(disk)
    tombstone = make_tombstone(disk, TABLET)
    assert (tombstone.data_state, tombstone.last_logged) == (DataState.DELETED, last)
    assert cmeta_bytes(disk) == promises and wal_places(disk) == [f"{tombstone.quarantine}/wal"]
    assert make_tombstone(disk, TABLET) == tombstone
    assert check_directory(disk).healthy
    with pytest.raises(Refused) as refused:
        make_tombstone(disk, "nowhere")
    assert refused.value.code is Code.TABLET_NOT_FOUND


def test_deleted_replica_with_a_damaged_log_abstains() -> None:
    """Goal: the tombstone of a damaged log withholds its vote up to the damaged entry, or gives none. Method: damage
    the last entry, then the middle: the withheld OpId is kept; a log that cannot be read brings a vote floor at the
    present term."""
    disk, last = stopped_server()
    disk.corrupt(SEGMENT, len(disk.read(SEGMENT).rstrip(b"\0")) - 40)
    assert make_tombstone(disk, TABLET).last_logged == last
    assert ConsensusMeta.load(disk, TABLET).vote_floor_term == 0
    disk, last = stopped_server()
    disk.corrupt(SEGMENT, 1400)
    kept = make_tombstone(disk, TABLET)
    assert kept.last_logged is not None and kept.last_logged < last
    assert ConsensusMeta.load(disk, TABLET).vote_floor_term == 5


@pytest.mark.parametrize("state", ["READY", "DELETED", "damaged superblock", "no superblock"])
def test_erased_replica_leaves_nothing_and_its_neighbour_everything(state: str) -> None:
    """Goal: `--clean-unsafe` removes every trace of one tablet, and of no other. Method: erase a READY replica, a
    tombstone, one with a damaged superblock and one whose erasure died after the superblock; a neighbour's files stay
    byte for byte."""
    disk, _ = stopped_server()
    neighbour = superblock(tablet_id="neighbour")
    neighbour.save(disk)
    ConsensusMeta.create(disk, "neighbour", SOURCE_UUID, ConsensusMeta.load(disk, TABLET).committed_config)
    disk.mkdir("wals/neighbour")
    disk.poke("data/neighbour-000001.arrow", b"block")
    if state == "DELETED":
        make_tombstone(disk, TABLET)
    elif state == "damaged superblock":
        disk.corrupt(f"tablet-meta/{TABLET}", 40)
    elif state == "no superblock":
        disk.remove(f"tablet-meta/{TABLET}")
    erase(disk, TABLET)
    assert Superblock.list_tablets(disk) == ["neighbour"]
    assert disk.listdir("consensus-meta") == ["neighbour"] and disk.listdir("wals") == ["neighbour"]
    assert disk.exists("data/neighbour-000001.arrow") and Superblock.load(disk, "neighbour") == neighbour
    if state in ("READY", "DELETED"):
        assert data_files(disk) == ["neighbour-000001.arrow"] and not disk.listdir("quarantine")
    with pytest.raises(Refused):
        erase(disk, TABLET)


def test_replica_copied_offline_is_the_source_and_keeps_its_own_promises() -> None:
    """Goal: the offline copy obeys the rules of a target: it keeps its vote and refuses a lagging source. Method: copy
    over nothing, over a READY replica that voted, and from a source that lags: equal rows, own vote kept, old data in
    quarantine, the lagging one refused."""
    source = RestingReplica(new_disk())
    source.write([7], "new", term=6)
    source.cmeta.save_hard_state(6, None)
    source.tablet.flush()
    blank = new_disk()
    format_directory(blank, TestClock(), uuid=TARGET_UUID)
    disk, last = stopped_server(TARGET_UUID)
    ahead = Source(source)
    with pytest.raises(Refused, match="ends below"):
        lagging = RestingReplica(new_disk())
        lagging.write([1], "old", term=1)
        copy_replica(disk, TABLET, TARGET_UUID, Source(lagging).copy_source)
    assert Superblock.load(disk, TABLET).data_state is DataState.READY
    for target in (blank, disk):
        ready = copy_replica(target, TABLET, TARGET_UUID, ahead.copy_source)
        assert ready.data_state is DataState.READY
        replica = RestingReplica(target, TARGET_UUID)
        assert replica.rows() == {7: "new"}
        replica.close()
        meta = ConsensusMeta.load(target, TABLET)
        assert (meta.uuid, meta.term, meta.voted_for) == (TARGET_UUID, 6, None)
        assert check_directory(target).healthy
    assert last < OpId(6, 1)
    assert [p.split("-0")[0] for p in wal_places(disk)] == [f"quarantine/{TABLET}"] and not blank.listdir("quarantine")
    with pytest.raises(Refused, match="leader"):
        copy_replica(disk, TABLET, TARGET_UUID, Source(source, is_leader=False).copy_source)


def test_offline_copy_that_fails_leaves_the_tombstone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: an offline copy whose source dies leaves a tombstone. Method: its session is gone at the first fetch."""
    source = RestingReplica(new_disk())
    source.write([7], "new", term=6)
    source.cmeta.save_hard_state(6, None)
    source.tablet.flush()
    disk, last = stopped_server(TARGET_UUID)
    copy_source = Source(source).copy_source
    fetch = copy_source.fetch
    monkeypatch.setattr(copy_source, "fetch", lambda session, *rest: fetch("another session", *rest))
    with pytest.raises(Refused) as refused:
        copy_replica(disk, TABLET, TARGET_UUID, copy_source)
    assert refused.value.code is Code.EXPIRED
    left = Superblock.load(disk, TABLET)
    assert (left.data_state, left.last_logged) == (DataState.DELETED, last)
    assert check_directory(disk).healthy


@pytest.mark.parametrize("harm", ["damaged", "gone"])
@pytest.mark.parametrize("log", ["whole", "gone"])
def test_replica_without_its_promises_is_replaced_and_abstains(harm: str, log: str) -> None:
    """TC-55. Goal: a replica with lost metadata can be copied again, and gives no vote a second time. Method: damaged
    or missing metadata of a server that voted in term 5, with and without its log: a source that leads nobody is
    refused and nothing changed; copied from a leader in term 6, directly and over a tombstone, the floor is 6."""
    source = RestingReplica(new_disk())
    source.write([7], "new", term=6)
    source.cmeta.save_hard_state(6, SOURCE_UUID)
    source.tablet.flush()
    for deleted_first in (False, True):
        disk, last = stopped_server(TARGET_UUID)
        disk.corrupt(path_of(TABLET), 25) if harm == "damaged" else disk.remove(path_of(TABLET))
        if log == "gone":
            disk.remove_tree(WAL)
        before = {path: disk.read(path) for folder in FOLDERS for path in _below(disk, folder)}
        with pytest.raises(Refused, match="comes from the leader only") as refused:
            copy_replica(disk, TABLET, TARGET_UUID, Source(source, is_leader=False).copy_source, allow_leaderless=True)
        assert refused.value.code is Code.NOT_LEADER
        assert {path: disk.read(path) for folder in FOLDERS for path in _below(disk, folder)} == before
        if deleted_first:
            flushed = Superblock.load(disk, TABLET).flush_opid
            tombstone = make_tombstone(disk, TABLET)
            known = (last, True) if log == "whole" else (flushed, False)
            assert (tombstone.last_logged, tombstone.last_logged_known) == known
            assert disk.exists(path_of(TABLET)) is (harm == "damaged")
        copied = copy_replica(disk, TABLET, TARGET_UUID, Source(source).copy_source)
        assert (copied.data_state, copied.last_logged_known) == (DataState.READY, True)
        meta = ConsensusMeta.load(disk, TABLET)
        assert (meta.uuid, meta.term, meta.voted_for, meta.vote_floor_term) == (TARGET_UUID, 6, None, 6)
        replica = RestingReplica(disk, TARGET_UUID)
        assert replica.rows() == {7: "new"}
        replica.close()


def test_promises_that_a_later_build_wrote_are_not_taken_for_lost() -> None:
    """TC-55. Goal: metadata of a later build are not overwritten. Method: metadata of a later format, without a log,
    beside a superblock and without one: a copy and a deletion end before they change anything."""
    source = RestingReplica(new_disk())
    source.write([7], "new", term=6)
    for with_superblock in (True, False):
        disk, _ = stopped_server(TARGET_UUID)
        disk.remove_tree(WAL)
        record = unframe("consensus_metadata", disk.read(path_of(TABLET)))
        disk.poke(path_of(TABLET), frame("consensus_metadata", record | {"reserved": b"later"}))
        if not with_superblock:
            disk.remove(f"tablet-meta/{TABLET}")
        before = {path: disk.read(path) for folder in FOLDERS for path in _below(disk, folder)}
        with pytest.raises(LaterFormat):
            copy_replica(disk, TABLET, TARGET_UUID, Source(source).copy_source)
        if with_superblock:
            with pytest.raises(LaterFormat):
                make_tombstone(disk, TABLET)
        assert {path: disk.read(path) for folder in FOLDERS for path in _below(disk, folder)} == before


def test_formatted_directory_has_an_identity_and_is_not_formatted_again(tmp_path: Path) -> None:
    """Goal: an identity is given once. Method: format, again, with a uuid, a bad one, beside a stranger's file."""
    made = format_root(tmp_path / "a", kind="MASTER", uuid="d" * 32)
    assert (made.uuid, made.kind) == ("d" * 32, "MASTER")
    with pytest.raises(Refused) as refused:
        format_root(tmp_path / "a", kind="MASTER")
    assert refused.value.code is Code.ALREADY_EXISTS
    with pytest.raises(Refused) as refused:
        format_root(tmp_path / "b", kind="MASTER", uuid="D" * 32)
    assert refused.value.code is Code.INVALID_ARGUMENT
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").write_text("mine")
    with pytest.raises(Refused, match="not empty"):
        format_root(tmp_path / "c", kind="TABLET_SERVER")
    with pytest.raises(Refused, match="nothing in it is ours"):
        plan_wipe(tmp_path / "c")
    assert (tmp_path / "c" / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("operation", range(1, 8))
def test_wipe_that_dies_leaves_no_server_that_could_start(operation: int) -> None:
    """Row TC-72. Goal: an identity never outlives its promises. Method: the n-th removal of a wipe dies, with power:
    the server refuses to start, or is a new one with nothing left; the wipe is done again, and the uuid is new."""
    disk, _ = stopped_server()
    names = (INSTANCE, *FOLDERS)
    seen = 0

    def die(called: str, path: str) -> None:
        nonlocal seen
        seen += called in ("remove", "remove_tree")
        if seen == operation:
            raise SimCrash(path)

    disk.hook = die
    with pytest.raises(SimCrash):
        wipe(disk, names)
    disk.hook = None
    disk.power_loss(random.Random(operation))
    if operation == 1:
        assert identity(disk).uuid == SOURCE_UUID, "nothing was removed yet"
    else:
        assert read_instance(disk) is None
        if any(disk.listdir(folder) for folder in FOLDERS):
            with pytest.raises(Corruption, match="wipe the whole directory"):
                open_or_format(disk, TestClock())
    wipe(disk, [name for name in names if disk.exists(name)])
    assert open_or_format(disk, TestClock()).uuid not in (SOURCE_UUID, "")
