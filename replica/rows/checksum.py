"""The checksum of rows, definition 2: independent of the order of the rows, and of their batches and blocks.

All arithmetic is modulo 2**64; `mix` is the step of splitmix64, as in `hashing.py`.

    cell of an integer type, date, timestamp    raw = the value, sign-extended to 64 bits
    cell of bool, float, double                 raw = 0 or 1; the stored 32 bits, sign-extended, or 64 bits
    cell of decimal                             raw = mix(low half) ^ high half of the 128-bit value
    cell of string, binary: n bytes cut into    raw = n * 0xA24BAED4963EE407 + the sum over j = 0 ... m-1 of
      words w0 ... wm-1, the last zero-padded         stir(wj + (j + 1) * 0xD1342543DE82EF95)
    cell in the column of id c                  h = mix(raw ^ mix(c)), or 0 if it is null
    row                                         r = mix(the sum of its cells' h)
    rows                                        the 128-bit number: low half the sum of r, high half the sum of mix(r)

    stir(x): x *= 0x2545F4914F6CDD1D;  x ^= x >> 32;  x *= 0x9FB21C651E98DF25;  return x ^ x >> 29

So a value counts by its bits: 0.0 and -0.0 differ, and so do two NaNs of different bits. An empty string differs from
null, and equal values in two columns count differently. A column with only nulls counts like a missing one. The words
of a value are added instead of chained, so that long and short values cost the same per byte.

Two sums are compared only if they have the same definition. Another formula, or a change of a constant, gets another
number. Definition 1, that of servers which name none, chained the words of the longest value of a batch one after the
other.

The checksum finds replicas whose rows differ. It does not protect from an attacker who chooses rows, because it uses no
secret.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .buffers import offsets_of, padded_words, value_bytes
from .hashing import U64, decimal_words_of, integer_words, mix_in_place, mix_one
from .predicate import never_stop
from .types import invalid

I64 = npt.NDArray[np.int64]
CHECKSUM_DEFINITION = 2
"""The definition of this build. 1 is that of servers which do not name theirs."""

_MASK = (1 << 64) - 1
_LENGTH = np.uint64(0xA24BAED4963EE407)
_PLACE = 0xD1342543DE82EF95
_ROWS_TOGETHER = 1 << 13
"""The rows added at a time, so that scratch arrays of 64 KiB stay in the processor's cache."""
_WORDS_TOGETHER = 1 << 14
_STIR_A, _STIR_B = np.uint64(0x2545F4914F6CDD1D), np.uint64(0x9FB21C651E98DF25)
_PLACES: U64 = np.arange(1, _WORDS_TOGETHER + 1, dtype=np.uint64) * np.uint64(_PLACE)
_BEFORE: U64 = np.arange(_WORDS_TOGETHER, dtype=np.uint64) * np.uint64(_PLACE)


class RowSum(NamedTuple):
    """A checksum of 128 bits, of definition CHECKSUM_DEFINITION, and the number of its rows."""

    total: int
    rows: int

    def __add__(self, other: object) -> RowSum:
        """The sum of two disjoint sets of rows."""
        if not isinstance(other, RowSum):
            return NotImplemented
        low, high = (self.total & _MASK) + (other.total & _MASK), (self.total >> 64) + (other.total >> 64)
        return RowSum(low & _MASK | (high & _MASK) << 64, self.rows + other.rows)


NO_ROWS = RowSum(0, 0)


def sum_of_rows(batch: Any, column_ids: Sequence[int], stop: Callable[[], None] = never_stop) -> RowSum:
    """The checksum of a pa.RecordBatch whose columns have these ids. The order of the columns does not matter.

    `stop` is called before each step of at most a few milliseconds, and may raise.
    """
    salts = [np.uint64(mix_one(column_id)) for column_id in column_ids]
    total = NO_ROWS
    for at in range(0, batch.num_rows, _ROWS_TOGETHER):
        part = batch.slice(at, _ROWS_TOGETHER)
        rows: U64 = np.zeros(part.num_rows, dtype=np.uint64)
        for column, salt in zip(part.columns, salts, strict=True):
            stop()
            rows += _cells(column, salt)
        mix_in_place(rows)
        low = int(np.add.reduce(rows))
        total += RowSum(low | int(np.add.reduce(mix_in_place(rows))) << 64, len(rows))
    return total


def _cells(column: Any, salt: np.uint64) -> U64:
    """The h of each cell, as a fresh array."""
    cells = _raw(column)
    cells ^= salt
    mix_in_place(cells)
    if column.null_count:
        cells *= pc.is_valid(column).to_numpy(zero_copy_only=False)
    return cells


def _raw(column: Any) -> U64:
    """The raw of each cell, as a fresh array; for a null, any number."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _raw_bytes(column)
    if pa.types.is_decimal128(kind):
        words = decimal_words_of(column)
        cells = mix_in_place(words[:, 0].copy())
        cells ^= words[:, 1]
        return cells
    if pa.types.is_floating(kind):
        return integer_words(column.view({32: pa.int32(), 64: pa.int64()}[kind.bit_width]))
    if pa.types.is_boolean(kind):
        return integer_words(column.cast(pa.uint8()))
    if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return integer_words(column)
    raise invalid("no column of a table has this type", type=str(kind))


def _raw_bytes(array: Any) -> U64:
    """The raw of texts: values with up to so many words together are handled as one run; a longer one is read in
    pieces."""
    # Without the null bitmap: a null has some span of the buffer, too, which does not count.
    _, *buffers = array.buffers()
    array = pa.Array.from_buffers(pa.binary(), len(array), [None, *buffers], 0, array.offset)
    offsets = offsets_of(array).astype(np.int64)
    lengths: I64 = offsets[1:] - offsets[:-1]
    counts = (lengths + 7) >> 3
    result: U64 = lengths.astype(np.uint64) * _LENGTH
    until = np.cumsum(counts)
    at, done = 0, 0
    while at < len(lengths):
        end = int(np.searchsorted(until, done + _WORDS_TOGETHER, side="right"))
        if end > at:
            _add_run(result[at:end], array.slice(at, end - at), lengths[at:end], counts[at:end])
        else:
            end = at + 1
            result[at] = (int(result[at]) + _sum_of_long(array.slice(at, 1))) & _MASK
        at, done = end, int(until[end - 1])
    return result


def _add_run(result: U64, array: Any, lengths: I64, counts: I64) -> None:
    """Add the sum over the words of each value to `result`."""
    used = np.flatnonzero(counts)
    if not len(used):
        return
    ends = np.cumsum(counts)
    word = _aligned(array, lengths, int(ends[-1]))
    if len(used) == len(counts):
        begins = ends - counts
        word -= np.repeat(_BEFORE[begins], counts)
        result += np.add.reduceat(_stir(word), begins)
    else:
        begins = ends[used] - counts[used]
        word -= np.repeat(_BEFORE[begins], counts[used])
        result[used] += np.add.reduceat(_stir(word), begins)


def _aligned(array: Any, lengths: I64, words: int) -> U64:
    """The words of all values one after the other, each with its place in the value added. A fresh array."""
    padding = -lengths & 7
    # Arrow appends the zeros, so that each value begins at a word, in aligned memory.
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(padding, out=offsets[1:])
    zeros = pa.py_buffer(bytes(int(offsets[-1])))
    paddings = pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), zeros])
    # Made here, because pyarrow imports pandas when it makes its first scalar, and many commands need none.
    padded = pc.binary_join_element_wise(array, paddings, pa.scalar(b"", pa.binary()))
    word: U64 = value_bytes(padded)[: 8 * words].view("<u8") + _PLACES[:words]
    return word


def _stir(x: U64) -> U64:
    """`stir` of each word, in place."""
    x *= _STIR_A
    x ^= x >> np.uint64(32)
    x *= _STIR_B
    x ^= x >> np.uint64(29)
    return x


def _sum_of_long(array: Any) -> int:
    """The sum over the words of the one value in `array`."""
    start, end = offsets_of(array).tolist()
    total = 0
    for at in range(start, end, 8 * _WORDS_TOGETHER):
        till = min(end, at + 8 * _WORDS_TOGETHER)
        word = padded_words(array, at, till)[: (till - at + 7) // 8]
        word += _PLACES[: len(word)]
        word += np.uint64((at - start) // 8 * _PLACE & _MASK)
        total += int(np.add.reduce(_stir(word)))
    return total
