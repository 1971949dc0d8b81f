"""Which decision is carried out next, over all orders of events; no threads and no clock."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.decision_executor import Bounds, carry_out_all, outcome_of, target_of
from nyala.replica.decision_executor.schedule import RETRY_MAX_S, Job, Schedule
from nyala.replica.types import Action, Code, ConfigEdit, Decision, EditKind, Member, Outcome, Refused

PASSING, FINAL = Refused(Code.NOT_READY, "not yet"), Refused(Code.CAS_FAILED, "another config")


def decision(tablet: str, leader: str = "", version: int = 1, *edits: ConfigEdit) -> Decision:
    return Decision(
        tablet_id=tablet, table_id="b", action=Action.CHANGE_CONFIG, version=version, leader_uuid=leader, edits=edits
    )


def edit(kind: EditKind, uuid: str) -> ConfigEdit:
    return ConfigEdit(kind, Member(uuid))


@pytest.mark.parametrize(
    ("edits", "leader", "target"),
    [
        ((edit(EditKind.ADD, "n"),), "l", "n"),
        ((edit(EditKind.REMOVE, "o"), edit(EditKind.ADD, "n")), "l", "n"),
        ((edit(EditKind.REMOVE, "o"),), "l", "l"),
        ((edit(EditKind.CHANGE, "o"),), "l", "l"),
        ((), "l", "l"),
        ((edit(EditKind.REMOVE, "o"),), "", "tablet t"),
    ],
)
def test_target_is_the_server_that_gets_a_copy_or_else_the_leader(
    edits: tuple[ConfigEdit, ...], leader: str, target: str
) -> None:
    """Goal: a decision counts at the server that bears its work. Method: the table of edits, with and without a
    leader."""
    assert target_of(decision("t", leader, 1, *edits)) == target


def settled(schedule: Schedule, job: Job, error: Refused | None, now_s: float) -> bool:
    return schedule.finish(job, outcome_of(job.decision, error), now_s)


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_events_keeps_the_bounds_and_ends_every_decision(seed: int) -> None:
    """TC-67. Goal: at any time a tablet has one attempt under way and a target at most its bound; the newest decision
    of each tablet ends, unless it was withdrawn, and no replaced one is begun. Method: random decisions, withdrawals,
    ends of attempts (good, final, passing) and passing time; then everything is brought to its end."""
    draw = random.Random(seed)
    bounds = Bounds(workers=9, per_target_max=draw.randint(1, 3))
    schedule, now_s = Schedule(bounds), 0.0
    running: list[Job] = []
    newest: dict[str, Decision] = {}
    withdrawn: set[str] = set()
    ended: set[tuple[str, int]] = set()
    version = 0

    def begin() -> bool:
        job = schedule.take(now_s) if len(running) < bounds.workers else None
        if job is None:
            return False
        tablet = job.decision.tablet_id
        assert job.decision is newest[tablet] and tablet not in withdrawn
        running.append(job)
        assert len({each.decision.tablet_id for each in running}) == len(running)
        assert max(Counter(each.target for each in running).values()) <= bounds.per_target_max
        return True

    def end(error: Refused | None) -> None:
        job = running.pop(draw.randrange(len(running)))
        if settled(schedule, job, error, now_s):
            ended.add((job.decision.tablet_id, job.decision.version))

    for _ in range(600):
        kind, tablet = draw.random(), f"t{draw.randrange(12)}"
        if kind < 0.25:
            version += 1
            newest[tablet] = decision(tablet, f"l{draw.randrange(4)}", version)
            withdrawn.discard(tablet)
            schedule.add(newest[tablet], now_s)
        elif kind < 0.3 and tablet in newest:
            schedule.withdraw(tablet)
            withdrawn.add(tablet)
        elif kind < 0.6:
            begin()
        elif kind < 0.9 and running:
            end(draw.choice((None, FINAL, PASSING)))
        else:
            now_s += draw.random() * 2
    for _ in range(1000):
        if schedule.idle:
            break
        now_s += RETRY_MAX_S
        while begin():
            pass
        while running:
            end(None)
    assert schedule.idle and schedule.take(now_s) is None
    assert {(t, d.version) for t, d in newest.items() if t not in withdrawn} <= ended


def test_targets_take_turns_and_a_full_one_holds_no_other_up() -> None:
    """Goal: many decisions of one server do not delay those of others. Method: five of one server, then one each of
    two; the bound is two."""
    schedule = Schedule(Bounds(workers=9, per_target_max=2))
    for tablet, leader in (*((f"a{n}", "a") for n in range(5)), ("b0", "b"), ("c0", "c")):
        schedule.add(decision(tablet, leader), 0.0)
    jobs = []
    while (job := schedule.take(0.0)) is not None:
        jobs.append(job)
    assert [job.decision.tablet_id for job in jobs] == ["a0", "b0", "c0", "a1"]
    assert settled(schedule, jobs[0], None, 0.0)
    following = schedule.take(0.0)
    assert following is not None and following.decision.tablet_id == "a2"


def test_retries_wait_longer_each_time_and_end_after_their_time() -> None:
    """TC-67. Goal: a failing decision is tried again after growing pauses, and its outcome is final after
    `retry_for_s`. Method: one that always fails; the times of its attempts."""
    schedule, now_s, tried = Schedule(Bounds(workers=1, per_target_max=1, retry_for_s=10.0)), 100.0, []
    schedule.add(decision("t", "l"), now_s)
    for _ in range(20):
        job = schedule.take(now_s)
        assert job is not None
        tried.append(now_s)
        if settled(schedule, job, PASSING, now_s):
            break
        assert schedule.take(now_s) is None
        now_s = schedule.due_s()
    assert [round(at - 100.0, 2) for at in tried] == [0, 0.25, 0.75, 1.75, 3.75, 7.75, 11.75]
    assert schedule.idle


def test_decision_that_waited_too_long_ends_without_an_attempt() -> None:
    """Goal: decisions of a server that takes all the time end within a bound, with an outcome that says so. Method: a
    bound of zero seconds; nothing is tried."""

    def attempt(_: Decision) -> Outcome:
        raise AssertionError("it is tried")

    bounds = Bounds(workers=2, per_target_max=1, start_within_s=0.0)
    found = list(carry_out_all([decision("a", "l"), decision("b", "l")], attempt, bounds))
    assert {each.tablet_id for each in found} == {"a", "b"}
    assert all(each.code == Code.TIMED_OUT and "server l" in each.message for each in found)


def test_all_decisions_end_and_no_server_is_called_more_often_at_a_time_than_allowed() -> None:
    """Goal: the threads keep the schedule's bounds. Method: 300 decisions of seven servers, each attempt counts those
    of its server that are under way."""
    lock = threading.Lock()
    under_way: Counter[str] = Counter()
    most: Counter[str] = Counter()
    tries: Counter[str] = Counter()

    def attempt(each: Decision) -> Outcome:
        at = each.leader_uuid
        with lock:
            under_way[at] += 1
            most[at] = max(most[at], under_way[at])
            tries[each.tablet_id] += 1
        with lock:
            under_way[at] -= 1
        error: Any = PASSING if tries[each.tablet_id] < 2 and each.version % 7 == 0 else None
        return replace(outcome_of(each, error), executor="x")

    decisions = [decision(f"t{n}", f"l{n % 7}", n) for n in range(300)]
    found = list(carry_out_all(decisions, attempt, Bounds(workers=16, per_target_max=2)))
    assert sorted(each.tablet_id for each in found) == sorted(each.tablet_id for each in decisions)
    assert {each.code for each in found} == {Code.OK}
    assert max(most.values()) <= 2 and max(tries.values()) == 2
