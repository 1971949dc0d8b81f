"""Cancels a change of membership: a tablet's desired change, and a change that its leader could not commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nyala.replica.types import Code, Refused


@dataclass(frozen=True)
class Cancelled:
    """The results for the desired change and for the uncommitted config change. None: cancelled; NOT_FOUND: there was
    none."""

    desired: Refused | None
    change: Refused | None

    @property
    def left(self) -> list[Refused]:
        """The errors because of which a change may still exist."""
        return [e for e in (self.desired, self.change) if e is not None and e.code is not Code.NOT_FOUND]

    @property
    def nothing_there(self) -> bool:
        """Whether there was neither."""
        return self.desired is not None and self.change is not None and not self.left

    def lines(self) -> list[str]:
        """The result for people, one line each."""
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
        """The result for programs; errors are empty unless a change may still exist."""
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
    """Cancel both, the desired change first: it needs a master only, and as long as it exists, the masters would begin
    anew."""
    desired = _tried(cancel_desired)
    return Cancelled(desired, _tried(take_back))


def _tried(act: Callable[[], object]) -> Refused | None:
    try:
        act()
    except Refused as error:
        return error
    return None
