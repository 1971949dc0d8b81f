"""Measures the checksum of rows, and for comparison a plain read of the same bytes from memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.rows import sum_of_rows

from .report import Figures

MEMORY_READ = "memory read"
"""The comparison: no checksum of these bytes can be faster."""
VALUE_BYTES = {"64b": 64, "1kb": 1 << 10, "1mb": 1 << 20}
"""The lengths of values whose figure is MB/s; for shorter ones it is cells/s."""
SHORT_BYTES = 16
_LEAST_S = 0.2
"""The least time of a measurement, which repeats its rows, so that a short pause of the machine does not decide it."""


def values_of(length_bytes: int, mb: int) -> pa.Array:
    """A pa.BinaryArray of distinct values of that length, with about `mb` MB together."""
    count = max(1, mb * 1_000_000 // length_bytes)
    data = np.random.default_rng(length_bytes).integers(0, 256, count * length_bytes, dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(length_bytes)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def numbers_of(mb: int) -> pa.Array:
    """A pa.Int64Array of about `mb` MB."""
    return pa.array(np.random.default_rng(8).integers(0, 1 << 62, mb * 125_000, dtype=np.int64))


class Sums:
    """Rows of one column each, made once for all rounds. Memory: five times `mb` MB."""

    def __init__(self, mb: int) -> None:
        """`mb`: MB of each column."""
        self._long = {name: values_of(length, mb) for name, length in VALUE_BYTES.items()}
        self._short = {f"{SHORT_BYTES}b": values_of(SHORT_BYTES, mb), "int64": numbers_of(mb)}

    def checksum_round(self, _number: int) -> Figures:
        """Compute the checksum as for a replica's rows."""
        return self._figures(lambda array: sum_of_rows(pa.record_batch([array], ["v"]), (1,)))

    def read_round(self, _number: int) -> Figures:
        """Read every byte of the same values once."""
        return self._figures(lambda array: np.add.reduce(_words(array)))

    def _figures(self, work: Callable[[pa.Array], object]) -> Figures:
        figures = {
            f"checksum_{n}_mb_per_s": _bytes(a) / 1e6 / _time_of(partial(work, a)) for n, a in self._long.items()
        }
        for name, array in self._short.items():
            figures[f"checksum_{name}_cells_per_s"] = len(array) / _time_of(partial(work, array))
        return figures


def _words(array: pa.Array) -> npt.NDArray[np.uint64]:
    return np.frombuffer(array.buffers()[-1], np.uint64)


def _bytes(array: pa.Array) -> int:
    return int(_words(array).nbytes)


def _time_of(work: Callable[[], object]) -> float:
    """The seconds of one call."""
    work()  # a first call, which allocates memory
    goes, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < _LEAST_S:
        work()
        goes += 1
    return (time.perf_counter() - began_s) / goes
