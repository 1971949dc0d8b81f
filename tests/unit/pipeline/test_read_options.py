"""Options of a Spark read, from strings."""

from __future__ import annotations

import pytest

from nyala.pipeline.source.reader import ReadOptions
from nyala.replica.types import Code, Refused

BASE = {"masters": "m:1", "table": "t"}


def test_read_option_staleness_is_a_number_of_seconds() -> None:
    """Goal: Spark jobs may read at followers. Method: whole and broken numbers; none is none."""
    assert ReadOptions.of({**BASE, "staleness": "2.5"}).staleness_us == 2_500_000
    assert ReadOptions.of(BASE).staleness_us == 0


@pytest.mark.parametrize("text", ["0.5", "-3", "0", "nan", "inf", "soon", "1e12"])
def test_read_option_staleness_that_means_nothing_is_refused_with_its_value(text: str) -> None:
    """Goal: an invalid staleness is refused on the driver, with its value. Method: numbers that clocks cannot judge,
    and no numbers."""
    with pytest.raises(Refused, match=f"staleness.*{text}") as caught:
        ReadOptions.of({**BASE, "staleness": text})
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_read_options_at_and_staleness_exclude_each_other() -> None:
    """Goal: no option is silently ignored. Method: both."""
    with pytest.raises(Refused, match="exclude"):
        ReadOptions.of({**BASE, "at": "2026-01-01T00:00:00", "staleness": "5"})
