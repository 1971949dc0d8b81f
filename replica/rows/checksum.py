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

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .buffers import offsets_of, padded_words, value_bytes, words_at, words_fit
from .hashing import TAIL_MASKS, U64, decimal_words_of, integer_words, mix_in_place
from .predicate import never_stop
from .types import invalid

I64 = npt.NDArray[np.int64]
CHECKSUM_DEFINITION = 2
"""The definition of this build. 1 is that of servers which do not name theirs."""

_MASK = (1 << 64) - 1
_LENGTH = np.uint64(0xA24BAED4963EE407)
_PLACE = 0xD1342543DE82EF95
_CELLS_TOGETHER = 1 << 15
"""The cells added at a time, so that scratch arrays of 256 KiB stay in the processor's cache."""
_WORDS_TOGETHER = 1 << 14
_SHORT_WORDS_MAX = 16
"""Values of up to so many words are gathered by their number of words."""
_GATHERED_MIN = 256
"""Fewer values of one number of words are not gathered: the calls cost more than Arrow's padding of the values."""
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
    salts = mix_in_place(np.array(column_ids, dtype=np.uint64))
    total = NO_ROWS
    for at in range(0, batch.num_rows, _CELLS_TOGETHER):
        part = batch.slice(at, _CELLS_TOGETHER)
        rows: U64 = np.zeros(part.num_rows, dtype=np.uint64)
        for columns, places in _groups(part):
            stop()
            rows += np.add.reduce(_cells(columns, salts[places]))
        mix_in_place(rows)
        low = int(np.add.reduce(rows))
        total += RowSum(low | int(np.add.reduce(mix_in_place(rows))) << 64, len(rows))
    return total


def _groups(part: pa.RecordBatch) -> Iterator[tuple[list[pa.Array], list[int]]]:
    """Groups of columns of one type, with their places in the batch.

    A batch of many columns has few rows, so a step for each column would cost more than its cells. Columns are
    copied to join them. A batch of a scan has at most a megabyte or one row, so the columns of one row stay alone.
    """
    of_type: dict[pa.DataType, list[int]] = {}
    for place, kind in enumerate(part.schema.types):
        of_type.setdefault(kind, []).append(place)
    together = max(1, _CELLS_TOGETHER // part.num_rows) if part.num_rows > 1 else 1
    for places in of_type.values():
        for at in range(0, len(places), together):
            some = places[at : at + together]
            yield [part.column(place) for place in some], some


def _is_text(kind: pa.DataType) -> bool:
    text: bool = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return text


def _cells(columns: list[pa.Array], salts: U64) -> U64:
    """The h of each cell of columns of one type, as a fresh array of the shape (columns, rows)."""
    column = pa.concat_arrays(columns) if len(columns) > 1 else columns[0]
    valid = None
    if column.null_count:
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        # Without the null bitmap: a null has some value in the other buffers, too, which does not count.
        column = pa.Array.from_buffers(column.type, len(column), [None, *column.buffers()[1:]], 0, column.offset)
    cells = _raw(column)
    by_column = cells.reshape(len(columns), -1)
    by_column ^= salts[:, np.newaxis]
    mix_in_place(cells)
    if valid is not None:
        cells *= valid
    return by_column


def _raw(column: Any) -> U64:
    """The raw of each cell, as a fresh array; for a null, any number."""
    kind = column.type
    if _is_text(kind):
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
    """The raw of texts. Most short values are gathered by their number of words; Arrow pads the others."""
    array = array.view(pa.binary())
    offsets = offsets_of(array).astype(np.int64)
    lengths: I64 = offsets[1:] - offsets[:-1]
    counts = (lengths + 7) >> 3
    result: U64 = lengths.astype(np.uint64) * _LENGTH
    few = len(array) < _GATHERED_MIN
    left = np.flatnonzero(counts) if few else _add_short(result, array, offsets, lengths, counts)
    if len(left) == len(array):
        _add_padded(result, array, lengths, counts)
    elif len(left):
        sums = np.zeros(len(left), dtype=np.uint64)
        _add_padded(sums, array.take(pa.array(left)), lengths[left], counts[left])
        result[left] += sums
    return result


def _add_short(result: U64, array: pa.Array, offsets: I64, lengths: I64, counts: I64) -> I64:
    """Add the sum over the words of each short value to `result`; the positions of the values that are left."""
    # A group for each short number of words, and one for all longer values. Numpy sorts bytes without comparing them.
    group = np.minimum(counts, _SHORT_WORDS_MAX + 1).astype(np.uint8)
    order = np.argsort(group, kind="stable")
    ends = np.searchsorted(group[order], np.arange(_SHORT_WORDS_MAX + 1), side="right").tolist()
    starts, tails = offsets[order], TAIL_MASKS[(lengths[order] - 1 & 7) + 1]
    sums = np.zeros(len(order), dtype=np.uint64)
    left = [order[ends[_SHORT_WORDS_MAX] :]]
    for words in range(1, _SHORT_WORDS_MAX + 1):
        begin, end = ends[words - 1], ends[words]
        if end - begin >= _GATHERED_MIN:
            # The words of the last values may end after the buffer does.
            end = begin + words_fit(array, starts[begin:end], words)
            for at in range(begin, end, _WORDS_TOGETHER // words):
                till = min(end, at + _WORDS_TOGETHER // words)
                sums[at:till] = _sums_of_short(array, starts[at:till], tails[at:till], words)
            begin = end
        left.append(order[begin : ends[words]])
    result[order] += sums
    return np.concatenate(left)


def _sums_of_short(array: pa.Array, starts: I64, tails: U64, words: int) -> U64:
    """The sum over the words of each of the values that have so many words. `tails`: the masks of their last words."""
    word = words_at(array, starts, words)
    word[:, -1] &= tails
    word += _tiled_places(words)[: len(word)]
    sums: U64 = np.einsum("ij->i", _stir(word))
    return sums


@functools.lru_cache(_SHORT_WORDS_MAX)
def _tiled_places(words: int) -> U64:
    """The place of each word of values that have so many words, as many as are handled at once."""
    return np.tile(_PLACES[:words], (_WORDS_TOGETHER // words, 1))


def _add_padded(result: U64, array: pa.Array, lengths: I64, counts: I64) -> None:
    """Add the sum over the words of each value to `result`. No value is empty.

    Values with up to so many words together are handled as one run; a longer one is read in pieces.
    """
    until = np.cumsum(counts)
    at, done = 0, 0
    while at < len(lengths):
        end = int(np.searchsorted(until, done + _WORDS_TOGETHER, side="right"))
        if end > at:
            begins = until[at:end] - counts[at:end] - done
            word = _aligned(array.slice(at, end - at), lengths[at:end], int(until[end - 1]) - done)
            word -= np.repeat(_BEFORE[begins], counts[at:end])
            result[at:end] += np.add.reduceat(_stir(word), begins)
        else:
            end = at + 1
            result[at] = (int(result[at]) + _sum_of_long(array.slice(at, 1))) & _MASK
        at, done = end, int(until[end - 1])


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
