"""Sends inputs to real processes, checks the processes, and finds few inputs after which the same check fails again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz.campaign import input_of, shortest
from tests.fuzz.real_cluster import RealCluster, real_cluster
from tests.fuzz.real_targets import Wires, place_of, session_of, without_prey
from tests.fuzz.registry import target_of
from tests.fuzz.target import Broken
from tests.harness.links import played_sender

STRETCH = 500
"""The inputs that one prey receives before the next is made: a valid deletion ends what follows it early."""
AT_ONCE = 16
"""The inputs that are under way together."""
KEPT = 1 << 14
"""The last inputs of which a failure is sought: `shortest` tries the last one alone first, then twice as many."""
TRIES = 60
FAILURES_MAX = 20
ERROR_CHARS_MAX = 8000
HEADING = "real processes"


class Sent(NamedTuple):
    """One input that was sent."""

    target: str
    data: bytes


@dataclass
class Total:
    """What one target received."""

    inputs: int = 0
    seconds: float = 0.0
    """From the first input of each stretch to its last answer; the prey and the checks are not in it."""
    outcomes: Counter[str] = field(default_factory=Counter)

    def json(self) -> dict[str, Any]:
        """Return the figures of one target."""
        rate = self.inputs / self.seconds if self.seconds else 0.0
        return {
            "inputs": self.inputs,
            "seconds": round(self.seconds, 1),
            "inputs_per_s": round(rate, 1),
            "outcomes": dict(self.outcomes.most_common()),
        }


@dataclass
class Found:
    """A check that failed, and the inputs after which it fails."""

    error: str
    inputs: list[Sent]
    repeated: bool
    """Whether the check failed again after just these inputs, in processes of their own."""
    after: str
    """The last input before the failure, as the seed makes it."""


class Fuzzer:
    """Sends inputs to one cluster. Closing it leaves the cluster running."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self._ends = ExitStack()
        _, played_at = self._ends.enter_context(played_sender())
        self._runner = self._ends.enter_context(asyncio.Runner())
        self._wires = self._runner.run(_made(lambda: Wires(played_at)))

    def close(self) -> None:
        """End all connections."""
        self._runner.run(self._wires.close())
        self._ends.close()

    def __enter__(self) -> Fuzzer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stretch(self, name: str, inputs: Sequence[bytes], total: Total, at_once: int = AT_ONCE) -> None:
        """Make new prey and send it the inputs; Broken with what was found at once."""
        self._runner.run(self._stretch(name, inputs, total, at_once))

    async def _stretch(self, name: str, inputs: Sequence[bytes], total: Total, at_once: int) -> None:
        place = await place_of(name, self.cluster, self._wires)
        left, began = iter(inputs), time.monotonic()
        broken: list[Broken] = []

        async def send() -> None:
            for data in left:
                if broken:
                    return
                total.inputs += 1
                try:
                    total.outcomes[await place.send(place.own(data))] += 1
                    self.cluster.check_processes()
                except Broken as error:
                    broken.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(send())
        total.seconds += time.monotonic() - began
        if broken:
            raise broken[0]

    def check(self, *, new_table: bool = False) -> None:
        """Remove all prey, and check the cluster."""
        self.cluster.check_processes()
        self._runner.run(without_prey(self.cluster, self._wires))
        self.cluster.check()
        if new_table:
            self.cluster.check_new_table()


async def _made(make: Callable[[], Any]) -> Any:
    return make()


Clusters = Callable[[], AbstractContextManager[RealCluster]]


def replay(inputs: Sequence[Sent], clusters: Clusters) -> str:
    """Send the inputs to new processes, and check these; return the error, or nothing."""
    with clusters() as cluster, Fuzzer(cluster) as fuzzer:
        try:
            fuzzer.check()
            for name, data in _stretches(inputs):
                fuzzer.stretch(name, data, Total())
            fuzzer.check(new_table=True)
        except Broken as error:
            return str(error)
    return ""


def _stretches(inputs: Iterable[Sent]) -> Iterator[tuple[str, list[bytes]]]:
    name, data = "", list[bytes]()
    for sent in inputs:
        if data and (sent.target != name or len(data) == STRETCH):
            yield name, data
            data = []
        name = sent.target
        data.append(sent.data)
    if data:
        yield name, data


class Campaign:
    """Inputs for several targets in turn, `STRETCH` at a time, until each has had its number."""

    def __init__(
        self,
        names: Sequence[str],
        seed: int,
        *,
        first: int = 0,
        inputs: int,
        check_every: int = 1000,
        until_s: float = float("inf"),
        failures_max: int = FAILURES_MAX,
        tries: int = TRIES,
        clusters: Clusters = real_cluster,
        retries: Clusters | None = None,
        progress: Callable[[str, int], None] = lambda name, inputs: None,
        on_failed: Callable[[str], None] = lambda error: None,
        on_found: Callable[[Found], None] = lambda found: None,
    ) -> None:
        """After `failures_max` failures the campaign ends. `tries`: how often the inputs of one are sent again to make
        them fewer; `retries`: the processes that get them, `clusters` by default. `progress(name, inputs)`: called
        after each stretch. `on_failed`: called with each failure, before its inputs are made fewer; `on_found`
        afterwards."""
        self.totals = {name: Total() for name in names}
        self.found: list[Found] = []
        self.checks = 0
        self.grown: dict[str, float] = {}
        self.slowest_s = 0.0
        self.logged_bytes = 0
        self.seconds = 0.0
        """The time of the whole run: of starts, prey, inputs, checks, and of making failures' inputs fewer."""
        self._under_way = ""
        """The target of the last stretch that was begun."""
        self._seed, self._first, self._inputs = seed, first, inputs
        self._check_every, self._until_s, self._tries = check_every, until_s, tries
        self._failures_max = failures_max
        self._clusters, self._retries = clusters, retries or clusters
        self._progress, self._on_failed, self._on_found = progress, on_failed, on_found

    def run(self) -> None:
        """Send all inputs. After a failure its target gets none any more, and the others go on with new processes."""
        began = time.monotonic()
        try:
            self._run()
        finally:
            self.seconds = time.monotonic() - began

    def _run(self) -> None:
        end = self._first + self._inputs
        waiting = deque((name, self._first) for name in self.totals)
        while waiting and time.monotonic() < self._until_s and len(self.found) < self._failures_max:
            sent: deque[tuple[str, int]] = deque(maxlen=KEPT)
            error = ""
            with self._clusters() as cluster, Fuzzer(cluster) as fuzzer:
                try:
                    self._through(fuzzer, waiting, sent, end)
                except Broken as broken:
                    error = str(broken)
            if error:
                self._on_failed(error)
                found = self._shortened(error, list(sent))
                self.found.append(found)
                self._on_found(found)
                blamed = found.inputs[-1].target if found.repeated else self._under_way
                waiting = deque(each for each in waiting if each[0] != blamed)

    def _through(self, fuzzer: Fuzzer, waiting: deque[tuple[str, int]], sent: deque[tuple[str, int]], end: int) -> None:
        fuzzer.check(new_table=True)
        since = 0
        while waiting and time.monotonic() < self._until_s:
            name, first = waiting[0]
            self._under_way = name
            numbers = range(first, min(first + STRETCH, end))
            inputs = [self._input(name, number) for number in numbers]
            total = self.totals[name]
            before = total.inputs
            try:
                fuzzer.stretch(name, inputs, total)
            finally:
                sent.extend((name, number) for number in numbers[: total.inputs - before])
                since += total.inputs - before
            waiting.popleft()
            self._progress(name, len(numbers))
            if numbers.stop < end:
                waiting.append((name, numbers.stop))
            if since >= self._check_every or not waiting:
                self._checked(fuzzer, new_table=not waiting)
                since = 0
        if since:
            self._checked(fuzzer, new_table=True)

    def _checked(self, fuzzer: Fuzzer, *, new_table: bool) -> None:
        before = fuzzer.cluster.logged_bytes
        try:
            fuzzer.check(new_table=new_table)
        finally:
            self.logged_bytes += fuzzer.cluster.logged_bytes - before
            self.checks += 1
            self.slowest_s = max(self.slowest_s, fuzzer.cluster.slowest_s)
            for name, grown in fuzzer.cluster.grown.items():
                self.grown[name] = max(self.grown.get(name, 0.0), grown)

    def _input(self, name: str, number: int) -> bytes:
        return input_of(session_of(name), target_of(name), self._seed, number)

    def _shortened(self, error: str, sent: list[tuple[str, int]]) -> Found:
        inputs = [Sent(name, self._input(name, number)) for name, number in sent]
        tried = {"fails": False}

        def fails(some: Sequence[Sent]) -> bool:
            again = replay(some, self._retries)
            tried["fails"] = tried["fails"] or bool(again)
            return bool(again)

        few = shortest(inputs, fails, self._tries)
        name, number = sent[-1] if sent else ("", 0)
        return Found(error[:ERROR_CHARS_MAX], few, tried["fails"], f"{name} --seed {self._seed} --first {number}")

    def json(self) -> dict[str, Any]:
        """Return the whole result."""
        return {
            "seed": self._seed,
            "seconds": round(self.seconds, 1),
            "checks": self.checks,
            "inputs": sum(total.inputs for total in self.totals.values()),
            "logged_mb": round(self.logged_bytes / 1e6, 1),
            "slowest_honest_s": round(self.slowest_s, 2),
            "grown_mb": {name: round(grown, 1) for name, grown in sorted(self.grown.items())},
            "targets": {name: total.json() for name, total in self.totals.items()},
            "found": [
                {"error": f.error, "inputs": [(s.target, s.data.hex()) for s in f.inputs], "repeated": f.repeated}
                for f in self.found
            ],
        }


# -------------------------------------------------------------------------------------------------------- saved inputs


def save_sent(path: Path, found: Found) -> None:
    """Write a file that `load_sent` reads; the error stands at its head."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [*found.error.strip().splitlines(), f"after {found.after}", f"python -m tests.fuzz --repeat {path}"]
    text = [*(f"# {line}" for line in lines), HEADING, *(f"{s.target} {s.data.hex()}" for s in found.inputs)]
    path.write_text("\n".join(text) + "\n")


def load_sent(path: Path) -> list[Sent] | None:
    """Read the inputs of a saved failure of real processes; None if the file is of a target in this process."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    if lines[:1] != [HEADING]:
        return None
    parts = (line.partition(" ") for line in lines[1:])
    return [Sent(name, bytes.fromhex(data)) for name, _, data in parts]
