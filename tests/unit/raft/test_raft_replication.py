"""The messages of a leader to its peers, their time, and the effect of the answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from nyala.replica.raft import AppendEntries, AppendReply, CopyNeeded, Message, RaftOptions, Role, TimeoutNow
from nyala.replica.raft.membership import adopt_config
from nyala.replica.raft.progress import ProgressState
from nyala.replica.types import Code, DataState, EntryKind, Member, OpId, RaftConfig
from tests.harness.raft_net import OPTIONS, encode_config
from tests.harness.raft_solo import Solo, entry

SLOW = replace(OPTIONS, heartbeat_ticks=3, election_ticks_min=12, election_ticks_max=20)


def appends(sent: list[Message], to: str = "b") -> list[AppendEntries]:
    return [m for m in sent if isinstance(m, AppendEntries) and m.entries and m.to_uuid == to]


def beats(sent: list[Message], to: str = "b") -> list[AppendEntries]:
    return [m for m in sent if isinstance(m, AppendEntries) and not m.entries and m.to_uuid == to]


def write(solo: Solo, payload: bytes = b"v") -> list[Message]:
    solo.core.propose(EntryKind.WRITE, 1, 1, b"", payload, 0)
    return solo.persist()


def tick(solo: Solo) -> list[Message]:
    solo.core.tick()
    return solo.persist()


def copies(solo: Solo) -> list[CopyNeeded]:
    """Return the requests since the last call of this function."""
    found = [copy for ready in solo.readies for copy in ready.copies_needed]
    solo.readies.clear()
    return found


def mismatch(solo: Solo, conflict_index: int, last: OpId) -> list[Message]:
    """`b` answers that its log is another one from there on."""
    return solo.step(
        AppendReply(
            to_uuid="a", from_uuid="b", term=solo.core.term, mismatch=True, last=last, conflict_index=conflict_index
        )
    )


def leading(options: RaftOptions = OPTIONS, *, boundary: int = 0, voters: str = "abc", learners: str = "") -> Solo:
    """A leader of term 2, whose log holds the entries of term 1 behind `boundary` up to 8, and its own first."""
    entries = [entry(1, index) for index in range(boundary + 1, 9)]
    at = OpId(1 if boundary else 0, boundary)
    solo = Solo(voters, learners, term=1, entries=entries, commit_index=boundary, boundary=at, options=options)
    solo.lead()
    solo.readies.clear()
    return solo


# ----------------------------------------------------------------------------------------------------------- by time


def test_heartbeats_come_once_in_so_many_ticks_and_a_round_for_a_read_puts_the_next_one_off() -> None:
    """Goal: an idle group costs what the option says. Method: heartbeats every three ticks; then a read in between."""
    solo = leading(SLOW)
    solo.ack("b", 9)
    for _ in range(SLOW.heartbeat_ticks):
        tick(solo)
    assert [bool(beats(tick(solo))) for _ in range(6)] == [False, False, True, False, False, True]
    tick(solo)
    solo.core.read_index(1)
    assert beats(solo.persist())
    assert [bool(beats(tick(solo))) for _ in range(6)] == [False, False, True, False, False, True]


def test_hand_over_that_was_lost_is_sent_again_with_each_heartbeat_until_it_is_given_up() -> None:
    """Goal: a lost TimeoutNow does not make a transfer fail. Method: a target that holds everything and does
    nothing."""
    solo = leading(SLOW)
    solo.ack("b", 9)
    while not beats(tick(solo)):
        pass
    solo.core.transfer_leadership("b")
    sent = [solo.persist(), *(tick(solo) for _ in range(SLOW.election_ticks_min + 3))]
    handed = [pos for pos, messages in enumerate(sent) if any(isinstance(m, TimeoutNow) for m in messages)]
    assert handed == [0, 3, 6, 9]


def test_leader_that_loses_its_quorum_appends_nothing_more() -> None:
    """Goal: a leader that steps down by check-quorum appends nothing more. Method: a learner waits for promotion;
    nobody answers any more."""
    learner = Member("d", votes=False, promote=True)
    solo = Solo(config=RaftConfig(OpId(0, 0), (Member("a"), Member("b"), Member("c"), learner)))
    solo.lead()
    solo.ack("b", 1)
    while solo.core.role is Role.LEADER:
        tick(solo)
    assert (solo.core.role, solo.log.last, solo.core.peer_status()) == (Role.FOLLOWER, OpId(1, 1), [])
    tick(solo)
    assert solo.persist() == []


def test_copy_is_asked_for_again_after_ever_longer_times_until_the_peer_is_served() -> None:
    """Goal: TC-06, a copy that was not begun is asked for again, and not in each tick. Method: a server says for long
    that it has no replica, with what it remembers; log GC goes on meanwhile, past all that the leader ever sent it; it
    is served and lost again."""
    solo = leading(boundary=4, voters="a", learners="b")
    for _ in range(3):
        write(solo)
    solo.readies.clear()
    for _ in range(2):
        gone = AppendReply(to_uuid="a", from_uuid="b", term=2, code=Code.TABLET_DELETED, last=OpId(1, 3))
        asked = []
        for now in range(60):
            solo.step(gone)
            asked += [now] * len(found := copies(solo))
            assert set(found) <= {CopyNeeded("b", DataState.DELETED, OpId(1, 3))}
            solo.core.tick()
            solo.log.compact(min(5 + now, 12), 2 if now > 3 else 1)
            solo.persist()
            assert solo.core.peer_status()[0].data_state is DataState.DELETED
            found = copies(solo)
            asked += [now + 1] * len(found)
            assert set(found) <= {CopyNeeded("b", DataState.DELETED, OpId(1, 3))}
        assert asked == [0, 4, 12, 28, 44, 60]
        for _ in range(2):
            solo.ack("b", 12, commit_index=12)
        [peer] = solo.core.peer_status()
        assert (peer.state, peer.data_state, peer.needs_copy) == ("REPLICATE", DataState.READY, False)


# ------------------------------------------------------------------------------------------------------ what is sent


def test_entry_as_large_as_what_is_gathered_leaves_at_once() -> None:
    """Goal: an entry of at least the size in the option is sent at once; a smaller one waits for others. Method: an
    answer is owed; an entry of one byte less, then one of that size."""
    overhead = entry(1, 1, b"").size_bytes
    size = overhead + 100
    for payload, sent in ((b"x" * 99, 0), (b"x" * 100, 1)):
        solo = leading(replace(OPTIONS, append_batch_bytes_max=10 * size, append_batch_bytes_min=size), voters="ab")
        solo.ack("b", 9)
        write(solo)
        assert len(appends(write(solo, payload))) == sent


def test_peer_whose_entries_log_gc_dropped_is_copied_when_there_is_something_to_send() -> None:
    """Goal: TC-06: what the log holds no more is not sent, and the peer is asked about its end meanwhile. Method: a
    peer that acknowledged 9 falls silent with its window open; the log goes on and is dropped through 12; a write, or a
    heartbeat comes first."""
    for first in (write, tick):
        solo = leading(replace(OPTIONS, inflight_messages_max=1))
        for uuid in "bc":
            solo.ack(uuid, 9)
        solo.log.append([entry(2, index) for index in (10, 11, 12)])
        solo.log.compact(12, 2)
        solo.core.ready()
        solo.readies.clear()
        sent = first(solo)
        assert copies(solo) == [CopyNeeded(u, DataState.READY, OpId(2, 9)) for u in "bc"]
        sent += tick(solo)
        assert not appends(sent) and {beat.prev for beat in beats(sent)} <= {OpId(2, 12)}


def test_entries_that_left_memory_are_asked_for_once_however_often_there_is_more_to_send() -> None:
    """Goal: one read of the disk at a time for one peer. Method: a peer falls back behind what is in memory; writes and
    ticks come before its entries are read; then it turns out to need only what is in memory."""
    solo = leading()
    solo.ack("c", 9)
    solo.log.evict_below(9)
    mismatch(solo, 3, OpId(1, 2))
    for _ in range(3):
        write(solo)
        tick(solo)
    assert [needed for ready in solo.readies for needed in ready.entries_needed] == [("b", 3)]
    assert appends(solo.ack("b", 8))[0].prev == OpId(1, 8)


def test_safe_time_goes_with_the_end_of_the_log_alone() -> None:
    """Goal: only a message that ends with the leader's last entry carries a safe time, so a follower that has applied
    it misses nothing up to that time. Method: messages of one entry each; a peer that lags; a message of several
    entries; and a leader without a clock."""
    clock = count(1000)
    options = replace(OPTIONS, append_batch_bytes_max=1, probe_bytes_max=1)
    solo = Solo(options=options, hybrid_now=lambda: next(clock))
    solo.lead()
    solo.ack("b", 1)
    for _ in range(3):
        solo.core.propose(EntryKind.WRITE, next(clock), 1, b"", b"v", 0)
    sent = solo.persist()
    assert [m.safe_time > 1000 for m in appends(sent)] == [False, False, True]
    assert {m.safe_time for m in appends(sent)[:2]} == {0}
    sent = tick(solo)
    assert beats(sent)[0].safe_time > 1000 and beats(sent, "c")[0].safe_time == 0
    together = Solo(hybrid_now=lambda: next(clock))
    together.lead()
    together.ack("b", 1)
    for _ in range(2):
        together.core.propose(EntryKind.WRITE, next(clock), 1, b"", b"v", 0)
    assert [(len(m.entries), m.safe_time > 1000) for m in appends(together.persist())] == [(2, True)]
    alone = leading()
    alone.ack("b", 9)
    assert {m.safe_time for m in [*appends(write(alone)), *beats(tick(alone))]} == {0}


def test_group_of_one_answers_its_reads_and_rests() -> None:
    """Goal: a leader without peers answers reads, and becomes quiet. Method: a strong read; and as much time as makes a
    group idle."""
    solo = Solo("a", options=replace(SLOW, quiet_after_ticks=6))
    solo.lead()
    solo.core.read_index(7)
    solo.persist()
    assert [ready.read_states for ready in solo.readies if ready.read_states] == [((7, 1),)]
    for _ in range(6):
        assert not solo.core.quiet
        tick(solo)
    assert solo.core.quiet


# ------------------------------------------------------------------------------------------------------ what is heard


def test_peer_is_shown_with_what_it_said_last() -> None:
    """Goal: the status of a peer has its last refusal, so that an operator sees why it is not served. Method: answers
    of a failed replica, and of a good one."""
    solo = leading()
    for code in (Code.TABLET_FAILED, Code.OK, Code.TABLET_NOT_FOUND):
        solo.step(AppendReply(to_uuid="a", from_uuid="b", term=2, code=code))
        assert solo.core.peer_status()[0].last_code is code


def test_peer_that_holds_more_than_it_was_sent_lately_is_sent_what_follows() -> None:
    """Goal: the leader uses a late acknowledgement and sends no entry twice. Method: two messages are under way when
    the peer says that it lost both; it is sent to from there, and then its answer to the second arrives after all."""
    solo = leading(replace(OPTIONS, append_batch_bytes_max=1), voters="ab")
    solo.ack("b", 9)
    write(solo)
    write(solo)
    mismatch(solo, 10, OpId(2, 9))
    solo.ack("b", 9)
    solo.ack("b", 11)
    [peer] = solo.core.peer_status()
    assert (peer.match_index, peer.next_index) == (11, 12)
    assert appends(write(solo))[0].prev == OpId(2, 11)


@pytest.mark.parametrize("last", [OpId(1, 9), OpId(1, 5)])
def test_answer_of_before_an_acknowledgement_does_not_bring_the_leader_back_below_it(last: OpId) -> None:
    """Goal: [raft §5.3]: what a peer holds durably is not sought again. Method: a peer has acknowledged 5 when an older
    answer arrives, with a conflict at 3 and a log that ended at 5 or behind it; one that ended before 5 has lost what
    it acknowledged, and is served from there."""
    solo = leading(voters="ab")
    solo.ack("b", 5)
    assert appends(mismatch(solo, 3, last))[0].prev == OpId(1, 5)
    lost = leading(voters="ab")
    lost.ack("b", 5)
    assert appends(mismatch(lost, 3, OpId(1, 2)))[0].prev == OpId(1, 2)


def test_probe_that_is_under_way_is_not_sent_twice() -> None:
    """Goal: while the leader looks for the match point, one message is under way. Method: the same conflict is answered
    twice, as by an append and a heartbeat behind it."""
    solo = leading(voters="ab")
    assert len(appends(mismatch(solo, 3, OpId(1, 2)))) == 1
    assert appends(mismatch(solo, 3, OpId(1, 2))) == []


def test_leader_skips_its_own_terms_that_the_peers_log_cannot_hold() -> None:
    """Goal: one round trip a term [raft §5.3]. Method: the peer's log ends at 1.7; the leader has term 1 through 2 and
    later terms behind it."""
    entries = [entry(1, 1), entry(1, 2), *(entry(3, index) for index in range(3, 9))]
    solo = Solo("ab", term=3, entries=entries)
    solo.lead()
    assert appends(mismatch(solo, 8, OpId(1, 7)))[0].prev == OpId(1, 2)


def test_conflict_at_the_begin_of_the_log_is_served_from_it() -> None:
    """TC-18. Goal: only a peer that needs removed entries is copied. Method: conflicts at the first entry of the log,
    and below it."""
    for conflict, state in ((5, ProgressState.PROBE), (4, ProgressState.COPY)):
        solo = leading(boundary=4, voters="ab")
        mismatch(solo, conflict, OpId(1, conflict - 1))
        assert solo.core.peer_status()[0].state == state


def test_peer_that_waits_for_a_copy_fills_no_log_file() -> None:
    """Goal: the state of a peer is logged only when it changes. Method: it says three times each that its log is too
    old, that it has no replica, and that it is copying; and once more that it has none."""
    solo = leading(boundary=4, voters="ab")
    told = []
    for say in (
        lambda: mismatch(solo, 2, OpId(1, 1)),
        lambda: solo.step(AppendReply(to_uuid="a", from_uuid="b", term=2, code=Code.TABLET_NOT_FOUND)),
        lambda: solo.step(AppendReply(to_uuid="a", from_uuid="b", term=2, code=Code.NOT_READY)),
        lambda: solo.step(AppendReply(to_uuid="a", from_uuid="b", term=2, code=Code.TABLET_NOT_FOUND)),
    ):
        for _ in range(3):
            say()
        told.append(len([line for ready in solo.readies for line in ready.trace]))
        solo.readies.clear()
    assert told == [1, 1, 1, 1]


def test_leader_that_a_commit_removes_promotes_nobody() -> None:
    """Goal: [thesis §4.2.2]: a leader that is removed by a commit does nothing after it. Method: a config without it,
    in which a caught-up learner waits for promotion, is in its log; it is committed by an answer of the voter's."""
    learner = Member("b", votes=False, promote=True)
    solo = Solo("ac", "b")
    solo.lead()
    for _ in range(2):
        solo.ack("b", 1)
    gone = RaftConfig(OpId(0, 0), (learner, Member("c")))
    solo.core._s.append_own(EntryKind.CONFIG, 9, 0, encode_config(gone), b"", 0)
    adopt_config(solo.core._s, gone.with_opid(solo.log.last))
    solo.persist()
    solo.ack("c", 2)
    assert (solo.core.role, solo.core.commit_index, solo.log.last.index) == (Role.NON_PARTICIPANT, 2, 2)
