"""Runs inputs against a target, checks what must hold, and finds the shortest sequence of inputs that still fails."""

from __future__ import annotations

import gc
import logging
import random
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from tests.fuzz.memory import HighWater
from tests.fuzz.target import MIB, Broken, Session, Target

T = TypeVar("T")

CHECK_EVERY = 1000
"""The inputs between two checks of the guard's rows, of memory, and of an honest request."""
KEPT_BYTES_MAX = 16 * MIB
"""Bounds what may be left in Arrow's pool of one slice's world when the world is gone."""
WARM_INPUTS = 20
"""The inputs before memory is measured: by then modules are loaded and caches filled."""


@dataclass
class Failure:
    """A fault that was found. `number`: that of the input after which it was found."""

    target: str
    number: int
    error: str
    inputs: list[bytes] = field(default_factory=list)
    """The inputs that were delivered to the same world, up to this one."""


@dataclass
class Tally:
    """The result of a run."""

    inputs: int = 0
    seconds: float = 0.0
    high_bytes: int = 0
    """The most memory that was used above the amount before."""
    slowest_s: float = 0.0
    """The processor time of the costliest input."""
    failure: Failure | None = None


class _Faults(logging.Handler):
    """Collects exceptions that were logged and went no further: each is a fault."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            self.found.append(f"{record.getMessage()}\n{''.join(traceback.format_exception(*record.exc_info))}")
        elif record.name == "asyncio" and record.levelno >= logging.ERROR:
            self.found.append(record.getMessage())

    def check(self) -> None:
        """Raise Broken if there was one."""
        if self.found:
            raise Broken(f"an exception was logged: {self.found.pop(0)}")


def input_of(session: Session, target: Target, seed: int, number: int) -> bytes:
    """Return the input of that number; it depends on nothing else."""
    return session.mutate(random.Random(f"{seed} {target.name} {number}"))


def run(
    target: Target,
    seed: int,
    first: int,
    count: int,
    *,
    until_s: float = float("inf"),
    before: Callable[[int], None] = lambda number: None,
) -> Tally:
    """Run `count` inputs from number `first` on, in worlds of `target.slice_inputs` inputs each, or fewer: until the
    first failure, or the monotonic time `until_s`. `before(number)` is called before each input is delivered."""
    total, begun_s = Tally(), time.monotonic()
    for start in range(first, first + count, target.slice_inputs):
        numbers = range(start, min(start + target.slice_inputs, first + count))
        _slice(target, lambda session, n: input_of(session, target, seed, n), numbers, total, until_s, before)
        if total.failure is not None or time.monotonic() > until_s:
            break
    total.seconds = time.monotonic() - begun_s
    return total


def replay(target: Target, inputs: Sequence[bytes]) -> str:
    """Deliver the same inputs to one new world, with the checks after the last one; returns the error, or nothing."""
    tally = Tally()
    _slice(target, lambda session, n: inputs[n], range(len(inputs)), tally, float("inf"), lambda number: None)
    return tally.failure.error if tally.failure is not None else ""


def _slice(
    target: Target,
    input_at: Callable[[Session, int], bytes],
    numbers: range,
    tally: Tally,
    until_s: float,
    before: Callable[[int], None],
) -> None:
    faults, at = _Faults(), numbers.start
    root, pool_bytes = logging.getLogger(), pa.total_allocated_bytes()

    async def scenario(session: Session) -> None:
        try:
            await through(session)
        except Exception as error:
            tally.failure = _failure(error, [input_at(session, n) for n in range(numbers.start, at + 1)])
            raise

    def _failure(error: Exception, inputs: list[bytes]) -> Failure:
        return Failure(target.name, at, "".join(traceback.format_exception(error)), inputs)

    async def through(session: Session) -> None:
        nonlocal at
        high = HighWater()
        for at in numbers:
            data = input_at(session, at)
            before(at)
            begun_s = time.process_time()
            await session.deliver(data)
            cost_s = time.process_time() - begun_s
            tally.inputs += 1
            tally.slowest_s = max(tally.slowest_s, cost_s)
            if cost_s > target.cpu_s:
                raise Broken(f"one input took {cost_s:.1f} s of a processor, at most {target.cpu_s:g} s")
            faults.check()
            if at - numbers.start == WARM_INPUTS:
                high.begin()
            if (at + 1) % CHECK_EVERY == 0:
                await _check(session)
            if time.monotonic() > until_s:
                break
        await _check(session)
        tally.high_bytes = max(tally.high_bytes, high.taken_bytes())
        if high.taken_bytes() > target.memory_bytes:
            raise Broken(f"{high.taken_bytes() / MIB:.0f} MiB were taken, at most {target.memory_bytes / MIB:.0f} MiB")

    async def _check(session: Session) -> None:
        await session.check()
        faults.check()

    level = root.level
    root.addHandler(faults)
    try:
        target.within(scenario)
        gc.collect()
        faults.check()
        if (kept := pa.total_allocated_bytes() - pool_bytes) > KEPT_BYTES_MAX:
            raise Broken(f"{kept / MIB:.0f} MiB of Arrow's memory are left, at most {KEPT_BYTES_MAX / MIB:.0f} MiB")
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        tally.failure = tally.failure or _failure(error, [])
    finally:
        root.removeHandler(faults)
        root.setLevel(level)


def shortest(inputs: Sequence[T], fails: Callable[[Sequence[T]], bool], tries: int = 200) -> list[T]:
    """Return the shortest sequence that still fails, as far as `tries` attempts find it.

    If the whole sequence does not fail again, it is returned at once, because no part of it can be judged. It tries
    first the last input alone, then twice as many of the last ones each time; then parts are left out, half of
    them, a quarter, and so on [Zeller, "Simplifying and isolating failure-inducing input"].
    """
    left = tries

    def still(found: Sequence[T]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(found)

    size = 1
    while not still(inputs[-size:]):
        if size >= len(inputs):
            return list(inputs)
        size *= 2
    found = list(inputs[-size:])
    parts = 2
    while len(found) > 1 and left > 0:
        step = -(-len(found) // parts)
        for at in range(0, len(found), step):
            shorter = found[:at] + found[at + step :]
            if shorter and still(shorter):
                found, parts = shorter, max(2, parts - 1)
                break
        else:
            if step == 1:
                break
            parts = min(len(found), parts * 2)
    return found
