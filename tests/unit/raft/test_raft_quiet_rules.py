"""When a group may rest, and what ends its rest: each condition alone, on one core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from nyala.replica.raft import AppendEntries, AppendReply, Role, VoteReply, VoteRequest
from nyala.replica.types import Code, ConfigEdit, EditKind, EntryKind, Member, OpId, RaftConfig
from tests.harness.raft_net import OPTIONS
from tests.harness.raft_solo import Solo, entry

QUIET = replace(OPTIONS, election_ticks_min=12, election_ticks_max=20, quiet_after_ticks=3)


def open_term(config: RaftConfig | None = None) -> Solo:
    """A leader whose term was opened just now; `b` and `c` hold the entry that opened it, and know that."""
    solo = Solo(config=config, options=QUIET)
    solo.lead()
    for _ in range(2):
        for uuid in "bc":
            solo.ack(uuid, 1, commit_index=solo.core.commit_index)
    return solo


def tick(solo: Solo, count: int = 1) -> list[AppendEntries]:
    """Time passes; the heartbeats of the last tick."""
    sent = []
    for _ in range(count):
        solo.core.tick()
        sent = solo.persist()
    return [m for m in sent if isinstance(m, AppendEntries)]


def asks(solo: Solo, ticks: int = 1) -> bool:
    """Whether its heartbeats ask for quiet, after so much time."""
    beats = tick(solo, ticks)
    assert beats and len({beat.quiet for beat in beats}) == 1
    return beats[0].quiet


def round_of(solo: Solo) -> int:
    """The round of its next heartbeats, which ask for quiet."""
    [beat, *_] = tick(solo)
    assert beat.quiet
    return beat.round


def resting_leader() -> Solo:
    solo = open_term()
    tick(solo, QUIET.quiet_after_ticks)
    asked = round_of(solo)
    for uuid in "bc":
        solo.ack(uuid, 1, commit_index=1, round=asked, quiet=True)
    assert solo.core.quiet and solo.core.role is Role.LEADER
    solo.readies.clear()
    return solo


def plea(**fields: object) -> AppendEntries:
    """A heartbeat of `b` that asks for quiet, when everything is committed."""
    beat = AppendEntries(to_uuid="a", from_uuid="b", term=1, prev=OpId(1, 1), commit_index=1, round=5, quiet=True)
    return replace(beat, **fields)  # type: ignore[arg-type]


def resting_follower() -> Solo:
    solo = Solo(term=1, entries=[entry(1, 1)], options=QUIET)
    solo.step(plea())
    assert solo.core.quiet and solo.core.role is Role.FOLLOWER
    solo.readies.clear()
    return solo


def test_leader_asks_for_quiet_once_the_group_was_idle_for_so_long() -> None:
    """Goal: CN-27: the option says for how long. Method: each tick since the last write; then a write, and again."""
    solo = open_term()
    for index in (1, 2):
        assert [asks(solo) for _ in range(QUIET.quiet_after_ticks)] == [False, False, True]
        solo.core.propose(EntryKind.WRITE, 9, 1, b"", b"x", 0)
        solo.persist()
        for _ in range(2):
            for uuid in "bc":
                solo.ack(uuid, index + 1, commit_index=solo.core.commit_index)


def _silent(solo: Solo) -> None:
    """`b` answers nothing any more, for longer than it takes to count as out of touch."""
    for _ in range(QUIET.election_ticks_min):
        tick(solo)
        solo.ack("c", 1, commit_index=1)


BUSY: dict[str, Callable[[Solo], object]] = {
    "a peer lacks an entry": lambda s: (s.core.propose(EntryKind.WRITE, 9, 1, b"", b"x", 0), s.ack("c", 2)),
    "a peer's disk lacks an entry": lambda s: (
        s.core.propose(EntryKind.WRITE, 9, 1, b"", b"x", 0),
        s.persist(),
        s.ack("c", 2),
        s.ack("c", 2, commit_index=2),
        s.ack("b", 1, commit_index=2),
    ),
    "a peer does not know of the last commit": lambda s: s.ack("b", 1, commit_index=0),
    "a peer is out of touch": _silent,
    "a peer has no replica": lambda s: s.step(
        AppendReply(to_uuid="a", from_uuid="b", term=1, code=Code.TABLET_NOT_FOUND)
    ),
    "leadership is being handed over": lambda s: s.core.transfer_leadership("b"),
    "a strong read is not answered": lambda s: s.core.read_index(1),
}


@pytest.mark.parametrize("what", BUSY)
def test_leader_of_a_busy_group_does_not_ask(what: str) -> None:
    """CN-27. Goal: a leader does not ask for quiet while there is something to do. Method: one thing to do each, then
    as much time as makes a group idle."""
    solo = open_term()
    BUSY[what](solo)
    solo.persist()
    assert not asks(solo, QUIET.quiet_after_ticks + 1)


def test_leader_whose_own_disk_lacks_an_entry_does_not_ask() -> None:
    """CN-27. Goal: a leader does not ask for quiet while an entry is not yet durable on its own disk. Method: it is."""
    solo = open_term()
    solo.core.propose(EntryKind.WRITE, 9, 1, b"", b"x", 0)
    solo.take()
    for _ in range(2):
        for uuid in "bc":
            solo.core.step(
                AppendReply(to_uuid="a", from_uuid=uuid, term=1, last=OpId(1, 2), commit_index=solo.core.commit_index)
            )
            solo.take()
    assert (solo.core.commit_index, solo.core.persisted_index) == (2, 1)
    for _ in range(QUIET.quiet_after_ticks + 1):
        solo.core.tick()
        assert not any(m.quiet for m in solo.take() if isinstance(m, AppendEntries))
    solo.persist()
    assert asks(solo)


def test_leader_with_a_member_that_waits_for_promotion_does_not_ask() -> None:
    """Goal: CN-27: a learner that is to become a voter needs heartbeats. Method: one that has its log, and not its
    rows; then the mark is taken from it."""
    learner = Member("c", votes=False, promote=True)
    solo = Solo(config=RaftConfig(OpId(0, 0), (Member("a"), Member("b"), learner)), options=QUIET)
    solo.lead()

    def answers() -> None:
        for _ in range(2):
            for uuid in "bc":
                last = solo.log.last.index
                solo.ack(uuid, last, commit_index=solo.core.commit_index, no_data=uuid == "c")

    answers()
    assert not asks(solo, QUIET.quiet_after_ticks + 1)
    solo.core.propose_config([ConfigEdit(EditKind.CHANGE, replace(learner, promote=False))], None)
    solo.persist()
    answers()
    assert asks(solo, QUIET.quiet_after_ticks + 1)


def test_peer_that_was_heard_within_an_election_timeout_is_in_touch() -> None:
    """Goal: one or two lost answers do not keep a group from becoming quiet. Method: `b` was last heard that long ago,
    and a tick longer."""
    solo = open_term()
    for _ in range(QUIET.election_ticks_min - 1):
        tick(solo)
        solo.ack("c", 1, commit_index=1)
    assert [asks(solo), asks(solo)] == [True, False]


def test_group_rests_when_everybody_agreed_within_one_stretch_of_asking() -> None:
    """CN-27. Goal: a group becomes quiet if all members agree since the leader began to ask; their answers may belong
    to different rounds. Method: `b` agrees to a round, then falls silent until the leader asks no more, and is back;
    `c` agrees to a round of the second stretch; `b` answers the next one, and then agrees to it."""
    solo = open_term()
    tick(solo, QUIET.quiet_after_ticks)
    first = round_of(solo)
    solo.ack("b", 1, commit_index=1, round=first, quiet=True)
    _silent(solo)
    assert not asks(solo)
    solo.ack("b", 1, commit_index=1)
    second, third = round_of(solo), round_of(solo)
    solo.ack("c", 1, commit_index=1, round=second, quiet=True)
    solo.ack("b", 1, commit_index=1, round=third)
    assert not solo.core.quiet
    solo.ack("b", 1, commit_index=1, round=third, quiet=True)
    assert solo.core.quiet


def test_old_agreement_does_not_put_a_group_to_rest_that_was_not_asked_again() -> None:
    """Goal: CN-27. Method: both agreed, a write comes between; the group has just become idle again when their old
    answers arrive once more, before any heartbeat of that tick."""
    solo = open_term()
    tick(solo, QUIET.quiet_after_ticks)
    asked = round_of(solo)
    solo.core.propose(EntryKind.WRITE, 9, 1, b"", b"x", 0)
    solo.persist()
    for _ in range(2):
        for uuid in "bc":
            solo.ack(uuid, 2, commit_index=solo.core.commit_index)
    for _ in range(QUIET.quiet_after_ticks):
        solo.core.tick()
    for uuid in "bc":
        solo.core.step(
            AppendReply(to_uuid="a", from_uuid=uuid, term=1, last=OpId(1, 2), commit_index=2, round=asked, quiet=True)
        )
    assert not solo.core.quiet


def test_group_does_not_rest_when_somebody_is_busy_again_before_the_last_one_agrees() -> None:
    """Goal: CN-27: a group does not become quiet if a member that had agreed is busy again. Method: `b` agrees, and
    then has no replica any more; `c` agrees."""
    solo = open_term()
    tick(solo, QUIET.quiet_after_ticks)
    asked = round_of(solo)
    solo.ack("b", 1, commit_index=1, round=asked, quiet=True)
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=1, code=Code.TABLET_NOT_FOUND))
    solo.ack("c", 1, commit_index=1, round=asked, quiet=True)
    assert not solo.core.quiet


RESTLESS: dict[str, Callable[[], Solo]] = {
    "it does not rest at all": lambda: Solo(term=1, entries=[entry(1, 1)], options=replace(QUIET, quiet_after_ticks=0)),
    "its log goes on behind what is committed": lambda: Solo(term=1, entries=[entry(1, 1), entry(1, 2)], options=QUIET),
    "the end of its log was damaged": lambda: Solo(term=1, entries=[entry(1, 1)], options=QUIET, withheld=OpId(1, 2)),
}


@pytest.mark.parametrize("what", RESTLESS)
def test_follower_that_has_something_to_wait_for_does_not_agree(what: str) -> None:
    """CN-27. Goal: a follower agrees to quiet only if it has nothing left to do. Method: one that has something,
    each."""
    solo = RESTLESS[what]()
    [answer] = solo.step(plea())
    assert isinstance(answer, AppendReply) and not answer.quiet and not solo.core.quiet


def test_follower_agrees_only_when_its_log_and_its_term_are_durable_and_its_leader_knows_what_is_committed() -> None:
    """Goal: CN-27. Method: the leader's heartbeat comes while an entry is on its way to the disk; while the term is;
    and one that was overtaken by a later commit."""
    solo = Solo(options=QUIET)
    solo.step(plea(prev=OpId(0, 0), commit_index=0, quiet=False))
    solo.core.step(solo.append(1, OpId(0, 0), entry(1, 1), commit=1))
    solo.take()
    solo.core.step(plea())
    assert solo.core.commit_index == 1 and not solo.core.quiet
    solo.persist()
    solo.core.step(plea(term=2, from_uuid="c"))
    assert not solo.core.quiet
    solo.persist()
    solo.step(plea(term=2, from_uuid="c", commit_index=0))
    assert not solo.core.quiet
    solo.step(plea(term=2, from_uuid="c"))
    assert solo.core.quiet


def test_resting_leader_that_looks_around_asks_everybody_anew() -> None:
    """CN-28. Goal: a probe of a quiet group reaches all its members. Method: the leader looks: heartbeats to all, and
    no rest before both have agreed to these."""
    solo = resting_leader()
    solo.core.probe_quiet_group()
    beats = [m for m in solo.persist() if isinstance(m, AppendEntries)]
    assert [(beat.to_uuid, beat.quiet) for beat in beats] == [("b", True), ("c", True)]
    for uuid, rests in (("b", False), ("c", True)):
        assert not solo.core.quiet
        solo.ack(uuid, 1, commit_index=1, round=beats[0].round, quiet=True)
        assert solo.core.quiet is rests


def test_replica_that_does_not_rest_is_not_woken() -> None:
    """Goal: a probe, a link or a peer's message changes nothing at a replica that is not quiet. Method: each, at a
    follower."""
    solo = Solo(term=1, entries=[entry(1, 1)], options=QUIET)
    solo.step(plea(quiet=False))
    for _ in range(9):
        solo.core.probe_quiet_group()
    solo.core.server_silent("b", 1)
    solo.core.server_heard("b")
    solo.core.step(VoteReply(to_uuid="a", from_uuid="c", term=1, granted=False))
    assert solo.persist() == []


@pytest.mark.parametrize("resting", [resting_leader, resting_follower])
def test_rest_goes_on_whatever_does_not_concern_the_group_now(resting: Callable[[], Solo]) -> None:
    """CN-27. Goal: a quiet group stays quiet on events that do not concern it. Method: the link to a server without a
    part in it, or of which only the leader need know; and answers that come late: of an older term, or that agree."""
    solo = resting()
    leads = solo.core.role is Role.LEADER
    for uuid in ("x",) if leads else ("x", "c"):
        solo.core.server_silent(uuid, 99)
        solo.core.server_heard(uuid)
    if leads:
        solo.step(AppendReply(to_uuid="a", from_uuid="c", term=0, last=OpId(0, 0)))
        solo.ack("c", 1, commit_index=1, round=1, quiet=True)
    assert solo.core.quiet and solo.persist() == [] and solo.readies == []


def test_link_to_another_follower_says_nothing_of_the_leader() -> None:
    """CN-24. Goal: a silent link to another follower does not count as silence of the leader. Method: the link to `c`
    was silent for long; `b`, the leader, is heard."""
    solo = Solo(term=1, entries=[entry(1, 1)], options=QUIET)
    solo.step(plea(quiet=False))
    solo.core.server_silent("c", 99)
    [answer] = solo.step(VoteRequest(to_uuid="a", from_uuid="c", term=2, last=OpId(1, 1), pre_vote=True))
    assert isinstance(answer, VoteReply) and not answer.granted


WAKES: dict[str, Callable[[Solo], object]] = {
    "a candidate, of whatever term": lambda s: s.core.step(
        VoteRequest(to_uuid="a", from_uuid="c", term=0, last=OpId(0, 0))
    ),
    "a peer that asks": lambda s: s.core.step(AppendReply(to_uuid="a", from_uuid="c", term=1, last=OpId(0, 0))),
    "a link that is lost": lambda s: s.core.server_silent("c", 1),
    "a link that is back": lambda s: s.core.server_heard("c"),
    "a read": lambda s: s.core.read_index(1),
    "a transfer": lambda s: s.core.transfer_leadership("b"),
    "a write": lambda s: s.core.propose(EntryKind.WRITE, 9, 1, b"", b"x", 0),
}


@pytest.mark.parametrize("what", WAKES)
def test_resting_leader_that_is_disturbed_is_heard_by_everybody(what: str) -> None:
    """CN-28. Goal: a quiet leader that wakes sends heartbeats to all members. Method: each thing that wakes a leader:
    all its peers hear of it within a heartbeat."""
    solo = resting_leader()
    WAKES[what](solo)
    assert not solo.core.quiet
    sent = solo.persist()
    solo.core.tick()
    sent += solo.persist()
    assert {m.to_uuid for m in sent if isinstance(m, AppendEntries)} == {"b", "c"}
