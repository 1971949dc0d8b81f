"""One desired change of one tablet: its state, and the decision for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.policy import (
    ChangeKind,
    ChangeState,
    ClusterView,
    DesiredChange,
    TabletView,
    change_state,
    decide,
)
from nyala.replica.types import Action, EditKind, Member, OpId, RaftConfig
from tests.harness.policy_views import cluster, said, settle, tablet, words_of

LATE_US = 2
"""After the deadline of a desired change that is `late`."""


def desired(text: str, **fields: Any) -> DesiredChange:
    """From words: its kind, whom it names (`c>d`, `c>` or `>d`), then `late` if its deadline has passed, and `n` if the
    added member shall not vote."""
    kind, names, *marks = text.split()
    source, _, target = names.partition(">")
    return DesiredChange(
        kind=ChangeKind(kind), wish_id="w", from_uuid=source, to_uuid=target, votes="n" not in marks,
        deadline_us=int("late" in marks), **fields,
    )  # fmt: skip


STATES = [
    ("a b c", "TRANSFER >a", "DONE"),
    ("a b c", "TRANSFER >b", "OPEN"),
    ("a b c", "TRANSFER >a late", "DONE"),
    ("a b c", "TRANSFER >b late", "FAILED"),
    ("a b:U c", "TRANSFER >b", "OPEN"),
    ("a b:F c", "TRANSFER >b", "FAILED"),
    ("a b:n c", "TRANSFER >b", "FAILED"),
    ("a c", "TRANSFER >b", "FAILED"),
    ("a b c", "REMOVE c>", "OPEN"),
    ("a b", "REMOVE c>", "DONE"),
    ("a b c", "REMOVE c> late", "FAILED"),
    ("a b c:r", "REMOVE c> late", "CANCEL"),
    ("a b c", "DEMOTE c>", "OPEN"),
    ("a b c:n", "DEMOTE c>", "DONE"),
    ("a b", "DEMOTE c>", "DONE"),
    ("a b c", "MOVE c>d", "OPEN"),
    ("a b d", "MOVE c>d", "DONE"),
    ("a b d:p", "MOVE c>d", "FAILED"),
    ("a b", "MOVE c>d", "FAILED"),
    ("a b c d", "MOVE c>d late", "OPEN"),
    ("a b c", "MOVE c>d late", "FAILED"),
    ("a b c d:p", "MOVE c>d late", "CANCEL"),
    ("a b c:r", "MOVE c>d late", "CANCEL"),
    ("a b c", "ADD >d", "OPEN"),
    ("a b d", "ADD >d", "DONE"),
    ("a b d:p", "ADD >d", "OPEN"),
    ("a b d:n", "ADD >d n", "DONE"),
    ("a b c d", "ADD >d", "OPEN"),
    ("a b c d", "ADD >d late", "DONE"),
    ("a b c", "ADD >d late", "FAILED"),
    ("a b c d:p", "ADD >d late", "CANCEL"),
    ("a b c d:n", "ADD >d late", "CANCEL"),
    ("a b d:n", "PROMOTE >d", "OPEN"),
    ("a b d", "PROMOTE >d", "DONE"),
    ("a b c d", "PROMOTE >d", "OPEN"),
    ("a b c", "PROMOTE >d", "FAILED"),
    ("a b d:n", "PROMOTE >d late", "FAILED"),
    ("a b d:p", "PROMOTE >d late", "CANCEL"),
]


@pytest.mark.parametrize(("words", "text", "state"), STATES, ids=[f"{w} {t}" for w, t, _ in STATES])
def test_desired_change_stands_where_the_config_says(words: str, text: str, state: str) -> None:
    """Goal: whether a desired change is done, has failed, is open or is being taken back follows from the committed
    config and the deadline. Method: a tablet of three that a leads; each kind before, half-way and after, in time and
    late."""
    assert change_state(tablet(words, "a"), desired(text), LATE_US) is ChangeState(state)


def test_desired_change_is_late_after_its_deadline() -> None:
    """Goal: a desired change is late only after its deadline, not at that moment. Method: before, at, after; no
    deadline."""
    assert [desired("ADD >d late").expired(now) for now in (0, 1, 2)] == [False, False, True]
    assert not desired("ADD >d").expired(LATE_US)


def test_desired_change_for_a_leader_without_data_failed() -> None:
    """Goal: a desired change that makes a witness the leader fails at once, because a witness never leads. Method: the
    target votes and holds no data."""
    members = (Member("a"), Member("b"), Member("w", holds_data=False))
    t = replace(tablet("a b", "a"), config=RaftConfig(OpId(1, 1), members))
    assert change_state(t, desired("TRANSFER >w"), 0) is ChangeState.FAILED


GRANTS = [
    # leadership goes to who is certainly there
    ("a b c", "TRANSFER >b", 3, ["lead b"]),
    ("a b c:U", "TRANSFER >c", 3, []),
    # a member is added once, without a mark on anybody else, and not while another one is on its way
    ("a b c", "ADD >d", 3, ["add d:p"]),
    ("a b c", "ADD >d n", 3, ["add d:n"]),
    ("a b c", "ADD c>d n", 3, ["add d:n"]),
    ("a b c", "ADD >z", 3, []),
    ("a b c e:pU", "ADD >d", 4, []),
    ("a b c e:n", "ADD >d", 3, ["add d:p"]),
    # of a move the source is marked, unless it is
    ("a b c", "MOVE c>d", 3, ["add d:p, change c:r"]),
    ("a b:U c:r e", "MOVE c>d", 3, ["add d:p"]),
    # a source that is lost is replaced at the wanted server, if that can be
    ("a b c:F", "MOVE c>e", 3, ["add e:p"]),
    ("a b c:F", "MOVE c>z", 3, ["add d:p"]),
    ("a b c:F", "MOVE b>e", 3, ["add e:p"]),
    ("a b c:F", "ADD >e n", 3, ["add d:p"]),
    # who is to go leaves before any other, and not before it is replaced
    ("a b c e", "REMOVE e>", 3, ["remove e"]),
    ("a b c", "REMOVE c>", 3, ["add d:p"]),
    ("a b c", "REMOVE a>", 3, ["add d:p"]),
    ("a b c e", "REMOVE a>", 3, ["lead b"]),
    ("a b:U c e", "REMOVE e>", 3, []),
    ("a b c e:n", "REMOVE e>", 3, ["remove e:n"]),
    ("a b c:U e:n", "REMOVE e>", 3, ["remove e:n"]),
    ("a b c e:nr", "REMOVE c>", 3, ["add d:p"]),
    # a demoted one stays; who is lost goes before it; nobody is added for it
    ("a b c e", "DEMOTE e>", 3, ["change e:n"]),
    ("a b:F c e", "DEMOTE e>", 3, ["remove b"]),
    ("a b:U c e", "DEMOTE e>d", 3, []),
    # a non-voter is told once, and if it is there
    ("a b c d:n", "PROMOTE >d", 3, ["change d:p"]),
    ("a b c d:nU", "PROMOTE >d", 3, []),
    ("a b c d:p", "PROMOTE >d", 3, []),
    ("a b:U c:U d e", "PROMOTE >d", 4, []),
    # what is over is taken back, no more than that
    ("a b c d:p", "MOVE c>d late", 3, ["remove d:p"]),
    ("a b c:r d:p", "MOVE c>d late", 4, ["remove d:p, change c"]),
    ("a b c d:p", "PROMOTE >d late", 4, ["change d:n"]),
    # past its deadline a desired change protects nobody from being the surplus one
    ("a b c e", "ADD >b late", 3, ["remove b"]),
    ("a b c e", "ADD >b", 3, ["remove c"]),
]


@pytest.mark.parametrize(("words", "text", "rf", "decided"), GRANTS, ids=[f"{w} {t} rf{r}" for w, t, r, _ in GRANTS])
def test_desired_change_is_granted_step_by_step(words: str, text: str, rf: int, decided: list[str]) -> None:
    """Goal: the policy decides the smallest next step towards a desired change. Method: a table with a row for each
    step, of a tablet that a leads, with servers a to e."""
    view = cluster("abcde", tablet(words, "a", rf=rf, desired=desired(text)))
    assert said(decide(replace(view, now_us=LATE_US), 1)) == decided


@pytest.mark.parametrize("text", ["ADD >d", "MOVE c>d", "REMOVE e>", "TRANSFER >b", "PROMOTE >e"])
def test_desired_change_waits_for_a_leader_and_for_a_change_under_way(text: str) -> None:
    """Goal: the policy waits if the tablet has no leader, or if a config change is under way. Method: all members
    healthy, without a leader, and with a change under way; with a leader and without one the desired change is
    granted."""
    words = "a b c e:n"
    for leader, pending, granted in (("", False, False), ("a", True, False), ("a", False, True)):
        view = cluster("abcde", tablet(words, leader, pending=pending, desired=desired(text)))
        assert bool(decide(view, 1)) is granted


def test_desired_change_names_itself_in_its_decisions() -> None:
    """Goal: each decision tells which desired change it serves. Method: each kind with a reason and without: the
    decision has the desired change's reason or else its kind, and its plan. Decisions of a tablet without a desired
    change have no plan."""
    for words, text in (
        ("a b c", "ADD >d"),
        ("a b c", "MOVE c>d"),
        ("a b c", "TRANSFER >b"),
        ("a b c d:n", "PROMOTE >d"),
        ("a b c e", "DEMOTE e>"),
        ("a b c:U e:n", "REMOVE e>"),
    ):
        for reason in ("because", ""):
            view = cluster("abcde", tablet(words, "a", desired=desired(text, reason=reason, plan_id="p")))
            (decision,) = decide(view, 1)
            assert (decision.reason, decision.plan_id) == (reason or text.split()[0].lower(), "p")
    (heal,) = decide(cluster("abcd", tablet("a b", "a")), 1)
    assert heal.plan_id == ""


def test_desired_change_that_is_one_need_is_so_whatever_its_words_are() -> None:
    """Goal: a decision that was published before is recognised even if the reason or the leader is another one. Method:
    the same change for two reasons and two leaders; another change, and another term, are other decisions."""

    def need(view: ClusterView, term: int = 1) -> tuple[object, ...]:
        (decision,) = decide(view, term)
        return decision.need

    def wanted(reason: str, leader: str = "a", to: str = "d") -> ClusterView:
        return cluster("abcde", tablet("a b c", leader, desired=desired(f"ADD >{to}", reason=reason)))

    assert need(wanted("one")) == need(wanted("two", "b"))
    assert need(wanted("one")) != need(wanted("one", to="e"))
    assert need(wanted("one")) != need(wanted("one"), 2)


@pytest.mark.parametrize(("words", "kind"), [("a", ChangeKind.ADD), ("a b:n", ChangeKind.PROMOTE)])
def test_desired_change_for_a_voter_beside_the_only_one_ends(words: str, kind: ChangeKind) -> None:
    """TC-71. Goal: a tablet of one replica ends on the requested server, and nothing is copied twice. Method: add a
    voter to a tablet of one, and promote a non-voter: the new one becomes the leader, and then the first one is
    removed."""
    view, trail, low = settle(
        cluster("ab", tablet(words, "a", rf=1, desired=DesiredChange(kind=kind, wish_id="w", to_uuid="b")))
    )
    assert words_of(view.tablets[0]) == "b" and low["t"] == 1
    assert [d.action for d in trail][1:] == [Action.TRANSFER_LEADERSHIP, Action.CHANGE_CONFIG]


def surplus(leader: str) -> TabletView:
    return tablet("a b c d", leader, desired=desired("REMOVE d>"))


@pytest.mark.parametrize("leader", ["a", "d"])
def test_desired_change_to_remove_a_surplus_voter_removes_no_other(leader: str) -> None:
    """TC-81. Goal: if there are more voters than wanted, the named one is removed, and nothing is copied. Method: four
    of three wanted, the last one named, as a follower and as the leader; obey to the end."""
    view, trail, _ = settle(cluster("abcde", surplus(leader)))
    assert words_of(view.tablets[0]) == "a b c"
    assert [(e.kind, e.member.uuid) for d in trail for e in d.edits] == [(EditKind.REMOVE, "d")]
