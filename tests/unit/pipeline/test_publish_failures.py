"""What a publisher of row events says of records that Kafka did not take."""

from __future__ import annotations

import pytest

from nyala.pipeline import PublishFailed
from nyala.pipeline.publish import _Failures


def test_each_failed_flush_tells_its_own_first_reason() -> None:
    """Goal: nobody looks for a trouble that is over. Method: two flushes fail, for different reasons; one between them
    does not."""
    failures = _Failures()
    for reason in ("no leader", "too large"):
        failures.add(reason)
        failures.add("whatever came after")
        with pytest.raises(PublishFailed, match=rf"2 records were not acknowledged, the first because: {reason}"):
            failures.raise_any()
        failures.raise_any()
