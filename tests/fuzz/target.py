"""One place that reads bytes from outside, as a fuzzer knows it: valid inputs, how to change them, what must hold."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

MIB = 1 << 20


class Broken(AssertionError):
    """An input had an effect that no input may have."""


class Session(Protocol):
    """One world in which a target can be tried."""

    @property
    def seeds(self) -> Sequence[bytes]:
        """Return valid inputs. They are equal in every session of the target: placeholders stand for ids that a world
        makes up."""
        ...

    def mutate(self, rng: random.Random) -> bytes:
        """Return an input, by the random numbers alone."""
        ...

    async def deliver(self, data: bytes) -> None:
        """Deliver the input, until its effects have ended. Any exception is a fault that was found."""
        ...

    async def check(self) -> None:
        """Check that the guard's rows are as they were, and that an honest request is answered. Any exception is a
        fault."""
        ...


Scenario = Callable[[Session], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Target:
    """One place that reads bytes from outside."""

    name: str
    """`kind/what`, such as `server/TabletService.Write`."""
    within: Callable[[Scenario], None]
    """Run a scenario in a new world."""
    memory_bytes: int = 64 * MIB
    """The memory that all that is under way at a time may add to the process, at its highest."""
    slice_inputs: int = 1000
    """The number of inputs that one world receives before the next world begins."""
    cpu_s: float = 2.0
    """Processor time that one input may cost."""
    brief: int = 100
    """The inputs of a brief run, which take it some tenths of a second."""

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]
