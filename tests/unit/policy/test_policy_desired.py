"""Desired state of servers and tablets: draining, the number of voters, roles; and that all of it may be taken back."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.policy import Caps, ChangeKind, ClusterView, DesiredChange, TabletView, decide
from nyala.replica.types import Action, EditKind
from tests.harness.policy_views import cluster, obey, server, settle, tablet, words_of


@pytest.mark.parametrize("leader", ["a", "c"])
def test_decide_a_retired_server_is_emptied_and_never_below_the_factor(leader: str) -> None:
    """TC-83. Goal: replicas of a retired server are moved elsewhere, with never fewer voters than wanted, and without
    marks. Method: retire a follower and a leader of one tablet, with a non-voter of another on it; obey to the end."""
    view = cluster("abcde", tablet("a b c", leader), tablet("a b d c:n", "a", name="u"), draining="c")
    view, trail, low = settle(view)
    assert all("c" not in words_of(t) for t in view.tablets)
    assert [len(t.config.voters) for t in view.tablets] == [3, 3] and low["t"] == 3
    assert (Action.TRANSFER_LEADERSHIP in {d.action for d in trail}) == (leader == "c")
    assert not any(e.member.replace for d in trail for e in d.edits if e.kind is not EditKind.REMOVE)


def test_decide_a_retirement_taken_back_halfway_leaves_nothing_behind() -> None:
    """Goal: if a retirement is taken back, the tablet ends with its voters and without marks. Method: retire with a
    copy under way, then undo; then retire with no server to go to: nothing is decided."""
    view = cluster("abcd", tablet("a b c", "a"), draining="c")
    (add,) = decide(view, 1)
    assert [(e.kind, e.member.uuid, e.member.promote) for e in add.edits] == [(EditKind.ADD, "d", True)]
    halfway = tablet("a b c d:p", "a")
    undone, _, low = settle(cluster("abcd", halfway))
    assert words_of(undone.tablets[0]) == "a b c" and low["t"] == 3
    stuck, trail, _ = settle(cluster("abc", tablet("a b c", "a"), draining="c"))
    assert trail == [] and words_of(stuck.tablets[0]) == "a b c"


def test_decide_retired_servers_get_nothing_and_share_the_caps() -> None:
    """Goal: no replica goes to a retired server, and a retired one's moves count at it. Method: a short tablet whose
    only free server is retired; many tablets on one retired server under a cap of two per server."""
    assert decide(cluster("abc", tablet("a b", "a"), draining="c"), 1) == []
    desired = DesiredChange(kind=ChangeKind.MOVE, wish_id="w", from_uuid="b", to_uuid="d")
    assert decide(cluster("abcd", tablet("a b c", "a", desired=desired), draining="d"), 1) == []
    many = [tablet("a b c", "a", name=f"t{n}") for n in range(9)]
    found = decide(cluster("abcdefgh", *many, draining="c"), 1, Caps(moves_per_server_max=2))
    assert len(found) == 2


@pytest.mark.parametrize("path", [(5, 3), (1, 3), (5, 1), (7, 5, 3, 1, 3)])
def test_decide_another_number_of_voters_is_reached_one_by_one(path: tuple[int, ...]) -> None:
    """TC-82. Goal: the policy changes the number of voters in single steps. Method: from three, along several paths."""
    view = cluster("abcdefgh", tablet("a b c", "b"))
    for rf in path:
        before = len(view.tablets[0].config.voters)
        view = replace(view, tablets=(replace(view.tablets[0], replication_factor=rf),))
        view, _, low = settle(view)
        assert len(view.tablets[0].config.voters) == rf and low["t"] >= min(before, rf)
        assert words_of(view.tablets[0]).replace(" ", "").isalpha(), "no marks, no learners"
        assert view.tablets[0].leader_uuid == "b"


def test_decide_a_promoted_member_stays_and_another_leaves() -> None:
    """Goal: TC-71: promote gives exactly this member a vote, once. Method: a non-voter beside three voters, on the
    fullest server; the same for a member that is added as a voter. The desired change holds until the surplus has
    left."""
    others = [tablet("d a e", "a", name=f"u{n}") for n in range(4)]
    for words, kind in (("a b c d:n", ChangeKind.PROMOTE), ("a b c", ChangeKind.ADD)):
        desired = DesiredChange(kind=kind, wish_id="w", to_uuid="d")
        view, trail, low = settle(cluster("abcde", tablet(words, "a", desired=desired), *others))
        voters = view.tablets[0].config.voters
        assert "d" in voters and len(voters) == 3 and low["t"] == 3
        assert len([e for d in trail for e in d.edits if e.member.uuid == "d"]) == 1


def test_decide_a_demoted_member_keeps_its_copy_once_another_votes() -> None:
    """Goal: TC-71: demote never goes below the factor, and the member stays. Method: with a spare server and without;
    the leader, which hands over first."""
    desired = DesiredChange(kind=ChangeKind.DEMOTE, wish_id="w", from_uuid="c")
    view, _, low = settle(cluster("abcd", tablet("a b c", "a", desired=desired)))
    assert words_of(view.tablets[0]) == "a b c:n d" and low["t"] == 3
    assert decide(cluster("abcd", tablet("a b c d:p", "a", desired=desired)), 1) == []
    view, trail, _ = settle(cluster("abc", tablet("a b c", "a", desired=desired)))
    assert trail == [] and view.tablets[0].desired == desired
    view, trail, _ = settle(cluster("abcd", tablet("a b c", "c", desired=desired)))
    assert words_of(view.tablets[0]) == "a b c:n d"
    assert Action.TRANSFER_LEADERSHIP in {d.action for d in trail}


@pytest.mark.parametrize(
    ("words", "kind", "from_uuid", "to_uuid", "after"),
    [
        ("a b c d:p", ChangeKind.ADD, "", "d", "a b c"),
        ("a b c:r d:p", ChangeKind.MOVE, "c", "d", "a b c"),
        ("a b c:r", ChangeKind.REMOVE, "c", "", "a b c"),
        ("a b c d:p", ChangeKind.PROMOTE, "", "d", "a b c d:n"),
        ("a b c", ChangeKind.DEMOTE, "c", "", "a b c"),
    ],
)
def test_decide_a_cancelled_desired_change_takes_back_what_it_began(
    words: str, kind: ChangeKind, from_uuid: str, to_uuid: str, after: str
) -> None:
    """Goal: TC-79: an added member that stays silent is taken back on command, and so is every other half-done desired.
    Method: each kind half-way with its target silent, its deadline in the past as `cancel` sets it; obey to the end."""
    desired = DesiredChange(kind=kind, wish_id="w", from_uuid=from_uuid, to_uuid=to_uuid, deadline_us=1)
    t = tablet(words, "a", desired=desired)
    t = replace(t, health={u: h for u, h in t.health.items() if u != to_uuid})
    view, trail, low = settle(replace(cluster("abc", t), now_us=2))
    assert words_of(view.tablets[0]) == after and view.tablets[0].desired is None
    assert len(trail) == (words != after) and low.get("t", 3) == 3


def test_decide_an_added_member_that_stays_silent_leaves_by_itself() -> None:
    """Goal: TC-80: without any command, a learner silent beyond the delay is taken back, and another is tried. Method:
    UNKNOWN waits; FAILED is evicted though a desired change asks for it; then a free server gets the replica."""
    assert decide(cluster("abde", tablet("a b d:pU", "a"), dead="d"), 1) == []
    failed = tablet("a b d:pF", "a", desired=DesiredChange(kind=ChangeKind.ADD, wish_id="w", to_uuid="d"))
    (evict,) = decide(cluster("abde", failed, dead="d"), 1)
    assert [(e.kind, e.member.uuid) for e in evict.edits] == [(EditKind.REMOVE, "d")]
    view, _, _ = settle(cluster("abde", failed, dead="d"))
    assert view.tablets[0].config.voters == ("a", "b", "e")


@pytest.mark.parametrize("purpose", ["replace", "grow", "level", "raise"])
def test_decide_each_purpose_of_a_change_is_served_by_the_same_rules(purpose: str) -> None:
    """Goal: CC-01: a failed server is replaced, a cluster grows, load moves to a new server, a hot tablet gets more
    replicas. Method: one tablet and a spare server for each; the end is as wanted, never fewer voters than before."""
    t = tablet("a b c", "a")
    if purpose == "replace":
        t = tablet("a b c:F", "a")
    elif purpose == "grow":
        t = tablet("a", "a")
    elif purpose == "level":
        t = replace(t, desired=DesiredChange(kind=ChangeKind.MOVE, wish_id="w", from_uuid="c", to_uuid="d"))
    else:
        t = replace(t, replication_factor=5)
    view, _, low = settle(cluster("abcde", t, dead="c" if purpose == "replace" else ""))
    voters = set(view.tablets[0].config.voters)
    assert len(voters) == (5 if purpose == "raise" else 3)
    assert purpose not in ("replace", "level") or ("c" not in voters and "d" in voters)
    assert low["t"] >= len(t.config.voters)


@settings(max_examples=80)
@given(st.integers(0, 1 << 30))
def test_decide_random_desires_settle_with_as_many_voters_as_wanted(seed: int) -> None:
    """Goal: any combination of desired changes ends with the wanted number of healthy voters, none of them on retired
    servers, and no tablet has fewer voters on the way than it had or should have. Method: random tablets, factors,
    desired changes, dead and retired servers; after half of the steps everything that is wanted changes once more."""
    rng = random.Random(seed)
    names = "abcdefghij"
    dead = set(rng.sample(names, rng.randint(0, 1)))
    view = cluster(names, draining="".join(rng.sample(names, rng.randint(0, 2))), dead="".join(dead))
    tablets = []
    for number in range(rng.randint(1, 4)):
        voters = rng.sample(names, rng.choice([1, 3, 5]))
        if sum(v in dead for v in voters) * 2 >= len(voters):
            continue
        leader = next(v for v in voters if v not in dead)
        words = " ".join(f"{v}:F" if v in dead else v for v in voters)
        tablets.append(tablet(words, leader, rf=rng.choice([1, 3, 5]), name=f"t{number}"))
    first = replace(view, tablets=tuple(_wished(rng, t, names, dead) for t in tablets))
    for _ in range(rng.randint(0, 6)):
        decisions = decide(first, 1)
        if decisions:
            first = obey(first, rng.choice(decisions))
    draining = "".join(rng.sample(names, rng.randint(0, 2)))
    second = cluster(names, *first.tablets, draining=draining, dead="".join(dead))
    second = replace(second, tablets=tuple(replace(t, desired=None) for t in second.tablets))
    start = {t.tablet_id: min(len(t.config.voters), t.replication_factor) for t in second.tablets}
    end, _, low = settle(second)
    for t in end.tablets:
        assert low.get(t.tablet_id, 99) >= start[t.tablet_id]
        assert len(t.config.voters) == t.replication_factor, words_of(t)
        assert not set(t.config.voters) & (dead | set(draining))


def _wished(rng: random.Random, t: TabletView, names: str, dead: set[str]) -> TabletView:
    kind = rng.choice([None, ChangeKind.MOVE, ChangeKind.REMOVE, ChangeKind.ADD, ChangeKind.DEMOTE])
    source = rng.choice(t.config.voters)
    target = rng.choice([n for n in names if n not in t.config.voters])
    if kind is None:
        return t
    takes = "" if kind is ChangeKind.ADD else source
    gets = target if kind in (ChangeKind.MOVE, ChangeKind.ADD) else ""
    return replace(t, desired=DesiredChange(kind=kind, wish_id="w", from_uuid=takes, to_uuid=gets))


def test_no_leadership_goes_to_a_server_that_quiesces() -> None:
    """OP-03. Goal: a wanted transfer waits, and a leader that is to leave hands over to another voter, or waits.
    Method: each, with servers that quiesce and without."""
    wanted = DesiredChange(kind=ChangeKind.TRANSFER, wish_id="w", to_uuid="b")
    for quiescing, decided in (("", ["b"]), ("b", [])):
        hosts = tuple(replace(server(u), quiescing=u in quiescing) for u in "abc")
        view = ClusterView(servers=hosts, tablets=(tablet("a b c", "a", desired=wanted),))
        assert [d.target_uuid for d in decide(view, 1)] == decided
    for quiescing, decided in (("", ["b"]), ("b", ["c"]), ("bcd", [])):
        hosts = tuple(replace(server(u), quiescing=u in quiescing) for u in "abcd")
        view = ClusterView(servers=hosts, tablets=(tablet("a:r b c d", "a"),))
        assert [d.target_uuid for d in decide(view, 1)] == decided
