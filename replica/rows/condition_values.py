"""The values of a condition that came over the network: one Arrow array, read like a tuple."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

NOT_COMPARABLE = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""The errors of pyarrow and Python for a value that does not fit, or cannot be compared."""


class ConditionValues(Sequence[object]):
    """Values without nulls, all of one Arrow type. A Python object of a value is made only when it is read.

    100,000 Python objects would take 0.1 s, ten times the memory of the array, and the interpreter's lock meanwhile.
    """

    def __init__(self, array: Any) -> None:
        """`array`: pa.Array without nulls."""
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, pos: Any) -> Any:
        if isinstance(pos, slice):
            return tuple(self.array[pos].to_pylist())
        return self.array[pos].as_py()

    def __iter__(self) -> Iterator[object]:
        return iter(self.array.to_pylist())

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, ConditionValues | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"ConditionValues({self.array.type}, {len(self)} values)"
