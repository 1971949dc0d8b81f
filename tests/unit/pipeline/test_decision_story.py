"""The story of a tablet: its records in the order of time, each once, with the time that each step took."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.pipeline.decision_story import TEXT_CHARS_MAX, Event, Step, cause_of, event_of, story, without_beginning
from nyala.replica.types import (
    Action,
    Address,
    Code,
    ConfigEdit,
    Decision,
    EditKind,
    EventKind,
    HistoryEvent,
    Member,
    OpId,
    Outcome,
    Proposal,
    RaftConfig,
    Result,
    Subject,
    Wanted,
)

A, B = "a" * 32, "b" * 32
PROPOSAL = Proposal(
    proposal_id="p1", plan_id="plan", tablet_id="t", wanted=Wanted.MOVE_REPLICA, from_uuid=A, to_uuid=B,
    config_opid=OpId(1, 1), deadline_us=0, reason="evens bytes",
)  # fmt: skip


def decision(version: int, *edits: ConfigEdit, plan: str = "plan", tablet: str = "t", reason: str = "add") -> Decision:
    return Decision(
        tablet_id=tablet, table_id="i", catalog_term=3, version=version, action=Action.CHANGE_CONFIG, edits=edits,
        plan_id=plan, reason=reason,
    )  # fmt: skip


def outcome(of: Proposal | Decision, result: Result, at_us: int, code: int = 0, message: str = "") -> Outcome:
    about = (Subject.PROPOSAL, of.proposal_id) if isinstance(of, Proposal) else (Subject.DECISION, of.id)
    return Outcome(
        subject=about[0], subject_id=about[1], plan_id=of.plan_id, tablet_id=of.tablet_id, result=result, code=code,
        message=message, at_us=at_us, executor="x",
    )  # fmt: skip


ADD = decision(1, ConfigEdit(EditKind.ADD, Member(B, votes=False, promote=True)))
REMOVE = decision(2, ConfigEdit(EditKind.REMOVE, Member(A)), reason="evict")
MOVE = [
    event_of(PROPOSAL, "t", 1_000),
    event_of(outcome(PROPOSAL, Result.ACCEPTED, 1_200), "t", 9_000),
    event_of(ADD, "t", 1_500),
    event_of(outcome(ADD, Result.DONE, 4_000), "t", 9_000),
    event_of(REMOVE, "t", 5_000),
    event_of(outcome(REMOVE, Result.FAILED, 6_000, Code.TIMED_OUT, "no answer"), "t", 9_000),
    event_of(None, "t", 7_000),
    event_of(outcome(PROPOSAL, Result.DONE, 8_000), "t", 9_000),
]


def lines(events: list[Event]) -> list[tuple[str, str, int | None]]:
    return [(one.event.step.value, one.since, one.took_us) for one in story(events)]


def test_story_of_a_move_has_each_step_with_its_time() -> None:
    """Goal: a move is shown from its proposal to its end, with what was changed, by whom, why, and how long each step
    took: an outcome since its proposal or decision, a decision since the last step of its plan. Method: the records of
    a move of two decisions."""
    assert lines(MOVE) == [
        ("PROPOSED", "", None),
        ("ACCEPTED", "PROPOSED", 200),
        ("DECIDED", "ACCEPTED", 300),
        ("DONE", "DECIDED", 2_500),
        ("DECIDED", "DONE", 1_000),
        ("FAILED", "DECIDED", 1_000),
        ("WITHDRAWN", "DECIDED", 2_000),
        ("DONE", "PROPOSED", 7_000),
    ]
    found = [(e.event.change, e.event.reason, e.event.code, e.event.by) for e in story(MOVE)]
    assert found[0] == (f"move a replica from {A} to {B}", "evens bytes", "", "a job")
    assert found[2] == (f"add {B} (no vote, to be promoted)", "add", "", "the masters, term 3")
    assert found[4][0] == f"remove {A}"
    assert found[5] == ("", "no answer", "TIMED_OUT", "x")


def test_outcome_never_stands_before_its_decision() -> None:
    """Goal: clocks of an executor and of a master differ, and the story is in order all the same; no time is shown that
    nobody measured. Method: an outcome whose clock is a second behind, between two decisions of other tablets."""
    behind = event_of(outcome(ADD, Result.DONE, 500), "t", 500)
    others = [event_of(decision(1, tablet="u"), "u", 400), event_of(decision(1, tablet="v"), "v", 2_000)]
    assert [(one.event.tablet_id, one.event.step, one.took_us) for one in story([behind, *others, MOVE[2]])] == [
        ("u", Step.DECIDED, None), ("t", Step.DECIDED, None), ("t", Step.DONE, None), ("v", Step.DECIDED, None),
    ]  # fmt: skip


def test_decisions_without_a_plan_are_no_steps_of_one() -> None:
    """Goal: the time since an unrelated change is not shown as that of a step. Method: two decisions of one tablet that
    no plan asked for; the same two of a plan; and a third one of another plan."""
    apart = [event_of(decision(n, plan=""), "t", n * 1_000) for n in (1, 2)]
    assert [one.since for one in story(apart)] == ["", ""]
    planned = [event_of(decision(n), "t", n * 1_000) for n in (1, 2)]
    planned.append(event_of(decision(3, plan="other"), "t", 3_000))
    assert [one.since for one in story(planned)] == ["", "DECIDED", ""]


def test_outcomes_without_their_decision_are_counted() -> None:
    """Goal: nobody takes a compacted topic for a complete one. Method: all records, then those without a decision; an
    outcome of a proposal, and one of another tablet's decision of the same version, do not count as its decision."""
    assert without_beginning(story(MOVE)) == 0
    assert without_beginning(story([e for e in MOVE if e.step is not Step.DECIDED])) == 2
    other = event_of(decision(1, tablet="u"), "u", 1)
    assert without_beginning(story([MOVE[3], other, MOVE[7]])) == 1
    assert [one.since for one in story([MOVE[3], other])] == ["", ""]


def test_texts_of_foreign_records_are_bounded() -> None:
    """Goal: 20,000 events fit in memory, whatever Kafka holds. Method: reasons and edits of the greatest lengths; a
    code that this build does not know."""
    long = "r" * 60_000
    edits = tuple(ConfigEdit(EditKind.REMOVE, Member(f"{n:0500}")) for n in range(64))
    found = [event_of(decision(1, *edits, reason=long), "t", 1)]
    found.append(event_of(outcome(ADD, Result.FAILED, 1, 9_999, long), "t", 1))
    assert all(len(e.reason) == TEXT_CHARS_MAX for e in found) and len(found[0].change) == TEXT_CHARS_MAX
    assert found[1].code.startswith("Code 9999 (")


MEMBERS = {uuid: Member(uuid * 32, (Address("h", 7),)) for uuid in "abcd"}
LEARNER = replace(MEMBERS["d"], votes=False, promote=True)


def config(index: int, *members: Member, version: int = 0, unsafe: bool = False) -> RaftConfig:
    return RaftConfig(OpId(1, index) if index else OpId(0, 0), members, (3, version) if version else (0, 0), unsafe)


A_B = (MEMBERS["a"], MEMBERS["b"])
CAUSES: list[tuple[RaftConfig | None, RaftConfig, str]] = [
    (None, config(0, *A_B), "its first config"),
    (None, config(1, *A_B), "the first config that is known"),
    (config(0, *A_B), config(1, *A_B), "its first leader"),
    (config(1, *A_B), config(2, *A_B, LEARNER, version=1), "decision 3.1"),
    (config(2, *A_B, LEARNER, version=1), config(3, *A_B, MEMBERS["d"], version=1), "its leader promoted a member"),
    (config(1, *A_B), config(2, *A_B, LEARNER), "no decision of the masters"),
    (config(1, *A_B, version=2), config(2, MEMBERS["a"], version=2), "no decision of the masters"),
    (config(1, *A_B), config(2, MEMBERS["a"], unsafe=True), "forced by an operator, without a majority"),
    (None, config(2, MEMBERS["a"], unsafe=True), "forced by an operator, without a majority"),
    (config(1, *A_B), config(1, MEMBERS["a"], replace(MEMBERS["b"], addresses=())), "a server has another address"),
    (config(1, *A_B), config(2, MEMBERS["a"], replace(MEMBERS["b"], votes=False)), "no decision of the masters"),
]


@pytest.mark.parametrize(("before", "after", "cause"), CAUSES)
def test_cause_of_a_config_is_told_as_far_as_it_shows(before: RaftConfig | None, after: RaftConfig, cause: str) -> None:
    """Goal: a change that no decision caused is shown as such, and a forced one above all. Method: a table of the
    configs before and after a change."""
    assert cause_of(before, after) == cause


def test_withdrawal_that_two_topics_tell_is_one() -> None:
    """Goal: the history and the topic of decisions tell of each withdrawal; it is shown once, at its earliest time, and
    two withdrawals are two. Method: both topics' records of two decisions, each withdrawn."""
    times = [(decision(n), at) for n, at in ((1, 1_000), (2, 3_000))]
    of_decisions = [e for d, at in times for e in (event_of(d, "t", at + 5), event_of(None, "t", at + 1_005))]
    of_history = [
        event_of(replace(event, at_us=at), "t", 9_999)
        for d, at in times
        for event, at in (
            (
                HistoryEvent(
                    kind=EventKind.DECIDED, tablet_id="t", at_us=0, decision_term=3, decision_version=d.version
                ),
                at,
            ),
            (HistoryEvent(kind=EventKind.WITHDRAWN, tablet_id="t", at_us=0), at + 1_000),
        )
    ]
    assert [(step, took) for step, _, took in lines([*of_decisions, *of_history])] == [
        ("DECIDED", None), ("WITHDRAWN", 1_000), ("DECIDED", None), ("WITHDRAWN", 1_000),
    ]  # fmt: skip


events = st.builds(
    Event,
    at_us=st.integers(0, 5),
    tablet_id=st.sampled_from("tu"),
    step=st.sampled_from(list(Step)),
    subject=st.none() | st.sampled_from(list(Subject)),
    subject_id=st.sampled_from(["", "1", "2"]),
    plan_id=st.sampled_from(["", "p"]),
    reason=st.sampled_from(["", "r"]),
    config=st.none() | st.sampled_from([after for _, after, _ in CAUSES]),
)


@pytest.mark.deep
@given(st.data(), st.one_of(st.just(MOVE), st.lists(events, max_size=12)))
def test_order_and_repetition_of_records_change_nothing(data: st.DataObject, given: list[Event]) -> None:
    """Goal: partitions are read in any order, and a producer in doubt writes twice; the story is the same. Method: any
    events, shuffled, with some twice. Times grow, but for those of clocks that are behind, and none took less than
    nothing."""
    told = story(given)
    more = data.draw(st.lists(st.sampled_from(given), max_size=5)) if given else []
    assert story(data.draw(st.permutations([*given, *more]))) == told
    assert all(one.took_us is None or one.took_us >= 0 for one in told)
    begun = {e.event.subject_id: n for n, e in reversed(list(enumerate(told))) if e.event.step is Step.PROPOSED}
    for place, one in enumerate(told):
        if one.since == Step.PROPOSED and one.event.step is Step.ACCEPTED:
            assert begun[one.event.subject_id] < place


@pytest.mark.parametrize("later_us", [1_500, 9_999])
def test_decision_that_was_written_twice_is_one(later_us: int) -> None:
    """Goal: a producer that did not hear from Kafka writes a decision again; that is no second one. Method: the same
    decision at two times, of which the first holds."""
    again = event_of(ADD, "t", later_us)
    assert [one.event.at_us for one in story([again, MOVE[2]])] == [1_500]
