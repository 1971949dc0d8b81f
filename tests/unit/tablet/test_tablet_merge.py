"""Merging parts into one block: which versions stay, in which order, where each went, and how they are found."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import TableSchema, key_hash
from nyala.replica.tablet.block import bloom_bits
from nyala.replica.tablet.block_file import BlockContent
from nyala.replica.tablet.columns import key_arrays
from nyala.replica.tablet.hash_index import rotate
from nyala.replica.tablet.merge import Part, merge_parts
from nyala.replica.types import MAX_HYBRID_TIME
from tests.harness.tablet_twin import INT_SCHEMA, STRING_SCHEMA

HORIZON = 500
Version = tuple[str, int, int, int, int]
"""Text and number of the key, a number of its own, the times of begin and end."""


def _batch(versions: list[Version]) -> Any:
    texts, numbers, own = ([version[pos] for version in versions] for pos in (0, 1, 2))
    values = {"k": texts, "k2": numbers, "r": own, "v": own, "s": [str(n) for n in own]}
    arrays = [pa.array(values[field.name], field.type) for field in STRING_SCHEMA.arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=STRING_SCHEMA.arrow)


def _hashes(batch: Any, schema: TableSchema) -> Any:
    return rotate(key_hash(key_arrays(batch, schema)))


def _part(versions: list[Version], *, hashed: bool) -> Part:
    """A part that says nothing of its ends if there are none."""
    batch, ends = _batch(versions), np.array([version[4] for version in versions], np.int64)
    ended = None if (ends == MAX_HYBRID_TIME).all() else ends
    hashes = _hashes(batch, STRING_SCHEMA) if hashed else None
    return Part(batch, np.array([version[3] for version in versions], np.int64), ended, hashes)


def _assert_found(content: BlockContent) -> None:
    """Each live row stands in the index by its hash, and nothing else does; none is missing in the Bloom filter."""
    hashes = _hashes(content.batch, content.schema)
    rows = len(hashes)
    live = range(rows) if content.superseded is None else np.flatnonzero(content.superseded == MAX_HYBRID_TIME).tolist()
    assert sorted(content.positions.tolist()) == list(live)
    assert content.rotated.tolist() == sorted(content.rotated.tolist()) == hashes[content.positions].tolist()
    assert _held(content, content.rotated).all()


def _held(content: BlockContent, hashes: Any) -> Any:
    """Whether each hash may be in the block, by the filter as blocks read it: a word by the hash's upper bits."""
    words = len(content.bloom)
    assert words >= 2 and words & (words - 1) == 0
    word = hashes >> np.uint64(64 - (words - 1).bit_length())
    bits = bloom_bits(hashes)
    return content.bloom[word.astype(np.int64)] & bits == bits


@pytest.mark.parametrize("seed", range(30))
def test_merge_keeps_what_a_snapshot_can_see_in_the_order_of_keys_and_times(seed: int) -> None:
    """Goal: a block has every version that a read from the horizon on may see, sorted, and says where each row of its
    parts went. Method: random parts, of versions that ended before, at and after the horizon, at the moment they began,
    or not at all; with hashes, without, and with those of some; against a sort in Python."""
    rng, parts, versions, own = Random(seed), list[list[Version]](), list[Version](), 0
    for _ in range(rng.randrange(1, 5)):
        part = list[Version]()
        for _ in range(rng.randrange(0, 12)):
            own += 1
            begin = 100 * rng.randrange(9) + own
            end = rng.choice([MAX_HYBRID_TIME, MAX_HYBRID_TIME, begin, HORIZON, HORIZON + 1, 10_000])
            part.append((rng.choice(["", "a", "b"]), rng.randrange(-2, 3), own, begin, max(end, begin)))
        parts.append(part)
        versions += part
    hashed = rng.choice([(True,), (False,), (True, False)])
    made = [_part(part, hashed=hashed[pos % len(hashed)]) for pos, part in enumerate(parts)]
    content, positions = merge_parts(made, STRING_SCHEMA, HORIZON)
    kept = sorted(
        (version for version in versions if version[4] > HORIZON and version[4] > version[3]),
        key=lambda version: (version[0], version[1], version[3]),
    )
    assert content.batch.equals(_batch(kept)) and content.schema == STRING_SCHEMA and content.deltas == {}
    assert content.ts.tolist() == [version[3] for version in kept]
    ends = [version[4] for version in kept]
    if content.superseded is None:
        assert set(ends) <= {MAX_HYBRID_TIME}
    else:
        assert content.superseded.tolist() == ends
    place = {version[2]: at for at, version in enumerate(kept)}
    assert [at.tolist() for at in positions] == [[place.get(version[2], -1) for version in part] for part in parts]
    _assert_found(content)


def test_block_without_an_ended_version_says_so() -> None:
    """Goal: a scan of a block whose rows are all live copies nothing. Method: a part that has lost its ended version,
    and one that has none."""
    gone, live = ("a", 1, 1, 10, 20), ("b", 1, 2, 10, MAX_HYBRID_TIME)
    assert merge_parts([_part([gone, live], hashed=True)], STRING_SCHEMA, HORIZON).content.superseded is None
    assert merge_parts([_part([live], hashed=True)], STRING_SCHEMA, HORIZON).content.superseded is None
    late = ("a", 1, 1, 10, HORIZON + 1)
    assert merge_parts([_part([late, live], hashed=True)], STRING_SCHEMA, HORIZON).content.superseded is not None


def test_hashes_that_are_known_are_not_computed_again() -> None:
    """Goal: a merge spends no time on hashes that its inputs have. Method: parts whose hashes are made up; one of the
    parts loses a row."""
    gone, kept, other = ("a", 1, 1, 10, 20), ("b", 1, 2, 10, MAX_HYBRID_TIME), ("a", 0, 3, 10, MAX_HYBRID_TIME)
    parts = [_part([gone, kept], hashed=True), _part([other], hashed=True)]
    made_up = [
        part._replace(hashes=np.arange(7 * pos, 7 * pos + len(part.ts), dtype=np.uint64))
        for pos, part in enumerate(parts)
    ]
    assert merge_parts(made_up, STRING_SCHEMA, HORIZON).content.rotated.tolist() == [1, 7]


def test_filter_of_a_block_has_a_power_of_two_of_words() -> None:
    """Goal: a filter is as small as two to four rows a word allow. Method: the numbers of rows where it doubles."""
    for rows, words in ((0, 2), (11, 2), (12, 4), (19, 4), (20, 8), (35, 8), (36, 16)):
        versions = [("", n, n, 1, MAX_HYBRID_TIME) for n in range(rows)]
        content = merge_parts([_part(versions, hashed=False)], STRING_SCHEMA, HORIZON).content
        assert len(content.bloom) == words, rows


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 1000, 4096])
def test_filter_of_a_block_is_small_and_seldom_wrong(rows: int) -> None:
    """Goal: a look-up of a key that a block has not reads seldom in it. Method: as many rows; the filter has a word for
    two to four of them, holds each, and of 20,000 other keys one in a hundred at most, or none if it is empty."""
    keys = np.arange(rows, dtype=np.int64)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.nulls(rows, pa.int32()), pa.array(["s"] * rows, pa.string()), pa.nulls(rows, pa.int32())],
        schema=INT_SCHEMA.arrow,
    )
    content, _ = merge_parts([Part(batch, keys, None)], INT_SCHEMA, 0)
    _assert_found(content)
    assert rows // 4 <= len(content.bloom) <= max(2, rows / 2)
    others = rotate(key_hash([pa.array(np.arange(rows, rows + 20_000))]))
    assert _held(content, others).sum() <= (200 if rows else 0)
