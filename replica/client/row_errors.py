"""The error that a writer raises if rows were not applied, unless its caller wants the failed rows returned instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nyala.replica.rows import RowError
from nyala.replica.types import Applied, Code, Refused, RowCode

OnError = Literal["raise", "return"]
SHOWN_MAX = 5
_CODES = {RowCode.ALREADY_PRESENT: Code.ALREADY_EXISTS, RowCode.NOT_FOUND: Code.NOT_FOUND}


@dataclass(frozen=True)
class RowFailure:
    """One row that was not applied, with the reason. `row`: its position among the rows of the call, from 0."""

    row: int
    code: RowCode
    column: str
    key: dict[str, object]

    def __str__(self) -> str:
        key = ", ".join(f"{k}={v!r}" for k, v in self.key.items())
        return f"row {self.row} ({key}): {self.code.name}" + (f" in column {self.column!r}" if self.column else "")


class RowErrors(Refused):
    """Some rows of a write were not applied, and all others were.

    `errors`: the failed rows by position, each with its code and column; RowFailure, or RowError if the writer knows no
    keys. `failed`: the number of all failed rows, of which only the first may be in `errors`. `rows_applied`: how many
    other rows were applied. `rows`: the failed rows as they were sent, a pa.Table in the order of `errors`, if they are
    known. `applied` is NOT_APPLIED only if no row was applied. Otherwise a repetition of the whole write would meet
    rows that it applied itself.
    """

    def __init__(
        self,
        errors: Sequence[RowFailure | RowError],
        *,
        table: str,
        rows_applied: int,
        failed: int = 0,
        rows: Any = None,
        advice: str = "",
    ) -> None:
        self.errors = tuple(errors)
        self.failed = failed or len(self.errors)
        self.rows_applied = rows_applied
        self.rows = rows
        first = self.errors[:SHOWN_MAX]
        more = f"; and {self.failed - len(first)} more" if self.failed > len(first) else ""
        total = self.failed + rows_applied
        others = {0: "nothing was applied", 1: "the other one was"}.get(rows_applied, f"the other {rows_applied} were")
        super().__init__(
            _CODES.get(first[0].code, Code.INVALID_ARGUMENT),
            f"table {table!r}: {self.failed} of {total} rows {'was' if self.failed == 1 else 'were'} not applied, "
            f"{others}: {'; '.join(map(str, first))}{more}. {advice}".rstrip(),
            applied=Applied.UNKNOWN if rows_applied else Applied.NOT_APPLIED,
        )

    def __str__(self) -> str:
        # The text of `Refused` ends with "nothing was applied" or "the outcome is unknown". This text is more exact, so
        # it has no such ending.
        return f"{self.code.name}: {self.what}"
