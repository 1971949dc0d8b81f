"""`tablet change-config cancel`: two halves, each tried whatever becomes of the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nyala.infra.cli.cancel_change import Cancelled, cancel_change
from nyala.replica.types import Code, Refused

NONE = Refused(Code.NOT_FOUND, "there is none")


def refusing(code: Code) -> Callable[[], object]:
    def act() -> object:
        raise Refused(code, f"refused as {code.name}")

    return act


@pytest.mark.parametrize(
    "code", [Code.UNAVAILABLE, Code.ALREADY_INPROGRESS, Code.NOT_READY, Code.STEPPING_DOWN, Code.NOT_FOUND]
)
def test_desired_change_is_cancelled_first_and_whatever_the_leader_says(code: Code) -> None:
    """Goal: TC-79: a tablet without a leader, or whose leader is busy, does not keep what is wanted of it. Method: the
    second half is refused with each code; the first was done before, and both outcomes are told."""
    done: list[str] = []

    def take_back() -> object:
        done.append("asked the leader")
        return refusing(code)()

    found = cancel_change(lambda: done.append("cancelled"), take_back)
    assert done == ["cancelled", "asked the leader"]
    assert found.json()["cancelled"] is True and found.json()["change_taken_back"] is False
    assert not found.nothing_there and len(found.left) == (code is not Code.NOT_FOUND)
    first, second = found.lines()
    assert "is cancelled" in first
    assert (f"refused as {code.name}" in second) == (f"refused as {code.name}" in str(found.json()["take_back_error"]))
    assert (code is Code.NOT_FOUND) == ("no config change was under way" in second)


def test_leader_takes_a_change_back_although_no_master_answers() -> None:
    """Goal: the leader's part of a cancellation does not wait for the masters' part. Method: the first half is refused;
    the second is done all the same."""
    found = cancel_change(refusing(Code.UNAVAILABLE), lambda: None)
    assert found.json()["change_taken_back"] is True and found.left and not found.nothing_there
    assert "refused as UNAVAILABLE" in str(found.json()["cancel_error"])
    assert "refused as UNAVAILABLE" in found.lines()[0] and "took an uncommitted" in found.lines()[1]


def test_nothing_to_give_up_is_said_only_if_both_said_so() -> None:
    """Goal: the command says that there is nothing to cancel only if the masters and the leader both say so. Method:
    every pair of outcomes."""
    away = Refused(Code.UNAVAILABLE, "away")
    pairs = [(wish, change) for wish in (None, NONE, away) for change in (None, NONE, away)]
    assert [p for p in pairs if Cancelled(*p).nothing_there] == [(NONE, NONE)]
    assert [p for p in pairs if Cancelled(*p).left] == [p for p in pairs if away in p]
