"""Leadership transfer: to which member, when, for how long, and what is refused meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nyala.replica.raft import AppendReply, Message, Role, TimeoutNow
from nyala.replica.types import Code, ConfigEdit, EditKind, EntryKind, Member, OpId, RaftConfig, Refused
from tests.harness.raft_net import OPTIONS
from tests.harness.raft_solo import Solo, entry


def leading(voters: str = "abc", learners: str = "", config: RaftConfig | None = None) -> Solo:
    """A leader whose log holds three entries, the last one its own, which is committed."""
    solo = Solo(voters, learners, term=1, entries=[entry(1, 1), entry(1, 2)], config=config)
    solo.lead()
    for uuid in solo.core.active_config.voters:
        if uuid != "a":
            solo.ack(uuid, 3)
    return solo


def handed(sent: list[Message]) -> list[str]:
    return [m.to_uuid for m in sent if isinstance(m, TimeoutNow)]


def refusal(do: Callable[[], object]) -> tuple[Code, str]:
    with pytest.raises(Refused) as refused:
        do()
    return refused.value.code, refused.value.detail


def test_follower_refuses_what_only_a_leader_may_do_and_says_who_leads() -> None:
    """Goal: a caller finds the leader. Method: a follower that has not heard of one, and one that has."""
    solo = Solo()
    for leader in ("", "b"):
        for do in (
            lambda: solo.core.transfer_leadership(None),
            lambda: solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0),
        ):
            assert refusal(do) == (Code.NOT_LEADER, leader)
        solo.step(solo.append(1, OpId(0, 0)))


def test_transfer_to_the_leader_itself_changes_nothing() -> None:
    """Goal: a retry of a transfer that succeeded is harmless. Method: it, and a write after it."""
    solo = leading()
    solo.core.transfer_leadership("a")
    assert solo.core.transfer_target is None and solo.persist() == []
    solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)


def test_transfer_is_refused_to_whoever_could_not_lead() -> None:
    """Goal: leadership is not offered to a replica that cannot be elected. Method: a stranger, a learner, a witness, a
    voter that is copied; each with its code, and writes go on."""
    witness = Member("w", holds_data=False)
    config = RaftConfig(OpId(0, 0), (Member("a"), Member("b"), Member("c"), Member("d", votes=False), witness))
    solo = leading(config=config)
    solo.step(AppendReply(to_uuid="a", from_uuid="c", term=2, code=Code.TABLET_NOT_FOUND))
    expected = {
        "x": Code.NOT_FOUND,
        "d": Code.INVALID_ARGUMENT,
        "w": Code.INVALID_ARGUMENT,
        "c": Code.ILLEGAL_STATE,
    }
    assert {uuid: refusal(lambda uuid=uuid: solo.core.transfer_leadership(uuid))[0] for uuid in expected} == expected  # type: ignore[misc]
    assert solo.core.transfer_target is None
    solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)


def test_transfer_to_nobody_named_takes_the_voter_with_the_longest_log_that_could_lead() -> None:
    """Goal: CC-27: the hand-over is short. Method: whoever is ahead: a learner and a witness, which cannot lead, a
    voter that is copied, one that is not in touch any more, and two of which one has more; and of equals the first."""
    witness = Member("w", holds_data=False)
    voters = tuple(Member(uuid) for uuid in "abcef")
    config = RaftConfig(OpId(0, 0), (*voters, Member("d", votes=False), witness))

    def target(**acknowledged: int) -> str | None:
        solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2)], config=config)
        solo.lead()
        for uuid in "bcefdw":
            solo.ack(uuid, acknowledged.get(uuid, 0))
        if acknowledged.get("copied"):
            solo.step(AppendReply(to_uuid="a", from_uuid="b", term=2, code=Code.TABLET_NOT_FOUND))
        for _ in range(acknowledged.get("silent", 0)):
            solo.core.tick()
            for uuid in "cefdw":
                solo.ack(uuid, acknowledged.get(uuid, 0))
        solo.core.transfer_leadership(None)
        return solo.core.transfer_target

    assert target(d=3, w=3, e=2) == "e"
    assert target(c=1, e=2) == "e"
    assert target(c=2, e=2) == "c"
    assert target(b=3, copied=1, c=1) == "c"
    assert target(b=3, silent=OPTIONS.election_ticks_max, c=1) == "b"
    assert target(b=3, silent=OPTIONS.election_ticks_max + 1, c=1) == "c"


def test_transfer_and_removal_of_the_only_voter_are_refused_without_effect() -> None:
    """CC-27. Goal: a leader without another electable voter stays. Method: the only voter is told to hand over; a voter
    beside one that is copied is removed."""
    solo = leading("a", "b")
    assert refusal(lambda: solo.core.transfer_leadership(None))[0] is Code.NOT_READY
    solo = leading("ab")
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=2, code=Code.TABLET_NOT_FOUND))
    remove = ConfigEdit(EditKind.REMOVE, Member("a"))
    assert refusal(lambda: solo.core.propose_config([remove], None))[0] is Code.NOT_READY
    assert (solo.core.transfer_target, solo.core.pending_config) == (None, None)


def test_transfer_waits_until_the_target_holds_everything() -> None:
    """Goal: [thesis §3.10]: the target's log is as long as the leader's. Method: a target that lacks the last entry,
    and acknowledges it; the message is sent once, and writes are refused all the while."""
    solo = leading()
    solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    solo.persist()
    solo.core.transfer_leadership("b")
    assert handed(solo.persist()) == []
    assert handed(solo.ack("c", 4)) == []
    assert refusal(lambda: solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)) == (Code.STEPPING_DOWN, "b")
    assert refusal(lambda: solo.core.transfer_leadership("c")) == (Code.ALREADY_INPROGRESS, "b")
    assert handed(solo.ack("b", 4)) == ["b"]
    assert handed(solo.ack("b", 4)) == []


def test_transfer_that_its_target_does_not_take_is_given_up_after_a_minimum_election_timeout_each_time() -> None:
    """Goal: a dead target keeps writes away for a bounded time. Method: two transfers in a row, a while after the term
    began; nothing is told of a transfer in ticks without one."""
    solo = leading()
    for _ in range(2):
        for _ in range(2 * OPTIONS.election_ticks_min):
            solo.readies.clear()
            solo.core.tick()
            for uuid in "bc":
                solo.ack(uuid, 3)
            assert not any("transfer" in line for ready in solo.readies for line in ready.trace)
        solo.core.transfer_leadership("b")
        assert handed(solo.persist()) == ["b"]
        for ticks in range(OPTIONS.election_ticks_min):
            assert solo.core.transfer_target == "b", ticks
            solo.core.tick()
            solo.ack("c", 3)
        assert solo.core.transfer_target is None and solo.core.role is Role.LEADER
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
        solo.persist()
        for uuid in "bc":
            solo.ack(uuid, solo.log.last.index)
