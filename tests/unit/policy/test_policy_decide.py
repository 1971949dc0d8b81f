"""Decisions from views: healing, moves, desired changes, caps, and a cluster that obeys them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.policy import Caps, ChangeKind, ChangeState, ClusterView, DesiredChange, Health, change_state, decide
from nyala.replica.types import Action, EditKind, OpId, RaftConfig
from tests.harness.policy_views import cluster, obey, server, settle, tablet


def test_decide_a_dead_server_is_healed_through_three_four_three() -> None:
    """Goal: TC-66, and a lost voter is replaced before it is removed. Method: fail one server, obey, count voters."""
    view = cluster("abcd", tablet("a b c:F", "a"), dead="c")
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
    """CN-03. Goal: the limit on tablets of a server holds for replacements, moves and added members. Method: d is full
    and e is not: a replacement goes to e, also when a move names d. If both are full, there is no decision."""
    other = tablet("d", "d", name="u", rf=1)
    full = server("d", tablets_max=1)
    for desired in (
        None,
        *(DesiredChange(kind=k, wish_id="w", from_uuid="c", to_uuid="d") for k in (ChangeKind.MOVE, ChangeKind.ADD)),
    ):
        healthy = tablet("a b c", "a", desired=desired)
        sick = tablet("a b c:F", "a", desired=desired)
        hosts = (*(server(s) for s in "ab"), server("c", alive=False), full)
        roomy = ClusterView(servers=(*hosts, server("e")), tablets=(sick, other))
        assert [e.member.uuid for d in decide(roomy, 1) for e in d.edits] == ["e"]
        assert decide(ClusterView(servers=hosts, tablets=(sick, other)), 1) == []
        assert decide(ClusterView(servers=hosts, tablets=(healthy, other)), 1) == []


def test_decide_counts_the_replicas_that_the_view_leaves_out() -> None:
    """CN-03. Goal: as above, if the view has only the tablets that are not at rest. Method: d may have one replica; it
    has none in the view, and the loads that come with it name one."""
    hosts = (server("a"), server("b"), server("c", alive=False), server("d", tablets_max=1))
    view = ClusterView(servers=hosts, tablets=(tablet("a b c:F", "a"),))
    assert [e.member.uuid for d in decide(view, 1) for e in d.edits] == ["d"]
    assert decide(view, 1, load={"d": 1}) == []


def test_decide_server_with_a_replica_of_a_former_generation_gets_none_before_that_is_gone() -> None:
    """CC-46. Goal: a server whose old replica belongs to a former generation is not added, because that replica accepts
    nothing from the new group. Method: a forced group has one voter, and two other servers are free, one of them with
    an old replica: the other one is added. If only that server is free, the policy waits until its old replica is
    gone."""
    group = tablet("a", "a", rf=3, former_generation=frozenset("b"))
    assert [e.member.uuid for d in decide(cluster("abc", group), 1) for e in d.edits] == ["c"]
    assert decide(cluster("ab", group), 1) == []
    assert [e.member.uuid for d in decide(cluster("ab", tablet("a", "a", rf=3)), 1) for e in d.edits] == ["b"]


def test_decide_servers_equal_rf_with_one_bad_removes_nothing() -> None:
    """TC-81. Goal: TC-81, scenario 120: with as many servers as replicas, a bad member is not removed. Method: three
    servers, one marked, one failed in turn: no decision at all."""
    for words in ("a b c:r", "a b c:X"):
        assert decide(cluster("abc", tablet(words, "a")), 1) == []


@pytest.mark.parametrize("leader", ["a", "c"])
def test_decide_a_move_adds_promotes_and_removes_the_leader_last(leader: str) -> None:
    """Goal: TC-81: a move is desired state and never passes through fewer voters. Method: move a follower, a leader."""
    desired = DesiredChange(kind=ChangeKind.MOVE, wish_id="w", from_uuid="c", to_uuid="d", plan_id="p")
    view = cluster("abcd", tablet("a b c", leader, desired=desired))
    first = decide(view, 1)[0]
    assert {(e.kind, e.member.uuid, e.member.replace) for e in first.edits} == {
        (EditKind.ADD, "d", False),
        (EditKind.CHANGE, "c", True),
    }
    view, trail, _ = settle(view)
    assert view.tablets[0].config.voters == ("a", "b", "d")
    assert {d.plan_id for d in trail} == {"p"}
    assert (Action.TRANSFER_LEADERSHIP in [d.action for d in trail]) == (leader == "c")
    assert change_state(view.tablets[0], desired, 0) is ChangeState.DONE


def test_decide_a_move_removes_nothing_until_the_new_one_votes() -> None:
    """Goal: CC-36: a move is add, wait for its commit, then remove. Method: the new one stays a learner for a while;
    then it is promoted, and the old one leaves."""
    desired = DesiredChange(kind=ChangeKind.MOVE, wish_id="w", from_uuid="c", to_uuid="d")
    view = cluster("abcd", tablet("a b c", "a", desired=desired))
    view = obey(view, decide(view, 1)[0], promote=False)
    assert view.tablets[0].config.voters == ("a", "b", "c")
    assert decide(view, 1) == []
    t = view.tablets[0]
    members = tuple(replace(m, votes=True, promote=False) if m.uuid == "d" else m for m in t.config.members)
    view = replace(view, tablets=(replace(t, config=RaftConfig(OpId(1, 9), members)),))
    (last,) = decide(view, 1)
    assert [(e.kind, e.member.uuid) for e in last.edits] == [(EditKind.REMOVE, "c")]


def test_decide_an_expired_move_is_taken_back() -> None:
    """Goal: an expired move leaves neither a learner nor a mark. Method: expire it before the promotion."""
    desired = DesiredChange(kind=ChangeKind.MOVE, wish_id="w", from_uuid="c", to_uuid="d", deadline_us=10)
    view = replace(cluster("abcd", tablet("a b c", "a", desired=desired)), now_us=5)
    view = replace(obey(view, decide(view, 1)[0], promote=False), now_us=11)
    assert change_state(view.tablets[0], desired, 11) is ChangeState.CANCEL
    view, _, _ = settle(view)
    assert [(m.uuid, m.replace) for m in view.tablets[0].config.members] == [("a", False), ("b", False), ("c", False)]
    assert change_state(view.tablets[0], desired, 11) is ChangeState.FAILED


def test_decide_all_replicas_marked_are_replaced_one_by_one() -> None:
    """Goal: scenario 114. Method: mark all three on draining servers, obey to the end: three new voters, no marks."""
    view, _, _ = settle(cluster("abcdef", tablet("a:r b:r c:r", "b"), draining="abc"))
    assert view.tablets[0].config.voters == ("d", "e", "f")
    assert not any(m.replace for m in view.tablets[0].config.members)


def test_decide_a_removal_waits_for_its_replacement() -> None:
    """Goal: RemoveReplica never shrinks a tablet below its factor. Method: with a spare server and without."""
    desired = DesiredChange(kind=ChangeKind.REMOVE, wish_id="w", from_uuid="b")
    t = tablet("a b c", "a", desired=desired)
    view, _, _ = settle(cluster("abc", t))
    assert view.tablets[0].config.voters == ("a", "b", "c")
    view, _, _ = settle(cluster("abcd", t))
    assert view.tablets[0].config.voters == ("a", "c", "d")


@pytest.mark.parametrize("gone", ["F", "X"])
def test_decide_nobody_leaves_while_the_rest_is_shaky(gone: str) -> None:
    """Goal: scenario 108: if two of three voters are gone, or their health is unknown, the config stays as it is,
    whatever an operator wants. When one returns, the other is replaced. Method: each pair of states and each kind of
    desired change, also one that has ended and would be taken back."""
    uuids = {"wish_id": "w", "from_uuid": "c", "to_uuid": "d"}
    changes = [DesiredChange(kind=kind, **uuids) for kind in ChangeKind if kind is not ChangeKind.TRANSFER]
    changes.append(DesiredChange(kind=ChangeKind.MOVE, **uuids, deadline_us=1))
    for b, c in ((gone, gone), (gone, "U"), ("U", gone), ("U", "U")):
        assert (
            decide(replace(cluster("abcde", tablet(f"a b:{b} c:{c}r d:p", "a", desired=changes[-1])), now_us=2), 1)
            == []
        )
        for wanted in (None, *changes):
            assert decide(cluster("abcde", tablet(f"a b:{b} c:{c}", "a", desired=wanted)), 1) == []
    view, _, low = settle(cluster("abcde", tablet(f"a b c:{gone}", "a"), dead="c"))
    assert view.tablets[0].config.voters == ("a", "b", "d") and low == {"t": 3}


@pytest.mark.parametrize("when", ["as a learner", "behind the log", "as a voter"])
def test_decide_a_replacement_that_fails_too_is_replaced(when: str) -> None:
    """Goal: scenario 110: if the replacement of a lost voter fails too, another one is added, and in the end three
    healthy members vote. Method: c is lost, and its replacement d fails before it votes, for good, or right after; the
    decisions are obeyed; never fewer than three members vote."""
    view = cluster("abcde", tablet("a b c:F", "a"), dead="c")
    view = obey(view, decide(view, 1)[0], promote=when == "as a voter")
    t = view.tablets[0]
    lost = Health.FAILED_UNRECOVERABLE if when == "behind the log" else Health.FAILED
    servers = tuple(replace(s, alive=s.uuid not in "cd") for s in view.servers)
    view = replace(view, servers=servers, tablets=(replace(t, health={**t.health, "d": lost}),))
    (first,) = decide(view, 1)
    assert [(e.kind, e.member.uuid) for e in first.edits] == [
        (EditKind.REMOVE, "c" if when == "as a voter" else "d")
    ], "there is room for the next one"
    view, _, low = settle(view)
    assert view.tablets[0].config.voters == ("a", "b", "e") and low == {"t": 3}


def learners_of(view: ClusterView, uuid: str) -> int:
    return sum(m.uuid == uuid and not m.votes for t in view.tablets for m in t.config.members)


def bad_for_copies(view: ClusterView, bad: str) -> ClusterView:
    """The view in which no copy succeeds on the servers `bad`: their learners never do, and who tried one is known."""
    tablets = tuple(
        replace(t, health={**t.health, **{u: Health.FAILED_UNRECOVERABLE for u in bad if u not in t.config.voters}})
        for t in view.tablets
    )
    view = replace(view, tablets=tablets)
    tried = {u for u in bad if learners_of(view, u)}
    return replace(view, servers=tuple(replace(s, avoided=s.avoided or s.uuid in tried) for s in view.servers))


def heal(view: ClusterView, bad: str) -> tuple[ClusterView, list[tuple[EditKind, str]]]:
    """Obey until nothing is decided any more, while no copy succeeds on `bad`; the end, and every edit."""
    edits: list[tuple[EditKind, str]] = []
    for _ in range(200):
        view = bad_for_copies(view, bad)
        decisions = decide(view, 1)
        if not decisions:
            return view, edits
        for decision in decisions:
            view = bad_for_copies(obey(view, decision), bad)
            edits += [(e.kind, e.member.uuid) for e in decision.edits]
    raise AssertionError(edits[-6:])


def test_decide_a_server_where_copies_fail_stops_nobodys_healing() -> None:
    """TC-65, scenario 110. Goal: the policy gives up a live server where every copy fails, and uses another one.
    Method: c is dead; d is empty, so it is the first choice, and every copy to it fails. Of five tablets at most two
    try d, each evicts it once, and all end on servers that work; d is not tried again."""
    tablets = [tablet("a b c:F", "a", name=f"t{n}") for n in range(5)]
    full = [tablet("a e f", "a", name=f"u{n}") for n in range(3)]
    view, edits = heal(cluster("abcdef", *tablets, *full, dead="c"), "d")
    assert edits.count((EditKind.ADD, "d")) == edits.count((EditKind.REMOVE, "d")) == 2
    for t in view.tablets:
        assert len(t.config.voters) == 3 and not {"c", "d"} & set(t.config.voters)


def test_decide_a_busy_server_is_passed_over_for_the_next() -> None:
    """TC-65. Goal: if the best server has no free slot for copies, the next one gets the replica. Method: two slow
    learners on d, which is the least loaded by far. Three tablets that lost a voter go to e and f, which are as good.
    They wait if e and f are in a location that has two replicas already, and if e and f are avoided."""
    slow = [tablet("a b c:F d:pU", "a", name=f"s{n}") for n in range(2)]
    hurt = [tablet("a b c:F", "a", name=f"t{n}") for n in range(3)]
    full = [tablet("a e f", "a", name=f"u{n}") for n in range(5)]
    view = cluster("abcdef", *slow, *hurt, *full, dead="c")
    assert sorted(e.member.uuid for d in decide(view, 1) for e in d.edits) == ["e", "e", "f"]
    placed = replace(view, servers=tuple(replace(s, location="z" if s.uuid in "cd" else "y") for s in view.servers))
    assert decide(placed, 1) == []
    avoided = replace(view, servers=tuple(replace(s, avoided=s.uuid in "ef") for s in view.servers))
    assert decide(avoided, 1) == []


def test_decide_a_server_where_copies_fail_is_used_if_no_other_is_free() -> None:
    """TC-65. Goal: if only a server where copies fail is free, the policy uses it, and does not evict and add its
    learner again and again. Method: of four servers c is dead and copies fail at d: d is tried and its learner stays; a
    fifth server gets the replica. Such learners take slots of their own server only, so tablets that can be healed
    elsewhere do not wait."""
    view, edits = heal(cluster("abcd", tablet("a b c:F", "a"), dead="c"), "d")
    assert edits == [(EditKind.ADD, "d")]
    assert [m.uuid for m in view.tablets[0].config.members] == ["a", "b", "c", "d"]
    more = replace(view, servers=(*view.servers, server("e")))
    view, edits = heal(more, "d")
    assert view.tablets[0].config.voters == ("a", "b", "e") and edits[0] == (EditKind.REMOVE, "d")

    stuck = tablet("a b c:F d:pX", "a", name="stuck")
    other = tablet("a e c:F", "a", name="other")
    tight = cluster("abcde", stuck, other, dead="c")
    tight = replace(
        tight, servers=tuple(replace(s, avoided=s.uuid == "d", draining=s.uuid == "e") for s in tight.servers)
    )
    assert [d.tablet_id for d in decide(tight, 1, Caps(moves_max=1))] == ["other"]
    assert decide(tight, 1, Caps(moves_per_server_max=1))[0].edits[0].member.uuid == "b"


def test_decide_a_disk_that_is_nearly_full_is_taken_last() -> None:
    """TC-65. Goal: replicas go to servers with room on the disk. Method: d has no replicas but less than a gigabyte
    left, or would have after the copy; e has more replicas. A server that reports no disk counts as one with room. If
    all are nearly full, loads decide; a server where copies fail comes after a full one."""
    full = [tablet("a b e", "a", name=f"u{n}") for n in range(2)]
    for free, size, chosen in (
        (1 << 29, 0, "e"),
        (1 << 30, 0, "d"),
        (3 << 29, 1 << 30, "e"),
        (3 << 29, 1 << 28, "d"),
        (None, 1, "d"),
    ):
        hurt = tablet("a b c:F", "a", bytes_on_disk=size)
        view = cluster("abcde", hurt, *full, dead="c")
        roomy = replace(
            view, servers=tuple(replace(s, disk_bytes_free=free if s.uuid == "d" else 1 << 40) for s in view.servers)
        )
        assert [e.member.uuid for d in decide(roomy, 1) for e in d.edits] == [chosen]
        same = replace(view, servers=tuple(replace(s, disk_bytes_free=0) for s in view.servers))
        assert [e.member.uuid for d in decide(same, 1) for e in d.edits] == ["d"]
        worse = replace(roomy, servers=tuple(replace(s, avoided=s.uuid == "e") for s in roomy.servers))
        assert [e.member.uuid for d in decide(worse, 1) for e in d.edits] == ["d"]


def test_decide_a_move_whose_target_takes_no_copies_ends_elsewhere() -> None:
    """TC-65. Goal: a desired change does not bind a tablet to a server where copies fail. Method: a move from c to d,
    where copies fail. If e is free, c's replica is replaced there. Otherwise d is tried until the deadline; then the
    learner and the mark are taken back."""
    desired = DesiredChange(kind=ChangeKind.MOVE, wish_id="w", from_uuid="c", to_uuid="d", deadline_us=10)
    view, _ = heal(cluster("abcde", tablet("a b c", "a", desired=desired)), "d")
    assert view.tablets[0].config.voters == ("a", "b", "e")
    view, edits = heal(cluster("abcd", tablet("a b c", "a", desired=desired)), "d")
    assert edits == [(EditKind.ADD, "d"), (EditKind.CHANGE, "c")]
    view, _ = heal(replace(view, now_us=11), "d")
    assert [(m.uuid, m.replace) for m in view.tablets[0].config.members] == [("a", False), ("b", False), ("c", False)]


@settings(max_examples=60)
@given(st.integers(0, 1 << 30))
def test_decide_random_clusters_heal_though_servers_take_no_copies(seed: int) -> None:
    """TC-65, scenario 110. Goal: whatever servers are dead and wherever copies fail, the decisions end, three members
    vote in the end, and every tablet is complete as long as enough good servers are left. Method: random clusters of
    seven servers, where every decision is carried out."""
    rng = random.Random(seed)
    names = rng.sample("abcdefg", 7)
    dead, bad = names[0], "".join(names[1 : rng.randint(1, 4)])
    tablets = []
    for pos in range(rng.randint(1, 8)):
        voters = rng.sample("abcdefg", 3)
        leader = next(v for v in voters if v != dead)
        words = " ".join(f"{v}:{'F' if v == dead else 'H'}" for v in voters)
        tablets.append(tablet(words, leader, name=f"t{pos}"))
    view, edits = heal(cluster("abcdefg", *tablets, dead=dead), bad)
    for t in view.tablets:
        assert len(t.config.voters) == 3 and dead not in t.config.voters
        assert not any(m.replace or m.promote for m in t.config.members)
    for uuid in bad:
        assert edits.count((EditKind.ADD, uuid)) <= 2, "its slots, until it is known"


def test_decide_unreachable_learners_count_against_the_caps() -> None:
    """Goal: scenario 119. Method: a learner of unknown health fills the cap of one; a second tablet waits."""
    view = cluster("abcde", tablet("a b c:U d:pU", "a", name="t1"), tablet("a b", "a", name="t2"))
    assert decide(view, 1, Caps(moves_max=1)) == []
    assert [d.tablet_id for d in decide(view, 1, Caps(moves_max=2))] == ["t2"]


def test_decide_unknown_waits_and_an_absent_leader_decides_nothing() -> None:
    """Goal: the policy decides nothing about a member whose health is unknown, and nothing for a tablet without a
    leader. Method: unknown members, then no leader: no decisions."""
    assert decide(cluster("abcd", tablet("a b:U c:U", "a")), 1) == []
    assert decide(cluster("abcd", tablet("a b")), 1) == []


@settings(max_examples=60)
@given(st.integers(0, 1 << 30))
def test_decide_random_clusters_heal_and_never_lose_a_majority(seed: int) -> None:
    """Goal: if each decision is carried out, each tablet ends with RF healthy voters where there are enough servers,
    and never loses a majority on the way. Method: random failures and marks."""
    rng = random.Random(seed)
    names = "abcdefg"
    tablets = []
    dead = set(rng.sample(names, rng.randint(0, 2)))
    for pos in range(rng.randint(1, 6)):
        voters = rng.sample(names, 3)
        alive = [v for v in voters if v not in dead]
        if len(alive) < 2:
            continue
        words = [f"{v}:{'F' if v in dead else 'H'}{'r' if rng.random() < 0.2 else ''}" for v in voters]
        tablets.append(tablet(" ".join(words), alive[0], name=f"t{pos}"))
    view, trail, _ = settle(cluster(names, *tablets, dead="".join(dead)))
    for t in view.tablets:
        assert len(t.config.voters) == 3
        assert not set(t.config.voters) & dead
        assert not any(m.replace for m in t.config.members)
    assert decide(view, 1) == [] and all(d.reason for d in trail)
