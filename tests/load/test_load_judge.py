"""The judge of the load suite: slopes through noise; planted leaks turn it red, honest ups and downs do not."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from nyala.replica.types import Code, Refused
from tests.load.campaign import errors_of
from tests.load.judge import PAIRED_MAX, SAMPLES_MIN, Allowed, Measure, Sample, judge, slope_of
from tests.load.sampler import Sampler, measured
from tests.load.world import Tally

MB = Measure.PRIVATE_MB
ALLOWED = {MB: Allowed(most=300, growth=20)}


def samples(values: list[float], measure: Measure = MB) -> list[Sample]:
    """Return samples, one for each unit of work and second."""
    return [Sample(at_s=n, done=n, values={measure: value}) for n, value in enumerate(values)]


def wrong_of(values: list[float], allowed: dict[Measure, Allowed] = ALLOWED) -> str:
    (verdict,) = judge("server", samples(values), allowed)
    return verdict.wrong


def test_slope_is_that_of_the_line_though_a_quarter_of_the_samples_is_anywhere() -> None:
    """Goal: neither a flush nor a merge hides or makes a slope. Method: a line of slope 3 with a fourth of its points
    moved far up or down, by 50 seeds; fewer and more points than are paired; equal places, which have no slope."""
    for seed in range(50):
        rng = random.Random(seed)
        count = rng.choice((20, 100, 3 * PAIRED_MAX))
        ys = [100 + 3.0 * x for x in range(count)]
        for x in rng.sample(range(count), count // 4):
            ys[x] += rng.uniform(-10_000, 10_000)
        assert slope_of(range(count), ys) == pytest.approx(3.0, abs=0.5), seed
    assert slope_of([5, 5, 5], [1, 2, 3]) == 0.0 == slope_of([], [])


def test_leak_within_swings_is_found_and_swings_alone_are_none() -> None:
    """IN-32, IN-60. Goal: a planted leak turns the judge red, through noise larger than one step of it. Method: a store
    that fills to 30 MB and is flushed, again and again, for 400 units; the same with 0.2 MB more at each unit, which is
    40 MB over the second half, and the verdict names the growth and what is allowed."""
    rng = random.Random(7)
    swings = [100 + n % 25 + rng.uniform(0, 5) for n in range(400)]
    assert wrong_of(swings) == ""
    leaking = [value + 0.2 * n for n, value in enumerate(swings)]
    assert "grew by 4" in wrong_of(leaking) and "20.0 are allowed" in wrong_of(leaking)


def test_warming_up_is_no_leak_and_a_leak_behind_a_quiet_start_is_one() -> None:
    """Goal: only the second half decides whether something leaks. Method: 150 MB that come in the first half and stay;
    a flat first half with a leak after it."""
    assert wrong_of([min(100 + 1.5 * n, 250) for n in range(200)]) == ""
    assert "grew by" in wrong_of([100.0] * 100 + [100 + 0.5 * n for n in range(100)])


def test_memory_given_back_is_no_growth() -> None:
    """Goal: a falling slope is no leak. Method: values that fall by a MB a unit."""
    assert wrong_of([250.0 - n for n in range(100)]) == ""


def test_one_peak_above_the_bound_is_told() -> None:
    """Goal: the bound holds at any time, in the first half too. Method: one sample of 301 MB at the beginning."""
    assert wrong_of([301.0] + [100.0] * 99) == f"{MB}: 301, the bound is 300"
    assert wrong_of([300.0] + [100.0] * 99) == ""


def test_what_a_unit_leaves_behind_by_design_is_allowed_and_no_more() -> None:
    """Goal: tombstones and the like are stated for each unit of work, not hidden in a wide bound. Method: 0.5 MB a unit
    over 200 units, with 0.5 and with 0.2 MB allowed for each beside 20 MB."""
    values = [0.5 * n for n in range(200)]
    assert wrong_of(values, {MB: Allowed(growth=20, growth_per_unit=0.5)}) == ""
    assert "grew by" in wrong_of(values, {MB: Allowed(growth=20, growth_per_unit=0.2)})


def test_open_files_and_threads_are_judged_like_memory() -> None:
    """Goal: a descriptor that is never closed is found, and so is a thread that never ends. Method: one more at every
    tenth unit, of 400, with 12 allowed."""
    for measure in (Measure.FILES, Measure.THREADS):
        counts = samples([50.0 + n // 10 for n in range(400)], measure)
        (verdict,) = judge("server", counts, {measure: Allowed(growth=12)})
        assert f"{measure}: grew by 19.9" in verdict.wrong


def test_too_few_samples_are_a_failure() -> None:
    """Goal: too few samples are no proof. Method: no sample, and one fewer than are needed in the second half."""
    for count in (0, 2 * SAMPLES_MIN - 2):
        assert "samples of the second half" in wrong_of([100.0] * count)
    assert wrong_of([100.0] * 2 * SAMPLES_MIN) == ""


LEAK = """
import sys, threading
kept = []
print("ready", flush=True)
for line in sys.stdin:
    kept.append(bytearray(b"x" * 4_000_000))
    kept.append(open("/dev/null"))
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    print("done", flush=True)
"""


def test_real_process_that_leaks_is_seen_by_the_sampler() -> None:
    """Goal: the numbers come from the process itself. Method: a process that keeps 4 MB, one file and one thread for
    each line that it receives; after 24 lines memory, files and threads are all found to grow, by the slope of a
    line."""
    command = [sys.executable, "-c", LEAK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        taken = []
        for done in range(25):
            taken.append(Sample(at_s=done, done=done, values=measured(process.pid)))
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
        process.stdin.close()
    limits = {MB: Allowed(growth=4), Measure.FILES: Allowed(growth=4), Measure.THREADS: Allowed(growth=4)}
    found = {v.measure: v for v in judge("leak", taken, limits)}
    assert all("grew by" in v.wrong for v in found.values()), found
    assert found[MB].slope == pytest.approx(3.8, abs=0.6)
    assert found[Measure.FILES].slope == pytest.approx(1.0) == found[Measure.THREADS].slope


def test_sampler_looks_until_the_end_and_names_a_process_that_is_gone() -> None:
    """Goal: a death under load is reported. Method: this process and one that has ended are sampled for a moment: this
    one has a sample from the end at least, with the work done by then; the other one is named."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = 0.0
    with Sampler({"me": os.getpid(), "gone": gone.pid}, lambda: done, period_s=0.001) as sampler:
        done = 5.0
    assert sampler.lost == ["gone"] and sampler.samples["gone"] == []
    assert sampler.samples["me"][-1].done == 5.0 and sampler.samples["me"][-1].values[Measure.THREADS] >= 2
    tally = Tally()
    assert errors_of(tally, sampler.lost, []) == ["gone ended", "no unit of work was done"]


def test_only_refusals_for_overload_are_repeated_and_counted() -> None:
    """Goal: overload is the only error that is allowed. Method: a call that is overloaded twice before it is answered,
    and one that is refused for something else."""
    tally, answers = Tally(), [Refused(Code.OVERLOADED, "full"), Refused(Code.OVERLOADED, "full"), 7]

    def call() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Refused):
            raise answer
        return answer

    assert tally.timed("call", call) == 7 and tally.overloaded == 2
    answers.append(Refused(Code.TIMED_OUT, "late"))
    with pytest.raises(Refused, match="late"):
        tally.timed("call", call)
    assert tally.latencies()["call"]["count"] == 1
