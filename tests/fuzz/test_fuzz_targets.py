"""Brief runs of targets that need no servers, longer ones of all, and faults that the fuzzers themselves must find."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from nyala.pipeline.framing import Framing
from nyala.replica.decision_executor import TOPICS
from nyala.replica.rpc import pb
from tests.formats import test_durable_formats
from tests.fuzz.__main__ import STUCK_S, _hangs, main
from tests.fuzz.campaign import Tally, run, shortest
from tests.fuzz.registry import KINDS, all_targets, target_of
from tests.fuzz.spoil import spoilt
from tests.fuzz.target import Broken, Scenario, Target
from tests.fuzz.worker import load_inputs, save_inputs
from tests.unit.master import test_master_requests_table as of_master
from tests.unit.server import test_server_requests_table as of_server

SEED = 20
BRIEF_SHARE = 8
"""The fast suite runs one in so many of the inputs of a brief run; the deep one has them all, twenty times."""
NAMES = [*all_targets()]
BRIEF = ("value", "topic", "file", "entry")
"""Kinds without a world to set up: a second for all of them."""


def checked(tally: Tally) -> None:
    """Raise AssertionError with what was found, and the command that shortens it."""
    failure = tally.failure
    assert failure is None, (
        f"{failure.error}\npython -m tests.fuzz {failure.target} --seed {SEED} --inputs {failure.number + 1}"
        if failure
        else ""
    )


@pytest.mark.parametrize("kind", [*BRIEF, *(pytest.param(k, marks=pytest.mark.deep) for k in KINDS if k not in BRIEF)])
def test_hostile_inputs_of_each_kind_are_refused_and_harm_nothing(kind: str) -> None:
    """IN-60, IN-82, IN-90. Goal: no bytes from outside end a process, take memory without bound, or change what they do
    not name. Method: a few seeded inputs for every target of the kind, changed by their structure; after them the
    guard's rows, memory, and an honest request are checked."""
    for name in NAMES:
        if name.startswith(f"{kind}/"):
            checked(run(target_of(name), SEED, 0, max(5, target_of(name).brief // BRIEF_SHARE)))


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_many_hostile_inputs_of_each_target_are_refused_and_harm_nothing(name: str) -> None:
    """IN-60, IN-82, IN-90. Goal and method as above, with many more inputs for each target."""
    checked(run(target_of(name), SEED, 1000, 4 * target_of(name).brief))


def test_every_call_topic_link_and_file_format_has_a_target() -> None:
    """Goal: every new input from outside has a fuzzer. Method: the tables of calls, the topics, the links' kinds, the
    framed schemas."""
    calls = {f"server/{row.call}" for row in of_server.ROWS} | {f"master/{row.call}" for row in of_master.ROWS}
    assert {n for n in NAMES if n.startswith(("server/", "master/"))} == calls
    assert {"link/raft", "link/writes", "link/copy", "link/rows"} == {n for n in NAMES if n.startswith("link/")}
    topics = {f"topic/{topic}" for topic in (*TOPICS, "dead-letters")} | {f"topic/writes-{f.value}" for f in Framing}
    assert topics == {n for n in NAMES if n.startswith("topic/")}
    framed = {f"file/{schema}" for schema in test_durable_formats.FRAMED} | {"file/consensus_metadata"}
    plain = {f"file/{name}" for name in ("wal", "newest", "withheld", "catalog", "block", "sidecar")}
    assert framed | plain == {n for n in NAMES if n.startswith("file/")}


class _Canary:
    """A target that a byte of 255 breaks once a byte of 254 came before."""

    def __init__(self) -> None:
        self.seeds: Sequence[bytes] = [bytes(range(10))]
        self._armed = False

    def mutate(self, rng: random.Random) -> bytes:
        return spoilt(self.seeds[0], rng)

    async def deliver(self, data: bytes) -> None:
        if self._armed and b"\xff" in data:
            raise Broken("the canary is dead")
        self._armed = self._armed or b"\xfe" in data or b"\x7f" in data

    async def check(self) -> None:
        """Check nothing: this target has no guard."""


def _within(scenario: Scenario) -> None:
    asyncio.run(scenario(_Canary()))  # type: ignore[arg-type]


def test_planted_fault_is_found_and_its_inputs_are_few() -> None:
    """Goal: the fuzzers can fail, and what they find is short. Method: a target that breaks if one input comes after
    another; of hundreds of inputs two are left, and they still break it."""
    target = Target(name="value/canary", within=_within)
    found = run(target, 3, 0, 5000).failure
    assert found is not None and "the canary is dead" in found.error and len(found.inputs) > 2

    def fails(inputs: Sequence[bytes]) -> bool:
        canary = _Canary()
        try:
            for data in inputs:
                asyncio.run(canary.deliver(data))
        except Broken:
            return True
        return False

    few = shortest(found.inputs, fails)
    assert len(few) == 2 and fails(few)


def test_failure_that_does_not_repeat_is_kept_whole_after_few_attempts() -> None:
    """A failure that needs more than its inputs, such as the state of a busy machine, keeps all of them. The campaign
    spends no more than one attempt for each doubling on it, and goes on with its other inputs."""
    inputs, tried = [bytes([n]) for n in range(100)], []
    assert shortest(inputs, lambda some: bool(tried.append(len(some)))) == inputs  # type: ignore[func-returns-value]
    assert tried == [1, 2, 4, 8, 16, 32, 64, 100]


@pytest.mark.parametrize("name", ["master/MasterService.MoveReplica", "server/CopyService.StartTabletCopy"])
def test_input_of_a_number_is_the_same_in_every_run(name: str) -> None:
    """Goal: a seed and a number are enough to repeat an input. Method: two worlds of a target whose requests carry ids,
    or ports, that each world makes anew."""
    found: list[list[bytes]] = []

    async def scenario(session: object) -> None:
        found.append([session.mutate(random.Random(n)) for n in range(60)])  # type: ignore[attr-defined]

    for _ in range(2):
        target_of(name).within(scenario)  # type: ignore[arg-type]
    assert found[0] == found[1] and len(set(found[0])) > 20


@pytest.mark.deep
def test_saved_inputs_are_read_back_and_repeated(tmp_path: Path) -> None:
    """Goal: a failure is kept as a file that everyone can run again. Method: it is written and read; then the command
    itself repeats inputs that break nothing."""
    path = tmp_path / "some.hex"
    inputs = [b"", b"\x00\xff", pb.Empty().SerializeToString()]
    save_inputs(path, "value/condition", inputs, "first line\nBroken: the last one")
    assert load_inputs(path) == ("value/condition", inputs)
    text = path.read_text()
    assert "first line" in text and "the last one" in text and f"--repeat {path}" in text
    assert main(["--repeat", str(path)]) == 0


@pytest.mark.parametrize(
    ("waited", "used", "hangs"),
    [(0.9, 0.9, False), (1.1, 0.0, True), (1.1, 1.1, True), (1.1, 0.1, False), (5.9, 0.4, False), (6.1, 0.4, True)],
)
def test_process_on_a_busy_machine_is_not_taken_for_one_that_hangs(waited: float, used: float, hangs: bool) -> None:
    """Goal: a campaign beside other work stands still for no false failure, and ends what hangs. Method: processes that
    wait for ever, compute for ever, and compute a part of the time; times as parts of the bound."""
    assert _hangs(waited * STUCK_S, used * STUCK_S) is hangs
