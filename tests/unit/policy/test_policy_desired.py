"""Desired state of servers and tablets: draining, the number of voters, roles; and that all of it may be taken back."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.base import Address, Member, OpId, RaftConfig
from nyala.replica.policy import (
    Action,
    Caps,
    ClusterView,
    Decision,
    EditKind,
    Health,
    ServerView,
    TabletView,
    Wish,
    WishKind,
    WishState,
    decide,
    wish_state,
)


def cluster(names: str, *tablets: TabletView, draining: str = "", dead: str = "") -> ClusterView:
    """Servers named by letters."""
    servers = tuple(
        ServerView(uuid=n, member=Member(n, (Address("h", 1),)), alive=n not in dead, draining=n in draining)
        for n in names
    )
    return ClusterView(servers=servers, tablets=tablets)


def tablet(words: str, leader: str, *, rf: int = 3, wish: Wish | None = None, name: str = "t") -> TabletView:
    """Members from words such as `a b c:n d:p`: n non-voter, p waits for promotion, r marked; all healthy."""
    members = []
    for word in words.split():
        uuid, _, marks = word.partition(":")
        learner = "n" in marks or "p" in marks
        members.append(Member(uuid, votes=not learner, promote="p" in marks, replace="r" in marks))
    return TabletView(
        tablet_id=name,
        table_id="T",
        replication_factor=rf,
        config=RaftConfig(OpId(1, 1), tuple(members)),
        leader_uuid=leader,
        health={m.uuid: Health.HEALTHY for m in members},
        wish=wish,
    )


def words_of(view: TabletView) -> str:
    """The config in the words of `tablet`, sorted."""
    marks = {
        m.uuid: ("" if m.votes else "p" if m.promote else "n") + ("r" if m.replace else "") for m in view.config.members
    }
    return " ".join(f"{u}:{k}" if k else u for u, k in sorted(marks.items()))


def obey(view: ClusterView, decision: Decision, low: dict[str, int]) -> ClusterView:
    """The view after the leader carried `decision` out and promoted healthy learners; `low` notes the fewest voters."""
    tablets = list(view.tablets)
    for pos, t in enumerate(tablets):
        if t.tablet_id != decision.tablet_id:
            continue
        assert decision.config_opid == t.config.opid
        members, before = {m.uuid: m for m in t.config.members}, set(t.config.voters)
        for edit in decision.edits:
            assert edit.kind is not EditKind.REMOVE or edit.member.uuid != t.leader_uuid
            if edit.kind is EditKind.REMOVE:
                del members[edit.member.uuid]
            else:
                assert (edit.member.uuid in members) == (edit.kind is EditKind.CHANGE)
                members[edit.member.uuid] = edit.member
        assert len(before ^ {u for u, m in members.items() if m.votes}) <= 1, "one voter at a time"
        members = {u: replace(m, votes=True, promote=False) if m.promote else m for u, m in members.items()}
        config = RaftConfig(OpId(1, t.config.opid.index + 1), tuple(members.values()))
        low[t.tablet_id] = min(low.get(t.tablet_id, 99), len(config.voters))
        tablets[pos] = replace(
            t,
            config=config,
            health={u: t.health.get(u, Health.HEALTHY) for u in members},
            leader_uuid=decision.target_uuid or t.leader_uuid,
        )
    return replace(view, tablets=tuple(tablets))


def settle(view: ClusterView) -> tuple[ClusterView, list[Decision], dict[str, int]]:
    """Obey one decision after another until there are none; wishes that hold are dropped, as the master does."""
    trail: list[Decision] = []
    low: dict[str, int] = {}
    for _ in range(200):
        kept = [
            replace(t, wish=None)
            if t.wish and wish_state(t, t.wish, view.now_us) in (WishState.DONE, WishState.FAILED)
            else t
            for t in view.tablets
        ]
        view = replace(view, tablets=tuple(kept))
        decisions = decide(view, 1)
        if not decisions:
            return view, trail, low
        view = obey(view, decisions[0], low)
        trail.append(decisions[0])
    raise AssertionError([d.reason for d in trail[-5:]])


@pytest.mark.parametrize("leader", ["a", "c"])
def test_decide_a_retired_server_is_emptied_and_never_below_the_factor(leader: str) -> None:
    """Goal: TC-83: what stands on a retired server moves off, voters never fewer than wanted, nothing is marked.
    Method: retire a follower and a leader of one tablet, with a non-voter of another on it; obey to the end."""
    view = cluster("abcde", tablet("a b c", leader), tablet("a b d c:n", "a", name="u"), draining="c")
    view, trail, low = settle(view)
    assert all("c" not in words_of(t) for t in view.tablets)
    assert [len(t.config.voters) for t in view.tablets] == [3, 3] and low["t"] == 3
    assert (Action.TRANSFER_LEADERSHIP in {d.action for d in trail}) == (leader == "c")
    assert not any(e.member.replace for d in trail for e in d.edits if e.kind is not EditKind.REMOVE)


def test_decide_a_retirement_taken_back_halfway_leaves_nothing_behind() -> None:
    """Goal: retiring is a fact, not an operation: undone, the tablet settles without marks. Method: retire with a copy
    under way, then undo; then retire with no server to go to: nothing is decided."""
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
    wish = Wish(kind=WishKind.MOVE, wish_id="w", from_uuid="b", to_uuid="d")
    assert decide(cluster("abcd", tablet("a b c", "a", wish=wish), draining="d"), 1) == []
    many = [tablet("a b c", "a", name=f"t{n}") for n in range(9)]
    found = decide(cluster("abcdefgh", *many, draining="c"), 1, Caps(moves_per_server_max=2))
    assert len(found) == 2


@pytest.mark.parametrize("path", [(5, 3), (1, 3), (5, 1), (7, 5, 3, 1, 3)])
def test_decide_another_number_of_voters_is_reached_one_by_one(path: tuple[int, ...]) -> None:
    """Goal: TC-82: a changed number of voters is a series of single steps. Method: from three, along several paths."""
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
    fullest server; the same for a member that is added as a voter. The wish holds until the surplus has left."""
    others = [tablet("d a e", "a", name=f"u{n}") for n in range(4)]
    for words, kind in (("a b c d:n", WishKind.PROMOTE), ("a b c", WishKind.ADD)):
        wish = Wish(kind=kind, wish_id="w", to_uuid="d")
        view, trail, low = settle(cluster("abcde", tablet(words, "a", wish=wish), *others))
        voters = view.tablets[0].config.voters
        assert "d" in voters and len(voters) == 3 and low["t"] == 3
        assert len([e for d in trail for e in d.edits if e.member.uuid == "d"]) == 1


def test_decide_a_demoted_member_keeps_its_copy_once_another_votes() -> None:
    """Goal: TC-71: demote never goes below the factor, and the member stays. Method: with a spare server and without;
    the leader, which hands over first."""
    wish = Wish(kind=WishKind.DEMOTE, wish_id="w", from_uuid="c")
    view, _, low = settle(cluster("abcd", tablet("a b c", "a", wish=wish)))
    assert words_of(view.tablets[0]) == "a b c:n d" and low["t"] == 3
    assert decide(cluster("abcd", tablet("a b c d:p", "a", wish=wish)), 1) == []
    view, trail, _ = settle(cluster("abc", tablet("a b c", "a", wish=wish)))
    assert trail == [] and view.tablets[0].wish == wish
    view, trail, _ = settle(cluster("abcd", tablet("a b c", "c", wish=wish)))
    assert words_of(view.tablets[0]) == "a b c:n d"
    assert Action.TRANSFER_LEADERSHIP in {d.action for d in trail}


@pytest.mark.parametrize(
    ("words", "kind", "from_uuid", "to_uuid", "after"),
    [
        ("a b c d:p", WishKind.ADD, "", "d", "a b c"),
        ("a b c:r d:p", WishKind.MOVE, "c", "d", "a b c"),
        ("a b c:r", WishKind.REMOVE, "c", "", "a b c"),
        ("a b c d:p", WishKind.PROMOTE, "", "d", "a b c d:n"),
        ("a b c", WishKind.DEMOTE, "c", "", "a b c"),
    ],
)
def test_decide_a_cancelled_wish_takes_back_what_it_began(
    words: str, kind: WishKind, from_uuid: str, to_uuid: str, after: str
) -> None:
    """Goal: TC-79: an added member that stays silent is taken back on command, and so is every other half-done wish.
    Method: each kind half-way with its target silent, its deadline in the past as `cancel` sets it; obey to the end."""
    wish = Wish(kind=kind, wish_id="w", from_uuid=from_uuid, to_uuid=to_uuid, deadline_us=1)
    t = tablet(words, "a", wish=wish)
    t = replace(t, health={u: h for u, h in t.health.items() if u != to_uuid})
    view, trail, low = settle(replace(cluster("abc", t), now_us=2))
    assert words_of(view.tablets[0]) == after and view.tablets[0].wish is None
    assert len(trail) == (words != after) and low.get("t", 3) == 3


def test_decide_an_added_member_that_stays_silent_leaves_by_itself() -> None:
    """Goal: TC-80: without any command, a learner silent beyond the delay is taken back, and another is tried. Method:
    UNKNOWN waits; FAILED is evicted though a wish asks for it; then a free server gets the replica."""
    t = tablet("a b d:p", "a")
    waiting = replace(t, health={"a": Health.HEALTHY, "b": Health.HEALTHY})
    assert decide(cluster("abde", waiting, dead="d"), 1) == []
    wish = Wish(kind=WishKind.ADD, wish_id="w", to_uuid="d")
    failed = replace(t, health={**waiting.health, "d": Health.FAILED}, wish=wish)
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
        t = replace(t, health={**t.health, "c": Health.FAILED})
    elif purpose == "grow":
        t = replace(tablet("a", "a"), replication_factor=3)
    elif purpose == "level":
        t = replace(t, wish=Wish(kind=WishKind.MOVE, wish_id="w", from_uuid="c", to_uuid="d"))
    else:
        t = replace(t, replication_factor=5)
    view, _, low = settle(cluster("abcde", t, dead="c" if purpose == "replace" else ""))
    voters = set(view.tablets[0].config.voters)
    assert len(voters) == (5 if purpose == "raise" else 3)
    assert purpose not in ("replace", "level") or ("c" not in voters and "d" in voters)
    assert low["t"] >= len(t.config.voters)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 30))
def test_decide_random_desires_settle_with_as_many_voters_as_wanted(seed: int) -> None:
    """Goal: whatever is wanted at once, it ends, with the wanted number of healthy voters off retired servers, and on
    the way no tablet has fewer voters than it had and is wanted to have. Method: random tablets, factors, wishes, dead
    and retired servers; after half of the steps everything that is wanted changes once more."""
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
        t = tablet(" ".join(voters), leader, rf=rng.choice([1, 3, 5]), name=f"t{number}")
        tablets.append(replace(t, health={v: Health.FAILED if v in dead else Health.HEALTHY for v in voters}))
    first = replace(view, tablets=tuple(_wished(rng, t, names, dead) for t in tablets))
    for _ in range(rng.randint(0, 6)):
        decisions = decide(first, 1)
        if decisions:
            first = obey(first, rng.choice(decisions), {})
    draining = "".join(rng.sample(names, rng.randint(0, 2)))
    second = cluster(names, *first.tablets, draining=draining, dead="".join(dead))
    second = replace(second, tablets=tuple(replace(t, wish=None) for t in second.tablets))
    start = {t.tablet_id: min(len(t.config.voters), t.replication_factor) for t in second.tablets}
    end, _, low = settle(second)
    for t in end.tablets:
        assert low.get(t.tablet_id, 99) >= start[t.tablet_id]
        assert len(t.config.voters) == t.replication_factor, words_of(t)
        assert not set(t.config.voters) & (dead | set(draining))


def _wished(rng: random.Random, t: TabletView, names: str, dead: set[str]) -> TabletView:
    kind = rng.choice([None, WishKind.MOVE, WishKind.REMOVE, WishKind.ADD, WishKind.DEMOTE])
    source = rng.choice(t.config.voters)
    target = rng.choice([n for n in names if n not in t.config.voters])
    if kind is None:
        return t
    takes = "" if kind is WishKind.ADD else source
    gets = target if kind in (WishKind.MOVE, WishKind.ADD) else ""
    return replace(t, wish=Wish(kind=kind, wish_id="w", from_uuid=takes, to_uuid=gets))
