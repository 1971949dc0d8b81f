"""The add/evict table of one tablet."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.policy import ChangeKind, DesiredChange, Health, Need, advise, can_commit, is_at_rest
from nyala.replica.types import Member, OpId, RaftConfig
from tests.harness.policy_views import tablet

H, U, F, X = Health.HEALTHY, Health.UNKNOWN, Health.FAILED, Health.FAILED_UNRECOVERABLE

TABLE = [
    # nothing to do
    ("a:H* b:H c:H", 3, "NOTHING"),
    ("a:H*", 1, "NOTHING"),
    ("a:H* b:H c:U", 3, "NOTHING"),
    ("a:H* b:U c:U", 3, "NOTHING"),
    # under-replicated
    ("a:H* b:H", 3, "ADD"),
    ("a:H*", 2, "ADD"),
    ("a:H*", 3, "ADD"),
    ("a:H* b:H c:F", 3, "ADD"),
    ("a:H* b:H c:X", 3, "ADD"),
    ("a:H* b:H c:Hr", 3, "ADD"),
    ("a:Hr* b:H c:H", 3, "ADD"),
    ("a:Hr* b:Hr c:Hr", 3, "ADD"),
    ("a:H* b:U c:Hr", 3, "ADD"),
    # nobody could commit it
    ("a:H* b:F c:F", 3, "NOTHING"),
    ("a:H* b:U c:F", 3, "NOTHING"),
    ("a:H* b:F", 3, "NOTHING"),
    ("a:H* b:F c:F d:H", 3, "EVICT b"),
    # a replacement is on its way
    ("a:H* b:H c:F d:Hp", 3, "NOTHING"),
    ("a:H* b:H c:F d:Up", 3, "NOTHING"),
    ("a:H* b:H c:Hr d:Hp", 3, "NOTHING"),
    ("a:H* b:H c:F d:Hn", 3, "ADD"),
    # the replacement failed too
    ("a:H* b:H c:F d:Fp", 3, "EVICT d"),
    ("a:H* b:H c:F d:Xp e:Fp", 3, "EVICT d"),
    ("a:H* b:H c:F d:Fn", 3, "EVICT d"),
    # the replacement votes: the old one goes, in order of use
    ("a:H* b:H c:F d:H", 3, "EVICT c"),
    ("a:H* b:H c:Hr d:H", 3, "EVICT c"),
    ("a:H* b:F c:X d:H e:H", 3, "EVICT c"),
    ("a:H* b:X c:Xr d:H e:H", 3, "EVICT c"),
    ("a:H* b:F c:Fr d:H e:H", 3, "EVICT c"),
    ("a:H* b:Hr c:F d:H e:H", 3, "EVICT c"),
    ("a:H* b:U c:Hr d:H e:H", 3, "EVICT c"),
    ("a:H* b:H c:H d:U", 3, "EVICT d"),
    ("a:H* b:H c:H d:H", 3, "EVICT b"),
    ("a:H* b:Hr c:Hr d:H", 3, "EVICT b"),
    # somebody unknown is among those who would have to suffice: a useful replica stays
    ("a:H* b:H c:Hr d:U", 3, "NOTHING"),
    ("a:H* b:H c:U d:U", 3, "NOTHING"),
    ("a:H* b:U c:F d:H", 3, "EVICT c"),
    # the rest could not commit the eviction
    ("a:H* b:F c:F d:U", 3, "NOTHING"),
    ("a:H* b:H c:F d:F e:F", 3, "NOTHING"),
    # the leader is never evicted: it hands over first
    ("a:Hr* b:H c:H d:H", 3, "TRANSFER b"),
    ("a:Hr* b:Hr c:H d:H", 3, "EVICT b"),
    ("a:Hr* b:U c:H d:H e:H", 3, "TRANSFER c"),
    ("a:H*", 0, "NOTHING"),
    # learners nobody needs
    ("a:H* b:H c:H d:Hp", 3, "EVICT d"),
    ("a:H* b:H c:U d:Hp", 3, "NOTHING"),
    ("a:H* b:H c:H d:Hn", 3, "NOTHING"),
    ("a:H* b:H c:H d:Hnr", 3, "EVICT d"),
    # servers = replication factor, one is bad: nothing is removed before its replacement votes
    ("a:H* b:H c:Xr", 3, "ADD"),
]


@pytest.mark.parametrize(("words", "rf", "expected"), TABLE, ids=[f"{w} rf{r}" for w, r, _ in TABLE])
def test_advise_each_row_of_the_table_gives_its_need(words: str, rf: int, expected: str) -> None:
    """Goal: scenario 106, the add/evict table. Method: one row a config, spelled as health and marks."""
    got = advise(tablet(words, rf=rf))
    assert f"{got.need} {got.uuid}".strip() == expected, got.reason


@pytest.mark.parametrize("words", ["a:H b:H c:F", "a:Hr b:H c:H d:H"])
def test_advise_without_a_leader_or_with_a_pending_change_waits(words: str) -> None:
    """Goal: there is no advice without a leader or while a config change is pending. Method: both states."""
    assert advise(tablet(words)).need is Need.NOTHING
    led = words.replace("a:H", "a:H*", 1)
    assert advise(tablet(led, pending=True)).need is Need.NOTHING
    assert advise(tablet(led)).need is not Need.NOTHING


def test_advise_kept_members_leave_last_unless_lost() -> None:
    """Goal: a member that a desired change just added is not chosen as the surplus one, unless it is lost. Method: keep
    it, healthy and failed."""
    assert advise(tablet("a:H* b:H c:H d:Hp"), keep=frozenset("d")).need is Need.NOTHING
    assert advise(tablet("a:H* b:H c:H d:H"), keep=frozenset("b")).uuid == "c"
    assert advise(tablet("a:H* b:H c:H d:Fp"), keep=frozenset("d")).uuid == "d"


def test_advise_a_kept_voter_that_was_not_heard_yet_is_waited_for() -> None:
    """CC-47. Goal: a member that a desired change just added is not removed as surplus because its server restarts.
    Method: until it has been heard, no member is removed; once heard, another one is removed; lost or marked, it is
    removed itself."""
    kept = frozenset("d")
    assert advise(tablet("a:H* b:H c:H d:U"), keep=kept).need is Need.NOTHING
    assert advise(tablet("a:H* b:H c:H d:U")).uuid == "d"
    assert advise(tablet("a:H* b:H c:H d:H"), keep=kept).uuid == "b"
    assert {advise(tablet(f"a:H* b:H c:H d:{mark}"), keep=kept).uuid for mark in ("F", "X", "Ur")} == {"d"}


_MARKS = st.sampled_from(["", "r"])
_MEMBER = st.tuples(st.sampled_from("HUFX"), st.sampled_from(["", "r", "p", "n"]))


@given(st.lists(_MEMBER, min_size=0, max_size=6), _MARKS, st.integers(1, 5))
def test_advise_any_config_is_never_harmed(rest: list[tuple[str, str]], mark: str, rf: int) -> None:
    """Goal: no advice can lose a majority, the leader or a voter without replacement. Method: random configs."""
    words = [f"a:H{mark}*", *(f"{name}:{h}{m}" for name, (h, m) in zip("bcdefg", rest, strict=False))]
    view = tablet(" ".join(words), rf=rf)
    got = advise(view)
    if got.need is Need.ADD:
        assert can_commit(view)
    if got.need is Need.TRANSFER:
        target = view.config.member(got.uuid)
        assert target is not None and target.votes and view.health_of(got.uuid) is H and got.uuid != "a"
    if got.need is Need.EVICT:
        member = view.config.member(got.uuid)
        assert member is not None and got.uuid != "a"
        assert can_commit(view, got.uuid)
        if member.votes:
            assert len(view.config.voters) > rf
            useful = not view.health_of(got.uuid).failed
            staying = sum(view.health_of(u) is H for u in view.config.voters if u != got.uuid)
            assert not useful or staying >= rf


def test_advise_every_small_config_settles() -> None:
    """Goal: following the advice ends with RF healthy voters. Method: all configs of 3 voters, where each advice is
    carried out."""
    for states in itertools.product("HFX", ["", "r"], "HFX", ["", "r"]):
        words = f"a:H* b:{states[0]}{states[1]} c:{states[2]}{states[3]}"
        view = tablet(words)
        for step in range(30):
            got = advise(view)
            if got.need is Need.NOTHING:
                break
            members = list(view.config.members)
            health = dict(view.health)
            if got.need is Need.ADD:
                members.append(Member(f"n{step:02}", votes=True))
                health[f"n{step:02}"] = H
            else:
                members = [m for m in members if m.uuid != got.uuid]
            view = replace(view, config=RaftConfig(OpId(1, step + 2), tuple(members)), health=health)
        good = [u for u in view.config.voters if view.health_of(u) is H]
        if sum(s == "H" for s in (states[0], states[2])) >= 1:
            assert len(view.config.voters) == 3 == len(good), words


@pytest.mark.parametrize(
    ("words", "at_rest"),
    [
        ("a:* b c", True),
        ("a:* b c:U", True),
        ("a:* b", False),
        ("a:* b c d", False),
        ("a:* b c:p", False),
        ("a:* b c:n", False),
        ("a:* b c:r", False),
        ("a:* b c:F", False),
        ("a:F b:F c:F", False),
    ],
)
def test_tablet_is_at_rest_if_nothing_of_itself_asks_for_a_decision(words: str, at_rest: bool) -> None:
    """Goal: the master passes over no tablet that needs a decision. Method: one thing at a time that asks for one; a
    desired change, a server that drains, and witnesses that are to hold data. What is at rest needs no advice."""
    view = tablet(words)
    assert is_at_rest(view, frozenset()) == at_rest
    assert not at_rest or advise(view).need is Need.NOTHING
    desired = DesiredChange(kind=ChangeKind.ADD, wish_id="w", from_uuid="", to_uuid="d")
    assert not is_at_rest(replace(view, desired=desired), frozenset())
    assert not is_at_rest(view, frozenset("b")) and is_at_rest(view, frozenset("d")) == at_rest
    waits = tuple(replace(m, holds_data=False, votes=True, promote=True) for m in view.config.members)
    assert not is_at_rest(replace(view, config=replace(view.config, members=waits)), frozenset())
