"""A tablet whose server lacks memory, maps or files for a moment: nothing of it is damaged, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.fs import exhausted
from nyala.replica.rows import RowOp
from nyala.replica.tablet import Superblock, Tablet, resolve, verify_pieces
from nyala.replica.types import Code, Corruption, OpId, Refused, ReplicaError, ResourcesExhausted
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, noop_entry, schema_entry, superblock, write_entry

NAMES = ["k", "v", "s", "r"]
WANTS = ("EMFILE", "ENFILE", "ENOMEM", "EAGAIN")
OPERATIONS = ("open", "pread", "pwrite", "replace", "remove", "mkdir", "size", "sync", "sync_dir", "listdir")


def put(tablet: Tablet, index: int, first: int = 0, rows: int = 20) -> None:
    given = [
        {"op": 2, "offset": index * 1000 + k, "k": k, "v": index, "s": "x" * 40, "r": index}
        for k in range(first, first + rows)
    ]
    tablet.apply([write_entry(index, INT_SCHEMA, NAMES, given)])


def rows_of(tablet: Tablet) -> list[Any]:
    return sorted(pa.Table.from_batches(list(tablet.scan(["k", "v"]))).to_pylist(), key=lambda row: row["k"])


def four_blocks(disk: SimDisk) -> Tablet:
    """Blocks enough for a merge, and a row more in memory."""
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    for index in range(1, 5):
        put(tablet, index, first=index * 5)
        tablet.flush()
    put(tablet, 5, rows=1)
    return tablet


@pytest.mark.deep
@pytest.mark.parametrize("work", ["flush", "compact"])
def test_flush_and_compaction_are_refused_for_a_want_and_done_later(work: str) -> None:
    """IN-30. Goal: if a resource is exhausted, a flush or compaction is refused and done later, and no row or replica
    is lost. Method: at each single call to the disk, one errno or another: the work is refused as a want, or done all
    the same; the rows are there, here and in a tablet opened anew; then it works."""
    refused = 0
    for operation in OPERATIONS:
        for skip in range(40):
            disk = SimDisk()
            tablet = four_blocks(disk)
            rows = rows_of(tablet)
            disk.fail_on(operation, "data/*" if operation == "sync" else "*", WANTS[skip % 4], skip=skip)
            try:
                getattr(tablet, work)()
            except ResourcesExhausted:
                refused += 1
            hit = bool(disk.fired)
            disk.heal()
            assert rows_of(tablet) == rows
            getattr(tablet, work)()
            assert rows_of(tablet) == rows
            tablet.flush()
            again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
            assert rows_of(again) == rows
            disk.close()
            if not hit:
                break
    assert refused > 5


@pytest.mark.deep
def test_opening_a_tablet_without_means_is_refused_and_no_corruption() -> None:
    """IN-30. Goal: a replica that cannot be opened now is not given up. Method: an errno at each call of an opening."""
    refused = 0
    for operation in OPERATIONS:
        for skip in range(40):
            disk = SimDisk()
            rows = rows_of(closed := four_blocks(disk))
            closed.flush()
            disk.fail_on(operation, "*", WANTS[skip % 4], skip=skip)
            try:
                opened = Tablet.open(disk, Superblock.load(disk, closed.tablet_id))
            except ResourcesExhausted:
                refused += 1
                opened = Tablet.open(disk, Superblock.load(disk, closed.tablet_id))
            assert rows_of(opened) == rows
            disk.close()
            if not disk.fired:
                break
    assert refused > 5


def _no_memory(*given: object, **named: object) -> Any:
    raise MemoryError


def _no_arrow_memory(*given: object, **named: object) -> Any:
    raise pa.ArrowMemoryError("malloc of size 100 failed")


@pytest.mark.parametrize("place", ["memory_map", "ipc.open_file"])
@pytest.mark.parametrize("refuses", [_no_memory, _no_arrow_memory], ids=lambda f: f.__name__)
def test_block_without_memory_is_a_want_and_a_broken_one_is_corruption(
    place: str, refuses: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-30. Goal: exhausted memory is not taken for a damaged block. Method: Python or Arrow has none as a block is
    opened, and as a flush opens what it wrote; without that, the same works. A file that is no Arrow file is Corruption
    still. Maps that are used up: `test_tablet_maps.py`."""
    disk = SimDisk()
    tablet = four_blocks(disk)
    with monkeypatch.context() as patch:
        patch.setattr(f"pyarrow.{place}", refuses)
        with pytest.raises(ResourcesExhausted):
            Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
        with pytest.raises(ResourcesExhausted):
            tablet.flush()
    assert tablet.flush_opid == OpId(1, 4)
    assert tablet.flush() is not None
    opened = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    assert rows_of(opened) == rows_of(tablet)
    block = tablet.superblock.blocks[0]
    disk.poke(block.name, b"no Arrow file" + bytes(block.length_bytes - 13))
    with pytest.raises(Corruption, match="cannot be read"):
        Tablet.open(disk, tablet.superblock, verify=False)
    disk.close()


@pytest.mark.a_third
@pytest.mark.parametrize("kind", WANTS)
@pytest.mark.parametrize("operation", ["open", "pread", "uncache", "size"])
def test_scrub_of_a_block_does_not_take_a_want_for_damage(kind: str, operation: str) -> None:
    """IN-30. Goal: no replica fails for it. Method: that errno as a block's file is read at rest."""
    disk = SimDisk()
    tablet = four_blocks(disk)
    name, length, crc = tablet.superblock.blocks[0].files[0]
    if operation != "size":
        disk.fail_on(operation, "data/*", kind)
        with pytest.raises(ResourcesExhausted):
            list(verify_pieces(disk, name, length, crc, uncached=True))
    assert sum(verify_pieces(disk, name, length, crc, uncached=True)) == length
    disk.close()


def test_entry_that_meets_a_want_has_no_result_and_is_applied_by_the_next_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IN-30. Goal: if a resource is exhausted while an entry is applied, the entry has no result, because other
    replicas applied it, and it is applied later. Method: no memory as rows are looked up; apply raises, the position
    stays, and a tablet opened anew applies it."""
    disk = SimDisk()
    tablet = four_blocks(disk)
    tablet.flush()

    def refuses(*given: object, **named: object) -> Any:
        raise ResourcesExhausted("no map is left")

    with monkeypatch.context() as patch:
        patch.setattr("nyala.replica.tablet.block.Block.locate", refuses)
        given = [{"op": 1, "offset": 99_000 + k, "k": k, "v": 0, "s": "x", "r": 0} for k in range(5)]
        with pytest.raises(ReplicaError) as raised:
            tablet.apply([write_entry(6, INT_SCHEMA, NAMES, given)])
    assert exhausted(raised.value) is raised.value and tablet.applied_opid == OpId(1, 5)
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    again.apply([write_entry(6, INT_SCHEMA, NAMES, given)])
    assert again.applied_opid == OpId(1, 6)
    disk.close()


class WithoutMemory:
    """pyarrow without memory at one call, given by its path."""

    def __init__(self, real: Any, path: list[str]) -> None:
        self._real, self._path = real, path

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if self._path[0] != name:
            return real
        return WithoutMemory(real, self._path[1:]) if self._path[1:] else _no_arrow_memory


@pytest.mark.parametrize("place", ["ipc.read_record_batch", "Array.from_buffers", "RecordBatch.from_arrays"])
def test_committed_write_is_applied_later_if_arrow_has_no_memory_to_decode_it(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-30. Goal: a batch that cannot be decoded for lack of memory is not taken for an invalid one, whose entry would
    be answered with an error and no row, while other replicas apply it. Method: Arrow has no memory at each call of the
    decoder, for a batch of a known layout and for another; apply raises, the position stays, and a tablet opened anew
    applies the entry like one that nothing disturbed."""
    disk = SimDisk()
    twin, tablet = four_blocks(SimDisk()), four_blocks(disk)
    tablet.flush()
    known = place == "ipc.read_record_batch"
    given = [
        {"op": 2, "offset": 99_000 + k, "k": k, "v": 7, "s": "y" * 40 if known or k % 2 else None, "r": 7}
        for k in range(20)
    ]
    if known:
        for one in (tablet, twin):
            one.apply([write_entry(6, INT_SCHEMA, NAMES, given)])
        tablet.flush()
    entry = write_entry(6 + known, INT_SCHEMA, NAMES, given)
    before = tablet.applied_opid
    with monkeypatch.context() as patch:
        patch.setattr("nyala.replica.rows.batch.pa", WithoutMemory(pa, place.split(".")))
        with pytest.raises(MemoryError):
            tablet.apply([entry])
    assert tablet.applied_opid == before
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    assert again.apply([entry]) == twin.apply([entry])
    assert again.checksum() == twin.checksum()
    disk.close()


@pytest.mark.a_third
@pytest.mark.parametrize("work", ["flush", "compact"])
@pytest.mark.parametrize("rounds", range(4))
def test_entry_that_was_applied_in_part_never_reaches_the_disk(
    rounds: int, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-30. Goal: replay gives every replica the same answers. Method: memory ends after some rounds of an entry with
    INSERT, INSERT, INSERT, DELETE of one key; flush and compaction are refused, and write nothing. A tablet opened anew
    applies the entry again; its results and rows are those of a twin that nothing disturbed."""
    ops = (RowOp.INSERT, RowOp.INSERT, RowOp.INSERT, RowOp.DELETE)
    given = [{"op": op, "offset": 9000 + n, "k": 500, "v": n, "s": "x", "r": n} for n, op in enumerate(ops)]
    entry = write_entry(6, INT_SCHEMA, NAMES, given)
    twin = four_blocks(SimDisk())
    twin.flush()
    disk = SimDisk()
    tablet = four_blocks(disk)
    tablet.flush()
    apply_round, left = resolve._apply_pass, [()] * rounds

    def some(*given: Any) -> None:
        if not left:
            raise MemoryError
        left.pop()
        apply_round(*given)

    with monkeypatch.context() as patch:
        patch.setattr(resolve, "_apply_pass", some)
        with pytest.raises(MemoryError):
            tablet.apply([entry])
    assert tablet.applied_opid == OpId(1, 5)
    tablet.apply([noop_entry(6)])  # nobody does; a flush would have something to write
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            getattr(tablet, work)()
        assert refused.value.code is Code.NOT_READY and tablet.flush_opid == OpId(1, 5)
    tablet.close()
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    results = again.apply([entry])
    assert results == twin.apply([entry]) and len(results[0].row_errors) == 2
    assert again.checksum() == twin.checksum()
    assert again.flush() is not None


def test_entry_that_is_refused_leaves_the_tablet_whole() -> None:
    """IN-30. Goal: a refused entry is an answer of the state machine, not an exhausted resource, and leaves the tablet
    usable. Method: a schema that is refused, and a write of a client whose result is forgotten; then a flush."""
    tablet = four_blocks(SimDisk())
    given = [{"op": 2, "offset": 0, "k": 1, "v": 1, "s": "x", "r": 1}]
    for index, sequence in ((6, 9), (7, 1)):
        said = {"client_id": "c" * 32, "sequence": sequence, "first_incomplete": 9}
        (result,) = tablet.apply([write_entry(index, INT_SCHEMA, NAMES, given, source=None, **said)])
    assert result.error is not None and result.error.code is Code.EXPIRED
    (result,) = tablet.apply([schema_entry(8, INT_SCHEMA)])
    assert result.error is not None and result.error.code is Code.SCHEMA_MISMATCH
    assert tablet.flush() is not None and tablet.flush_opid == OpId(1, 8)
