"""Judges whether a process keeps what it should release: bounds and slopes of samples. Pure.

A slope is Theil and Sen's: the median of the slopes of all pairs of samples. Up to 29 % of the samples may be of any
size and the slope stays right, so a flush or a merge amid the samples does not matter (Sen 1968, "Estimates of the
regression coefficient based on Kendall's tau").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

WARM_FROM = 0.5
"""Samples count for the slope from this share of the work on: caches, pools and threads are there by then."""
SAMPLES_MIN = 8
"""With fewer samples in the second half nothing can be judged, so they are a failure."""
PAIRED_MAX = 400
"""The samples that are paired with each other; if there are more, so many are taken at equal distances."""


class Measure(StrEnum):
    """The quantities that are sampled of a process."""

    PRIVATE_MB = "memory that no file backs, MB"
    PSS_MB = "proportional set size, MB"
    FILES = "open files"
    THREADS = "threads"
    MAPS = "memory maps"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample of one process: when, after how many units of the part's work, and the values."""

    at_s: float
    done: float
    values: dict[Measure, float]


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """The bounds of one measure of a process; both limits are parts of a sum, so neither is zero by accident."""

    most: float = float("inf")
    """The bound at any time."""
    growth: float = float("inf")
    """The bound on the growth over the second half of the work, however much that was: stores and pools swing by as
    much."""
    growth_per_unit: float = 0.0
    """The additional growth allowed for each unit of the second half: what the work leaves behind by design."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on one measure of one process."""

    process: str
    measure: Measure
    peak: float
    most: float
    growth: float
    """The growth by the slope over the second half, in the measure's unit."""
    growth_allowed: float
    slope: float
    """The slope for each unit of the part's work."""
    wrong: str
    """What is wrong, with the numbers; "" if nothing is."""


def slope_of(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return Theil and Sen's slope of ys over xs; 0.0 if all xs are equal."""
    x, y = np.asarray(xs, float), np.asarray(ys, float)
    if len(x) > PAIRED_MAX:
        chosen = np.linspace(0, len(x) - 1, PAIRED_MAX).astype(int)
        x, y = x[chosen], y[chosen]
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    rise = (y[second] - y[first])[run != 0]
    return float(np.median(rise / run[run != 0])) if len(rise) else 0.0


def judge(process: str, samples: Sequence[Sample], allowed: dict[Measure, Allowed]) -> list[Verdict]:
    """Return one verdict for each measure that has a bound. `done` of the samples never falls."""
    return [_verdict(process, measure, samples, limit) for measure, limit in allowed.items()]


def _verdict(process: str, measure: Measure, samples: Sequence[Sample], limit: Allowed) -> Verdict:
    all_done = samples[-1].done if samples else 0.0
    warm = [s for s in samples if s.done >= all_done * WARM_FROM]
    slope = slope_of([s.done for s in warm], [s.values[measure] for s in warm])
    units = warm[-1].done - warm[0].done if warm else 0.0
    growth, growth_allowed = slope * units, limit.growth + limit.growth_per_unit * units
    peak = max((s.values[measure] for s in samples), default=0.0)
    wrong = []
    if len(warm) < SAMPLES_MIN:
        wrong.append(f"{len(warm)} samples of the second half, at least {SAMPLES_MIN} are needed")
    if peak > limit.most:
        wrong.append(f"{measure}: {peak:.0f}, the bound is {limit.most:.0f}")
    if growth > growth_allowed:
        wrong.append(
            f"{measure}: grew by {growth:.1f} over the last {units:.0f} units, {growth_allowed:.1f} are allowed"
        )
    return Verdict(
        process=process,
        measure=measure,
        peak=peak,
        most=limit.most,
        growth=growth,
        growth_allowed=growth_allowed,
        slope=slope,
        wrong="; ".join(wrong),
    )
