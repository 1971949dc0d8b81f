"""How long a test waits for an expected event."""

from __future__ import annotations

import os

_AT_MOST_S = float(os.environ.get("NYALA_TEST_PATIENCE_S", "inf"))


def patience_s(own_s: float) -> float:
    """Return `own_s`, which is long, because only a failing test waits so long; less if NYALA_TEST_PATIENCE_S demands
    it, as for tests that have to turn red under a mutant."""
    return min(own_s, _AT_MOST_S)
