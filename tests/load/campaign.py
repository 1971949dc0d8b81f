"""Runs parts of the load over one set of processes, and judges each: errors, rows, memory, files and threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.load.judge import Verdict, judge
from tests.load.parts import Part
from tests.load.sampler import Sampler
from tests.load.world import Tally, World


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one part."""

    part: Part
    units: float
    seconds: float
    overloaded: int
    latencies: dict[str, dict[str, float]]
    verdicts: list[Verdict]
    errors: list[str]
    """All that is wrong with the load, with rows, and by the verdicts."""

    def json(self) -> dict[str, Any]:
        """Return one document."""
        return {
            "part": self.part.name,
            "units": self.units,
            "unit": self.part.unit,
            "seconds": round(self.seconds, 1),
            "overloaded": self.overloaded,
            "latencies": self.latencies,
            "processes": [
                {
                    "process": v.process,
                    "measure": v.measure.name.lower(),
                    "peak": v.peak,
                    "most": v.most if v.most != float("inf") else None,
                    "growth": v.growth,
                    "growth_allowed": v.growth_allowed,
                    "slope_per_unit": v.slope,
                }
                for v in self.verdicts
            ],
            "errors": self.errors,
        }


def perform(world: World, part: Part, size: float, progress: Callable[[float], None] = lambda _: None) -> Result:
    """Run one part of `size` units or seconds. `progress(share)` is called with the share that is done, from the
    sampler's thread."""
    tally, began = Tally(), time.monotonic()

    def done() -> float:
        progress((time.monotonic() - began) / size if part.seconds else tally.done / size)
        return tally.done

    with Sampler(world.pids(), done) as sampler:
        try:
            part.run(world, tally, size)
        except Exception as error:  # noqa: BLE001 - told with the part's other errors
            tally.fail(error)
    seconds = time.monotonic() - began
    verdicts = [v for name, samples in sampler.samples.items() for v in judge(name, samples, part.allowed(name))]
    return Result(
        part=part,
        units=tally.done,
        seconds=seconds,
        overloaded=tally.overloaded,
        latencies=tally.latencies(),
        verdicts=verdicts,
        errors=[*errors_of(tally, sampler.lost, verdicts), *world.guard_errors()],
    )


def errors_of(tally: Tally, lost: Iterable[str], verdicts: Iterable[Verdict]) -> list[str]:
    """Return all that is wrong with one part."""
    found = [f"{name} ended" for name in lost]
    found += tally.errors[:10]
    if not tally.done:
        found.append("no unit of work was done")
    return found + [f"{v.process}: {v.wrong}" for v in verdicts if v.wrong]
