"""Arrow buffers as numpy arrays: read-only views.

`np.frombuffer` returns a writable array if the Arrow buffer is mutable. The buffers of every array that pyarrow itself
built are mutable, and a view of a view stays writable. Code that hashes or sorts in place would then change the rows of
its caller. So the memory of Arrow arrays is read through this module only, and each array that it returns is read-only:
a write raises at once, whatever the number of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def offsets_of(array: Any) -> npt.NDArray[Any]:
    """The positions at which the values of a string or binary array begin, and at which the last one ends.

    Shape (rows + 1,), read-only. int32, or int64 for the large types. Arrow may leave out the offsets of an array
    without rows; then the result is one zero.
    """
    kind = array.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    dtype = np.dtype("<i8" if large else "<i4")
    if len(array) == 0:
        return _locked(np.zeros(1, dtype=dtype))
    # A buffer that came over the network may be longer than its values, by any number of bytes.
    return _view(array.buffers()[1], dtype, len(array) + 1, array.offset)


def lengths_at(array: pa.Array, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes of the values of a string or binary array at `positions`, 0 for a null. Shape (positions,).

    A null may have bytes beneath it. They do not count, because another copy of the same rows may not have them.
    """
    offsets = offsets_of(array)
    lengths: npt.NDArray[np.int64] = (offsets[positions + 1] - offsets[positions]).astype(np.int64)
    if array.null_count:
        bits = _view(array.buffers()[0], np.dtype(np.uint8), array.buffers()[0].size)
        at = positions + array.offset
        lengths *= bits[at >> 3] >> (at & 7).astype(np.uint8) & 1
    return lengths


def value_bytes(array: Any) -> npt.NDArray[np.uint8]:
    """All bytes of a string or binary array's value buffer, into which `offsets_of` points. Read-only."""
    data = array.buffers()[2]
    return _view(data, np.dtype(np.uint8), data.size if data is not None else 0)


def decimal_words(array: Any) -> npt.NDArray[np.uint64]:
    """The low and the high half of each unscaled value of a decimal128 array. Shape (rows, 2), read-only.

    The bytes beneath a null are included.
    """
    rows = len(array)
    return _view(array.buffers()[1], np.dtype("<u8"), 2 * rows, 2 * array.offset).reshape(rows, 2)


def fixed_width_values(array: Any, width: int) -> npt.NDArray[np.void]:
    """The values of a string or binary array, all of `width` bytes, side by side. Shape (rows,), read-only."""
    first = int(offsets_of(array)[0])
    values = np.frombuffer(array.buffers()[2], dtype=np.dtype((np.void, width)), count=len(array), offset=first)
    return _locked(values)


def padded_words(array: Any, first: int, end: int) -> npt.NDArray[np.uint64]:
    """A fresh, aligned copy of the bytes `first` to `end` of a string or binary array's values, as 64-bit words.

    Zeros follow, so that two whole words around any of these bytes can be read.
    """
    words = np.zeros((end - first) // 8 + 3, dtype="<u8")
    words.view(np.uint8)[: end - first] = value_bytes(array)[first:end]
    return words


def words_fit(array: pa.Array, starts: npt.NDArray[np.int64], words: int) -> int:
    """How many of these ascending positions have so many 64-bit words after them in a text array's value buffer."""
    return int(np.searchsorted(starts, value_bytes(array).size - 8 * words, side="right"))


def words_at(array: pa.Array, starts: npt.NDArray[np.int64], words: int) -> npt.NDArray[np.uint64]:
    """A fresh array of the `words` 64-bit words at each of these positions, which `words_fit` found to fit.

    Shape (positions, words). A word after the end of a value has bytes of the next ones.
    """
    data = value_bytes(array)
    # One item of numpy is all words of a position, so that a value costs the same whatever it is aligned to.
    spans = np.ndarray((data.size - 8 * words + 1,), np.dtype((np.void, 8 * words)), data, strides=(1,))
    return spans[starts].view("<u8").reshape(-1, words)


def _view(buffer: Any, dtype: np.dtype[Any], count: int, skip: int = 0) -> npt.NDArray[Any]:
    if count == 0:
        return _locked(np.empty(0, dtype=dtype))
    return _locked(np.frombuffer(buffer, dtype=dtype, count=count, offset=skip * dtype.itemsize))


def _locked(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
