"""The takeover of a lost master's uuid, as the command that copies the catalog asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from nyala.replica.fs import MASTER, format_directory, read_instance
from nyala.replica.rpc import error_to_pb, pb, pb_grpc
from nyala.replica.tablet_copy import CopyProgress
from nyala.replica.tools import catalog_copy
from nyala.replica.types import Address, Code, Member, OpId, RaftConfig, Refused
from tests.harness.leading_master import FixedClock
from tests.harness.played_grpc import listening
from tests.harness.sim_disk import SimDisk

LOST, LEADER = "a" * 32, "b" * 32
CONFIG = RaftConfig(OpId(1, 1), (Member(LOST, (Address("h", 1),)),))
LIVES = Refused(Code.ILLEGAL_STATE, "that master lives; nothing was changed")


class Leader(pb_grpc.MasterServiceServicer):
    """Gives these answers to takeovers, the last one again and again."""

    def __init__(self, answers: Sequence[Refused | int]) -> None:
        self.answers = list(answers)
        self.seen: list[int] = []
        self.progress = CopyProgress()
        self.phases: set[str] = set()

    def TakeOver(self, request: Any, context: Any) -> Any:
        self.seen.append(request.seen)
        self.phases.add(self.progress.phase)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Refused):
            return pb.TakeOverReply(error=error_to_pb(answer))
        return pb.TakeOverReply(number=answer, index=1)


def take_over(leader: Leader) -> int:
    """Ask for the takeover for an empty directory; returns the number that the directory has then."""
    with closing(SimDisk()) as disk, listening(leader) as address:
        own = format_directory(disk, FixedClock(), kind=MASTER, uuid=LOST, inherited=True)
        catalog_copy._take_over(disk, own, address, LEADER, CONFIG, leader.progress)
        kept = read_instance(disk)
        assert kept is not None
        return kept.takeover


def test_takeover_waits_until_the_leader_counts_the_lost_one_as_gone() -> None:
    """MF-13. Goal: the command works right after the master's death. Method: a leader that still counts the master as
    alive twice, was asked by another one before, and then agrees; the progress names the wait."""
    before = Refused(Code.CAS_FAILED, "taken over since", detail="3")
    leader = Leader([LIVES, LIVES, before, 4])
    assert take_over(leader) == 4 and leader.seen == [0, 0, 0, 3]
    assert any("not heard the lost master" in phase for phase in leader.phases)


def test_takeover_of_a_master_that_goes_on_living_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """MF-10. Goal: the wait is bounded, and ends with the leader's reason. Method: a leader that refuses each time."""
    monkeypatch.setattr(catalog_copy, "HEARD_WAIT_S", 0.1)
    leader = Leader([LIVES])
    with pytest.raises(Refused, match="that master lives") as refused:
        take_over(leader)
    assert refused.value.code is Code.ILLEGAL_STATE and 1 < len(leader.seen) < 10


@pytest.mark.parametrize("detail", ["", "many", "-1", "4294967296", "9" * 2000, "\u0663"])
def test_takeover_by_a_number_that_is_none_ends_with_the_leaders_reason(detail: str) -> None:
    """IN-82. Goal: whatever answers, the command ends in one line. Method: a leader that was asked before by another
    one, and gives something else than the number of that takeover."""
    leader = Leader([Refused(Code.CAS_FAILED, "taken over since", detail=detail)])
    with pytest.raises(Refused, match="taken over since"):
        take_over(leader)
    assert leader.seen == [0]
