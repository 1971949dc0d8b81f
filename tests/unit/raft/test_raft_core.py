"""One core on its own: dispatch, promises and the disk, log repair, commitment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.raft import (
    AppendEntries,
    AppendReply,
    RaftOptions,
    Role,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from nyala.replica.types import Code, EntryKind, InvariantViolation, OpId, Refused
from tests.harness.raft_net import OPTIONS, config_of
from tests.harness.raft_solo import Solo, entry


def replies(sent: list) -> list[AppendReply]:  # type: ignore[type-arg]
    return [m for m in sent if isinstance(m, AppendReply)]


@pytest.mark.parametrize(
    ("to_uuid", "term", "code"),
    [("z", 1, Code.INVALID_NAME), ("z", 9, Code.INVALID_NAME), ("a", 1, Code.INVALID_TERM), ("a", 5, Code.OK)],
)
def test_append_check_order_name_before_term_before_content(to_uuid: str, term: int, code: Code) -> None:
    """Goal: TC-22's order, double faults included. Method: a table of appends against a follower of term 5."""
    solo = Solo(term=5)
    msg = AppendEntries(to_uuid=to_uuid, from_uuid="b", term=term, prev=OpId(0, 0))
    (reply,) = replies(solo.step(msg))
    assert (reply.code, reply.term) == (code, 5)


def test_append_out_of_order_batch_is_refused_whole() -> None:
    """Goal: an append with entries out of order is refused as a whole (scenario 13). Method: a gap, a falling term, a
    term of the future; and an append without a fault."""
    for bad in ((entry(1, 1), entry(1, 3)), (entry(2, 1), entry(1, 2)), (entry(1, 1), entry(4, 2))):
        solo = Solo(term=3)
        assert solo.core.refusal(solo.append(3, OpId(0, 0), *bad)) and solo.log.last == OpId(0, 0)
    assert solo.core.refusal(solo.append(3, OpId(0, 0), entry(1, 1), entry(3, 2))) == ""


def test_append_commit_index_is_bounded_by_the_message() -> None:
    """Goal: a follower commits only entries that the message covers (scenario 13), because those behind may be of an
    old leader. Method: an old tail stands above what the heartbeat matches."""
    solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2), entry(1, 3)])
    solo.step(solo.append(2, OpId(1, 1), commit=3))
    assert solo.core.commit_index == 1
    assert solo.log.last == OpId(1, 3)


def test_append_older_message_does_not_cut_the_log() -> None:
    """Goal: a reordered shorter append truncates nothing. Method: three entries, then the first one again."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0), entry(1, 1), entry(1, 2), entry(1, 3)))
    solo.step(solo.append(1, OpId(0, 0), entry(1, 1)))
    assert solo.log.last == OpId(1, 3)


def test_append_mismatch_hints_at_the_whole_conflicting_term() -> None:
    """Goal: a mismatch costs one round trip for each term [raft §5.3]. Method: three entries of a term that the leader
    has not; then a log of such entries alone, none or some of them committed."""
    solo = Solo(term=2, entries=[entry(1, 1), entry(2, 2), entry(2, 3), entry(2, 4)])
    (reply,) = replies(solo.step(solo.append(3, OpId(3, 4))))
    assert (reply.mismatch, reply.conflict_index, reply.last) == (True, 2, OpId(2, 4))
    (reply,) = replies(solo.step(solo.append(3, OpId(3, 9))))
    assert (reply.mismatch, reply.conflict_index) == (True, 5)
    for commit_index in (0, 1):
        solo = Solo(term=2, entries=[entry(2, 1), entry(2, 2), entry(2, 3)], commit_index=commit_index)
        (reply,) = replies(solo.step(solo.append(3, OpId(3, 3))))
        assert (reply.mismatch, reply.conflict_index) == (True, commit_index + 1)


def test_append_that_begins_below_the_log_is_taken() -> None:
    """Goal: an append that begins before the log's first entry is accepted, because entries removed by log GC are
    committed [raft §5.4.3]. Method: the log begins behind 4; a new leader, which does not know that, sends from below
    that on."""
    solo = Solo(term=1, boundary=OpId(1, 4), commit_index=4)
    for prev in (2, 4):
        entries = [entry(1, index) for index in range(prev + 1, 7)]
        (reply,) = replies(solo.step(solo.append(2, OpId(1, prev), *entries)))
        assert (reply.mismatch, reply.last, solo.log.last) == (False, OpId(1, 6), OpId(1, 6))


def test_append_that_would_cut_a_committed_entry_is_an_invariant_violation() -> None:
    """Goal: a committed entry is never truncated. Method: commit, then a conflicting later term."""
    solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2)], commit_index=2)
    solo.step(solo.append(2, OpId(1, 1), entry(2, 2)))
    assert solo.log.last == OpId(1, 2), "what is committed is skipped, not compared"
    solo.step(solo.append(2, OpId(1, 2), entry(2, 3)))
    with pytest.raises(InvariantViolation):
        solo.core._s.truncate_after(1)


def test_append_reply_waits_for_the_disk_and_heartbeat_reply_does_not() -> None:
    """Goal: CN-26: an acknowledgement names durable entries only. Method: nothing is persisted yet."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0)))
    solo.core.step(solo.append(1, OpId(0, 0), entry(1, 1), entry(1, 2)))
    assert replies(solo.take()) == []
    solo.core.step(solo.append(1, OpId(1, 2)))
    (reply,) = replies(solo.take())
    assert (reply.code, reply.last) == (Code.OK, OpId(0, 0))
    (reply,) = replies(solo.persist())
    assert reply.last == OpId(1, 2)
    solo.core.step(solo.append(1, OpId(1, 2), entry(1, 3)))
    solo.take()
    solo.core.step(solo.append(1, OpId(0, 0), entry(1, 1), entry(1, 2)))
    (reply,) = replies(solo.take())
    assert reply.last == OpId(1, 2), "entries that are durable here are acknowledged at once"


def test_reply_in_a_new_term_waits_for_the_hard_state() -> None:
    """Goal: no message names a term that is not durable. Method: the first heartbeat of a term, unpersisted."""
    solo = Solo()
    solo.core.step(solo.append(4, OpId(0, 0)))
    assert solo.take() == []
    (reply,) = replies(solo.persist())
    assert reply.term == 4


def test_vote_is_sent_only_after_persistence_and_once_a_term() -> None:
    """TC-14. Goal: a voter gives one vote in a term, and sends it only when it is durable (scenario 1). Method: two
    candidates of one term, the disk in between."""
    solo = Solo()
    solo.core.step(VoteRequest(to_uuid="a", from_uuid="b", term=1, last=OpId(0, 0)))
    assert solo.take() == []
    assert solo.outstanding[-1].hard_state == (1, "b")
    assert [m.granted for m in solo.persist() if isinstance(m, VoteReply)] == [True]
    sent = solo.step(VoteRequest(to_uuid="a", from_uuid="c", term=1, last=OpId(0, 0)))
    assert [m.granted for m in sent if isinstance(m, VoteReply)] == [False]
    sent = solo.step(VoteRequest(to_uuid="a", from_uuid="b", term=1, last=OpId(0, 0)))
    assert [m.granted for m in sent if isinstance(m, VoteReply)] == [True], "the same vote again"


def test_pre_vote_writes_nothing_at_the_recipient() -> None:
    """Goal: CC-33: no term, no vote. Method: grant and deny pre-votes, look at the hard state."""
    solo = Solo(term=3, entries=[entry(3, 1)])
    for last, granted in ((OpId(3, 1), True), (OpId(2, 9), False)):
        sent = solo.step(VoteRequest(to_uuid="a", from_uuid="b", term=4, last=last, pre_vote=True))
        assert [(m.granted, m.term) for m in sent if isinstance(m, VoteReply)] == [(granted, 4 if granted else 3)]
    assert (solo.core.term, solo.core.voted_for) == (3, None)
    assert all(ready.hard_state is None for ready in solo.readies)


def test_pre_candidate_of_a_lower_term_learns_the_term_and_can_win() -> None:
    """Goal: the only electable replica wins although its term is lower (scenario 95), because a denial tells it the
    term. Method: denied at 5."""
    solo = Solo(term=2, entries=[entry(2, 1)])
    solo.core.campaign()
    solo.persist()
    solo.step(VoteReply(to_uuid="a", from_uuid="b", term=5, granted=False, pre_vote=True))
    assert (solo.core.role, solo.core.term) == (Role.FOLLOWER, 5)
    solo.lead()
    assert solo.core.term == 6


def test_candidate_counts_its_own_vote_when_durable_only() -> None:
    """Goal: a candidate counts its own vote only when it is durable. Method: a two-voter group; the other voter's vote
    arrives before the own one is durable."""
    solo = Solo("ab")
    solo.core.campaign()
    solo.persist()
    solo.core.step(VoteReply(to_uuid="a", from_uuid="b", term=1, granted=True, pre_vote=True))
    assert solo.take() == []
    solo.core.step(VoteReply(to_uuid="a", from_uuid="b", term=1, granted=True))
    solo.take()
    assert solo.core.role is Role.CANDIDATE
    solo.persist()
    assert solo.core.role is Role.LEADER


def test_single_voter_elects_itself_on_persist_and_commits() -> None:
    """Goal: a group of one works. Method: campaign, persist, propose."""
    solo = Solo("a", learners="b")
    solo.core.campaign()
    solo.take()
    assert solo.core.role is Role.CANDIDATE
    solo.persist()
    assert solo.core.term_committed
    opid = solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    solo.take()
    assert solo.core.commit_index == 1
    solo.persist()
    assert solo.core.commit_index == opid.index


def test_old_term_entries_commit_only_with_one_of_the_own_term() -> None:
    """Goal: [raft §5.4.2], scenario 6. Method: five voters, 0.1-0.7 then 1.8-1.10 acknowledged bit by bit: nothing of
    term 0 by counting, all ten in one step with the last. A write is refused until then, so the test puts 1.9 and 1.10
    into the log by hand."""
    solo = Solo("abcde", term=0, entries=[entry(0, i) for i in range(1, 8)])
    solo.lead()
    for uuid in "bcde":
        solo.ack(uuid, 7)
    assert solo.core.commit_index == 0
    with pytest.raises(Refused) as refused:
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    assert refused.value.code is Code.NOT_READY
    for _ in range(2):
        solo.core._s.append_own(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    solo.persist()
    assert solo.log.last == OpId(1, 10)
    solo.ack("b", 10)
    assert solo.core.commit_index == 0
    solo.ack("c", 10)
    assert solo.core.commit_index == 10
    assert [b.committed for b in solo.readies if b.committed] == [(1, 11)]


def test_learner_acks_never_commit() -> None:
    """Goal: CN-29, scenario 27. Method: the learners acknowledge everything, the second voter later."""
    solo = Solo("ab", learners="cd")
    solo.lead()
    solo.ack("c", 1)
    solo.ack("d", 1)
    assert solo.core.commit_index == 0
    solo.ack("b", 1)
    assert solo.core.commit_index == 1


def test_leader_acknowledgement_by_persisted_opid_of_the_log_only() -> None:
    """Goal: the leader's own log counts as far as `persisted` says. Method: wrong term, then the right OpId, early."""
    solo = Solo("ab")
    solo.lead()
    solo.ack("b", 1)
    solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    solo.take()
    solo.core.step(AppendReply(to_uuid="a", from_uuid="b", term=1, last=OpId(1, 2)))
    assert solo.core.commit_index == 1
    solo.core.persisted(OpId(7, 2))
    assert solo.core.commit_index == 1
    solo.core.persisted(OpId(1, 2))
    assert solo.core.commit_index == 2


def test_persisted_of_a_copy_that_was_truncated_meanwhile_does_not_count() -> None:
    """Goal: if an entry was received, truncated and received again, only the sync of the second copy makes it durable.
    Method: 1.1-1.2 is cut by term 2 and comes back by term 3 before the first copy's sync is reported."""
    solo = Solo()
    solo.core.step(solo.append(1, OpId(0, 0), entry(1, 1), entry(1, 2)))
    solo.take()
    first = len(solo.outstanding)
    solo.core.step(solo.append(2, OpId(0, 0), entry(2, 1), leader="c"))
    solo.take()
    solo.core.step(solo.append(3, OpId(0, 0), entry(1, 1), entry(1, 2), entry(3, 3), leader="b"))
    solo.take()
    solo.core.persisted(OpId(1, 2))
    for ready in solo.outstanding[:first]:
        solo.core.advance(ready)
    del solo.outstanding[:first]
    assert solo.core.persisted_index == 0
    solo.persist()
    assert solo.core.persisted_index == 3


def test_truncation_is_handed_out_with_what_replaces_it() -> None:
    """Goal: the WAL learns where its tail is void. Method: replace handed-out and not yet handed-out entries."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0), entry(1, 1), entry(1, 2), entry(1, 3)))
    solo.core.step(solo.append(1, OpId(1, 3), entry(1, 4)))
    solo.core.step(solo.append(2, OpId(1, 1), entry(2, 2), leader="c"))
    solo.take()
    first = solo.outstanding[-1]
    assert (first.truncate_from, [e.opid for e in first.entries]) == (2, [OpId(2, 2)])
    assert solo.core.persisted_index == 1


def test_restart_commit_index_beyond_the_log_is_clamped() -> None:
    """Goal: a commit index of a lost tail applies nothing that is not there, and nothing spins (scenario 4; there is no
    commit index on disk, D-16). Method: start with 9 of 2; then the leader sends what is missing."""
    solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2)], commit_index=9)
    assert solo.core.commit_index == 2
    assert solo.core.ready() is None
    solo.step(solo.append(1, OpId(1, 2), entry(1, 3), entry(1, 4), commit=9))
    assert solo.core.commit_index == 4
    assert [b.committed for b in solo.readies if b.committed] == [(3, 5)]


def test_restart_with_a_log_of_a_later_term_takes_that_term_without_a_vote() -> None:
    """Goal: if a crash came between the writes of the log and of the hard state, the replica starts in the term of its
    log. Method: hard state 1, log 3."""
    solo = Solo(term=1, entries=[entry(3, 1)])
    assert (solo.core.term, solo.core.voted_for) == (3, None)
    solo.take()
    assert solo.outstanding[0].hard_state == (3, None)


def test_deposed_leader_steps_down_on_a_higher_term_and_fails_its_reads() -> None:
    """Goal: TC-24: a reply of a higher term deposes. Method: a read is waiting when INVALID_TERM 9 arrives."""
    solo = Solo()
    solo.lead()
    solo.core.read_index(5)
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=9, code=Code.INVALID_TERM))
    assert (solo.core.role, solo.core.term) == (Role.FOLLOWER, 9)
    assert [b.read_failures for b in solo.readies if b.read_failures] == [((5, Code.NOT_LEADER),)]
    with pytest.raises(Refused) as refused:
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    assert refused.value.code is Code.NOT_LEADER


def test_read_rounds_count_echoes_of_their_own_round_only() -> None:
    """Goal: an echo from before the read proves nothing. Method: ack an old round, then the read's."""
    solo = Solo()
    solo.lead()
    solo.ack("b", 1)
    solo.core.read_index(1)
    (beat, _) = [m for m in solo.persist() if isinstance(m, AppendEntries)]
    solo.ack("b", 1, round=beat.round - 1)
    assert not any(b.read_states for b in solo.readies)
    solo.ack("b", 1, round=beat.round)
    assert [b.read_states for b in solo.readies if b.read_states] == [((1, 1),)]


def test_reads_beyond_the_bound_are_refused_early() -> None:
    """Goal: nothing unbounded. Method: one more read than may wait."""
    solo = Solo(options=RaftOptions(reads_pending_max=2))
    solo.lead()
    for token in range(3):
        solo.core.read_index(token)
    solo.persist()
    assert solo.readies[-1].read_failures == ((2, Code.OVERLOADED),)


def test_window_pipelines_up_to_its_bound_and_no_further() -> None:
    """Goal: inflight is bounded by messages and bytes. Method: 40 proposals to a silent, then answering peer."""
    solo = Solo("ab")
    solo.lead()
    solo.ack("b", 1)
    for _ in range(40):
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    batches = [m for m in solo.persist() if isinstance(m, AppendEntries) and m.entries]
    assert len(batches) == OPTIONS.inflight_messages_max
    assert [m.prev.index for m in batches[1:]] == [m.entries[-1].opid.index for m in batches[:-1]]
    more = [m for m in solo.ack("b", batches[0].entries[-1].opid.index) if isinstance(m, AppendEntries) and m.entries]
    assert [m.prev for m in more] == [batches[-1].entries[-1].opid]


def test_window_is_bounded_by_bytes_too() -> None:
    """Goal: large entries to a slow peer take bounded room. Method: messages of one entry, and room for three of them;
    each answer makes room for as many as it acknowledges."""
    size = entry(1, 1, b"v").size_bytes
    options = replace(OPTIONS, append_batch_bytes_max=1, inflight_messages_max=50, inflight_bytes_max=3 * size)
    solo = Solo("ab", options=options)
    solo.lead()
    solo.ack("b", 1)
    for _ in range(9):
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    for sent, acknowledged in ((solo.persist(), [2, 3, 4]), (solo.ack("b", 2), [5]), (solo.ack("b", 4), [6, 7])):
        appends = [m for m in sent if isinstance(m, AppendEntries) and m.entries]
        assert [m.entries[0].opid.index for m in appends] == acknowledged


def test_small_entries_gather_while_an_answer_is_owed_and_large_ones_do_not() -> None:
    """Goal: while a peer owes an answer, small entries wait and are sent together; large ones are sent at once. Method:
    proposals one by one to a peer that owes an answer, its answer, then a large entry."""
    solo = Solo("ab", options=replace(OPTIONS, append_batch_bytes_max=1000, append_batch_bytes_min=500))
    solo.lead()
    solo.ack("b", 1)

    def propose(payload: bytes) -> list[AppendEntries]:
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", payload, 0)
        return [m for m in solo.persist() if isinstance(m, AppendEntries) and m.entries]

    first = propose(b"v")
    assert [len(m.entries) for m in first] == [1]
    assert propose(b"v") == propose(b"v") == []
    answer = [m for m in solo.ack("b", first[0].entries[-1].opid.index) if isinstance(m, AppendEntries) and m.entries]
    assert [len(m.entries) for m in answer] == [2]
    assert [len(m.entries) for m in propose(b"v" * 600)] == [1]


@pytest.mark.parametrize("meta_bytes", [0, 16, 20, 300])
def test_append_holds_no_more_than_its_receiver_decodes_at_once(meta_bytes: int) -> None:
    """IN-60. Goal: an append has only so many entries that decoding them delays the follower's loop for a bounded time.
    Method: 1,000 writes that are proposed together to a peer that owes an answer; each message has at most as many
    entries and bytes of metas as one may, or one entry, and none waits behind a message that is full."""
    options = RaftOptions(append_entries_max=64, append_meta_bytes_max=512, inflight_messages_max=1000)
    solo = Solo("ab", options=options)
    solo.lead()
    solo.ack("b", 1)
    for _ in range(1000):
        solo.core.propose(EntryKind.WRITE, 1, 1, b"m" * meta_bytes, b"v", 0)
    sent = [m.entries for m in solo.persist() if isinstance(m, AppendEntries) and m.entries]
    most = min(64, 512 // max(meta_bytes, 1))
    assert {len(entries) for entries in sent[:-1]} == {most}
    assert sum(len(entries) for entries in sent) >= 1000 - most


def test_answer_with_an_error_acknowledges_nothing() -> None:
    """Goal: only an answer without an error is a durable copy, and a peer that was heard. Method: an error with the
    OpId of the last entry; then the same answer without one."""
    solo = Solo("ab")
    solo.lead()
    last = solo.log.last
    answer = AppendReply(to_uuid="a", from_uuid="b", term=solo.core.term, last=last, code=Code.ILLEGAL_STATE)
    solo.step(answer)
    assert solo.core.commit_index == 0
    solo.step(replace(answer, code=Code.OK))
    assert solo.core.commit_index == last.index


def test_entry_with_a_longer_meta_than_a_receiver_decodes_at_once_travels_alone() -> None:
    """Goal: an entry that exceeds the bound by itself is sent alone. Method: small, large, small."""
    solo = Solo("ab", options=replace(OPTIONS, append_meta_bytes_max=100))
    solo.lead()
    solo.ack("b", 1)
    for size in (1, 101, 1):
        solo.core.propose(EntryKind.WRITE, 1, 1, b"m" * size, b"v", 0)
    sent = [m.entries for m in solo.persist() if isinstance(m, AppendEntries) and m.entries]
    assert [[len(entry.meta) for entry in entries] for entries in sent] == [[1], [101], [1]]


def test_down_peer_costs_a_heartbeat_and_not_a_message_per_write() -> None:
    """Goal: scenario 164. Method: 50 writes while one peer never answered."""
    solo = Solo()
    solo.lead()
    solo.ack("b", 1)
    sent = []
    for _ in range(50):
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
        sent += solo.persist()
    assert [m for m in sent if m.to_uuid == "c"] == []


def test_evicted_entries_are_asked_for_once_and_sent_when_loaded() -> None:
    """Goal: reads from disk never block the core. Method: evict, let a peer fall back, load."""
    solo = Solo("ab", term=1, entries=[entry(1, i) for i in range(1, 9)])
    whole = solo.log.entries(1, 9, 1 << 20)
    solo.lead()
    solo.log.evict_below(9)
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=2, mismatch=True, last=OpId(1, 2), conflict_index=3))
    asked = [b.entries_needed for b in solo.readies if b.entries_needed]
    assert asked == [(("b", 3),)]
    solo.log.load(whole[2:])
    solo.core.entries_loaded()
    sent = [m for m in solo.persist() if isinstance(m, AppendEntries) and m.entries]
    assert sent[0].prev == OpId(1, 2)


def test_copying_peer_gets_heartbeats_only_and_no_second_request() -> None:
    """TC-25. Goal: a peer that answers NOT_READY because it is copying gets heartbeats only. Method: not found, then
    copying for long, then gone again."""
    solo = Solo("a", learners="b")
    solo.lead()

    def answer(code: Code) -> list:  # type: ignore[type-arg]
        before = len(solo.readies)
        sent = solo.step(AppendReply(to_uuid="a", from_uuid="b", term=1, code=code))
        assert not [m for m in sent if isinstance(m, AppendEntries) and m.entries]
        return [c for b in solo.readies[before:] for c in b.copies_needed]

    assert len(answer(Code.TABLET_NOT_FOUND)) == 1
    assert answer(Code.TABLET_NOT_FOUND) == [], "back-off"
    for _ in range(60):
        solo.core.tick()
        assert answer(Code.NOT_READY) == []
    assert len(answer(Code.TABLET_DELETED)) == 1


def test_timeout_now_campaigns_at_once_but_not_without_the_leaders_log() -> None:
    """Goal: the target of a transfer starts an election without a pre-vote, but only with the leader's whole log.
    Method: ahead of us, then equal."""
    solo = Solo(term=1, entries=[entry(1, 1)])
    solo.step(solo.append(1, OpId(1, 1)))
    assert solo.step(TimeoutNow(to_uuid="a", from_uuid="b", term=1, last=OpId(1, 2))) == []
    sent = solo.step(TimeoutNow(to_uuid="a", from_uuid="b", term=1, last=OpId(1, 1)))
    assert [(m.to_uuid, m.pre_vote, m.transfer) for m in sent if isinstance(m, VoteRequest)] == [
        ("b", False, True),
        ("c", False, True),
    ]


def test_failure_detector_runs_on_electable_voters_only() -> None:
    """Goal: scenario 97, CC-53. Method: tick a voter, a learner, a stranger and a witness for long."""
    learner = config_of("bc", "a")
    witness = config_of("bc")
    member = config_of("a").members[0].__class__("a", holds_data=False)
    witness = witness.__class__(witness.opid, (member, *witness.members))
    for config, role in (
        (config_of("abc"), Role.PRE_CANDIDATE),
        (learner, Role.LEARNER),
        (config_of("bc"), Role.NON_PARTICIPANT),
        (witness, Role.FOLLOWER),
    ):
        solo = Solo(config=config)
        for _ in range(40):
            solo.core.tick()
        assert solo.core.role is role


def test_damaged_tail_heals_when_the_durable_log_reaches_it() -> None:
    """Goal: scenario 37. Method: vote, campaign, then an append through the lost OpId, durable or not."""
    solo = Solo(term=1, entries=[entry(1, 1)], withheld=OpId(1, 2))
    sent = solo.step(VoteRequest(to_uuid="a", from_uuid="b", term=2, last=OpId(1, 9)))
    assert [m.granted for m in sent if isinstance(m, VoteReply)] == [False]
    solo.core.campaign()
    assert (solo.core.role, solo.core.withheld) == (Role.FOLLOWER, OpId(1, 2))
    solo.core.step(solo.append(2, OpId(1, 1), entry(1, 2)))
    solo.take()
    assert solo.core.withheld is not None
    solo.persist()
    assert solo.core.withheld is None


def test_damaged_tail_of_an_unknown_term_is_not_healed_by_a_part_of_it() -> None:
    """CN-22, scenario 37. Goal: a voter that lost the end of its log votes again only after it has all of the lost
    entries. Method: the entries 2 to 4 are lost, and that they were of term 5 too: their leader sends the first of them
    again, of a later term than was named; then the others. In another life a leader of term 6 sends one entry, and that
    it was elected says that it has what was committed; and an old message of the leader, by which the log ends at 1,
    heals nothing."""
    for appended, healed in (([], False), ([(5, 2)], False), ([(5, 2), (5, 3), (5, 4)], True), ([(6, 2)], True)):
        solo = Solo(term=5, entries=[entry(3, 1)], withheld=OpId(3, 4))
        term = appended[-1][0] if appended else 5
        solo.core.step(solo.append(term, OpId(3, 1), *(entry(*one) for one in appended)))
        solo.persist()
        assert (solo.core.withheld is None) is healed, appended
        sent = solo.step(VoteRequest(to_uuid="a", from_uuid="b", term=7, last=OpId(5, 3), transfer=True))
        assert [m.granted for m in sent if isinstance(m, VoteReply)] == [False], "the candidate lacks the last of them"


def test_idle_follower_tick_makes_no_output() -> None:
    """Goal: an idle replica costs its tick and nothing else. Method: ticks between heartbeats leave nothing to do."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0)))
    solo.core.tick()
    assert not solo.core.has_ready()
    assert solo.core.ready() is None


def test_readies_are_advanced_in_order() -> None:
    """Goal: advancing a `Ready` out of order is an error. Method: advance the second one first."""
    solo = Solo()
    solo.core.campaign()
    solo.take()
    solo.core.step(VoteReply(to_uuid="a", from_uuid="b", term=1, granted=True, pre_vote=True))
    solo.take()
    assert len(solo.outstanding) == 2
    with pytest.raises(InvariantViolation):
        solo.core.advance(solo.outstanding[1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_ticks": 0},
        {"heartbeat_ticks": 7},
        {"election_ticks_max": 12},
        {"inflight_messages_max": 0},
        {"copy_retry_ticks_min": 0},
        {"copy_retry_ticks_max": 3},
        {"promote_round_ticks_max": 0},
        {"reads_pending_max": 0},
    ],
)
def test_options_impossible_relation_is_refused(wrong: dict[str, int]) -> None:
    """Goal: options are checked when they are made. Method: one wrong value each."""
    with pytest.raises(InvariantViolation):
        RaftOptions(**wrong)
