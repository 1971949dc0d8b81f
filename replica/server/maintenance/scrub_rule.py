"""Which files at rest to look at for damage, and in what order: a function of when each was last known to be whole.

What is said of blocks holds for closed log segments too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

CPU_SHARE = 0.1
"""Of one core: what checks of log segments with many small entries may take, which cost CPU rather than reads."""


def cost_bytes(length_bytes: int, cpu_s: float, rate_bytes_per_s: int) -> int:
    """What to draw of the rate for a piece that took so much CPU: its length, or more if it was dear to check."""
    return max(length_bytes, int(cpu_s / CPU_SHARE * rate_bytes_per_s))


def carried(whole_s: Mapping[str, float], present: Collection[str], now_s: float) -> dict[str, float]:
    """When each block that is `present` was last known to be whole: one that is new here was checked or written now."""
    return {name: whole_s.get(name, now_s) for name in present}


def due(whole_s: Mapping[str, float], now_s: float, interval_s: float) -> list[str]:
    """Blocks that nobody has checked for an interval, the one that has waited longest first."""
    return sorted((n for n, at in whole_s.items() if now_s - at >= interval_s), key=lambda n: (whole_s[n], n))
