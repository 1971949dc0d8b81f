"""The outcome of a decision, from the answer of its leader."""

from __future__ import annotations

from nyala.replica.types import Code, Decision, Outcome, Refused, Result

STALE_CODES = frozenset({
    Code.CAS_FAILED, Code.STALE_DECISION, Code.DEADLINE_PASSED, Code.TABLET_NOT_FOUND, Code.TABLET_DELETED,
    Code.NOT_FOUND, Code.WRONG_TABLE,
})  # fmt: skip
"""Codes of a tablet that is not as the decision assumed, so that only a new decision can help."""


def outcome_of(decision: Decision, error: Refused | None, message: str = "") -> Outcome:
    """Return the outcome of `decision` if its leader answered `error`, or accepted it. The publisher adds its own name
    and the time."""
    if error is None:
        result, code = Result.DONE, Code.OK
    else:
        result, code = Result.REFUSED if error.code in STALE_CODES else Result.FAILED, error.code
    return Outcome(
        subject_id=decision.id,
        plan_id=decision.plan_id,
        tablet_id=decision.tablet_id,
        result=result,
        code=code,
        message=message or (str(error) if error else "done"),
        catalog_term=decision.catalog_term,
        version=decision.version,
    )
