"""When a majority that lives is enough: one of its members must be able to lead."""

from __future__ import annotations

import pytest

from nyala.replica.tools import LeftAlone, RecoveryPlan, ReplicaEvidence, TabletPlan, Target, Why, make_plan
from nyala.replica.tools.living import LivingMajority, living_majority
from nyala.replica.tools.plan_file import plan_json, plan_of_json
from nyala.replica.types import Address, Member, OpId, RaftConfig, next_generation
from tests.harness.copies import TABLET
from tests.harness.lost_majority import UUIDS, seen


def config(voters: str, witnesses: str = "", learners: str = "", opid: OpId = OpId(1, 1)) -> RaftConfig:
    whole = [Member(UUIDS[v]) for v in voters]
    logs = [Member(UUIDS[w], promote=True, holds_data=False) for w in witnesses]
    return RaftConfig(opid, (*whole, *logs, *(Member(UUIDS[x], votes=False) for x in learners)))


def looked(*replicas: ReplicaEvidence) -> LivingMajority:
    found = living_majority(replicas)
    assert found is not None
    return found


def planned(*evidence: ReplicaEvidence, **more: object) -> TabletPlan | LeftAlone:
    plan = make_plan({TABLET: evidence}, [TABLET], **more)  # type: ignore[arg-type]
    return (*plan.tablets, *plan.left_alone)[0]


def witness(name: str, last: tuple[int, int], group: RaftConfig, **more: object) -> ReplicaEvidence:
    return seen(name, last, config=group, witness=True, **more)


@pytest.mark.parametrize(("rows_end", "goes_on"), [((2, 10), True), ((2, 9), False), ((3, 4), True), ((1, 30), False)])
def test_majority_with_a_witness_goes_on_only_if_the_rows_are_not_behind_its_log(
    rows_end: tuple[int, int], goes_on: bool
) -> None:
    """CC-38. Goal: the plan tells an operator to start servers only if those can elect a leader. Method: of a, c and
    the witness b, a is lost; c ends where b does, one entry before, in a later term, in an older one with a longer
    log."""
    group = config("ac", "b")
    living = looked(witness("b", (2, 10), group), seen("c", rows_end, config=group))
    assert living.present == (UUIDS["b"], UUIDS["c"])
    assert (living.goes_on, living.leader) == (goes_on, UUIDS["c"] if goes_on else "")
    found = planned(witness("b", (2, 10), group), seen("c", rows_end, config=group))
    assert isinstance(found, LeftAlone) is goes_on


def test_rows_need_the_votes_of_a_majority_and_not_of_everybody() -> None:
    """CC-38. Goal: a witness that is ahead does not matter if the others are a majority without it. Method: five
    voters, of which two are lost: the witness is ahead of one of two, of both; four live, it is ahead of all three."""
    group = config("acde", "b")
    ahead, behind = witness("b", (2, 10), group), seen("d", (2, 9), config=group)
    assert looked(ahead, seen("c", (2, 10), config=group), behind).leader == UUIDS["c"]
    assert not looked(ahead, seen("c", (2, 9), config=group), behind).goes_on
    assert looked(ahead, seen("c", (2, 8), config=group), behind, seen("e", (2, 7), config=group)).leader == UUIDS["d"]


def test_only_a_voter_whose_rows_the_config_knows_can_be_elected() -> None:
    """CC-38, CC-53. Goal: only a voter that has rows by its config can be elected. Method: two witnesses live, and the
    rows of one are on its disk; the same with a learner that has rows and is ahead; then as a config that nobody had
    committed calls the first whole."""
    group = config("a", "bd", "c")
    b, learner = witness("b", (2, 9), group), seen("c", (2, 12), config=group)
    joined = seen("d", (2, 10), config=group)
    assert not looked(b, joined).goes_on
    assert not looked(b, joined, learner).goes_on
    assert "no leader has made it whole" in looked(b, joined).what
    made_whole = config("ad", "b", "c", OpId(2, 10))
    assert looked(b, seen("d", (2, 10), config=group, pending=made_whole)).leader == UUIDS["d"]


def test_voter_that_lost_the_end_of_its_log_neither_leads_nor_votes() -> None:
    """CC-38. Goal: a voter with a damaged end of its log counts as the server will treat it: it neither leads nor
    votes. Method: of three, one is lost and one has a damaged end, which the other has; damaged below what it has
    again; three live and one is damaged."""
    damaged, whole = seen("b", (2, 8), withheld=OpId(2, 10)), seen("c", (2, 10))
    living = looked(damaged, whole)
    assert not living.goes_on and "2.10" in living.obstacles[0]
    found = planned(damaged, whole)
    assert isinstance(found, TabletPlan) and (found.survivor, found.entries_lost) == (UUIDS["c"], 0)
    assert looked(seen("b", (3, 9), withheld=OpId(2, 10)), whole).leader == UUIDS["b"]
    assert looked(damaged, whole, seen("a", (2, 9))).leader == UUIDS["c"]


def test_leader_needs_no_election() -> None:
    """CC-38. Goal: a tablet with a running leader is left alone, although statuses that were asked one after the other
    make a witness look ahead. Method: a running leader with the lower end; the same deposed, by a term that was
    seen."""
    group = config("ac", "b")
    logs, leads = witness("b", (2, 11), group, running=True), seen("c", (2, 10), config=group, running=True, leads=True)
    assert looked(logs, leads).leader == UUIDS["c"]
    assert not looked(witness("b", (2, 11), group, running=True, term=3), leads).goes_on


def test_newer_config_that_is_stuck_does_not_hide_an_older_one_that_goes_on() -> None:
    """CC-38. Goal: if an older config can still elect a leader, the plan refuses, because a recovery could make two
    groups. Method: c has a pending config in which the witness b replaces d, and is behind b; in the committed one c
    and d are a majority. A config before a forced one is none."""
    before, after = config("acd"), config("ac", "b", opid=OpId(2, 9))
    c = seen("c", (2, 9), config=before, pending=after)
    b, d = witness("b", (2, 10), after), seen("d", (2, 8), config=before)
    assert looked(b, c, d).config == before and looked(b, c, d).leader == UUIDS["c"]
    assert looked(b, c).config == after and not looked(b, c).goes_on
    forced = config("def", opid=OpId(next_generation(2), 9))
    assert living_majority([b, c, seen("d", (2, 10), config=forced)]) is None


def test_plan_says_why_nobody_can_be_elected_and_what_is_lost() -> None:
    """CC-38, CC-41. Goal: the plan tells why the live majority cannot elect a leader, and which entries the recovery
    loses. Method: the witness is four entries ahead of the only rows; each is named with its end, in the plan and in
    its file; with c running, its server is to be stopped; only witnesses left: nothing to go on from."""
    group = config("ac", "b")
    logs, rows = witness("b", (2, 14), group), seen("c", (2, 10), config=group)
    plan = planned(logs, rows)
    assert isinstance(plan, TabletPlan)
    assert (plan.survivor, plan.known, plan.entries_lost) == (UUIDS["c"], OpId(2, 14), 4)
    assert plan.given_up == (UUIDS["a"], UUIDS["b"]) and plan.unseen == (UUIDS["a"],)
    for words in (
        "2 of 3 voters are whole, a majority, but none of them can be elected",
        f"{UUIDS['b']} is a witness, which votes up to 2.14 and holds no rows",
        f"{UUIDS['c']} has rows up to 2.10 only, behind {UUIDS['b']} at 2.14",
    ):
        assert words in plan.stuck
    assert plan_of_json(plan_json(RecoveryPlan(tablets=(plan,)))).tablets[0].stuck == plan.stuck
    runs = planned(logs, seen("c", (2, 10), config=group, running=True, place="host-c:1"))
    assert isinstance(runs, LeftAlone) and runs.why is Why.RUNNING
    assert "host-c:1" in runs.what and "none of them can be elected" in runs.what
    alone = planned(logs, witness("c", (2, 10), group))
    assert isinstance(alone, LeftAlone) and alone.why is Why.NO_SURVIVOR
    assert isinstance(lost := planned(rows), TabletPlan) and not lost.stuck


def test_witness_that_is_ahead_is_copied_over_by_nobody() -> None:
    """CC-42. Goal: a recovery does not replace a witness whose log has entries that nothing else has. Method: it is
    named as the target of a copy."""
    group = config("ac", "b")
    target = Target(uuid=UUIDS["b"], addresses=(Address("host-b", 1),))
    found = planned(witness("b", (2, 14), group), seen("c", (2, 10), config=group), targets=[target])
    assert isinstance(found, LeftAlone) and found.why is Why.TARGET and "2.14" in found.what
