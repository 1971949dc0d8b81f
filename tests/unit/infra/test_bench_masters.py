"""How long masters were away, by the times at which something was made."""

from __future__ import annotations

from nyala.infra.bench.masters import longest_pause


def test_longest_pause_is_the_one_that_an_operation_cost_and_none_before_it() -> None:
    """MF-23. Goal: an outage is measured from the last change before it to the first one after it. Method: pauses
    before the operation, over it, and after it; then none after it."""
    times = [0.0, 9.0, 10.0, 10.5, 14.5, 15.0, 17.0]
    assert longest_pause(times, 11.0) == 4.0, "from 10.5, before the operation"
    assert longest_pause(times, 14.6) == 2.0
    assert longest_pause(times, 0.0) == 9.0
    assert longest_pause(times, 17.0) == 0.0
    assert longest_pause([], 0.0) == 0.0
