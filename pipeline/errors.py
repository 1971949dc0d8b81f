"""The errors with which a query ends: those that an operator must resolve, and those that pass by themselves."""

from __future__ import annotations

import re

from nyala.replica.types import Code, Refused, ReplicaError

RETRYABLE = frozenset(
    {
        Code.NOT_LEADER,
        Code.NOT_READY,
        Code.OVERLOADED,
        Code.TIMED_OUT,
        Code.UNAVAILABLE,
        Code.STEPPING_DOWN,
        Code.CHANGE_PENDING,
        Code.TABLET_NOT_FOUND,
        Code.TABLET_FAILED,
        Code.TABLET_DELETED,
        Code.NO_SPACE,
        Code.INVALID_NAME,
        Code.CAS_FAILED,
        Code.SCHEMA_MISMATCH,
    }
)
"""Codes after which a new run may succeed. Writes may be repeated, because the ledger drops replays.

SCHEMA_MISMATCH: the table was altered meanwhile; a new run reads its new schema."""

_MARK = re.compile(r"nyala task \[(fatal|retryable)\]: (.*)")


class QueryRefused(ReplicaError):
    """The query must not run, or must not go on, until an operator has done what the text demands. It is never
    restarted."""


class QueryInterrupted(ReplicaError):
    """The query ended for a temporary cause and may be started again."""


class TaskFailed(ReplicaError):
    """Raised inside a Spark task. Only its text reaches the driver, so the text states whether a restart helps."""

    def __init__(self, what: str, *, fatal: bool) -> None:
        super().__init__(f"nyala task [{'fatal' if fatal else 'retryable'}]: {what}")


def of_refusal(error: Refused) -> QueryRefused | QueryInterrupted:
    """Return the query's error for a refusal by a master or a tablet."""
    kind = QueryInterrupted if error.code in RETRYABLE else QueryRefused
    return kind(str(error))


def of_spark(error: BaseException) -> QueryRefused | QueryInterrupted:
    """Return the query's error for an exception that came through Spark. An exception without `TaskFailed`'s marks
    counts as temporary."""
    if isinstance(error, QueryRefused | QueryInterrupted):
        return error
    if isinstance(error, Refused):
        return of_refusal(error)
    text = str(error)
    if found := _MARK.search(text):
        return (QueryRefused if found[1] == "fatal" else QueryInterrupted)(found[2].strip())
    if any(sign in text for sign in _FATAL_SIGNS):
        return QueryRefused(_first_line(text))
    return QueryInterrupted(_first_line(text))


UNKNOWN_TOPIC = "UnknownTopicOrPartitionException"
"""A part of Spark's error if the topic is gone, or if a broker that has just started does not know it yet."""
_FATAL_SIGNS = (
    "KafkaDataLoss",
    "KAFKA_DATA_LOSS",
    "Some data may have been lost",
    "some data may have been missed",
    "offset was changed from",
    "ModuleNotFoundError",
    "AnalysisException",
)


_PY4J = "An error occurred while calling "


def _first_line(text: str) -> str:
    lines = [line.strip().removeprefix(": ") for line in text.splitlines()]
    # py4j's first line names the call, which is of no use to a reader.
    return next((line for line in lines if line and not line.startswith(_PY4J)), "unknown")[:500]
