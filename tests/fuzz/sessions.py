"""Sessions of targets that are functions: they have no world, and a delivered input leaves nothing behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from tests.fuzz.target import Broken, Scenario, Target

Mutate = Callable[[random.Random], bytes]


class Pure:
    """A target that is one function. `read(bytes)` raises for a fault only, and returns what it made of them."""

    def __init__(self, seeds: Sequence[bytes], mutate: Mutate, read: Callable[[bytes], object]) -> None:
        self.seeds = seeds
        self._mutate = mutate
        self._read = read
        self._honest = [read(seed) for seed in seeds]

    def mutate(self, rng: random.Random) -> bytes:
        return self._mutate(rng)

    async def deliver(self, data: bytes) -> None:
        self._read(data)

    async def check(self) -> None:
        """Check that valid inputs are read as they were read first."""
        for seed, honest in zip(self.seeds, self._honest, strict=True):
            if (now := self._read(seed)) != honest:
                raise Broken(f"a valid input is read as {now!r}, and was read as {honest!r}")


def pure(
    name: str, seeds: Sequence[bytes], mutate: Mutate, read: Callable[[bytes], object], **bounds: object
) -> Target:
    """Return the target of a function."""

    async def life(scenario: Scenario) -> None:
        await scenario(Pure(seeds, mutate, read))

    def within(scenario: Scenario) -> None:
        asyncio.run(life(scenario))

    return Target(name=name, within=within, **{"slice_inputs": 10_000, "brief": 400, **bounds})  # type: ignore[arg-type]
