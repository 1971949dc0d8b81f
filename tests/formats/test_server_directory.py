"""A whole server's directory of each format version: what today's server makes of it, and of one from the future.

`python -m tests.formats.test_server_directory` writes the directory and the superblocks beside it where they are
missing, and never touches one that is there.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.fs import INSTANCE, RealDisk, format_directory, open_or_format
from nyala.replica.server import check_durable_state
from nyala.replica.tablet import Superblock, superblock_path
from nyala.replica.tablet_copy import delete_replica
from nyala.replica.tools import check_directory
from nyala.replica.types import Code, Corruption, DataState, OpId, Refused
from nyala.schemas import frame, loader, unframe
from tests.harness.copies import CONFIG, TABLET, TARGET_UUID, RestingReplica, TestClock, new_disk, superblock
from tests.harness.later_format import later_version
from tests.harness.managers import new_manager
from tests.harness.sim_disk import SimDisk

GOLDEN = Path(__file__).parent / "golden" / "server_v1"
WITNESS = GOLDEN.parent / "superblock_witness_v1.bin"
"""Of a witness of the golden directory's replica, its log beginning at the same position."""
LOWER_BOUND = GOLDEN.parent / "superblock_lower_bound_v1.bin"
"""Of the golden directory's tombstone, had its log been unreadable."""
TOMBSTONE = "tablet-2"
KEPT = OpId(3, 14)
LAST = OpId(4, 3)
ROWS = {1: "one", 2: "three", 3: "three"}


def write_directory(disk: SimDisk) -> None:
    """A READY replica with a block and a log behind it, that voted; and a tombstone with its quarantine."""
    format_directory(disk, TestClock(), uuid=TARGET_UUID)
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([1, 2], "one")
    replica.write([2], "two")
    replica.tablet.flush()
    assert replica.write([2, 3], "three", term=4) == LAST
    replica.cmeta.save_hard_state(5, "c" * 32)
    replica.close()
    gone = superblock(tablet_id=TOMBSTONE)
    gone.save(disk)
    ConsensusMeta.create(disk, TOMBSTONE, TARGET_UUID, CONFIG, 3)
    disk.mkdir(f"wals/{TOMBSTONE}")
    delete_replica(disk, gone, KEPT, stop=lambda: None)


def golden() -> SimDisk:
    """The golden directory on a disk of its own."""
    disk = new_disk()
    for path in sorted(GOLDEN.rglob("*")):
        name = str(path.relative_to(GOLDEN))
        if path.is_dir():
            disk.mkdir(name)
        else:
            disk.mkdir(name.rpartition("/")[0] or ".")
            disk.poke(name, path.read_bytes())
    for empty in ("data", "quarantine", "replay", "wals"):
        disk.mkdir(empty)
    return disk


def test_server_starts_on_a_directory_of_version_1() -> None:
    """Goal: what was written once is served for ever. Method: the golden directory is opened as a start opens it: the
    identity, all rows from block and log, term and vote, the tombstone's last logged OpId; `fs check` finds nothing."""
    disk = golden()
    instance = open_or_format(disk, TestClock())
    check_durable_state(disk, instance)
    assert instance.uuid == TARGET_UUID
    assert not check_directory(disk).all_findings

    async def start() -> None:
        fatal: list[BaseException] = []
        manager = new_manager(disk, fatal.append)
        await manager.start()
        await asyncio.gather(*manager.open_all())
        hosted, tombstone = manager.get(TABLET), manager.get(TOMBSTONE)
        assert (hosted.error, hosted.last_opid, hosted.term) == ("", LAST, 5)
        assert (tombstone.data_state, tombstone.last_opid, tombstone.term) == (DataState.DELETED, KEPT, 3)
        await manager.stop()
        assert not fatal

    asyncio.run(start())
    replica = RestingReplica(disk, TARGET_UUID)
    assert replica.rows() == ROWS and replica.cmeta.voted_for == "c" * 32
    replica.close()
    disk.close()


def featured() -> dict[Path, Superblock]:
    """What the golden superblocks with a feature hold."""
    disk = golden()
    return {
        WITNESS: Superblock.load(disk, TABLET).without_rows(),
        LOWER_BOUND: replace(Superblock.load(disk, TOMBSTONE), last_logged_known=False),
    }


@pytest.mark.parametrize(("path", "feature"), [(WITNESS, "witness"), (LOWER_BOUND, "last-logged-unknown")])
def test_superblock_with_a_feature_is_read_and_written_for_ever_and_refused_where_it_is_unknown(
    path: Path, feature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CC-47. Goal: a later build takes neither a witness for a replica with rows nor a lower bound for an OpId, and a
    build of before them starts on neither. Method: the golden file is loaded and saved anew, byte for byte; then read
    by a build that knows no features, which says which one it lacks."""
    expected, disk = featured()[path], golden()
    disk.poke(expected.path, path.read_bytes())
    assert Superblock.load(disk, expected.tablet_id) == expected
    assert (expected.witness, expected.last_logged_known) == (feature == "witness", feature == "witness")
    expected.save(disk)
    assert disk.read(expected.path) == path.read_bytes()
    monkeypatch.setattr(loader, "_KNOWN_FEATURES", {})
    with pytest.raises(Corruption, match=f"does not know: {feature}"):
        Superblock.load(disk, expected.tablet_id)
    disk.close()


def test_server_starts_on_a_witness_of_version_1() -> None:
    """CC-47, CC-48. Goal: what was written as a witness stays one for ever. Method: the golden directory with the
    golden witness' superblock: it has the log, the term and the vote, opens no tablet, is no replica with rows, and its
    record stays as it is; `fs check` finds nothing but the blocks that are nobody's, which the start removes."""
    disk = golden()
    disk.poke(superblock_path(TABLET), WITNESS.read_bytes())
    assert check_directory(disk).healthy and check_directory(disk).orphans
    check_durable_state(disk, open_or_format(disk, TestClock()))

    async def start() -> None:
        fatal: list[BaseException] = []
        manager = new_manager(disk, fatal.append)
        await manager.start()
        await asyncio.gather(*manager.open_all())
        hosted = manager.get(TABLET)
        assert (hosted.error, hosted.last_opid, hosted.term, hosted.tablet) == ("", LAST, 5, None)
        with pytest.raises(Refused) as refused:
            hosted.serving()
        assert refused.value.code is Code.NOT_LEADER
        await manager.stop()
        assert not fatal

    asyncio.run(start())
    assert disk.read(superblock_path(TABLET)) == WITNESS.read_bytes()
    assert disk.listdir("data") == [] and ConsensusMeta.load(disk, TABLET).voted_for == "c" * 32
    disk.close()


def _unknown_feature(data: bytes, schema: str = "instance") -> bytes:
    return frame(schema, unframe(schema, data) | {"incompatible_features": ["time-travel"]})


@pytest.mark.parametrize("later", [later_version, _unknown_feature], ids=["version", "feature"])
def test_server_refuses_a_directory_of_a_later_format_with_the_reason(later: object) -> None:
    """Goal: an old build never guesses what a new one wrote, and does not call it damage. Method: the golden
    directory's identity in a later version, and with a feature that nobody knows; no file is changed."""
    disk = golden()
    data = later(disk.read(INSTANCE))  # type: ignore[operator]
    disk.poke(INSTANCE, data)
    with pytest.raises(Refused, match=r"later format.*(version 2|time-travel)") as refused:
        open_or_format(disk, TestClock())
    assert refused.value.code is Code.ILLEGAL_STATE and disk.read(INSTANCE) == data
    assert not check_directory(disk).healthy
    disk.close()


def test_tablet_of_a_later_format_is_refused_with_the_reason_and_the_others_start() -> None:
    """Goal: a tablet that a newer build wrote fails alone. Method: its superblock, then its metadata, in version 2, and
    each with a feature that nobody knows."""
    superblock_data, meta = golden().read(superblock_path(TABLET)), golden().read(path_of(TABLET))
    for path, data, reason in (
        (superblock_path(TABLET), later_version(superblock_data), "version 2"),
        (superblock_path(TABLET), _unknown_feature(superblock_data, "superblock"), "time-travel"),
        (path_of(TABLET), later_version(meta), "version 2"),
        (path_of(TABLET), _unknown_feature(meta, "consensus_metadata"), "time-travel"),
    ):
        disk = golden()
        disk.poke(path, data)
        with pytest.raises(Corruption, match=rf"{path}.*{reason}"):
            ConsensusMeta.load(disk, TABLET)
            Superblock.load(disk, TABLET)
        assert ConsensusMeta.load(disk, TOMBSTONE).term == 3
        disk.close()


def _write_missing() -> None:
    if not GOLDEN.exists():
        _write_golden_directory()
    for path, record in featured().items():
        if not path.exists():
            path.write_bytes(frame("superblock", record.to_avro()))


def _write_golden_directory() -> None:
    disk = SimDisk()
    write_directory(disk)
    disk.restart()
    real = RealDisk(GOLDEN)

    def save(folder: str) -> None:
        for name in disk.listdir(folder):
            path = f"{folder}/{name}" if folder else name
            try:
                disk.size(path)
            except FileNotFoundError:
                save(path)
                continue
            real.mkdir(folder or ".")
            real.replace(path, disk.read(path))

    save("")


if __name__ == "__main__":
    _write_missing()
