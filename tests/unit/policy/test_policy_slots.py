"""How many copies run at a time, and how many slots one round of decisions leaves for the next tablet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.policy import Caps, ChangeKind, ClusterView, DesiredChange, decide
from tests.harness.policy_views import cluster, said, server, tablet

ONE_EACH = Caps(moves_per_server_max=1)
TWO_EACH = Caps(moves_per_server_max=2)


def move(source: str, target: str) -> DesiredChange:
    return DesiredChange(kind=ChangeKind.MOVE, wish_id="w", from_uuid=source, to_uuid=target)


@pytest.mark.parametrize(
    ("copying", "draining", "granted"),
    [
        ("a b c:r d:pU", "", False),
        ("a b c d:pU", "c", False),
        ("a b c d:pU", "", True),
        ("a b e c:nr d:pU", "", True),
        ("a b e c:n d:pU", "c", True),
    ],
)
def test_slots_a_copy_counts_at_the_voter_that_it_relieves(copying: str, draining: str, granted: bool) -> None:
    """Goal: a copy also takes a slot of the server whose replica it replaces, so replicas leave a server one after the
    other. Method: a copy to d is under way in one tablet; another one is to lose its replica on c, and servers take one
    copy at a time: it waits if c is a voter of the first one that is marked or whose server retires."""
    under_way = tablet(copying, "a", rf=4, name="s")
    wanted = tablet("a c g", "a", name="t", desired=move("c", "f"))
    view = cluster("abcdefg", under_way, wanted, draining=draining)
    assert ("t" in {d.tablet_id for d in decide(view, 1, ONE_EACH)}) is granted


def test_slots_a_retired_server_that_lost_a_replica_is_not_asked_for_it() -> None:
    """Goal: a tablet that lost its replica on a retired server is healed even if that server has no free slot. Method:
    servers take one copy at a time, and a move from c is under way; a tablet that lost its replica there is healed, one
    that did not waits."""
    under_way = tablet("a b c d:pU", "a", name="s")
    for words, granted in (("a e c:F", True), ("a e c", False)):
        view = cluster("abcdef", under_way, tablet(words, "a", name="t"), draining="c")
        assert ("t" in {d.tablet_id for d in decide(view, 1, ONE_EACH)}) is granted


def test_slots_adding_members_takes_one_slot_of_its_target_only() -> None:
    """Goal: an added member takes one slot, of its target only. Method: three tablets get a member each on three
    servers that take one copy at a time; with two slots in all, two do."""
    changes = [DesiredChange(kind=ChangeKind.ADD, wish_id="w", to_uuid=u) for u in "def"]
    tablets = [tablet("a b c", "a", name=f"t{w.to_uuid}", desired=w) for w in changes]
    assert said(decide(cluster("abcdef", *tablets), 1, ONE_EACH)) == ["add d:p", "add e:p", "add f:p"]
    assert len(decide(cluster("abcdef", *tablets), 1, Caps(moves_max=2))) == 2


def test_slots_a_learner_that_cannot_come_holds_one_place_of_its_server() -> None:
    """TC-65. Goal: a learner whose copies fail takes one slot of its server. Method: a learner on d that cannot come
    and stays, as no better server is free; another tablet lost a replica, and d is its only choice: with one place it
    waits, with two it has the other one."""
    view = cluster("abcd", tablet("a b c:F d:pX", "a", name="s"), tablet("a b c:F", "a", name="t"), dead="c")
    view = replace(view, servers=tuple(replace(s, avoided=s.uuid == "d") for s in view.servers))
    assert said(decide(view, 1, ONE_EACH)) == []
    assert said(decide(view, 1, TWO_EACH)) == ["add d:p"]


@pytest.mark.parametrize("wanted", [False, True])
def test_decide_the_next_tablet_sees_what_the_one_before_was_given(wanted: bool) -> None:
    """Goal: decisions of one round count each other, so none fills a server beyond its limit, and placements are
    spread. Method: two tablets that lost a replica, then two that want one on d: with room for one, one is placed; with
    room for two, both; and with two servers as good, each gets one."""
    words = "a b c" if wanted else "a b c:F"
    desired = DesiredChange(kind=ChangeKind.ADD, wish_id="w", to_uuid="d")
    two = tuple(tablet(words, "a", name=n, desired=desired if wanted else None) for n in "st")
    hosts = tuple(server(u, alive=u != "c") for u in "abc")
    for most in (1, 2):
        view = ClusterView(servers=(*hosts, server("d", tablets_max=most)), tablets=two)
        assert said(decide(view, 1)) == ["add d:p"] * most
    if not wanted:
        assert said(decide(cluster("abcde", *two, dead="c"), 1)) == ["add d:p", "add e:p"]


def test_decide_the_tablet_in_most_danger_goes_first() -> None:
    """Goal: with one slot, the tablet that lacks the most voters is healed first. Method: one of five wanted with three
    left, and one of three wanted with two."""
    tablets = (tablet("a b", "a", name="s"), tablet("a b c", "a", rf=5, name="t"))
    (first,) = decide(cluster("abcdef", *tablets), 1, Caps(moves_max=1))
    assert first.tablet_id == "t"


@pytest.mark.parametrize(
    ("marks", "alive", "avoided", "stays"),
    [("pX", True, True, True), ("pX", False, True, False), ("pX", True, False, False), ("pF", True, True, False)],
)
def test_decide_only_a_learner_whose_copies_fail_on_a_live_server_is_waited_for(
    marks: str, alive: bool, avoided: bool, stays: bool
) -> None:
    """TC-65. Goal: if no other server is free, only a learner whose copies fail stays; one that is lost for another
    reason is removed. Method: the learner d: copies fail, its server is dead, its replica is offline, it is silent."""
    hosts = (*(server(u) for u in "ab"), server("c", alive=False), server("d", alive=alive, avoided=avoided))
    view = ClusterView(servers=hosts, tablets=(tablet(f"a b c:F d:{marks}", "a"),))
    assert said(decide(view, 1)) == ([] if stays else ["remove d:p"])
