"""Decides, by sizes alone, which blocks to merge and how many blocks a flush makes. Pure.

Blocks of similar size are merged, four or more at once, so that each row is rewritten only a few times. A merge has its
inputs and its output in memory, so it takes at most MERGE_BYTES_MAX of inputs. If four do not fit, as many are merged
as fit. A block that fits with no other of its size is full, and stays.
"""

from __future__ import annotations

from collections.abc import Sequence

MERGE_BYTES_MAX = 192 << 20
FAN_IN_MIN = 4
FAN_IN_MAX = 16
SIMILAR = 4
"""Blocks are similar if the largest is at most this many times as large as the smallest."""
SMALL_BYTES = 64 << 10
"""Blocks up to this size count as equally large."""


def choose_run(sizes: Sequence[int], bytes_max: int = MERGE_BYTES_MAX) -> list[int]:
    """The positions of the blocks to merge into one, at least two, smallest first; empty if none should be merged."""
    order = sorted(range(len(sizes)), key=lambda pos: (sizes[pos], pos))
    for start in range(len(order)):
        run = _run(sizes, order[start : start + FAN_IN_MAX], bytes_max)
        if run:
            return run
    return []


def _run(sizes: Sequence[int], order: Sequence[int], bytes_max: int) -> list[int]:
    """The blocks to merge with the first one of `order`, which is in ascending order of size."""
    largest = SIMILAR * max(sizes[order[0]], SMALL_BYTES)
    similar = [pos for pos in order if sizes[pos] <= largest]
    if len(similar) < FAN_IN_MIN:
        return []
    total, fits = 0, 0
    for pos in similar:
        total += sizes[pos]
        if total > bytes_max:
            break
        fits += 1
    return similar[:fits] if fits > 1 else []


def flush_runs(sizes: Sequence[int], bytes_max: int = MERGE_BYTES_MAX) -> list[tuple[int, int]]:
    """(first, end) of the batches of a memory store that become one block each, in order; `sizes`: bytes of each batch.

    A block has at most `bytes_max`, or is one batch. As with a merge, its rows are in memory twice while it is made.
    Also, a column of variable length cannot have more than 2 GiB in one block.
    """
    runs, first, total = [], 0, 0
    for pos, size in enumerate(sizes):
        if pos > first and total + size > bytes_max:
            runs.append((first, pos))
            first, total = pos, 0
        total += size
    return [*runs, (first, len(sizes))] if sizes else []
