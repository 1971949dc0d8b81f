"""Bounds the conditions of one scan. Clients check them before they send, servers before they read. Pure.

A client's measure is never below a server's. So no server refuses a client's conditions because of their size.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from typing import NamedTuple

from nyala.replica.types import Code, Refused, limits

from .predicate import Predicate

_FRAME_BYTES = 512
"""The bytes on the wire of one condition beside its values: the schema and the frames of an Arrow stream."""
_LENGTH_BYTES = 4


class ConditionsSize(NamedTuple):
    """The number of conditions of one scan, and the number and bytes of all their values."""

    conditions: int
    values: int
    values_bytes: int

    def fits(self) -> bool:
        """Whether the size is within the bounds of one scan."""
        return self._beyond() is None

    def check(self) -> None:
        """Refused(INVALID_ARGUMENT) if a bound of one scan is exceeded."""
        beyond = self._beyond()
        if beyond is None:
            return
        what, given, most = beyond
        problem = (
            f"the conditions of one scan have at most {most} {what}. Split the list into several "
            "scans, or filter the rows after the scan; in Spark, join with a DataFrame of the values"
        )
        raise Refused(Code.INVALID_ARGUMENT, problem, given=given)

    def _beyond(self) -> tuple[str, int, int] | None:
        """The first exceeded bound: (what it bounds, the given number, the bound)."""
        bounds = (
            ("conditions", self.conditions, limits.SCAN_PREDICATES_MAX),
            ("values together", self.values, limits.SCAN_VALUES_MAX),
            ("bytes of values together", self.values_bytes, limits.SCAN_VALUES_BYTES_MAX),
        )
        return next((bound for bound in bounds if bound[1] > bound[2]), None)


def conditions_size(predicates: Iterable[Predicate]) -> ConditionsSize:
    """The size of conditions whose values are Python objects; their bytes are at least those on the wire."""
    conditions = values = values_bytes = 0
    for predicate in predicates:
        conditions += 1
        values += len(predicate.values)
        if values <= limits.SCAN_VALUES_MAX:
            values_bytes += _FRAME_BYTES + sum(map(_value_bytes, predicate.values))
    return ConditionsSize(conditions, values, values_bytes)


def _value_bytes(value: object) -> int:
    if isinstance(value, str):
        return _LENGTH_BYTES + (len(value) if value.isascii() else len(value.encode(errors="surrogatepass")))
    if isinstance(value, bytes):
        return _LENGTH_BYTES + len(value)
    return 32 if isinstance(value, decimal.Decimal) else 8
