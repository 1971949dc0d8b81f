"""The texts for operators about desired state that does not hold yet."""

from __future__ import annotations

import pytest

from nyala.replica.rpc import pb
from nyala.replica.tools import change_json, change_words, drain_json, drain_words, unsettled

A, B, C, D = ("a" * 32, "b" * 32, "c" * 32, "d" * 32)


def tablet(
    *voters: str, wanted: int = 3, learner: str = "", change: pb.DesiredChangeInfo | None = None
) -> pb.TabletInfo:
    """A tablet of these voters, and one member that waits for promotion."""
    members = [pb.Member(uuid=u, votes=True) for u in voters]
    members += [pb.Member(uuid=learner, promote=True)] if learner else []
    info = pb.TabletInfo(tablet_id="t", replication_factor=wanted, config=pb.RaftConfig(members=members))
    if change is not None:
        info.wish.CopyFrom(change)
    return info


def test_unsettled_tablets_are_those_that_are_not_as_wanted() -> None:
    """Goal: a settled tablet is not listed, every other one is, with what keeps it. Method: one tablet a reason."""
    move = pb.DesiredChangeInfo(kind="MOVE", from_uuid=C, to_uuid=D)
    cases = [
        (tablet(A, B, C), frozenset(), []),
        (tablet(A, B, C, wanted=0), frozenset(), []),
        (tablet(A, B), frozenset(), [(2, 3, "")]),
        (tablet(A, B, C, D), frozenset(), [(4, 3, "")]),
        (tablet(A, B, C), frozenset({C}), [(3, 3, f"leave {C[:8]}")]),
        (tablet(A, B, C, learner=D), frozenset(), [(3, 3, f"{D[:8]} is copying")]),
        (
            tablet(A, B, C, learner=D, change=move),
            frozenset(),
            [(3, 3, f"move {C[:8]} to {D[:8]}, {D[:8]} is copying")],
        ),
    ]
    for info, draining, expected in cases:
        found = [(w.voters, w.voters_wanted, w.change) for w in unsettled([info], draining)]
        assert found == expected, info


@pytest.mark.parametrize("kind", ["MOVE", "ADD", "REMOVE", "TRANSFER", "PROMOTE", "DEMOTE", "OF_A_NEWER_MASTER"])
def test_change_words_name_every_kind_and_say_when_it_is_given_up(kind: str) -> None:
    """Goal: no desired change is shown as nothing. Method: each kind, and one that this build does not know;
    cancelled."""
    change = pb.DesiredChangeInfo(kind=kind, from_uuid=C, to_uuid=D)
    assert change_words(change)
    change.cancelled = True
    assert change_words(change).startswith("cancelled: ")
    assert change_json(tablet(A, change=change))["desired_change"]["kind"] == kind


def test_drain_is_told_as_far_as_it_is_known() -> None:
    """Goal: a server is called "retired" only if all replicas are known to be gone. Method: a server used, half empty,
    half reported, and empty."""
    used = pb.ServerInfo(uuid=A)
    assert (drain_words(used), drain_json(used)) == ("", None)
    half = pb.ServerInfo(uuid=A, draining=True, tablets_left=4, tablets_at_first=9)
    assert drain_words(half) == "draining: 4 of 9 tablets left"
    half.tablets_left, half.tablets_unreported = 0, 2
    assert drain_words(half) == "draining: 0 of 9 tablets left, 2 not heard of yet"
    done = pb.ServerInfo(uuid=A, draining=True, drained=True, tablets_at_first=9)
    assert "nothing is left" in drain_words(done)
    assert change_json(None) == {"voters": None, "voters_wanted": None, "desired_change": None}
