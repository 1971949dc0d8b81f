"""The reserve of memory maps: what it grants between two counts of the kernel's list."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.fs import MapReserve
from nyala.replica.fs.map_reserve import COUNT_EVERY_S
from nyala.replica.types import ResourcesExhausted, ResourceUse

SHARES = (0.5, 0.95, 0.98)


@given(
    limit=st.integers(1, 60),
    steps=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.sampled_from(SHARES), st.integers(-9, 9))),
)
def test_reserve_is_kept_and_counted_once_a_second(limit: int, steps: list[tuple[int, int, float, int]]) -> None:
    """IN-32. Goal: own maps never take the reserve, and a count is made once a second at most. Method: random grants,
    pauses, and maps of other work. A slow twin knows what the last count found and what was granted since; what the
    twin refuses is refused, with the numbers, and counts as not granted."""
    now, others, own, counts = 0.0, 0, 0, []  # type: ignore[var-annotated]
    known = granted = 0

    def count() -> ResourceUse:
        counts.append(now)
        return ResourceUse(others + own, limit)

    reserve = MapReserve(count, lambda: now)
    for tenths, maps, share, change in steps:
        now += tenths / 10
        others = max(0, others + change)
        if not counts or now - counts[-1] >= COUNT_EVERY_S:
            known, granted = others + own, 0
        fits = known + granted + maps <= share * limit
        if fits:
            reserve.take(maps, share)
            granted, own = granted + maps, own + maps
        else:
            with pytest.raises(ResourcesExhausted, match="raise vm") as refused:
                reserve.take(maps, share)
            assert refused.value.values == {"used": known + granted, "limit": limit, "share": share}
    assert all(later - earlier >= COUNT_EVERY_S for earlier, later in pairwise(counts))


def test_reserve_refuses_nothing_if_the_kernel_does_not_count() -> None:
    """IN-32. Goal: without a list of maps, a server works as before. Method: a count that finds nothing."""
    reserve = MapReserve(ResourceUse, lambda: 0.0)
    for _ in range(1000):
        reserve.take(1000, 0.5)
