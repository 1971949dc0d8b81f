"""How large the conditions of one scan may be. Clients ask before they send, servers before they read. Pure.

What a client measures is never less than what a server measures: so what a client sends, no server refuses for it.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from typing import NamedTuple

from nyala.replica.types import Code, Refused, limits

from .predicate import Predicate

_FRAME_BYTES = 512
"""On the wire, beside its values, of one condition: the schema and the frames of an Arrow stream."""
_LENGTH_BYTES = 4


class ConditionsSize(NamedTuple):
    """Of all conditions of one scan together."""

    conditions: int
    values: int
    values_bytes: int

    def fits(self) -> bool:
        """Whether one scan may have so much."""
        return self._beyond() is None

    def check(self) -> None:
        """Refused(INVALID_ARGUMENT) unless one scan may have so much."""
        beyond = self._beyond()
        if beyond is None:
            return
        what, given, most = beyond
        told = (
            f"the conditions of one scan have at most {most} {what}. Split the list into several "
            "scans, or filter the rows after the scan; in Spark, join with a DataFrame of the values"
        )
        raise Refused(Code.INVALID_ARGUMENT, told, given=given)

    def _beyond(self) -> tuple[str, int, int] | None:
        """(what is too much, how much of it there is, how much there may be)."""
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
