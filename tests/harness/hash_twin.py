"""The slow, obvious twin of nyala-hash-1: one key at a time, from Python values, as the head of `hashing.py` has it."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence

from nyala.replica.rows import ColumnType
from nyala.replica.rows.hashing import mix_one

_MASK = (1 << 64) - 1
_LENGTH = 0xA24BAED4963EE407
_COMBINE = 0x9FB21C651E98DF25
_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def key_hash_one(values: Sequence[object], types: Sequence[ColumnType]) -> int:
    """The hash of one key: the Python values of its columns, and their column types."""
    result, *others = (_hash_one(v, t) for v, t in zip(values, types, strict=True))
    for h in others:
        result = mix_one((result * _COMBINE + h) & _MASK)
    return result


def _hash_one(value: object, column_type: ColumnType) -> int:
    if column_type in (ColumnType.STRING, ColumnType.BINARY):
        data = b"" if value is None else value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]
        result = mix_one(len(data) * _LENGTH & _MASK)
        for i in range(0, len(data), 8):
            result = mix_one(result ^ int.from_bytes(data[i : i + 8], "little"))
        return result
    if column_type is ColumnType.DECIMAL:
        unscaled = unscaled_decimal(value) if isinstance(value, decimal.Decimal) else int(str(value or 0))
        return mix_one(mix_one(unscaled & _MASK) ^ (unscaled >> 64 & _MASK))
    return mix_one(integer_of(value) & _MASK)


def unscaled_decimal(value: decimal.Decimal) -> int:
    """The digits of `value` as an integer, at the scale that `value` itself has."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)) or "0")
    return -number if sign else number


def integer_of(value: object) -> int:
    """The 64-bit integer behind an integer-like value; null is 0."""
    if value is None:
        return 0
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (aware - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH_DAY).days
    assert isinstance(value, int), value
    return value
