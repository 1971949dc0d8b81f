"""What became of a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nyala.replica.base import Code, Refused


class Result(StrEnum):
    """How carrying a decision out ended."""

    DONE = "DONE"
    """What was decided holds; by this call or by an earlier one."""
    STALE = "STALE"
    """The cluster moved on, or the deadline passed: the masters decide anew. Never to be repeated."""
    FAILED = "FAILED"
    """Not done; `retryable` says whether asking again may help before the deadline."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of one decision. `code` is why; OK with DONE."""

    tablet_id: str
    catalog_term: int
    version: int
    plan_id: str
    result: Result
    code: Code
    message: str
    retryable: bool = False

    def record(self, executor: str, at_us: int) -> dict[str, Any]:
        """The dict of `outcome.avsc`; `executor` says who carried it out. STALE is published as REFUSED."""
        result = "REFUSED" if self.result is Result.STALE else self.result.value
        return {
            "subject": "DECISION",
            "subject_id": f"{self.tablet_id}@{self.catalog_term}.{self.version}",
            "plan_id": self.plan_id,
            "tablet_id": self.tablet_id,
            "result": result,
            "code": int(self.code),
            "message": self.message,
            "at_us": at_us,
            "catalog_term": self.catalog_term,
            "version": self.version,
            "executor": executor,
            "reserved": b"",
        }


STALE_CODES = frozenset(
    {
        Code.CAS_FAILED,
        Code.STALE_DECISION,
        Code.DEADLINE_PASSED,
        Code.TABLET_NOT_FOUND,
        Code.TABLET_DELETED,
        Code.NOT_FOUND,
        Code.WRONG_TABLE,
    }
)
"""The world is not as the decision supposed: only a new decision can help."""

RETRYABLE_CODES = frozenset(
    {
        Code.NOT_LEADER,
        Code.NOT_READY,
        Code.CHANGE_PENDING,
        Code.STEPPING_DOWN,
        Code.OVERLOADED,
        Code.TIMED_OUT,
        Code.UNAVAILABLE,
        Code.INVALID_NAME,
        Code.TABLET_FAILED,
        Code.NO_SPACE,
    }
)
"""May pass by itself. Repeating is safe: the leader compares the config and the decision's version."""


def outcome_of(decision: Mapping[str, Any], error: Refused | None, message: str = "") -> Outcome:
    """The outcome of `decision` when its leader answered `error`, or accepted it."""
    if error is None:
        result, code, retryable = Result.DONE, Code.OK, False
    elif error.code in STALE_CODES:
        result, code, retryable = Result.STALE, error.code, False
    else:
        result, code, retryable = Result.FAILED, error.code, error.code in RETRYABLE_CODES
    return Outcome(
        tablet_id=decision["tablet_id"],
        catalog_term=decision["catalog_term"],
        version=decision["version"],
        plan_id=decision["plan_id"],
        result=result,
        code=code,
        message=message or (str(error) if error else "done"),
        retryable=retryable,
    )
