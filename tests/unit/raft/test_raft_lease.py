"""The leader's lease: what extends it, what ends it, and that it ends before any voter may elect another leader."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import pytest

from nyala.replica.raft import AppendEntries, AppendReply, Message, RaftOptions, Role, TimeoutNow
from nyala.replica.raft.leading import Leading
from nyala.replica.raft.options import CLOCK_DRIFT_PERCENT
from nyala.replica.raft.progress import Progress
from nyala.replica.types import Code, OpId
from tests.harness.raft_net import OPTIONS, Net, config_of
from tests.harness.raft_solo import Solo, entry

LEASE = OPTIONS.lease_ticks


def leading(voters: str = "abc", learners: str = "") -> Solo:
    """A leader whose term is open, at time 0 of its clock, with no round echoed yet."""
    solo = Solo(voters, learners)
    solo.lead()
    for uuid in voters[1:]:
        solo.ack(uuid, 1)
    return solo


def beat(solo: Solo, now: int) -> int:
    """The leader's clock says `now`, and a heartbeat is due: the number of its round."""
    solo.core.tick(now)
    beats = [m for m in solo.persist() if isinstance(m, AppendEntries)]
    return beats[-1].round


def asked(solo: Solo, now: int | None, token: int = 1) -> tuple[bool, list[Message]]:
    """Whether a read at `now` is answered at once, and what is sent for it."""
    before = len(solo.readies)
    solo.core.read_index(token, now)
    sent = solo.persist()
    return any(token == t for b in solo.readies[before:] for t, _ in b.read_states), sent


def test_lease_answers_a_strong_read_without_a_message() -> None:
    """CN-24. Goal: a leader with a lease answers a strong read without a round trip. Method: a majority echoes a
    heartbeat; then read."""
    solo = leading()
    solo.ack("b", 1, round=beat(solo, 7))
    assert asked(solo, 7) == (True, [])


@pytest.mark.parametrize(("later", "held"), [(LEASE - 1, True), (LEASE, False), (LEASE + 1000, False)])
def test_lease_is_judged_by_the_clock_of_the_read_not_by_ticks(later: int, held: bool) -> None:
    """CN-24. Goal: a lease expires by the clock even if no ticks come, as in a stopped process or a quiet group.
    Method: the clock goes on without a tick."""
    solo = leading()
    solo.ack("b", 1, round=beat(solo, 7))
    served, sent = asked(solo, 7 + later)
    assert served is held
    if not held:
        (first, _) = [m for m in sent if isinstance(m, AppendEntries)]
        solo.ack("b", 1, round=first.round)
        assert solo.readies[-1].read_states == ((1, 1),), "the first read wakes it by a ReadIndex round"
        assert asked(solo, 7 + later, token=2) == (True, [])


def test_lease_counts_from_the_start_of_a_round_not_from_its_echo() -> None:
    """CN-24. Goal: a slow network does not lengthen a lease, because it counts from the start of the round. Method: the
    echo of the round of time 1 comes back a lease later."""
    solo = leading()
    early = beat(solo, 1)
    beat(solo, LEASE)
    solo.core.tick(LEASE + 1)
    solo.ack("b", 1, round=early)
    assert not asked(solo, LEASE + 1)[0]


def test_lease_needs_a_commit_of_the_own_term() -> None:
    """CN-24. Goal: a new leader that may lack acknowledged writes answers nothing (scenario 32). Method: a majority
    echoes the round with a mismatch: it hears us, but holds nothing of our term yet."""
    solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2)])
    solo.lead()
    number = beat(solo, 3)
    for uuid in "bc":
        solo.step(
            AppendReply(
                to_uuid="a", from_uuid=uuid, term=2, mismatch=True, last=OpId(1, 1), conflict_index=2, round=number
            )
        )
    assert not asked(solo, 3)[0]


def test_lease_is_not_extended_by_an_acknowledgement_of_another_term() -> None:
    """CN-24. Goal: an echo counts for the term that it names. Method: a leader of two terms gets an echo of the
    first."""
    solo = leading()
    number = beat(solo, 3)
    stale = AppendReply(to_uuid="a", from_uuid="b", term=1, last=OpId(1, 1), round=number + 5)
    solo.step(solo.append(2, OpId(1, 1), leader="b"))
    for _ in range(OPTIONS.election_ticks_min):
        solo.core.tick(4)
    solo.persist()
    if solo.core.role is not Role.PRE_CANDIDATE:
        solo.core.campaign()
    solo.lead()
    solo.ack("b", 2)
    solo.ack("c", 2)
    beat(solo, 20)
    solo.step(stale)
    assert solo.core.term_committed and not asked(solo, 20)[0]


def test_lease_is_given_up_before_timeout_now_leaves_and_for_the_whole_term() -> None:
    """CC-34. Goal: a leader that hands over has no lease for the rest of its term, because voters may vote for the
    target at once. Method: transfer, read in the same `Ready`, let the transfer time out, read again with fresh
    echoes."""
    solo = leading()
    solo.ack("b", 1, round=beat(solo, 1))
    assert asked(solo, 1)[0]
    solo.core.transfer_leadership("b")
    solo.core.read_index(2, 1)
    sent = solo.persist()
    assert any(isinstance(m, TimeoutNow) for m in sent)
    assert not any(b.read_states and b.read_states[0][0] == 2 for b in solo.readies)
    for now in range(2, 2 + OPTIONS.election_ticks_min):
        solo.ack("b", 1, round=beat(solo, now))
    assert solo.core.transfer_target is None and solo.core.role is Role.LEADER
    assert not asked(solo, 1 + OPTIONS.election_ticks_min, token=3)[0]


def test_lease_that_was_given_up_is_back_in_the_next_term_of_the_same_leader() -> None:
    """CN-24. Goal: a leader that gave up its lease can have one in its next term. Method: a transfer comes to nothing,
    the leader hears of a higher term, is elected again, and a majority echoes its heartbeat."""
    solo = leading()
    solo.core.transfer_leadership("b")
    solo.persist()
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=2, code=Code.INVALID_TERM))
    solo.lead()
    solo.ack("b", 2)
    solo.ack("b", 2, round=beat(solo, 20))
    assert asked(solo, 20)[0]


def test_reads_whose_callers_are_gone_are_neither_answered_nor_counted() -> None:
    """Goal: a read whose caller has gone frees its place at once. Method: of four reads two are queued and two wait for
    a round when the callers of two go; the bound of four lets two more in, and no third; then the rounds end."""
    solo = Solo(options=RaftOptions(reads_pending_max=4))
    solo.lead()
    solo.ack("b", 1)
    for token in (1, 2):
        solo.core.read_index(token)
    (first, _) = [m for m in solo.persist() if isinstance(m, AppendEntries)]
    for token in (3, 4):
        solo.core.read_index(token)
    solo.core.drop_reads([2, 3, 99])
    for token in (5, 6, 7):
        solo.core.read_index(token)
    (second, _) = [m for m in solo.persist() if isinstance(m, AppendEntries)]
    for beat_ in (first, second):
        solo.ack("b", 1, round=beat_.round)
    assert [t for b in solo.readies for t, _ in b.read_states] == [1, 4, 5, 6]
    assert [b.read_failures for b in solo.readies if b.read_failures] == [((7, Code.OVERLOADED),)]


def test_read_without_the_time_waits_for_a_round_even_under_a_lease() -> None:
    """CN-24. Goal: a read without the time is not answered by the lease. Method: a lease holds; read with the time and
    without."""
    solo = leading()
    solo.ack("b", 1, round=beat(solo, 7))
    assert asked(solo, 7)[0] and not asked(solo, None, token=2)[0]


def test_read_that_a_follower_refused_is_over() -> None:
    """Goal: a read that was refused by a follower is not answered when that follower leads later. Method: a follower is
    asked, then leads, and a majority echoes."""
    solo = Solo()
    solo.core.read_index(5)
    solo.lead()
    solo.ack("b", 1, round=beat(solo, 1))
    solo.ack("b", 1, round=beat(solo, 2))
    assert [b.read_failures for b in solo.readies if b.read_failures] == [((5, Code.NOT_LEADER),)]
    assert not any(b.read_states for b in solo.readies)


def test_new_term_begins_with_nothing_of_the_last_one() -> None:
    """Goal: a new term starts without counts, promises and callers of the former one. Method: a leader's state, filled
    by hand."""
    lead = Leading(
        progress={"b": Progress("b", OPTIONS, next=1, round_started=0)},
        heartbeat_elapsed=1, quorum_check_elapsed=1, round=7, round_wanted=True, sends_wanted=True,
        round_stamps=deque([(7, 1)]), lease_given_up=True, reads_waiting=[1], reads_running=[(2, 5, 7)],
        transfer_target="b", transfer_sent=True,
    )  # fmt: skip
    assert lead.end_term() == [1, 2]
    assert (lead.progress, lead.reads_waiting, lead.reads_running, lead.transfer_target) == ({}, [], [], None)
    lead.begin_term()
    assert lead == Leading()


def test_lease_counts_from_the_latest_round_that_was_echoed() -> None:
    """CN-24. Goal: each acknowledged heartbeat round renews the lease. Method: two rounds a lease apart less one tick
    are echoed; then read."""
    solo = leading()
    for now in (1, LEASE):
        solo.ack("b", 1, round=beat(solo, now))
    assert asked(solo, 2 * LEASE - 1)[0]


def test_time_that_comes_late_does_not_make_a_lease_younger() -> None:
    """CN-24. Goal: the latest time that the core was given counts, and a call without the time changes nothing. Method:
    a lease runs out, then a read comes with the time of its beginning."""
    solo = leading()
    solo.ack("b", 1, round=beat(solo, 7))
    solo.core.tick()
    assert asked(solo, 7)[0]
    solo.core.tick(7 + LEASE)
    assert not asked(solo, 7)[0]


def test_timeouts_that_leave_no_time_for_a_lease_get_read_rounds() -> None:
    """CN-24. Goal: with the shortest timeouts there is no lease, and reads take a round. Method: a lease of no ticks; a
    majority echoes this tick's round."""
    options = replace(OPTIONS, election_ticks_min=2, election_ticks_max=4)
    assert options.lease_ticks == 0
    solo = Solo(options=options)
    solo.lead()
    solo.ack("b", 1)
    solo.ack("b", 1, round=beat(solo, 1))
    assert not asked(solo, 1)[0]


def test_lease_is_not_extended_by_learners() -> None:
    """CN-29. Goal: learners do not extend a lease, because they have no vote to withhold. Method: all learners echo,
    then one voter."""
    solo = leading("abc", "de")
    number = beat(solo, 1)
    for uuid in "de":
        solo.ack(uuid, 1, round=number)
    assert not asked(solo, 1)[0]
    solo.ack("c", 1, round=number)
    assert asked(solo, 1, token=2)[0]


def test_lease_is_not_extended_by_servers_without_a_running_replica() -> None:
    """CN-24. Goal: an answer without a running replica does not extend a lease. Method: both peers answer the round
    with a reason instead."""
    solo = leading()
    number = beat(solo, 1)
    for uuid, code in (("b", Code.TABLET_DELETED), ("c", Code.NOT_READY)):
        solo.step(AppendReply(to_uuid="a", from_uuid=uuid, term=1, code=code, round=number))
    assert not asked(solo, 1)[0]


def test_lease_needs_a_clock() -> None:
    """Goal: a driver that gives no clock gets ReadIndex. Method: ticks and reads without the time, echoed at once."""
    solo = leading()
    solo.core.tick()
    beats = [m for m in solo.persist() if isinstance(m, AppendEntries)]
    solo.ack("b", 1, round=beats[-1].round)
    assert not asked(solo, None)[0]


def test_lease_remembers_one_round_a_tick_at_most() -> None:
    """Goal: nothing unbounded. Method: 1000 read rounds within one tick, then two rounds a
    tick."""
    solo = leading()
    for token in range(1000):
        asked(solo, 5, token)
    assert len(solo.core._s.lead.round_stamps) == 1
    for now in range(6, 1000):
        solo.ack("b", 1, round=beat(solo, now))
        asked(solo, None, now)
        solo.core.drop_reads([now])
        assert len(solo.core._s.lead.round_stamps) <= LEASE


def test_campaign_by_hand_waits_as_long_as_a_vote_does() -> None:
    """CN-24. Goal: a voter that heard a leader does not start an election by command either. Method: heard a leader,
    told to campaign, told again when patient."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0)))
    solo.core.campaign()
    assert solo.core.role is Role.FOLLOWER
    while solo.core._s.election.ticks_since_leader < OPTIONS.election_ticks_min:
        solo.core.campaign()
        assert solo.core.role is Role.FOLLOWER
        solo.core.tick()
    solo.core.campaign()
    assert solo.core.role is Role.PRE_CANDIDATE


@pytest.mark.parametrize("least", [2, 3, 5, 12, 40, 1000])
def test_lease_ends_before_any_voter_may_vote(least: int) -> None:
    """CN-24. Goal: scenario 31, the stated drift bound holds with the worst phases. Method: the voter hears the round
    as it is stamped; its clock is the fastest allowed, two ticks come at once, and the read is at the very end of the
    leader's last tick."""
    options = RaftOptions(
        heartbeat_ticks=1, election_ticks_min=least, election_ticks_max=least + 1, config_abort_ticks=2000
    )
    fastest = 1 + CLOCK_DRIFT_PERCENT / 100
    first_vote = (least - 2) / fastest
    assert options.lease_ticks <= first_vote
    assert options.lease_ticks == max(0, math.floor((least - 2) / fastest + 1e-9)), "and not shorter than need be"


def test_group_never_reads_stale_while_a_stopped_leader_is_replaced() -> None:
    """CN-24. Goal: scenario 31 over whole cores. Method: stop the leader for as long as the others need to elect and
    commit; for every such time, its first read on waking sees the new write or waits for a round that never ends."""
    for stopped in range(1, 30):
        net = Net(config_of("abc"), seed=stopped)
        net.leases = True
        net.elect("a")
        net.write("a", b"old")
        net.settle()
        net.tick(2)
        for _ in range(stopped):
            net.nodes["a"].clock += 1
            for uuid in "bc":
                net.nodes[uuid].tick()
            net.wire = type(net.wire)(m for m in net.wire if "a" not in (m.to_uuid, m.from_uuid))
            net.isolate("a")
            net.settle()
            net.heal()
        leader = net.leader()
        assert leader is not None
        if leader.uuid != "a" and leader.core.term_committed:
            net.write(leader.uuid, b"new")
            net.isolate("a")
            net.settle()
            assert b"new" in net.verify.acked
        net.read("a")
        net.nodes["a"].drain()  # the verifier compares with what was acknowledged before
        assert bool(net.reads_done) == (stopped < LEASE)
