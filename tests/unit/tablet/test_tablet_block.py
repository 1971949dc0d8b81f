"""One block: which rows it finds, which of them are visible at a time, and which pages it checks for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import Column, ColumnType, TableSchema, never_stop
from nyala.replica.tablet import block as block_module
from nyala.replica.tablet import page_crcs
from nyala.replica.tablet.block import Block, Deltas, bloom_bits, bloom_bits_one, deltas_between, needles_of
from nyala.replica.tablet.block_file import Written, write_block
from nyala.replica.tablet.merge import Part, merge_parts
from nyala.replica.tablet.page_crcs import PageChecks
from nyala.replica.types import MAX_HYBRID_TIME as LIVE
from nyala.replica.types import Corruption, InvariantViolation, ResourcesExhausted
from tests.harness.sim_disk import SimDisk

COLUMNS = tuple(Column(id=n, name=name, type=ColumnType.INT64, nullable=False) for n, name in enumerate("kv", 1))
ONE, TWO = TableSchema(1, COLUMNS, ("k",)), TableSchema(1, COLUMNS, ("k", "v"))
"""The same columns, of which one or both are the key."""
FENCE = 12
"""As many values are between two fences, and in a page, in which the hashes begin in the middle."""
PAGE = 8 * FENCE
UNASKED = 1 << 20
"""A bit of a hash that the Bloom filter does not use."""


Versions = list[tuple[int, int, int, int]]
"""(k, v, begin, end) of each version of a block, in its order."""


def written(disk: SimDisk, versions: Versions, hashes: list[int] | None = None, schema: TableSchema = ONE) -> Written:
    """A block's files. Its keys have made-up hashes: 1000 times k without."""
    values = np.array(versions, np.int64).reshape(len(versions), 4)
    batch = pa.RecordBatch.from_arrays([pa.array(values[:, 0]), pa.array(values[:, 1])], schema=schema.arrow)
    given = np.array([1000 * k for k, *_ in versions] if hashes is None else hashes, np.uint64)
    content, _ = merge_parts([Part(batch, values[:, 2], values[:, 3], given)], schema, 0)
    assert content.batch.equals(batch)
    return write_block(disk, "data/one", content, 0)


def block_of(
    versions: Versions, hashes: list[int] | None = None, schema: TableSchema = ONE, *, exact: bool = True
) -> Block:
    disk = SimDisk()
    info, pages = written(disk, versions, hashes, schema)
    block = Block(disk, info, schema, exact=exact, verify=False, pages=pages)
    disk.close()
    return block


def pairs_of(deltas: Iterable[Deltas]) -> list[tuple[int, int]]:
    return [pair for rows, times in deltas for pair in zip(rows.tolist(), times.tolist(), strict=True)]


def keys_of(*columns: list[int]) -> list[Any]:
    return [pa.array(column, pa.int64()) for column in columns]


def asked(block: Block, hashes: list[int], keys: list[Any], pending: list[bool] | None = None) -> dict[int, int]:
    """The row of each key that is found, by its position: the same by all the ways to ask for it."""
    needles = needles_of(np.array(hashes, np.uint64))
    bits = bloom_bits(needles.rotated)
    mask = np.array(pending or [True] * len(hashes))[needles.order]
    who, rows = block.locate(needles, bits, mask, keys)
    found = dict(zip(needles.order[who].tolist(), rows.tolist(), strict=True))
    who, rows = block.find(needles, bits, mask, keys, block.page_checks(never_stop))
    if block.memory_bytes == 0:  # nothing has ended since
        assert dict(zip(needles.order[who].tolist(), rows.tolist(), strict=True)) == found
    for pos in found:
        assert block.may_hold(hashes[pos], bloom_bits_one(hashes[pos]))
    return found


# --------------------------------------------------------------------------------------------------- opening


def test_block_is_opened_only_as_its_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-51, IN-30. Goal: what differs from the superblock is Corruption, exhausted memory is not, and both files are
    read at once only if that is asked for. Method: a record whose rows, columns, files or CRCs are others; no memory;
    the CRCs of pages, when the files were read, and when they were not."""
    disk = SimDisk()
    info, pages = written(disk, [(1, 0, 1, LIVE), (2, 0, 1, LIVE)])

    def opened(verify: bool = False, columns: tuple[Column, ...] = COLUMNS, **changed: Any) -> Block:
        schema = TableSchema(1, columns, ("k",))
        return Block(disk, info._replace(**changed), schema, exact=True, verify=verify)

    assert opened().longest == {}, "it has no texts"
    for error, how in (
        ("other rows than recorded", {"rows": 3}),
        ("column=v", {"columns": (COLUMNS[0], replace(COLUMNS[1], type=ColumnType.INT32))}),
        ("column=w", {"columns": (*COLUMNS, replace(COLUMNS[1], id=3, name="w"))}),
        ("cannot be read", {"name": info.sidecar_name}),
        ("cannot be read", {"block_id": "other"}),
        ("CRC-32C", {"crc": info.crc ^ 1, "verify": True}),
        ("CRC-32C", {"sidecar_crc": info.sidecar_crc ^ 1, "verify": True}),
    ):
        with pytest.raises(Corruption, match=error):
            opened(**how)  # type: ignore[arg-type]
    read, unread = opened(verify=True), opened()
    assert read._pages == pages and read._sidecar_pages is not None and unread._pages is None
    assert unread.page_checks(never_stop) is not None and unread._pages == pages
    with pytest.raises(Corruption, match="CRC-32C"):
        opened(crc=info.crc ^ 1).page_checks(never_stop)

    def no_memory(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr("pyarrow.memory_map", no_memory)
    with pytest.raises(ResourcesExhausted):
        opened()
    disk.close()


# --------------------------------------------------------------------------------------------------- hashes


def hash_of(*parts: int) -> int:
    """The hash whose four parts, of which the filter's bits are made, are these."""
    return sum(part << shift for part, shift in zip(parts, (0, 6, 12, 33), strict=True))


@pytest.mark.parametrize("rest", [0, UNASKED | 1 << 18 | 1 << 32 | 1 << 39 | 1 << 63])
@pytest.mark.parametrize("parts", [(0, 0, 0, 0), (1, 2, 3, 4), (4, 3, 2, 1), (63, 63, 63, 63), (0, 33, 62, 7)])
def test_bits_of_a_hash_are_those_of_its_four_parts(parts: tuple[int, ...], rest: int) -> None:
    """Goal: files of every build are found by the same filter, for one hash and for many. Method: hashes whose parts
    are known, with and without the other bits."""
    bits = sum(1 << part for part in set(parts))
    assert bloom_bits_one(hash_of(*parts) | rest) == bits
    both = bloom_bits(np.array([hash_of(*parts) | rest, hash_of(5, 6, 7, 8)], np.uint64))
    assert both.tolist() == [bits, 0b1111 << 5]


@pytest.mark.parametrize("hashes", [[], [7], [7, 7], [9, 7], [7, 9, 9], [9, 8, 7, 8]], ids=str)
def test_needles_are_sorted_and_know_whether_one_repeats(hashes: list[int]) -> None:
    """Goal: a batch is searched in the order of the hashes. Method: none, one, two and more, some of them equal."""
    needles = needles_of(np.array(hashes, np.uint64))
    assert needles.rotated.tolist() == sorted(hashes) == [hashes[pos] for pos in needles.order]
    assert sorted(needles.order.tolist()) == list(range(len(hashes)))
    assert needles.repeat == (len(set(hashes)) < len(hashes))


# --------------------------------------------------------------------------------------------------- rows by key


def test_live_rows_are_found_by_their_hashes_and_no_others() -> None:
    """Goal: a key's live version is found in a block, wherever its hash stands among the others. Method: the smallest,
    the largest and those between; hashes that are not there, with the bits of one that is, before, between and beyond;
    a key that is not pending, one that has ended since, and a block without a live row."""
    block = block_of([(k, k, 1, LIVE) for k in range(1, 6)])
    hashes = [1000 * k for k in range(5, 0, -1)]
    keys = keys_of([5, 4, 3, 2, 1])
    assert asked(block, hashes, keys) == {0: 4, 1: 3, 2: 2, 3: 1, 4: 0}
    assert asked(block, hashes, keys, [True, False, True, False, False]) == {0: 4, 2: 2}
    assert asked(block, [5000 | UNASKED, 3000], keys_of([0, 3])) == {1: 2}, "it is beyond them"
    assert asked(block, [7, 3000], keys_of([0, 3])) == {1: 2}
    assert asked(block, [7], keys_of([0])) == asked(block, [5000 | UNASKED], keys_of([0])) == {}
    assert block.may_hold(5000 | UNASKED, bloom_bits_one(5000)) and not block.may_hold(7, bloom_bits_one(7))
    block.supersede(np.array([2]), np.array([9]))
    assert asked(block, hashes, keys) == {0: 4, 1: 3, 3: 1, 4: 0}
    none = block_of([(1, 1, 1, 5)])
    assert asked(none, [1000, 2000], keys_of([1, 2])) == {} and not none.may_hold(1000, bloom_bits_one(1000))
    empty = block_of([])
    assert asked(empty, [1000, 2000], keys_of([1, 2])) == {} and not empty.may_hold(0, bloom_bits_one(0))


@pytest.mark.parametrize("rows", [3, 12, 20, 36])
def test_filters_word_is_that_of_the_upper_bits(rows: int) -> None:
    """Goal: each key is found in a filter of any size. Method: filters of two to sixteen words; hashes in all of
    them, each with other bits."""
    hashes = [n << 64 - 6 | hash_of(n, n, n, n) for n in range(64)][:: 64 // rows][:rows]
    block = block_of([(n, 0, 1, LIVE) for n in range(rows)], hashes)
    assert asked(block, hashes, keys_of(list(range(rows)))) == {n: n for n in range(rows)}
    for n, one in enumerate(hashes):
        assert asked(block, [one], keys_of([n])) == {0: n}
        other = one ^ 1 << 63
        assert other in hashes or not block.may_hold(other, bloom_bits_one(other))


def test_keys_of_one_hash_are_told_apart_by_the_order_of_the_keys() -> None:
    """Goal: of keys with one hash, each has its own row or none, the first row included, and never one that had ended.
    Method: such keys of two columns, with and without versions that had ended when the block was written, each asked
    for alone and all together, beside keys between them that are not there."""
    for ended in (False, True):
        versions = [(k, v, 5, LIVE) for k in (1, 2, 4) for v in (10, 20)]
        if ended:
            versions = [(0, 0, 1, 4), *((k, v, b, e) for k, v, _, _ in versions for b, e in ((1, 4), (5, LIVE)))]
            versions += [(9, 9, 1, 4)]
        rows = {(k, v): n for n, (k, v, _, end) in enumerate(versions) if end == LIVE}
        block = block_of(versions, [77] * len(versions), TWO, exact=False)
        keys = [(k, v) for k in (0, 1, 2, 3, 4, 9) for v in (0, 9, 10, 15, 20, 25)]
        columns = [[k for k, _ in keys], [v for _, v in keys]]
        expected = {n: rows[key] for n, key in enumerate(keys) if key in rows}
        assert asked(block, [77] * len(keys), keys_of(*columns)) == expected and len(expected) == 6
        for n, (k, v) in enumerate(keys):
            assert asked(block, [77], keys_of([k], [v])) == ({0: expected[n]} if n in expected else {})


@pytest.mark.a_third
@pytest.mark.parametrize("schema", [ONE, TWO], ids=["one-column", "two-columns"])
@pytest.mark.parametrize("ended", [False, True])
def test_versions_of_a_time_are_those_that_had_begun_and_not_ended(schema: TableSchema, ended: bool) -> None:
    """RD-02. Goal: a read by key at any time finds the version of that time, whether it ended before the block was
    written or after, or not at all. Method: keys with one to three versions, at each time from before the first to
    after the last, all keys together and one by one, beside keys that are not there."""
    versions: Versions = []
    for k in (2, 3, 5, 8):
        if ended:
            versions += [(k, 0, begin, begin + 1 + k % 2) for begin in range(2, 2 + 2 * (k % 3), 2)]
        versions += [(k, 0, 7, LIVE)] * (k != 8 or not ended)
    block = block_of(versions, schema=schema)
    ends = [end for *_, end in versions]
    late = [n for n, end in enumerate(ends) if end == LIVE][::2]
    block.supersede(np.array(late), np.array([9 + n % 2 for n in late]))
    for n in late:
        ends[n] = 9 + n % 2
    keys = [(k, v) for k in range(10) for v in (-1, 0, 1)]
    for at in range(12):
        current = {(k, v): n for n, (k, v, begin, _) in enumerate(versions) if begin <= at < ends[n]}
        expected = {n: current[k, 0] for n, (k, v) in enumerate(keys) if (k, 0) in current and v == 0}
        if schema is ONE:
            expected = {n: current[k, 0] for n, (k, _) in enumerate(keys) if (k, 0) in current}
        for some in (range(len(keys)), *([n] for n in range(len(keys)))):
            columns = keys_of([keys[n][0] for n in some], [keys[n][1] for n in some])[: len(schema.key)]
            who, rows = block.versions_at(block.deltas, columns, at, block.page_checks(never_stop))
            found = {some[n]: row for n, row in zip(who.tolist(), rows.tolist(), strict=True)}
            assert found == {n: row for n, row in expected.items() if n in some}, at


# --------------------------------------------------------------------------------------------------- times


ENDED = [(1, 0, 2, 4), (1, 0, 4, LIVE), (2, 0, 3, 7), (3, 0, 5, LIVE), (4, 0, 6, LIVE), (5, 0, 7, 9), (5, 0, 9, LIVE)]
"""Versions of a block that has ended ones."""
VERSIONS = {"ended": ENDED, "live": [(k, v, begin, LIVE) for k, v, begin, end in ENDED if end == LIVE], "none": []}
LATE = ((1, 10), (3, 12)), ((0, 12),)
"""Of the rows that were live then, those that end after the block was written, and when."""


@pytest.mark.parametrize("late", [0, 1, 2], ids=["as-written", "one-delta", "two-deltas"])
@pytest.mark.parametrize("kind", VERSIONS)
def test_rows_are_visible_from_their_begin_until_their_end(kind: str, late: int) -> None:
    """Goal: every question about times has one answer: which rows a scan and a read by key see, which times they read
    for that, when each row ended, and how many may be collected. Method: blocks with ended versions, without, and
    without rows; supersessions since; each time, and each range of rows, against the definition."""
    versions = VERSIONS[kind]
    block = block_of(versions)
    ends = [end for *_, end in versions]
    begins, written = [begin for _, _, begin, _ in versions], [end for *_, end in versions]
    lived = [row for row, end in enumerate(ends) if end == LIVE]
    for delta in LATE[:late] if lived else ():
        block.supersede(np.array([lived[nth] for nth, _ in delta]), np.array([time for _, time in delta]))
        for nth, time in delta:
            ends[lived[nth]] = time
    for at in range(14):
        seen = [begin <= at < end for begin, end in zip(begins, ends, strict=True)]
        for start in range(len(versions) + 1):
            for end in range(start, len(versions) + 1):
                assert block.visible(block.deltas, at, start, end).tolist() == seen[start:end]
        mask = block.visible_at(block.deltas, np.array(lived[::-1], np.int64), at, block.page_checks(never_stop))
        assert mask.tolist() == [seen[row] for row in reversed(lived)]
        whole = kind != "ended" and not block.deltas and all(begin <= at for begin in begins)
        assert block.all_visible(block.deltas, at) == whole
        times = [block.ts] if any(begin > at for begin in begins) else []
        times += [block.written_superseded] if kind == "ended" else []
        assert [id(array) for array in block.times_read(at)] == [id(array) for array in times]
        by_then = [end if end <= at or end == was else LIVE for end, was in zip(ends, written, strict=True)]
        found = block.superseded_at(block.deltas, at)
        assert (None if found is None else found.tolist()) == (by_then if set(by_then) - {LIVE} else None)
        assert block.collectable(at) == sum(end <= at for end in ends)


def test_times_that_are_not_checked_are_not_read() -> None:
    """TC-51. Goal: rot of the times of rows hides no row from a scan that need not read them, because it does not check
    their pages. Method: wrong times; reads at the time of the last row and after."""
    block = block_of([(k, 0, k, LIVE) for k in range(1, 4)])
    assert block.visible((), 2, 0, 3).tolist() == [True, True, False]
    block.ts = block.ts + 100
    rows = np.arange(3)
    for at in (3, 4):
        assert block.visible((), at, 0, 3).all()
        assert block.visible_at((), rows, at, block.page_checks(never_stop)).all()


def test_row_ends_once_and_its_end_takes_little_memory() -> None:
    """Goal: a second end of a row is noticed as a defect; one-row updates leave few arrays. Method: ends in portions
    whose sizes are given, beside those that are left; a row twice; no row."""
    for portions, left in (
        ([], []),
        ([0], []),
        ([1], [1]),
        ([2, 1], [2, 1]),
        ([3, 2], [5]),
        ([4, 2, 1], [4, 2, 1]),
        ([4, 2, 1, 1], [8]),
        ([5, 2, 1], [5, 2, 1]),
        ([9, 2, 1, 1], [9, 4]),
        ([3, 1, 0, 1], [5]),
        ([1, 2, 8], [11]),
    ):
        block = block_of([(k, 0, 1, LIVE) for k in range(20)])
        ended: list[tuple[int, int]] = []
        for size in portions:
            rows = np.arange(len(ended), len(ended) + size)
            block.supersede(rows, 100 + rows)
            ended += [(row, 100 + row) for row in rows.tolist()]
        assert [len(rows) for rows, _ in block.deltas] == left
        assert pairs_of(block.deltas) == ended
        assert block.dead_rows == len(ended) and block.rows == 20
        assert block.memory_bytes == (20 + 16 * len(ended) if ended else 0)
        for row, _ in ended:
            with pytest.raises(InvariantViolation, match="ends once"):
                block.supersede(np.array([row]), np.array([500]))


def test_deltas_between_two_times_are_those_after_the_first_up_to_the_second() -> None:
    """Goal: a flush writes each end of a row once. Method: each pair of times about three ends, in one array and in
    two, and no ends; an end at the earliest time that there is, for a merge."""
    one, two = (np.array([5, 6]), np.array([10, 12])), (np.array([7]), np.array([11]))
    for deltas in ((), (one,), (one, two)):
        ends = pairs_of(deltas)
        for after in range(9, 14):
            for up_to in range(9, 14):
                found = deltas_between(deltas, after, up_to)
                assert pairs_of([found]) == [end for end in ends if after < end[1] <= up_to]
                assert found[0].dtype == found[1].dtype == np.int64
    first = block_of([(1, 0, 1, LIVE)]).superseded_at(((np.array([0]), np.array([1])),), 1)
    assert first is not None and first.tolist() == [1]


# --------------------------------------------------------------------------------------------------- pages


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a few values."""
    monkeypatch.setattr(page_crcs, "PAGE_BYTES", PAGE)
    monkeypatch.setattr(block_module, "FENCE_ROWS", FENCE)


def pages_of(mapped: Any, array: Any, rows: list[int]) -> set[int]:
    """The pages of these values of eight bytes."""
    address = array.ctypes.data if isinstance(array, np.ndarray) else array.buffers()[1].address + 8 * array.offset
    width = array.itemsize if isinstance(array, np.ndarray) else 8
    return {(address - mapped.address + width * row) // PAGE for row in rows}


def checked(block: Block, read: Callable[[PageChecks], object]) -> tuple[set[int], set[int]]:
    """The pages of the data file and of the sidecar that a read checks: those whose change ends it."""
    read(block.page_checks(never_stop))  # which makes fences, once
    data = block._pages
    of_sidecar = block._sidecar_pages
    found: tuple[set[int], set[int]] = set(), set()
    assert data is not None
    for page in range(len(data)):
        try:
            read(PageChecks("data", block._mapped, [crc ^ (n == page) for n, crc in enumerate(data)]))
        except Corruption:
            found[0].add(page)
    for page in range(len(of_sidecar or ())):
        block._sidecar_checks = None
        block._sidecar_pages = [crc ^ (n == page) for n, crc in enumerate(of_sidecar or ())]
        try:
            read(block.page_checks(never_stop))
        except Corruption:
            found[1].add(page)
    block._sidecar_checks, block._sidecar_pages = None, of_sidecar
    return found


def spread(rows: int) -> list[int]:
    """Ascending hashes in all words of a filter."""
    return [n * (1 << 24) // rows << 40 | hash_of(n % 61, 0, 0, 0) for n in range(rows)]


def find_of(block: Block, one: int, key: list[Any]) -> Callable[[PageChecks], tuple[Any, Any]]:
    needles = needles_of(np.array([one], np.uint64))
    return lambda checks: block.find(needles, bloom_bits(needles.rotated), np.array([True]), key, checks)


@pytest.mark.parametrize("exact", [True, False])
def test_look_up_checks_the_pages_that_it_uses_and_no_others(exact: bool, small: None) -> None:
    """TC-51. Goal: a read by key is never led by rot, and damage elsewhere does not end it. Method: one key of 41, at
    each place among the fences; the pages whose change is noticed are those of its filter's word, of its hash's fences,
    of its row's position, and of its key if hashes do not tell keys apart; for a key that the filter excludes, those of
    the filter's word."""
    hashes = spread(41)
    block = block_of([(k, 0, 1, LIVE) for k in range(41)], hashes, exact=exact)
    sidecar, mapped = block.sidecar, block.sidecar.mapped
    assert pages_of(mapped, sidecar.hashes, [40]).isdisjoint(pages_of(mapped, sidecar.hashes, [39]))
    for k in (0, 1, 12, 13, 35, 36, 37, 40):
        data, of_sidecar = checked(block, find_of(block, hashes[k], keys_of([k])))
        low = max(0, (k - 1) // FENCE * FENCE)
        expected = pages_of(mapped, sidecar.bloom, [hashes[k] >> int(block._shift)])
        expected |= pages_of(mapped, sidecar.hashes, [low, min(low + FENCE, 40)])
        assert of_sidecar == expected | pages_of(mapped, sidecar.positions, [k])
        assert data == (set() if exact else pages_of(block._mapped, block.batch.column(0), [k]))
    absent = hashes[9] | hash_of(0, 0, 0, 20)
    block._hash_fences = None
    data, of_sidecar = checked(block, find_of(block, absent, keys_of([-1])))
    assert of_sidecar == pages_of(mapped, sidecar.bloom, [absent >> int(block._shift)]) and not data
    assert block._hash_fences is None, "no hash was looked for"


@pytest.mark.parametrize("ended", [False, True])
def test_look_up_among_keys_of_one_hash_checks_all_that_it_compares(ended: bool, small: None) -> None:
    """TC-51. Goal: as above, among keys of one hash. Method: 30 such keys, some with a version that had ended; the
    pages whose change is noticed are those of the row that has the hash, and of each row of the search by key."""
    versions = [(k // 4, k, 5, LIVE) for k in range(30)]
    if ended:
        versions = [(k, v, b, e) for k, v, _, _ in versions for b, e in ((1, 5), (5, LIVE))]
    block = block_of(versions, [77] * len(versions), TWO, exact=False)
    first, second = block.batch.column(0), block.batch.column(1)
    row = int(block.sidecar.positions[0])
    for key in ((0, -1), (3, 14), (7, 29), (5, 0), (9, 0)):
        low, high, compared = 0, len(versions), [row]
        while low < high:
            middle = (low + high) // 2
            compared.append(middle)
            low, high = (low, middle) if versions[middle][:2] > key else (middle + 1, high)
        last = max(low - 1, 0)
        assert versions[row][:2] != key, "the search is needed"
        data, _ = checked(block, find_of(block, 77, keys_of([key[0]], [key[1]])))
        equal = [at for at in compared[1:] if versions[at][0] == key[0]]
        expected = pages_of(block._mapped, first, [*compared, last])
        expected |= pages_of(block._mapped, second, [row, last, *equal])
        if ended:
            expected |= pages_of(block._mapped, block.written_superseded, [last])
        assert data == expected, key
    data, _ = checked(block, find_of(block, 77, keys_of([0], [versions[row][1]])))
    assert data == pages_of(block._mapped, first, [row]) | pages_of(block._mapped, second, [row])


def test_read_of_an_earlier_time_checks_all_that_it_compares(small: None) -> None:
    """TC-51, RD-02. Goal: as above, for a read at an earlier time. Method: 30 keys with two versions each; the pages
    whose change is noticed are those of the keys of the search, of the begins of rows with the key, and of the end
    of the row that is found. Of a block that begins later, and of a time from which on no row begins, fewer."""
    versions = [(k, 0, b, e) for k in range(30) for b, e in ((10, 20), (20, LIVE))]
    block = block_of(versions)
    for key, at in ((0, 10), (14, 19), (29, 20), (29, 15), (-1, 15), (40, 15)):
        low, high, compared, begins = 0, len(versions), list[int](), list[int]()
        while low < high:
            middle = (low + high) // 2
            compared.append(middle)
            begins += [middle] if versions[middle][0] == key else []
            beyond = (versions[middle][0], versions[middle][2]) > (key, at)
            low, high = (low, middle) if beyond else (middle + 1, high)
        last, found = max(low - 1, 0), versions[max(low - 1, 0)][0] == key
        data, _ = checked(block, lambda checks, key=key, at=at: block.versions_at((), keys_of([key]), at, checks))  # type: ignore[misc]
        expected = pages_of(block._mapped, block.batch.column(0), [*compared, last])
        expected |= pages_of(block._mapped, block.ts, begins)
        if found:
            expected |= pages_of(block._mapped, block.written_superseded, [last])
        assert data == expected, (key, at)
    before, _ = checked(block, lambda checks: block.versions_at((), keys_of([3]), 9, checks))
    assert before == set()
    empty = block_of([])
    assert not any(map(len, empty.versions_at((), keys_of([3]), 9, empty.page_checks(never_stop))))
    live = np.array([7], np.int64)
    for at, pages in ((19, pages_of(block._mapped, block.ts, [7])), (20, set()), (21, set())):
        data, _ = checked(block, lambda checks, at=at: block.visible_at((), live, at, checks))  # type: ignore[misc]
        assert data == pages


def test_first_search_of_a_block_checks_its_order_and_later_ones_have_it(small: None) -> None:
    """TC-51. Goal: the fences of a block are of checked pages, and are made once. Method: the first search by key and
    the first one by hash, with each page spoilt in turn; then what later ones use."""
    hashes = spread(40)
    block = block_of([(k, 0, 1, LIVE) for k in range(40)], hashes)

    def anew(read: Callable[[PageChecks], object]) -> Callable[[PageChecks], object]:
        def first(checks: PageChecks) -> None:
            block._fences = block._hash_fences = None
            read(checks)

        return first

    data, _ = checked(block, anew(block.sorted_key))
    assert data == pages_of(block._mapped, block.batch.column(0), list(range(40)))
    _, of_sidecar = checked(block, anew(find_of(block, hashes[7], keys_of([7]))))
    assert of_sidecar >= pages_of(block.sidecar.mapped, block.sidecar.hashes, list(range(40)))
    checks = block.page_checks(never_stop)
    find_of(block, hashes[7], keys_of([7]))(checks)
    fences, by_hash = block.sorted_key(checks)._fences, block._hash_fences
    find_of(block, hashes[8], keys_of([8]))(checks)
    assert fences.rows == [0, 39] and block.sorted_key(checks)._fences is fences
    assert block._hash_fences is by_hash is not None
    assert by_hash.tolist() == hashes[::FENCE] and by_hash.base is None, "it is no part of the file"


def test_search_that_rot_has_misled_is_corruption(small: None) -> None:
    """TC-51. Goal: rot in a page that no check has seen does not hide a hash. Method: the hash in the middle, by which
    each search goes, is too low or too high since the fences were made; a hash on each side of it is looked for."""
    hashes = spread(48)
    for rot, k in ((0, 3), ((1 << 64) - 1, 44)):
        block = block_of([(n, 0, 1, LIVE) for n in range(48)], hashes)
        checks = block.page_checks(never_stop)
        for n in range(48):
            assert find_of(block, hashes[n], keys_of([n]))(checks)[1].tolist() == [n]
        rotten = block.sidecar.hashes.copy()
        rotten[24] = rot
        block.sidecar = block.sidecar._replace(hashes=rotten)
        with pytest.raises(Corruption, match=r"data/one\.idx"):
            find_of(block, hashes[k], keys_of([k]))(checks)
        assert find_of(block, hashes[47 - k], keys_of([47 - k]))(checks)[1].tolist() == [47 - k]


def test_pages_of_a_sidecar_are_checked_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-51. Goal: readers share the checks of a sidecar for CHECKED_FOR_S and no longer; CRCs that are known are not
    computed again. Method: a clock; the checks that each read gets."""
    now = [1000.0]
    monkeypatch.setattr(block_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    block = block_of([(1, 0, 1, LIVE)])
    pages = block._pages
    first = block._checks_of_sidecar()
    known = block._sidecar_pages
    now[0] += block_module.CHECKED_FOR_S
    assert block._checks_of_sidecar() is first
    now[0] += 1.0
    second = block._checks_of_sidecar()
    assert second is not first and block._checks_of_sidecar() is second
    assert block._sidecar_pages is known is not None
    assert block.page_checks(never_stop) is not block.page_checks(never_stop), "each reader of the data has its own"
    assert block._pages is pages is not None
