"""Decisions from views: healing, moves, wishes, caps, and a cluster that obeys them."""

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


def server(name: str, *, alive: bool = True, location: str = "") -> ServerView:
    """A server named `name`."""
    return ServerView(uuid=name, member=Member(name, (Address("h", 1),)), alive=alive, location=location)


def tablet(name: str, voters: str, leader: str, *, rf: int = 3, wish: Wish | None = None) -> TabletView:
    """A settled tablet whose voters are the letters of `voters`."""
    return TabletView(
        tablet_id=name,
        table_id="T",
        replication_factor=rf,
        config=RaftConfig(OpId(1, 1), tuple(Member(v) for v in voters)),
        leader_uuid=leader,
        health=dict.fromkeys(voters, Health.HEALTHY),
        wish=wish,
    )


def obey(view: ClusterView, decision: Decision, promote: bool = True) -> ClusterView:
    """The view after the tablet's leader carried `decision` out and every healthy learner was promoted."""
    tablets = []
    for t in view.tablets:
        if t.tablet_id == decision.tablet_id:
            assert decision.config_opid == t.config.opid
            members = {m.uuid: m for m in t.config.members}
            health = dict(t.health)
            for edit in decision.edits:
                if edit.kind is EditKind.REMOVE:
                    assert edit.member.uuid != t.leader_uuid, "a leader is never evicted"
                    del members[edit.member.uuid]
                else:
                    assert (edit.member.uuid in members) == (edit.kind is EditKind.CHANGE)
                    members[edit.member.uuid] = edit.member
                    health.setdefault(edit.member.uuid, Health.HEALTHY)
            if promote:
                members = {
                    u: replace(m, votes=True, promote=False) if m.promote and health[u] is Health.HEALTHY else m
                    for u, m in members.items()
                }
            config = RaftConfig(OpId(1, t.config.opid.index + 1), tuple(members.values()))
            t = replace(t, config=config, health=health, leader_uuid=decision.target_uuid or t.leader_uuid)
        tablets.append(t)
    return replace(view, tablets=tuple(tablets))


def settle(view: ClusterView, rounds: int = 60) -> tuple[ClusterView, list[Decision]]:
    """Obey every decision until there are none."""
    trail: list[Decision] = []
    for _ in range(rounds):
        decisions = decide(view, 1)
        if not decisions:
            return view, trail
        for decision in decisions:
            view = obey(view, decision)
            trail.append(decision)
    raise AssertionError([d.reason for d in trail[-5:]])


def test_decide_a_dead_server_is_healed_through_three_four_three() -> None:
    """Goal: TC-66, and a lost voter is replaced before it is removed. Method: fail one server, obey, count voters."""
    view = ClusterView(servers=tuple(server(s) for s in "abcd"), tablets=(tablet("t", "abc", "a"),))
    sick = replace(view.tablets[0], health={"a": Health.HEALTHY, "b": Health.HEALTHY, "c": Health.FAILED})
    view = replace(view, tablets=(sick,), servers=tuple(server(s, alive=s != "c") for s in "abcd"))
    (add,) = decide(view, 7)
    assert [(e.kind, e.member.uuid, e.member.votes, e.member.promote) for e in add.edits] == [
        (EditKind.ADD, "d", False, True)
    ]
    assert (add.catalog_term, add.config_opid) == (7, OpId(1, 1))
    view = obey(view, add)
    assert view.tablets[0].config.voters == ("a", "b", "c", "d")
    (evict,) = decide(view, 7)
    assert [(e.kind, e.member.uuid) for e in evict.edits] == [(EditKind.REMOVE, "c")]
    view = obey(view, evict)
    assert view.tablets[0].config.voters == ("a", "b", "d")
    assert decide(view, 7) == []


def test_decide_full_servers_get_nothing() -> None:
    """CN-03: the limit on tablets of a server holds for replacements, moves and added members. Method: d is full and e
    is not: a replacement goes to e, also when a move names d; with both full, nobody is asked."""
    other = tablet("u", "d", "d", rf=1)
    full = replace(server("d"), tablets_max=1)
    for wish in (None, *(Wish(kind=k, wish_id="w", from_uuid="c", to_uuid="d") for k in (WishKind.MOVE, WishKind.ADD))):
        healthy = tablet("t", "abc", "a", wish=wish)
        sick = replace(healthy, health={"a": Health.HEALTHY, "b": Health.HEALTHY, "c": Health.FAILED})
        hosts = (*(server(s) for s in "ab"), server("c", alive=False), full)
        roomy = ClusterView(servers=(*hosts, server("e")), tablets=(sick, other))
        assert [e.member.uuid for d in decide(roomy, 1) for e in d.edits] == ["e"]
        assert decide(ClusterView(servers=hosts, tablets=(sick, other)), 1) == []
        assert decide(ClusterView(servers=hosts, tablets=(healthy, other)), 1) == []


def test_decide_servers_equal_rf_with_one_bad_removes_nothing() -> None:
    """Goal: TC-81, scenario 120. Method: three servers, one marked, one failed in turn: no decision at all."""
    marked = tablet("t", "abc", "a")
    members = tuple(replace(m, replace=m.uuid == "c") for m in marked.config.members)
    marked = replace(marked, config=RaftConfig(OpId(1, 1), members))
    failed = replace(tablet("t", "abc", "a"), health={"a": Health.HEALTHY, "b": Health.HEALTHY})
    failed = replace(failed, health={**failed.health, "c": Health.FAILED_UNRECOVERABLE})
    for sick in (marked, failed):
        assert decide(ClusterView(servers=tuple(server(s) for s in "abc"), tablets=(sick,)), 1) == []


@pytest.mark.parametrize("leader", ["a", "c"])
def test_decide_a_move_adds_promotes_and_removes_the_leader_last(leader: str) -> None:
    """Goal: TC-81: a move is desired state and never passes through fewer voters. Method: move a follower, a leader."""
    wish = Wish(kind=WishKind.MOVE, wish_id="w", from_uuid="c", to_uuid="d", plan_id="p")
    view = ClusterView(servers=tuple(server(s) for s in "abcd"), tablets=(tablet("t", "abc", leader, wish=wish),))
    first = decide(view, 1)[0]
    assert {(e.kind, e.member.uuid, e.member.replace) for e in first.edits} == {
        (EditKind.ADD, "d", False),
        (EditKind.CHANGE, "c", True),
    }
    view, trail = settle(view)
    assert view.tablets[0].config.voters == ("a", "b", "d")
    assert {d.plan_id for d in trail} == {"p"}
    assert (Action.TRANSFER_LEADERSHIP in [d.action for d in trail]) == (leader == "c")
    assert wish_state(view.tablets[0], wish, 0) is WishState.DONE


def test_decide_a_move_removes_nothing_until_the_new_one_votes() -> None:
    """Goal: CC-36: a move is add, wait for its commit, then remove. Method: the new one stays a learner for a while;
    then it is promoted, and the old one leaves."""
    wish = Wish(kind=WishKind.MOVE, wish_id="w", from_uuid="c", to_uuid="d")
    view = ClusterView(servers=tuple(server(s) for s in "abcd"), tablets=(tablet("t", "abc", "a", wish=wish),))
    view = obey(view, decide(view, 1)[0], promote=False)
    assert view.tablets[0].config.voters == ("a", "b", "c")
    assert decide(view, 1) == []
    t = view.tablets[0]
    members = tuple(replace(m, votes=True, promote=False) if m.uuid == "d" else m for m in t.config.members)
    view = replace(view, tablets=(replace(t, config=RaftConfig(OpId(1, 9), members)),))
    (last,) = decide(view, 1)
    assert [(e.kind, e.member.uuid) for e in last.edits] == [(EditKind.REMOVE, "c")]


def test_decide_an_expired_move_is_taken_back() -> None:
    """Goal: an interrupted move leaves neither learner nor mark. Method: expire it before the promotion."""
    wish = Wish(kind=WishKind.MOVE, wish_id="w", from_uuid="c", to_uuid="d", deadline_us=10)
    view = ClusterView(
        servers=tuple(server(s) for s in "abcd"), tablets=(tablet("t", "abc", "a", wish=wish),), now_us=5
    )
    view = replace(obey(view, decide(view, 1)[0], promote=False), now_us=11)
    assert wish_state(view.tablets[0], wish, 11) is WishState.CANCEL
    view, _ = settle(view)
    assert [(m.uuid, m.replace) for m in view.tablets[0].config.members] == [("a", False), ("b", False), ("c", False)]
    assert wish_state(view.tablets[0], wish, 11) is WishState.FAILED


def test_decide_all_replicas_marked_are_replaced_one_by_one() -> None:
    """Goal: scenario 114. Method: mark all three on draining servers, obey to the end: three new voters, no marks."""
    marked = tuple(Member(u, replace=True) for u in "abc")
    t = replace(tablet("t", "abc", "b"), config=RaftConfig(OpId(1, 1), marked))
    hosts = tuple(replace(server(s), draining=s in "abc") for s in "abcdef")
    view, _ = settle(ClusterView(servers=hosts, tablets=(t,)))
    assert view.tablets[0].config.voters == ("d", "e", "f")
    assert not any(m.replace for m in view.tablets[0].config.members)


def test_decide_a_removal_waits_for_its_replacement() -> None:
    """Goal: RemoveReplica never shrinks a tablet below its factor. Method: with a spare server and without."""
    wish = Wish(kind=WishKind.REMOVE, wish_id="w", from_uuid="b")
    alone = ClusterView(servers=tuple(server(s) for s in "abc"), tablets=(tablet("t", "abc", "a", wish=wish),))
    view, _ = settle(alone)
    assert view.tablets[0].config.voters == ("a", "b", "c")
    view, _ = settle(replace(alone, servers=tuple(server(s) for s in "abcd")))
    assert view.tablets[0].config.voters == ("a", "c", "d")


def test_decide_unreachable_learners_count_against_the_caps() -> None:
    """Goal: scenario 119. Method: a learner of unknown health fills the cap of one; a second tablet waits."""
    moving = tablet("t1", "abc", "a")
    learner = (*moving.config.members, Member("d", votes=False, promote=True))
    moving = replace(moving, config=RaftConfig(OpId(1, 2), learner), health={"a": Health.HEALTHY, "b": Health.HEALTHY})
    short = tablet("t2", "ab", "a")
    view = ClusterView(servers=tuple(server(s) for s in "abcde"), tablets=(moving, short))
    assert decide(view, 1, Caps(moves_max=1)) == []
    assert [d.tablet_id for d in decide(view, 1, Caps(moves_max=2))] == ["t2"]


def test_decide_unknown_waits_and_an_absent_leader_decides_nothing() -> None:
    """Goal: silence is no evidence. Method: unknown members, then no leader: no decisions."""
    servers = tuple(server(s) for s in "abcd")
    quiet = replace(tablet("t", "abc", "a"), health={"a": Health.HEALTHY})
    headless = replace(tablet("t", "ab", ""), leader_uuid="")
    assert decide(ClusterView(servers=servers, tablets=(quiet,)), 1) == []
    assert decide(ClusterView(servers=servers, tablets=(headless,)), 1) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_decide_random_clusters_heal_and_never_lose_a_majority(seed: int) -> None:
    """Goal: obeyed decisions end with RF healthy voters wherever servers allow. Method: random failures and marks."""
    rng = random.Random(seed)
    names = "abcdefg"
    tablets = []
    dead = set(rng.sample(names, rng.randint(0, 2)))
    for pos in range(rng.randint(1, 6)):
        voters = rng.sample(names, 3)
        alive = [v for v in voters if v not in dead]
        if len(alive) < 2:
            continue
        t = tablet(f"t{pos}", "".join(voters), alive[0])
        members = tuple(replace(m, replace=rng.random() < 0.2) for m in t.config.members)
        health = {v: Health.FAILED if v in dead else Health.HEALTHY for v in voters}
        tablets.append(replace(t, config=RaftConfig(OpId(1, 1), members), health=health))
    servers = tuple(server(s, alive=s not in dead) for s in names)
    view, trail = settle(ClusterView(servers=servers, tablets=tuple(tablets)))
    for t in view.tablets:
        assert len(t.config.voters) == 3
        assert not set(t.config.voters) & dead
        assert not any(m.replace for m in t.config.members)
    assert decide(view, 1) == [] and all(d.reason for d in trail)
