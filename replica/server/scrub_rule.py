"""Which blocks to look at for damage, and in what order: a function of when each was last known to be whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def carried(whole_s: Mapping[str, float], present: Collection[str], now_s: float) -> dict[str, float]:
    """When each block that is `present` was last known to be whole: one that is new here was checked or written now."""
    return {name: whole_s.get(name, now_s) for name in present}


def due(whole_s: Mapping[str, float], now_s: float, interval_s: float) -> list[str]:
    """Blocks that nobody has checked for an interval, the one that has waited longest first."""
    return sorted((n for n, at in whole_s.items() if now_s - at >= interval_s), key=lambda n: (whole_s[n], n))
