"""Which damaged replicas are copied anew where they stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.policy import Caps, ClusterView, Health, ServerView, TabletView, copies_in_place, decide
from nyala.replica.types import OpId
from tests.harness.policy_views import cluster, server, tablet


def damaged(words: str = "a b c:X", *, bad: str = "c", level: str = "ab", **fields: Any) -> TabletView:
    """A tablet led by a where c is damaged and the others have all of the log, unless told otherwise."""
    return tablet(words, fields.pop("leader", "a"), damaged=frozenset(bad), caught_up=frozenset(level), **fields)


def renewed(view: ClusterView, caps: Caps | None = None, **ages_s: float) -> list[str]:
    """Tablet and server of each renewal; the last order for it was said so many seconds ago."""
    ages_us = {(n[1:], n[:1]): int(s * 1e6) for n, s in ages_s.items()}
    return [r.tablet_id + r.uuid for r in copies_in_place(view, caps, ages_us)]


def servers(names: str, **special: dict[str, Any]) -> tuple[ServerView, ...]:
    return tuple(server(n, **special.get(n, {})) for n in names)


def test_copies_in_place_the_one_damaged_voter_of_servers_as_many_as_replicas() -> None:
    """TC-63. Goal: if no other server can take a replica, a damaged one is copied in its place, as of the config that
    was seen, and the config does not change. Method: three servers, also five."""
    view = cluster("abc", damaged())
    (one,) = copies_in_place(view)
    assert (one.tablet_id, one.uuid, one.config_opid) == ("t", "c", OpId(1, 1))
    assert decide(view, 1) == []
    assert renewed(cluster("abcde", damaged("a b c:X d e", level="abde", rf=5))) == ["tc"]


def test_copies_in_place_count_the_replicas_that_the_view_leaves_out() -> None:
    """TC-63. Goal: as above, if the view has only the tablets that may need such a copy. Method: d may have one
    replica; it has none in the view, and the loads that come with it name one."""
    view = ClusterView(servers=servers("abcd", d={"tablets_max": 1}), tablets=(damaged(),))
    assert copies_in_place(view) == []
    assert [each.uuid for each in copies_in_place(view, load={"d": 1})] == ["c"]


OTHERS_IN_DOUBT = {
    "alone": damaged("c:X", leader="c", level="c", rf=1),
    "alone, and somebody else is said to lead": damaged("c:X", leader="a", level="a", rf=1),
    "one of two": damaged("a c:X", level="a", rf=2),
    "another one failed": damaged("a b:F c:X"),
    "another one of five failed": damaged("a b:F c:X d e", level="abde", rf=5),
    "another one is unknown": damaged("a b:U c:X"),
    "another one lacks some of the log": damaged(level="a"),
    "another one lacks some of the log, and the damaged one is seen as whole": damaged("a b c", level="ac"),
    "the leader does not say": damaged(level=""),
    "two are damaged": damaged("a b:X c:X", bad="bc", level="a"),
    "another one is damaged, and seen as healthy": damaged("a b c:X", bad="bc"),
    "two of five": damaged("a b:X c:X d e", bad="bc", level="ade", rf=5),
    "nobody leads": damaged(leader=""),
    "it leads": damaged("a b c", leader="c", level="abc"),
    "it is said to lead, and failed": damaged(leader="c"),
    "a config change is under way": damaged(pending=True),
    "another one is on its way": damaged("a b c:X d:p"),
    "more vote than are wanted": damaged("a b c:X", rf=1),
    "nothing is damaged": damaged("a b c:X", bad=""),
    "the damaged one has no vote": damaged("a b c:Xn"),
}


@pytest.mark.parametrize("view", OTHERS_IN_DOUBT.values(), ids=list(OTHERS_IN_DOUBT))
def test_no_copy_in_place_while_the_others_may_be_in_trouble(view: TabletView) -> None:
    """TC-63. Goal: a damaged replica is given up only if the other voters surely have its rows. Method: every reason to
    wait."""
    assert copies_in_place(cluster((m.uuid for m in view.config.members), view)) == []


@pytest.mark.parametrize("holds_data", [True, False])
def test_copies_in_place_a_learner_that_is_lost_is_nobody_on_the_way(holds_data: bool) -> None:
    """TC-63. Goal: a lost learner does not delay a copy in place. Method: a failed learner, then a failed witness
    without a vote, beside the damaged one; their server is dead."""
    view = damaged("a b c:X d:pF")
    members = tuple(replace(m, holds_data=holds_data or m.uuid != "d") for m in view.config.members)
    assert renewed(cluster("abcd", replace(view, config=replace(view.config, members=members)), dead="d")) == ["tc"]


@pytest.mark.parametrize("witness", ["b", "c"])
def test_no_copy_in_place_beside_a_witness_nor_of_one(witness: str) -> None:
    """Goal: TC-63, CC-52: a witness is no source of rows. Method: a voter without data, among the others or damaged."""
    view = damaged()
    members = tuple(replace(m, holds_data=m.uuid != witness) for m in view.config.members)
    assert copies_in_place(cluster("abc", replace(view, config=replace(view.config, members=members)))) == []


def test_copies_in_place_only_where_no_other_server_is_free() -> None:
    """TC-63. Goal: if another server is free, the replica is replaced there instead. Method: a fourth server: free,
    dead, full, retired, and one into which copies fail."""
    for special, wanted in (
        ({}, []),
        ({"alive": False}, ["tc"]),
        ({"draining": True}, ["tc"]),
        ({"avoided": True}, ["tc"]),
    ):
        assert renewed(ClusterView(servers=servers("abcd", d=special), tablets=(damaged(),))) == wanted, special
    other = tablet("d", "d", name="u", rf=1)
    assert renewed(ClusterView(servers=servers("abcd", d={"tablets_max": 1}), tablets=(damaged(), other))) == ["tc"]


@pytest.mark.parametrize("special", [{"alive": False}, {"avoided": True}])
def test_no_copy_in_place_into_a_server_that_is_dead_or_where_copies_fail(special: dict[str, Any]) -> None:
    """TC-63. Goal: a damaged replica stays if no copy could replace it. Method: such a server, and no other."""
    assert renewed(ClusterView(servers=servers("abc", c=special), tablets=(damaged(),))) == []


def test_copies_in_place_hold_the_caps_with_what_is_under_way() -> None:
    """TC-63. Goal: few damaged replicas of one server are put into quarantine at a time. Method: four damaged tablets,
    with none, one and two of other tablets not yet copied there; and with a bound on all of them."""
    four = tuple(damaged(name=n) for n in "pqrs")
    caps = Caps(moves_per_server_max=2)
    for made, wanted in ((0, ["pc", "qc"]), (1, ["pc"]), (2, [])):
        away = tuple(tablet("a b c:U", "a", name=f"z{n}", without_replica=frozenset("c")) for n in range(made))
        assert renewed(cluster("abc", *four, *away), caps) == wanted
    assert renewed(cluster("abc", *four), Caps(moves_max=1)) == ["pc"]


def test_copies_in_place_that_do_not_help_let_the_others_have_their_turn() -> None:
    """TC-63. Goal: replicas that stay damaged after their copies do not keep others waiting for ever, and the
    quarantine of a bad folder grows slowly. Method: four damaged on one server that takes two at a time, one on
    another, all of them two: while two are ordered, in their pause, and after it; then the oldest of all that were
    ordered."""
    four = tuple(damaged(name=n) for n in "pqrs")
    view = cluster("abc", *four, damaged("a b:X c", bad="b", level="ac", name="z"))
    caps = Caps(moves_per_server_max=2, moves_max=2)
    assert renewed(view, caps) == ["pc", "qc"]
    assert renewed(view, caps, pc=9.9, qc=9.9) == ["pc", "qc"], "they are repeated, and take all places"
    assert renewed(view, caps, pc=10, qc=10) == ["zb"], "in their pause they take none but their server's"
    assert renewed(view, caps, pc=10) == ["qc", "zb"], "one in its pause takes one place"
    assert renewed(view, caps, pc=119, qc=119, zb=9) == ["zb"]
    assert renewed(view, caps, pc=120, qc=120, zb=119) == ["rc", "sc"], "who was not ordered yet goes first"
    assert renewed(view, caps, pc=130, qc=130, rc=9, sc=9, zb=120) == ["rc", "sc"]
    assert renewed(view, caps, pc=240, qc=241, rc=120, sc=120, zb=230) == ["qc", "pc"], "the longest ago"


@given(
    words=st.lists(st.tuples(st.sampled_from("HUFX"), st.sampled_from(["", "r", "p", "n"])), min_size=1, max_size=6),
    bad=st.sets(st.sampled_from("abcdef")),
    level=st.sets(st.sampled_from("abcdef")),
    leader=st.sampled_from(["", *"abcdef"]),
    rf=st.sampled_from([1, 3, 5]),
    pending=st.booleans(),
)
def test_copies_in_place_never_touch_a_tablet_whose_others_are_no_whole_majority(
    words: list[tuple[str, str]], bad: set[str], level: set[str], leader: str, rf: int, pending: bool
) -> None:
    """Goal: TC-63. Method: any tablet of one to six members: whoever is renewed is a damaged voter and does not lead,
    one of a tablet, and all other voters are healthy, undamaged, have the log, and are a majority by themselves."""
    text = " ".join(f"{u}:{h}{mark}" for u, (h, mark) in zip("abcdef", words, strict=False))
    view = tablet(text, leader, rf=rf, pending=pending, damaged=frozenset(bad), caught_up=frozenset(level))
    found = copies_in_place(cluster("abcdef"[: len(words)], view))
    assert len(found) <= 1
    for one in found:
        others = set(view.config.voters) - {one.uuid}
        assert one.uuid in bad & set(view.config.voters) and one.uuid != leader and leader and not pending
        assert 2 * len(others) > len(view.config.voters)
        assert others <= level - bad and all(view.health_of(u) is Health.HEALTHY for u in others)


@pytest.mark.parametrize("words", ["a:X b:X c:X", "a:X b:X c", "a:X b:X c:U", "a:X b:X c:F"])
def test_tablet_whose_majority_failed_is_left_as_it_is(words: str) -> None:
    """IN-03. Goal: if the majority of a tablet failed at an entry that no server can apply, its replicas are neither
    copied in place nor replaced, because they have the only data until another build starts. Method: a majority and all
    replicas failed, reported as damaged or not, with three servers to spare, and any member as the leader from before
    the failure."""
    for leader in ("", "a", "b", "c"):
        for bad in ("", "ab", "abc"):
            view = cluster("abcdef", damaged(words, bad=bad, level="abc", leader=leader))
            assert decide(view, 5) == [] and copies_in_place(view) == []
            assert copies_in_place(cluster("abc", damaged(words, bad=bad, level="abc", leader=leader))) == []
