"""The recent maximum is kept apart from the maximum of all time."""

from __future__ import annotations

from nyala.replica.server.runtime.recent_maximum import KEPT_S, RecentMaximum


def test_maximum_of_a_span_forgets_what_came_before_it() -> None:
    """CC-35. Goal: a round's pauses are its own. Method: observations at given times, looked back on over several
    spans; more seconds than are kept."""
    longest = RecentMaximum()
    assert longest.within(10.0, 0.0) == 0.0
    for at, value in ((100.1, 700.0), (100.9, 5.0), (104.0, 30.0), (104.5, 20.0), (109.0, 1.0)):
        longest.note(value, at)
    assert longest.within(20.0, 110.0) == 700.0
    assert longest.within(8.0, 110.0) == 30.0
    assert longest.within(2.0, 110.0) == 1.0
    assert longest.within(0.5, 200.0) == 0.0
    for second in range(KEPT_S):
        longest.note(2.0, 200.0 + second)
    assert longest.within(1e6, 200.0 + KEPT_S) == 2.0
