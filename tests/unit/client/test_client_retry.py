"""The table of reactions, the back-off and the two kinds of final errors."""

from __future__ import annotations

import random
from typing import Any

import grpc
import pytest

from nyala.replica.client import REACTIONS, ClientOptions, NotApplied, OutcomeUnknown, Reaction, reaction_to
from nyala.replica.client.retry import Attempts, Deadline, refusal_of_rpc_error
from nyala.replica.types import Applied, Code, Refused

OPTIONS = ClientOptions()


def attempts(timeout_s: float = 1000.0) -> Attempts:
    return Attempts(OPTIONS, Deadline(timeout_s), random.Random(1))


@pytest.mark.parametrize("code", [c for c in Code if c is not Code.OK])
def test_reaction_of_each_code_is_fail_unless_the_table_names_it(code: Code) -> None:
    """Goal: an error code that is not in the table is not retried. Method: every code against the table; a refusal of a
    kind that says the request itself is wrong must be final."""
    reaction = reaction_to(Refused(code, "x"))
    assert reaction is REACTIONS.get(code, Reaction.FAIL)
    wrong_request = {
        Code.INVALID_ARGUMENT, Code.INVALID_BATCH, Code.TOO_LARGE, Code.SCHEMA_MISMATCH, Code.CAS_FAILED,
        Code.ALREADY_EXISTS, Code.NOT_FOUND, Code.WRONG_TABLE, Code.STALE_GENERATION, Code.GAP, Code.HISTORY_GONE,
        Code.SOURCE_OWNED, Code.SOURCE_POSITION, Code.EXPIRED, Code.DEADLINE_PASSED, Code.STALE_DECISION,
    }  # fmt: skip
    assert (reaction is Reaction.FAIL) or code not in wrong_request


def test_attempts_back_off_grows_with_jitter_up_to_its_maximum() -> None:
    """Goal: the pauses between attempts grow, with jitter, up to a bound. Method: thirty failures; each wait lies
    between half and all of a doubling bound."""
    tries = attempts()
    bound = OPTIONS.backoff_first_s
    for _ in range(30):
        delay = tries.failed(Refused(Code.NOT_READY, "x"), retry_safe=True)
        assert bound / 2 <= delay <= bound
        bound = min(bound * 2, OPTIONS.backoff_max_s)


def test_attempts_follow_two_hints_at_once_and_then_wait() -> None:
    """Goal: two hints in a row are followed at once; then the client waits, so two servers that name each other cause
    no busy loop. Method: hints in a row."""
    tries = attempts()
    hint = Refused(Code.NOT_LEADER, "x", detail="u@h:1")
    delays = [tries.failed(hint, retry_safe=True) for _ in range(4)]
    assert delays[:2] == [0.0, 0.0] and min(delays[2:]) > 0
    assert attempts().failed(Refused(Code.NOT_LEADER, "no hint"), retry_safe=True) > 0


def test_attempts_double_their_time_limit_after_each_timeout() -> None:
    """Goal: the time limit of an attempt doubles after each timeout. Method: the limit before and after timeouts."""
    tries = attempts()
    assert tries.timeout_s == OPTIONS.attempt_timeout_s
    tries.failed(Refused(Code.TIMED_OUT, "x"), retry_safe=True)
    assert tries.timeout_s == 2 * OPTIONS.attempt_timeout_s
    tries.failed(Refused(Code.OVERLOADED, "x"), retry_safe=True)
    assert tries.timeout_s == 2 * OPTIONS.attempt_timeout_s


def test_attempts_give_a_silent_server_no_more_time_when_its_group_has_no_leader() -> None:
    """Goal: a stopped server costs one attempt each time, not a doubled one. Method: after a timeout, a member that
    names a leader leaves the longer limit as it is, one that knows none ends it."""
    tries = attempts()
    tries.failed(Refused(Code.TIMED_OUT, "x"), retry_safe=True)
    tries.failed(Refused(Code.NOT_LEADER, "x", detail="u@h:1"), retry_safe=True)
    assert tries.timeout_s == 2 * OPTIONS.attempt_timeout_s
    tries.failed(Refused(Code.NOT_LEADER, "x"), retry_safe=True)
    assert tries.timeout_s == OPTIONS.attempt_timeout_s


@pytest.mark.parametrize(
    "errors, retry_safe, timeout_s, kind",
    [
        ([Refused(Code.INVALID_BATCH, "x")], True, 1000.0, NotApplied),
        ([Refused(Code.NOT_READY, "x")], True, 0.001, NotApplied),
        ([Refused(Code.UNAVAILABLE, "x", applied=Applied.UNKNOWN)], True, 0.001, OutcomeUnknown),
        ([Refused(Code.UNAVAILABLE, "x", applied=Applied.UNKNOWN)], False, 1000.0, OutcomeUnknown),
        (
            [Refused(Code.UNAVAILABLE, "x", applied=Applied.UNKNOWN), Refused(Code.EXPIRED, "x")],
            True,
            1000.0,
            OutcomeUnknown,
        ),
    ],
)
def test_final_error_says_whether_anything_may_have_been_applied(
    errors: list[Refused], retry_safe: bool, timeout_s: float, kind: Any
) -> None:
    """Goal: once an outcome is unknown it stays so, and such a call is repeated only if that is safe.
    Method: series of errors; the last must be final, of the right kind, with the code of the last."""
    tries = attempts(timeout_s)
    for error in errors[:-1]:
        tries.failed(error, retry_safe=retry_safe)
    with pytest.raises(kind) as caught:
        tries.failed(errors[-1], retry_safe=retry_safe)
    assert caught.value.code is errors[-1].code


def test_client_options_that_contradict_each_other_are_refused() -> None:
    """CN-24: no write is done twice, however long it is repeated. Goal: relations hold, that of a write's deadline to
    the time for which a tablet knows its number among them. Method: one wrong relation each."""
    for wrong in (
        {"backoff_first_s": 2.0},
        {"attempt_timeout_s": 100.0},
        {"writes_inflight_per_tablet_max": 0},
        {"write_timeout_s": 301.0},
    ):
        with pytest.raises(Refused, match=next(iter(wrong))):
            ClientOptions(**wrong)  # type: ignore[arg-type]


class Ended(grpc.RpcError, grpc.Call):  # type: ignore[misc]
    """A call that gRPC ended."""

    def __init__(self, status: grpc.StatusCode, text: str) -> None:
        self._status, self._text = status, text

    def code(self) -> grpc.StatusCode:
        """Return the status."""
        return self._status

    def details(self) -> str:
        """Return gRPC's text."""
        return self._text


@pytest.mark.parametrize(
    ("text", "code", "applied"),
    [
        ("SERVER: Received message larger than max (2000 vs. 1000)", Code.TOO_LARGE, Applied.NOT_APPLIED),
        ("CLIENT: Sent message larger than max (60000 vs. 50000)", Code.TOO_LARGE, Applied.NOT_APPLIED),
        ("the request was not whole after 15 s: nothing was applied", Code.ILLEGAL_STATE, Applied.NOT_APPLIED),
        ("Stream removed (CLIENT: Received message larger than max (9 vs. 8))", Code.ILLEGAL_STATE, Applied.UNKNOWN),
    ],
)
def test_change_whose_answer_is_too_long_may_have_been_applied(text: str, code: Code, applied: Applied) -> None:
    """IN-11. Goal: a change is told as not applied only if no server can have carried it out, and a request that is too
    long as that, so that a batch is halved. Method: what gRPC says of requests and of answers that are too long, under
    the same status; and reads, which change nothing."""
    error = Ended(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
    refused = refusal_of_rpc_error(error, mutates=True)
    assert (refused.code, refused.applied) == (code, applied)
    assert refusal_of_rpc_error(error, mutates=False).applied is Applied.NOT_APPLIED
