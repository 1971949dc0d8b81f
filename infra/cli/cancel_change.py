"""Cancels a change of membership: what is wanted of a tablet, and what its leader could not commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nyala.replica.types import Code, Refused


@dataclass(frozen=True)
class Cancelled:
    """What became of the desired change and of the uncommitted config change. None: done; NOT_FOUND: there was none."""

    desired: Refused | None
    change: Refused | None

    @property
    def left(self) -> list[Refused]:
        """Why something may still stand."""
        return [e for e in (self.desired, self.change) if e is not None and e.code is not Code.NOT_FOUND]

    @property
    def nothing_there(self) -> bool:
        """Whether there was neither."""
        return self.desired is not None and self.change is not None and not self.left

    def lines(self) -> list[str]:
        """For people, a line each."""
        return [
            _half(self.desired, "what was wanted is cancelled", "nothing was wanted", "what is wanted stays"),
            _half(
                self.change,
                "its leader took an uncommitted config change back",
                "no config change was under way",
                "its leader was not brought to take back a config change, if one is under way",
            ),
        ]

    def json(self) -> dict[str, object]:
        """For a program; the errors are empty unless something may still stand."""
        cancel_error, change_error = ("" if e not in self.left else str(e) for e in (self.desired, self.change))
        return {
            "cancelled": self.desired is None,
            "cancel_error": cancel_error,
            "change_taken_back": self.change is None,
            "take_back_error": change_error,
        }


def _half(error: Refused | None, done: str, nothing: str, stays: str) -> str:
    if error is None:
        return done
    return nothing if error.code is Code.NOT_FOUND else f"{stays}: {error}"


def cancel_change(cancel_desired: Callable[[], object], take_back: Callable[[], object]) -> Cancelled:
    """Both halves, the desired change first: it needs a master only, and while it stands the masters would begin
    anew."""
    desired = _tried(cancel_desired)
    return Cancelled(desired, _tried(take_back))


def _tried(act: Callable[[], object]) -> Refused | None:
    try:
        act()
    except Refused as error:
        return error
    return None
