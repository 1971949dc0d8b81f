"""Quiet groups, one core at a time: how long an answer to an earlier round counts, and what a lease is."""

from __future__ import annotations

from dataclasses import replace

from nyala.replica.raft import AppendEntries, AppendReply, Message, Role
from nyala.replica.types import EntryKind, OpId
from tests.harness.raft_net import OPTIONS
from tests.harness.raft_solo import Solo, entry

QUIET = replace(OPTIONS, election_ticks_min=12, election_ticks_max=20, quiet_after_ticks=3)


def idle_leader() -> Solo:
    """A leader of three that everybody follows, idle for long enough."""
    solo = Solo("abc", options=QUIET)
    solo.lead()
    for uuid in "bc":
        solo.ack(uuid, 1, commit_index=1)
    for now in range(1, 5):
        solo.core.tick(now)
        solo.persist()
    return solo


def asking_round(solo: Solo, now: int) -> int:
    """The round of its next heartbeats, which ask for quiet."""
    solo.core.tick(now)
    beats = [m for m in solo.persist() if isinstance(m, AppendEntries)]
    assert beats and all(m.quiet for m in beats)
    return beats[0].round


def test_quiet_is_counted_from_answers_to_this_stretch_of_asking_alone() -> None:
    """CN-24. Goal: an agreement from before a write does not make the group quiet, because that follower's timers may
    run again. Method: b agrees, a write comes between, c agrees to the next round, and b's first answer arrives once
    more: no rest until b answers the new question."""
    solo = idle_leader()
    first = asking_round(solo, 5)
    solo.ack("b", 1, commit_index=1, round=first, quiet=True)
    solo.core.propose(EntryKind.WRITE, 9, 1, b"", b"x", 0)
    solo.persist()
    for uuid in "bc":
        solo.ack(uuid, 2, commit_index=2)
    for now in range(6, 9):
        solo.core.tick(now)
        solo.persist()
    second = asking_round(solo, 9)
    solo.ack("c", 2, commit_index=2, round=second, quiet=True)
    solo.ack("b", 2, commit_index=2, round=first, quiet=True)
    assert not solo.core.quiet
    solo.ack("b", 2, commit_index=2, round=second, quiet=True)
    assert solo.core.quiet


def test_lease_ends_when_the_group_goes_quiet() -> None:
    """CN-24. Goal: a quiet leader has no lease. Method: everybody agreed at this very time; a strong read takes a
    round, wakes the group, and the next one is under a lease again."""
    solo = idle_leader()
    asked = asking_round(solo, 5)
    for uuid in "bc":
        solo.ack(uuid, 1, commit_index=1, round=asked, quiet=True)
    assert solo.core.quiet

    def read(token: int) -> tuple[bool, list[Message]]:
        before = len(solo.readies)
        solo.core.read_index(token, 5)
        sent = solo.persist()
        return any(t == token for b in solo.readies[before:] for t, _ in b.read_states), sent

    served, sent = read(1)
    assert not served and not solo.core.quiet
    beats = [m for m in sent if isinstance(m, AppendEntries)]
    assert len(beats) == 2 and not any(m.quiet for m in beats), "whoever reads once may read again"
    solo.ack("b", 1, commit_index=1, round=beats[0].round)
    assert read(2)[0]


def test_follower_that_must_not_vote_yet_does_not_rest() -> None:
    """CN-24. Goal: a restarted voter does not become quiet before it may vote, because it has to count those ticks.
    Method: its leader asks for quiet before and after that time."""
    solo = Solo("abc", term=1, entries=[entry(1, 1)], options=QUIET, withhold_votes=True)
    plea = AppendEntries(to_uuid="a", from_uuid="b", term=1, prev=OpId(1, 1), commit_index=1, round=5, quiet=True)

    def agrees() -> bool:
        (answer,) = solo.step(plea)
        assert isinstance(answer, AppendReply)
        assert answer.quiet is solo.core.quiet
        return answer.quiet

    assert not agrees()
    for _ in range(QUIET.election_ticks_min):
        solo.core.tick()
        solo.persist()
    assert solo.core.role is Role.FOLLOWER and agrees()
    for _ in range(100):
        solo.core.tick()
    assert solo.core.role is Role.FOLLOWER and solo.persist() == [], "its timers stand still"


def test_resting_follower_asks_when_it_is_looked_at_thrice_without_a_word_of_its_leader() -> None:
    """CN-24. Goal: a quiet follower whose leader is gone, although the link to its server stands, wakes after three
    calls without a message. Method: two looks, a heartbeat, three looks: it asks its leader, as one that agrees to
    nothing, and its timers run."""
    solo = Solo("abc", term=1, entries=[entry(1, 1)], options=QUIET)
    plea = AppendEntries(to_uuid="a", from_uuid="b", term=1, prev=OpId(1, 1), commit_index=1, round=5, quiet=True)
    for looks in (2, 2):
        solo.step(plea)
        for _ in range(looks):
            solo.core.probe_quiet_group()
        assert solo.core.quiet and solo.persist() == []
    solo.core.probe_quiet_group()
    assert not solo.core.quiet
    assert solo.persist() == [
        AppendReply(to_uuid="b", from_uuid="a", term=1, last=OpId(1, 1), commit_index=1, applied_index=0)
    ]
    for _ in range(QUIET.election_ticks_max):
        solo.core.tick()
    assert solo.core.role is Role.PRE_CANDIDATE


def test_resting_voter_withholds_its_vote_as_long_as_one_that_is_awake() -> None:
    """CN-24. Goal: a quiet voter withholds its vote as long as one that is awake. Method: time passes at rest, then the
    link is said to be silent, for a few ticks; that many count, and what passes awake, until it may campaign itself."""
    solo = Solo("abc", term=1, entries=[entry(1, 1)], options=QUIET)
    plea = AppendEntries(to_uuid="a", from_uuid="b", term=1, prev=OpId(1, 1), commit_index=1, round=5, quiet=True)
    solo.step(plea)
    for _ in range(50):
        solo.core.tick()
    solo.core.server_silent("b", 3)
    assert not solo.core.quiet and solo.core._s.election.ticks_since_leader == 3
    for _ in range(QUIET.election_ticks_min - 4):
        solo.core.tick()
    assert solo.core._s.election.ticks_since_leader == QUIET.election_ticks_min - 1
    solo.core.campaign()
    assert solo.core.role is Role.FOLLOWER, "the leader may still hold a lease"
