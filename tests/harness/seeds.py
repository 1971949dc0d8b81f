"""Seeds of random tests: a few for each run of the tests, many for the deep ones."""

from __future__ import annotations

from typing import Any

import pytest


def few_then_deep(few: int, many: int) -> list[Any]:
    """For `parametrize`: return seeds 0 to `few` - 1, and up to `many` - 1 as deep tests."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(few, many))]
