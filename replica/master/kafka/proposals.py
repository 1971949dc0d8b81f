"""Answers each record of `proposals` with one outcome, whatever the record contains."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from nyala.replica.decision_executor import Fault, Unusable, read_record
from nyala.replica.types import Code, Outcome, Proposal, Result, Subject, kafka_topics

from .kafka_state import KafkaState

_log = logging.getLogger("nyala.master")

KEY_SHOWN_MAX = 64
REASON_SHOWN_MAX = 500
UNDECIDED_MAX = 10
"""The attempts to decide one proposal while this master leads; after them it is refused, so that later ones proceed."""

Consider = Callable[[Proposal], Outcome | None]
"""Answers a proposal with an outcome; None: this master cannot answer now, try again later."""


class Proposals:
    """Finds the outcome of each record in turn. Concurrency: one thread."""

    def __init__(self, consider: Consider, state: KafkaState, leads: Callable[[], bool]) -> None:
        self._consider = consider
        self._state = state
        self._leads = leads
        self._undecided: tuple[str, int] = ("", 0)
        """The place of the last proposal that could not be decided, and the number of attempts in a row."""
        self._told: set[str] = set()
        """Places of counted records, so that a record that is read again is counted once."""

    def outcome_of(self, record: Any) -> Outcome | None:
        """Return the outcome to publish before the record's offset is committed. None: this master cannot answer now,
        so the record is read again."""
        place = place_of(record)
        found = read_record(Proposal, record.key, record.value)
        if isinstance(found, Unusable):
            return self._refused(record, place, found)
        try:
            outcome = self._consider(found)
        except Exception as error:  # noqa: BLE001 - one proposal that meets a defect must not stop the others
            _log.exception("the proposal %s could not be considered", place)
            why = f"this build has a defect that stopped it: {type(error).__name__} {error}"
            return self._refused(record, place, Unusable(Fault.FAILED, why, vars(found)))
        if outcome is not None or not self._leads():
            return outcome
        self._undecided = (place, self._undecided[1] + 1 if self._undecided[0] == place else 1)
        if self._undecided[1] < UNDECIDED_MAX:
            return None
        why = f"the masters could not decide it in {UNDECIDED_MAX} attempts: propose it again"
        return self._refused(record, place, Unusable(Fault.FAILED, why, vars(found)))

    def _refused(self, record: Any, place: str, unusable: Unusable) -> Outcome:
        if place not in self._told:
            if len(self._told) > UNDECIDED_MAX:
                self._told.clear()
            self._told.add(place)
            count = self._state.skipped(kafka_topics.PROPOSALS, unusable.fault, place, unusable.reason)
            if count & (count - 1) == 0:  # the first, second, fourth, ...: a flood of them does not fill the log
                _log.warning("proposal %s is refused, number %d of its kind: %s", place, count, unusable.reason)
        return refusal(record, unusable)


def place_of(record: Any) -> str:
    """The place of a record, as a text for people."""
    return f"{record.topic}[{record.partition}]@{record.offset}"


def refusal(record: Any, unusable: Unusable) -> Outcome:
    """The outcome of an unusable record. It names the proposal by its own ids if they could be read, otherwise by its
    place and its key, so that its sender recognises it."""
    fields = unusable.fields
    key = (record.key or b"")[:KEY_SHOWN_MAX].decode(errors="replace")
    return Outcome(
        subject=Subject.PROPOSAL,
        subject_id=_shown(fields.get("proposal_id")) or place_of(record),
        plan_id=_shown(fields.get("plan_id")),
        tablet_id=_shown(fields.get("tablet_id")) or _shown(key),
        result=Result.REFUSED,
        code=Code.UNAVAILABLE if unusable.fault is Fault.FAILED else Code.INVALID_ARGUMENT,
        message=f"the proposal cannot be used ({unusable.fault}): {_shown(unusable.reason, REASON_SHOWN_MAX)}",
        at_us=time.time_ns() // 1000,
    )


def _shown(text: object, chars_max: int = 128) -> str:
    """A text from outside, bounded and printable; empty for an id that is too long."""
    found = text if isinstance(text, str) else ""
    if len(found) > chars_max and chars_max == 128:
        return ""
    return "".join(c if c.isprintable() else "?" for c in found[:chars_max])
