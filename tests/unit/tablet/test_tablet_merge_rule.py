"""Which blocks are merged: the number of blocks is bounded for every row width, and so is what is written again."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.tablet.merge_rule import (
    FAN_IN_MAX,
    FAN_IN_MIN,
    MERGE_BYTES_MAX,
    SIMILAR,
    SMALL_BYTES,
    choose_run,
    flush_runs,
)
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, superblock, write_entry

MB = 1 << 20
FLUSHES: dict[str, tuple[int, int, int]] = {
    "1 KB cells, full flushes": (400, 55 * MB, 55 * MB),
    "1 MB cells, full flushes": (400, 62 * MB, 64 * MB),
    "16 B rows, full flushes": (400, 24 * MB, 30 * MB),
    "half a merge": (300, 95 * MB, 97 * MB),
    "a trickle": (3000, 1 << 10, 20 << 10),
    "by age": (2000, 100 << 10, 4 * MB),
    "anything": (1000, 1 << 10, 64 * MB),
    "larger than a merge": (50, 150 * MB, 400 * MB),
}


def blocks_max(total_bytes: int, bytes_max: int = MERGE_BYTES_MAX) -> int:
    """The highest number of blocks of a tablet of so many bytes, once nothing is left to merge.

    Sizes are counted in steps of the factor SIMILAR. There are up to three blocks of each size between SMALL_BYTES and
    half of `bytes_max`, one more that does not fit with the next larger ones, and full ones, each above half of
    `bytes_max`.
    """
    sizes, size = 1, SIMILAR * SMALL_BYTES
    while size < bytes_max // 2:
        sizes, size = sizes + 1, size * SIMILAR
    return (FAN_IN_MIN - 1) * sizes + 1 + 2 * total_bytes // bytes_max


def settle(sizes: list[int], bytes_max: int = MERGE_BYTES_MAX) -> int:
    """Merge until nothing is left to merge; the bytes that were written."""
    written = 0
    while run := choose_run(sizes, bytes_max):
        assert 2 <= len(run) <= FAN_IN_MAX and len(set(run)) == len(run)
        total = sum(sizes[pos] for pos in run)
        assert total <= bytes_max
        written += total
        sizes[:] = [size for pos, size in enumerate(sizes) if pos not in set(run)] + [total]
    return written


@pytest.mark.a_third
@pytest.mark.parametrize("name", FLUSHES)
def test_number_of_blocks_and_bytes_written_again_are_bounded_for_any_size_of_flush(name: str) -> None:
    """IN-31. Goal: for any size of flush, the number of blocks and the bytes that merges write again are bounded.
    Method: many flushes of each kind, merged as they come; after each the bound on the number, at the end that on the
    bytes."""
    count, least, most = FLUSHES[name]
    rng = random.Random(name)
    sizes: list[int] = []
    flushed = written = 0
    for _ in range(count):
        sizes.append(rng.randint(least, most))
        flushed += sizes[-1]
        written += settle(sizes)
        assert len(sizes) <= blocks_max(flushed), sorted(sizes)
    assert sum(sizes) == flushed
    assert written <= 8 * flushed, written / flushed


KB64 = 64 << 10


@pytest.mark.parametrize(
    ("sizes", "bytes_max", "run"),
    [
        ([], 100, []),
        ([10] * 3, 100, []),
        ([10] * 4, 100, [0, 1, 2, 3]),
        ([1] * 17, 100, list(range(16))),
        ([30, 10, 20, 10], 100, [1, 3, 2, 0]),
        ([50] * 4, 200, [0, 1, 2, 3]),
        ([50] * 4, 199, [0, 1, 2]),
        ([50] * 4, 100, [0, 1]),
        ([50] * 4, 99, []),
        ([1, 1, 1, 4 * KB64], MB, [0, 1, 2, 3]),
        ([1, 1, 1, 4 * KB64 + 1], MB, []),
        ([2 * KB64, 8 * KB64, 8 * KB64, 8 * KB64], 2 * MB, [0, 1, 2, 3]),
        ([2 * KB64, 8 * KB64, 8 * KB64, 8 * KB64 + 1], 2 * MB, []),
        ([1, MB, MB, MB, MB], 4 * MB, [1, 2, 3, 4]),
        ([1, 1, MB, MB, MB, MB], 3 * MB, [2, 3, 4]),
    ],
)
def test_blocks_of_similar_size_are_merged_as_many_as_fit(sizes: list[int], bytes_max: int, run: list[int]) -> None:
    """IN-31. Goal: four similar blocks or more are merged, the smallest first, as many as fit, and no more than 16.
    Method: lists at each of these bounds."""
    assert choose_run(sizes, bytes_max) == run


@pytest.mark.parametrize(
    ("sizes", "bytes_max", "expected"),
    [
        ([], 5, []),
        ([9], 5, [(0, 1)]),
        ([3, 3, 3], 6, [(0, 2), (2, 3)]),
        ([3, 3, 3], 5, [(0, 1), (1, 2), (2, 3)]),
        ([9, 1, 4, 1], 5, [(0, 1), (1, 3), (3, 4)]),
        ([1, 9, 1], 5, [(0, 1), (1, 2), (2, 3)]),
        ([0, 5, 0, 1], 5, [(0, 3), (3, 4)]),
    ],
)
def test_flush_makes_a_block_of_as_many_batches_as_fit(
    sizes: list[int], bytes_max: int, expected: list[tuple[int, int]]
) -> None:
    """Goal: few blocks, none too large unless it is one batch. Method: batches at the bound, above it, and empty."""
    assert flush_runs(sizes, bytes_max) == expected


@pytest.mark.parametrize(
    ("total_bytes", "bytes_max", "expected"),
    [(0, 8 * KB64, 4), (0, 8 * KB64 + 2, 7), (0, 32 * KB64, 7), (0, 32 * KB64 + 2, 10), (7, 4, 7), (8, 4, 8)],
)
def test_bound_on_the_number_of_blocks_counts_sizes_and_full_blocks(
    total_bytes: int, bytes_max: int, expected: int
) -> None:
    """IN-31. Goal: three blocks of each size, one more, and the full ones. Method: merges that take one, two and three
    sizes, and bytes of full blocks."""
    assert blocks_max(total_bytes, bytes_max) == expected


@pytest.mark.deep
@settings(max_examples=300)
@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 300_000), st.integers(0, 400 * MB), st.integers(60 * MB, 66 * MB)), max_size=60
    ),
    bytes_max=st.sampled_from([MERGE_BYTES_MAX, 10 * MB]),
)
def test_any_blocks_end_within_the_bound_and_in_few_merges(sizes: list[int], bytes_max: int) -> None:
    """IN-31. Goal: merging leads to the bound for any sizes of blocks, such as those of a copy or of an earlier build.
    Method: any list of sizes; merging ends, each merge takes one block away at least, and what is left is within the
    bound."""
    total, left = sum(sizes), list(sizes)
    settle(left, bytes_max)
    assert sum(left) == total and len(left) <= blocks_max(total, bytes_max)
    assert choose_run(left, bytes_max) == []


def test_bound_on_the_number_of_blocks_is_what_the_design_says() -> None:
    """IN-31. Goal: the bound is the figure in the design page. Method: the bound of an empty tablet, of 10 GB and of
    1.8 TB."""
    assert [blocks_max(size) for size in (0, 10 << 30, 1800 << 30)] == [19, 19 + 106, 19 + 19200]


@given(st.lists(st.integers(0, 50)), st.integers(1, 60))
def test_flush_makes_blocks_of_bounded_size_of_all_its_batches(sizes: list[int], bytes_max: int) -> None:
    """Goal: every batch is in one block, in order, and no block is too large unless it is one batch; no two neighbours
    would fit into one. Method: any sizes."""
    runs = flush_runs(sizes, bytes_max)
    assert [pos for first, end in runs for pos in range(first, end)] == list(range(len(sizes)))
    totals = [sum(sizes[first:end]) for first, end in runs]
    assert all(total <= bytes_max or end - first == 1 for total, (first, end) in zip(totals, runs, strict=True))
    assert all(total + sizes[end] > bytes_max for total, (_, end) in zip(totals, runs[:-1], strict=False))


@pytest.mark.deep
@pytest.mark.parametrize("width", [1, 1000, 30_000])
def test_tablet_with_wide_rows_is_compacted(width: int) -> None:
    """IN-31. Goal: blocks of wide rows, of which four do not fit into a merge, are merged too. Method: a merge takes
    three and a half times a flush; eleven flushes of rows so wide; the blocks that are left, and every row, here and in
    a tablet opened anew."""
    disk, rows_each = SimDisk(), max(4, 60_000 // width)
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    sizes: list[int] = []
    for index in range(1, 12):
        first = index * rows_each
        rows = [
            {"op": 1, "offset": first + k, "k": first + k, "v": index, "s": "x" * width, "r": index}
            for k in range(rows_each)
        ]
        tablet.apply([write_entry(index, INT_SCHEMA, ["k", "v", "s", "r"], rows)])
        flushed = tablet.flush()
        assert flushed is not None
        sizes.append(tablet.superblock.blocks[-1].length_bytes)
        tablet._work.merge_bytes_max = int(3.5 * max(sizes))
        while tablet.wants_compaction():
            assert tablet.compact()
    assert len(tablet.superblock.blocks) <= 5
    for one in (tablet, Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))):
        keys = pa.Table.from_batches(list(one.scan(["k"])))["k"].to_pylist()
        assert sorted(keys) == list(range(rows_each, 12 * rows_each))
    disk.close()
