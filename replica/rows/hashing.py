"""nyala-hash-1: the 64-bit hash of a primary key, the same on every machine, for ever.

The canonical form of a key value is a sequence of 64-bit little-endian words:

- int8 to int64, date (days since 1970) and timestamp (microseconds since 1970, UTC): one word, the value sign-extended;
- decimal: two words, the low and the high half of the unscaled 128-bit two's complement value;
- string (UTF-8) and binary: the bytes cut into words of eight, the last one padded with zero bytes; no words if empty.

All arithmetic is modulo 2**64. `mix` is the step of splitmix64, a bijection:

    mix(x): x += 0x9E3779B97F4A7C15
            x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;  x = (x ^ x >> 27) * 0x94D049BB133111EB;  return x ^ x >> 31

    integer-like value w:                  H = mix(w)
    decimal (lo, hi):                      H = mix(mix(lo) ^ hi)
    n bytes with words w1 ... wm:          H = mix(n * 0xA24BAED4963EE407), then for each word H = mix(H ^ w)
    key of one column:                     its H
    key of columns 1 ... k:                K = H1, then for each further column K = mix(K * 0x9FB21C651E98DF25 + H)

So the hash of a key that is one integer-like column is a bijection of its value: equal hashes mean equal keys.
A null hashes as zero or as no bytes. Keys have no nulls: callers refuse them before or after.
No stored key has more than KEY_SIZE_BYTES_MAX bytes in its strings and binaries. Of a longer key only so many bytes are
hashed, and n is still the whole length: its words would be mixed one by one before its length is refused.

Golden vectors: tests/unit/rows/test_rows_hash.py. A change of one bit is a new hash version, not an edit.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nyala.replica.types import limits

from .buffers import decimal_words, offsets_of, padded_words
from .types import invalid

HASH_VERSION = 1
U64 = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_A = 0xBF58476D1CE4E5B9
_MIX_B = 0x94D049BB133111EB
_LENGTH = 0xA24BAED4963EE407
_COMBINE = 0x9FB21C651E98DF25
TAIL_MASKS = np.array([(1 << (8 * r)) - 1 for r in range(9)], dtype=np.uint64)
"""The mask of the valid bytes of a word, by their number."""
_SCALAR_WORDS_MAX = 4
"""Up to so many words are mixed one by one, because a pass over an array costs more."""
_SCALAR_ROWS_MAX = 32
"""For up to so many rows, the remaining words are mixed one by one, because a pass over arrays costs more."""
_CHUNK_ROWS = 16 << 10
"""The rows hashed at a time, so that their scratch arrays stay in the processor's cache."""


def key_hash(columns: Sequence[Any]) -> U64:
    """nyala-hash-1 of each row; `columns` are equally long pyarrow arrays, the key's columns in key order.

    Shape (rows,). Refused(INVALID_ARGUMENT) if there is no column, or one of a type that no key has.
    """
    if not columns:
        raise invalid("a key has at least one column")
    rows = len(columns[0])
    if rows <= _CHUNK_ROWS:
        return _hash_chunk(columns)
    whole = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    parts = range(0, rows, _CHUNK_ROWS)
    return np.concatenate([_hash_chunk([c.slice(at, _CHUNK_ROWS) for c in whole]) for at in parts])


class _Room:
    """How many bytes of each row are hashed: of all columns of a key together as many as a key may have."""

    def __init__(self) -> None:
        self._all = 0
        self._of_rows: Any = 0

    def take(self, lengths: npt.NDArray[np.int64], size_bytes: int) -> npt.NDArray[np.int64]:
        """The bytes that are hashed of the next column, which has `size_bytes` in all rows. Shape (rows,)."""
        before, self._of_rows = self._of_rows, self._of_rows + lengths
        self._all += size_bytes
        if self._all <= limits.KEY_SIZE_BYTES_MAX:  # then no row has more
            return lengths
        hashed: npt.NDArray[np.int64] = np.minimum(lengths, np.maximum(limits.KEY_SIZE_BYTES_MAX - before, 0))
        return hashed


def _hash_chunk(columns: Sequence[Any]) -> U64:
    room = _Room()
    result = _hash_column(columns[0], room)
    for column in columns[1:]:
        result *= np.uint64(_COMBINE)
        result += _hash_column(column, room)
        mix_in_place(result)
    return result


def mix_one(x: int) -> int:
    """`mix` of one word."""
    x = (x + _GOLDEN) & _MASK
    x = ((x ^ x >> 30) * _MIX_A) & _MASK
    x = ((x ^ x >> 27) * _MIX_B) & _MASK
    return x ^ x >> 31


def mix_in_place(x: U64) -> U64:
    """`mix` of each word, in place, with five passes over memory and one scratch array."""
    if len(x) <= _SCALAR_WORDS_MAX:
        x[:] = [mix_one(word) for word in x.tolist()]
        return x
    scratch = np.empty_like(x)
    x += np.uint64(_GOLDEN)
    for shift, factor in ((30, _MIX_A), (27, _MIX_B)):
        np.right_shift(x, np.uint64(shift), out=scratch)
        x ^= scratch
        x *= np.uint64(factor)
    np.right_shift(x, np.uint64(31), out=scratch)
    x ^= scratch
    return x


def _hash_column(column: Any, room: _Room) -> U64:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return mix_in_place(integer_words(array))
    if pa.types.is_decimal128(kind):
        words = decimal_words_of(array)
        # A copy, because the words belong to the caller, and one row of them is contiguous already.
        low = mix_in_place(words[:, 0].copy())
        low ^= words[:, 1]
        return mix_in_place(low)
    if _is_bytes(kind):
        return _hash_bytes(array, room)
    raise invalid("a column of this type cannot be in a key", type=str(kind))


def _is_bytes(kind: Any) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_large_string,
        pa.types.is_large_binary,
        pa.types.is_string_view,
        pa.types.is_binary_view,
    )
    return any(test(kind) for test in tests)


def integer_words(array: Any) -> U64:
    """A fresh array of the values of an integer-like column as 64-bit words; null is 0."""
    kind = array.type
    if pa.types.is_date(kind):
        array = (array if pa.types.is_date32(kind) else array.cast(pa.date32())).view(pa.int32())
    elif pa.types.is_timestamp(kind):
        array = (array if kind.unit == "us" else array.cast(pa.timestamp("us", tz=kind.tz))).view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, 0)
    words: U64 = array.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return words


def decimal_words_of(array: Any) -> npt.NDArray[np.uint64]:
    """Shape (rows, 2), read-only: low and high half of the unscaled value; null is 0."""
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(decimal.Decimal(0), type=array.type))
    return decimal_words(array)


def _hash_bytes(array: Any, room: _Room) -> U64:
    """Hash byte strings word by word over all rows at once: pass i handles the rows that have an i-th word.

    Rows are handled in order of length, so that each pass works on the first rows, and the cost follows their bytes.
    """
    if not (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
        array = array.cast(pa.large_binary())
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(b"", type=pa.binary()).cast(array.type))
    if len(array) == 0:
        return np.zeros(0, dtype=np.uint64)
    offsets = offsets_of(array).astype(np.int64)
    words = padded_words(array, int(offsets[0]), int(offsets[-1]))
    starts = offsets[:-1] - offsets[0]
    lengths = np.diff(offsets)
    result: U64 = lengths.astype(np.uint64)
    result *= np.uint64(_LENGTH)
    mix_in_place(result)
    lengths = room.take(lengths, int(offsets[-1] - offsets[0]))
    counts = (lengths + 7) >> 3
    most = int(counts.max())
    if most == int(counts.min()):
        _hash_words(result, words, starts, lengths)
        return result
    # Small integers are sorted four times as fast.
    fewer = (most - counts).astype(np.uint16 if most < 1 << 16 else np.int64)
    order = np.argsort(fewer, kind="stable")
    by_length = result[order]
    _hash_words(by_length, words, starts[order], lengths[order])
    result[order] = by_length
    return result


def _hash_words(result: U64, words: U64, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
    """Mix the words of its row into each hash in `result`, in place. Rows with the most words come first."""
    live, done = int(np.count_nonzero(lengths)), 0
    while live > _SCALAR_ROWS_MAX:
        at, left, part = starts[:live], lengths[:live], result[:live]
        if done:
            at, left = at + done, left - done
        part ^= _words_at(words, at, left)
        mix_in_place(part)
        done += 8
        if left[-1] <= 8:
            live = int(np.count_nonzero(left > 8))
    for row in range(live):
        start, length = int(starts[row]), int(lengths[row])
        result[row] = _mix_over(int(result[row]), _words_of(words, start + done, length - done))


def _words_of(words: U64, start: int, length: int) -> list[int]:
    """The words of one value."""
    count = -(-length // 8)
    alone = np.zeros(count, dtype="<u8")
    alone.view(np.uint8)[:length] = words.view(np.uint8)[start : start + length]
    found: list[int] = alone.tolist()
    return found


def _mix_over(h: int, words: list[int]) -> int:
    """`h = mix(h ^ word)` over the words: `mix_one` without a function call for each."""
    for word in words:
        h = ((h ^ word) + _GOLDEN) & _MASK
        h = ((h ^ h >> 30) * _MIX_A) & _MASK
        h = ((h ^ h >> 27) * _MIX_B) & _MASK
        h ^= h >> 31
    return h


def _words_at(words: U64, byte_pos: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> U64:
    """The eight bytes at each position, of which the first `left` count and the others are zero."""
    pos = byte_pos >> 3
    shift = ((byte_pos & 7) << 3).astype(np.uint64)
    word: U64 = words[pos] >> shift
    # A shift by 64 is undefined, so it is done in two steps.
    word |= (words[pos + 1] << (np.uint64(63) - shift)) << np.uint64(1)
    word &= TAIL_MASKS[np.minimum(left, 8)]
    return word
