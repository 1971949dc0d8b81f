"""What a fuzzer knows of one place that takes bytes from outside: valid inputs, how to spoil them, what must hold."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

MIB = 1 << 20


class Broken(AssertionError):
    """An input had an effect that no input may have."""


class Session(Protocol):
    """One world in which a door stands open."""

    @property
    def seeds(self) -> Sequence[bytes]:
        """Valid inputs. Equal in every session of the door: ids that a world makes up stand there as placeholders."""
        ...

    def mutate(self, rng: random.Random) -> bytes:
        """An input, by the random numbers alone."""
        ...

    async def deliver(self, data: bytes) -> None:
        """Hand the input over, until what it brings about has ended. Any exception is a fault that was found."""
        ...

    async def check(self) -> None:
        """The guard's rows are as they were, and an honest request is answered. Any exception is a fault."""
        ...


Scenario = Callable[[Session], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Door:
    """One place that takes bytes from outside."""

    name: str
    """`kind/what`, such as `server/TabletService.Write`."""
    within: Callable[[Scenario], None]
    """Run a scenario in a new world."""
    memory_bytes: int = 64 * MIB
    """What all that is under way at a time may add to the process, at its highest."""
    slice_inputs: int = 1000
    """So many inputs come to one world, then there is another one."""
    cpu_s: float = 2.0
    """Processor time that one input may cost."""
    brief: int = 100
    """Inputs of a brief run: so many as take it some tenths of a second."""

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]
