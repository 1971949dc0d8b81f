"""The order in which members leave, the next leader, and whose votes carry a change."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from nyala.replica.policy import (
    Advice,
    Health,
    Need,
    TabletView,
    advise,
    can_commit,
    decide,
    evict_rank,
    transfer_target,
)
from nyala.replica.types import EditKind, Member, OpId, RaftConfig
from tests.harness.policy_views import cluster, said, tablet

H, U, F, X = Health.HEALTHY, Health.UNKNOWN, Health.FAILED, Health.FAILED_UNRECOVERABLE


def of(*members: Member, rf: int = 3, **health: Health) -> TabletView:
    """A tablet of these members, led by a; who is not named in `health` is healthy."""
    view = tablet(" ".join(m.uuid for m in members), "a", rf=rf)
    return replace(view, config=RaftConfig(OpId(1, 1), members), health={**view.health, **health})


def witness(uuid: str, *, promote: bool = True, gone: bool = False) -> Member:
    """A voter without data, which stands in for a lost one if it waits for its data, or leaves."""
    return Member(uuid, holds_data=False, promote=promote, replace=gone)


def test_evict_rank_orders_members_by_how_little_they_are_of_use() -> None:
    """Goal: scenario 106: members are removed in the order of the add/evict table. Method: all healths with and without
    a mark."""
    plain, marked = Member("m"), Member("m", replace=True)
    order = [(marked, X), (plain, X), (marked, F), (plain, F), (marked, U), (plain, U), (plain, H)]
    assert all(evict_rank(*first) < evict_rank(*then) for first, then in pairwise(order))
    assert evict_rank(marked, U) == evict_rank(marked, H)


def test_can_commit_counts_only_those_who_stay() -> None:
    """Goal: the removal of a healthy voter needs a majority of the remaining voters. Method: without b one of three is
    there."""
    assert can_commit(tablet("a b c d:F", "a"), without="b")
    assert not can_commit(tablet("a b c:F d:F", "a"), without="b")
    assert not can_commit(tablet("a", "a"), without="a"), "nobody would be left"


def test_transfer_target_is_the_least_loaded_healthy_voter_with_data() -> None:
    """Goal: leadership goes to the least loaded healthy voter with data. Method: loads, then members that cannot
    lead."""
    assert transfer_target(tablet("a b c", "a"), {"b": 1}) == "c"
    assert transfer_target(tablet("a b:r c", "a"), {"c": 9}) == "c", "who is to leave leads last"
    assert transfer_target(tablet("a b:r", "a"), {}) == "b"
    assert transfer_target(tablet("a b c:n d:pU", "a"), {"b": 9, "a": 0}) == "b"
    assert transfer_target(of(Member("a"), witness("b", promote=False), Member("c")), {"c": 9}) == "c"
    assert transfer_target(tablet("a b:U c:F", "a"), {}) == ""


def test_leader_that_is_to_leave_waits_for_somebody_who_can_lead() -> None:
    """Goal: a leader that is to be removed stays until another member can lead. Method: a marked leader beside a
    witness for good."""
    assert advise(of(Member("a", replace=True), witness("w", promote=False), rf=1)).need is Need.NOTHING


def test_surplus_member_on_the_fullest_server_leaves() -> None:
    """Goal: of equal surplus members, the one on the server with the most replicas is removed. Method: loads of two,
    none of the others."""
    assert advise(tablet("a:H* b:H c:H d:H"), load={"c": 1}).uuid == "c"
    assert advise(tablet("a:H* b:H c:H d:H"), load={"c": 1, "d": 2}).uuid == "d"


def test_kept_member_that_is_marked_leaves_as_any_marked_one() -> None:
    """Goal: a mark counts more than the desired change that added the member, because the mark is newer. Method: five
    vote, the kept one is marked."""
    assert advise(tablet("a:H* b:H c:Hr d:H e:H"), keep=frozenset("c")).uuid == "c"


def test_stand_in_leaves_before_a_replica_with_rows() -> None:
    """CC-52. Goal: of surplus voters, a stand-in witness is removed before a replica with rows. Method: four whole
    voters and a stand-in, three wanted."""
    assert advise(of(*map(Member, "abcd"), witness("e"))) == Advice(Need.EVICT, "e", "5 voters of 3 wanted; HEALTHY")


def test_marked_voter_beside_a_stand_in_is_removed_and_not_kept() -> None:
    """CC-52. Goal: only a lost voter is demoted; a marked one is removed. Method: of four whole voters and a stand-in
    one is marked, healthy and lost; then it is lost without a mark."""
    others = (Member("a"), *map(Member, "cd"), witness("e"))
    for health in (H, F):
        assert advise(of(Member("b", replace=True), *others, b=health)).need is Need.EVICT
    lost = advise(of(Member("b"), *others, b=F))
    assert (lost.need, lost.uuid) == (Need.DEMOTE, "b")


def test_joining_witness_that_fails_is_removed_beside_one_that_leaves() -> None:
    """CC-52. Goal: of members that fail while they join, only those with rows are kept. Method: a witness that has no
    vote yet fails while another one is leaving; then the same for a voter on its way back."""
    leaving = witness("d", promote=False, gone=True)
    joining = Member("e", votes=False, promote=True, holds_data=False)
    assert advise(of(Member("a"), Member("b"), leaving, joining, e=F)).need is Need.EVICT
    back = Member("e", votes=False, promote=True)
    assert advise(of(Member("a"), Member("b"), leaving, back, e=F)).need is Need.DEMOTE_AGAIN
    for health in (H, U):
        assert advise(of(Member("a"), Member("b"), leaving, back, e=health)).need is Need.NOTHING


def test_demoted_voter_comes_back_only_by_a_change_that_commits() -> None:
    """CC-52. Goal: a demoted voter is restored only if the other voters can commit that change. Method: the demoted
    voter is back; the others are healthy, then unknown."""
    parked = Member("c", votes=False, replace=True)
    members = (Member("a"), Member("b"), parked, witness("d"))
    assert advise(of(*members)).need is Need.RESTORE
    assert advise(of(*members, b=U, d=U)).need is Need.NOTHING


def test_non_voter_gets_no_vote_because_somebody_else_is_lost() -> None:
    """CC-52. Goal: only a demoted voter is restored; another non-voter never gets a vote for a lost voter. Method: a
    non-voter, marked or not, healthy, beside a stand-in and without one: another member joins, or nobody does."""
    plain, marked = Member("e", votes=False), Member("e", votes=False, replace=True)
    assert advise(of(Member("a"), Member("b"), witness("d"), plain)).need is Need.NOTHING
    for member in (plain, marked):
        assert advise(of(Member("a"), Member("b"), member)).need is Need.ADD


def test_lost_voter_is_removed_if_nobody_stands_in_for_it() -> None:
    """CC-52. Goal: a lost voter is demoted and kept only while a witness votes in its place. Method: beside one that
    has no vote yet, one for good, and one that is leaving; a fourth voter replaces it."""
    joining = Member("d", votes=False, promote=True, holds_data=False)
    assert advise(of(*map(Member, "abce"), joining, c=F, e=U)).need is Need.EVICT
    assert advise(of(*map(Member, "abc"), witness("w", promote=False), c=F)).need is Need.EVICT
    assert advise(of(*map(Member, "abce"), witness("d", promote=False, gone=True), c=F)).need is Need.EVICT


DEMOTED = Member("c", votes=False, replace=True)


def decided(view: TabletView, draining: str = "") -> list[str]:
    """Return the decision for a tablet that heals by witness; an added witness is written in capitals."""
    found = decide(cluster("abcdefg", replace(view, by_witness=True), draining=draining), 1)
    added = [e.member for d in found for e in d.edits if e.kind is EditKind.ADD]
    return said(found) if not added else [m.uuid if m.holds_data else m.uuid.upper() for m in added]


def test_returned_voter_sends_away_the_witness_that_stands_in() -> None:
    """CC-52. Goal: for each voter that is back, one stand-in witness is removed. Method: beside one that is lost nobody
    else is told; beside two the first of them is; without the option, and with the witness lost, another member
    joins."""
    two = (Member("a"), Member("b"), DEMOTED, witness("d"))
    assert decided(of(*two, d=F)) == ["change c:p"]
    assert decided(of(*two, witness("e"))) == ["change c:p, change d:r"]
    assert advise(of(*two, d=F)).need is Need.ADD


def test_witness_without_a_vote_that_leaves_is_not_restored() -> None:
    """CC-52. Goal: a witness that never voted is not restored like a demoted voter. Method: a marked witness that never
    voted, beside a stand-in."""
    gone = Member("e", votes=False, holds_data=False, replace=True)
    assert advise(of(Member("a"), Member("b"), gone, witness("d"))).need is Need.NOTHING


def test_learner_lost_beside_a_witness_for_good_changes_no_other_member() -> None:
    """CC-52. Goal: a lost learner starts and stops no copy of another member. Method: a lost learner beside a witness
    for good: it is removed; with that one's server retiring, it stays without a vote."""
    view = of(Member("a"), Member("b"), Member("e", votes=False, promote=True), witness("g", promote=False), e=F)
    assert decided(view) == ["remove e:p"] and decided(view, "g") == ["change e:nr"]


def test_witness_joins_for_a_lost_voter_that_has_none() -> None:
    """CC-51, CC-57. Goal: each lost voter with rows gets one witness, and no other member does. Method: the lost c
    beside a learner, a witness for good, and one that joined and is to leave; then a lost witness, and a learner that
    is to leave, for which a learner joins."""
    marked = Member("d", votes=False, promote=True, holds_data=False, replace=True)
    learner = Member("d", votes=False, promote=True)
    three = tuple(map(Member, "abc"))
    assert decided(of(*three, learner, rf=4, c=F)) == ["E"]
    assert decided(of(*three, witness("w", promote=False), rf=4, c=F)) == ["D"]
    assert decided(of(*three, marked, c=F)) == ["E"]
    assert decided(of(Member("a"), Member("b"), witness("w", promote=False), w=F)) == ["c"]
    assert decided(of(Member("a"), Member("b"), replace(learner, replace=True))) == ["c"]


def test_non_voter_is_no_reason_to_let_a_voter_go() -> None:
    """Goal: a non-voter does not replace a voter. Method: a marked voter, two healthy ones and a healthy non-voter."""
    assert advise(tablet("a:H* b:U c:Hr d:H e:Hn")).need is Need.NOTHING


def test_reason_to_add_counts_voters() -> None:
    """Goal: the reason of an added member counts the lost and the marked voters. Method: a lost and a marked voter; a
    demoted one that is lost is no voter."""
    reasons = [
        advise(view).reason
        for view in (tablet("a:H* b:Hr c:F d:H e:H", rf=5), tablet("a:H* b:Hr c:Fnr", by_witness=True))
    ]
    assert reasons == [
        "5 replicas wanted, 5 voters of which 1 failed and 1 marked",
        "3 replicas wanted, 2 voters of which 0 failed and 1 marked",
    ]
