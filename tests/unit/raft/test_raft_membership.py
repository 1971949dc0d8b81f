"""Membership change: what is legal, when a config is in force, promotion, and the leader that goes."""

from __future__ import annotations

import random
from functools import partial

import pytest

from nyala.replica.raft import AppendEntries, AppendReply, Role, invalid_config_reason
from nyala.replica.raft.membership import adopt_config, edited_members
from nyala.replica.rows import crc32c
from nyala.replica.types import (
    Address,
    Code,
    ConfigEdit,
    EditKind,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    Refused,
    limits,
)
from tests.harness.raft_net import OPTIONS, Net, config_of, encode_config, refused
from tests.harness.raft_solo import Solo, entry


def add(uuid: str, **marks: bool) -> ConfigEdit:
    return ConfigEdit(EditKind.ADD, Member(uuid, **marks))


def remove(uuid: str) -> ConfigEdit:
    return ConfigEdit(EditKind.REMOVE, Member(uuid))


def change(uuid: str, **marks: bool) -> ConfigEdit:
    return ConfigEdit(EditKind.CHANGE, Member(uuid, **marks))


def test_edits_random_never_move_two_voters_and_never_leave_nobody() -> None:
    """CC-03. Goal: CC-03, I4: no list of edits changes more than one voter or leaves no voter. Method: 3,000 random
    edit lists: refused, or one voter at most."""
    rng = random.Random(5)
    accepted = 0
    for _ in range(3000):
        base = config_of("abcd"[: rng.randint(1, 4)], "ef"[: rng.randint(0, 2)])
        edits = []
        for _ in range(rng.randint(0, 3)):
            votes = rng.random() < 0.5
            member = Member(rng.choice("abcdefg"), votes=votes, promote=not votes and rng.random() < 0.5)
            edits.append(ConfigEdit(rng.choice(list(EditKind)), member))
        try:
            members = edited_members(base, edits)
        except Refused as e:
            assert e.code in (Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.ALREADY_EXISTS)
            continue
        accepted += 1
        after = RaftConfig(OpId(1, 1), members)
        assert len(set(base.voters) ^ set(after.voters)) <= 1
        assert after.voters
        assert len(after.members) >= 1
        assert members != base.members
        assert list(members) == sorted(members, key=lambda m: m.uuid)
    assert accepted > 300


def test_edit_change_without_addresses_keeps_them() -> None:
    """Goal: an edit of a mark keeps the member's addresses. Method: `replace` on a member with an address."""
    base = RaftConfig(OpId(1, 1), (Member("a", (Address("h", 1),)), Member("b")))
    members = edited_members(base, [change("a", replace=True)])
    assert members[0] == Member("a", (Address("h", 1),), replace=True)


def test_edit_change_with_addresses_moves_the_member() -> None:
    """Goal: an edit can change the addresses of a member. Method: another address for a member that has one."""
    base = RaftConfig(OpId(1, 1), (Member("a", (Address("h", 1),)), Member("b")))
    moved = Member("a", (Address("i", 2),))
    assert edited_members(base, [ConfigEdit(EditKind.CHANGE, moved)])[0] == moved


def test_config_that_nobody_could_lead_is_refused() -> None:
    """Goal: I4: a config without a member that can lead is refused. Method: the only voter goes; or all that are left
    are witnesses and learners."""
    for base, edits in (
        (config_of("a", "b"), [remove("a")]),
        (config_of("a", "b"), [change("a", votes=False)]),
        (RaftConfig(OpId(1, 1), (Member("a"), Member("b", holds_data=False))), [remove("a")]),
        (config_of("a"), [remove("a")]),
    ):
        with pytest.raises(Refused) as refusal:
            edited_members(base, edits)
        assert refusal.value.code is Code.INVALID_ARGUMENT


def test_witness_may_be_marked_though_its_data_is_not_there() -> None:
    """Goal: CC-53: a witness without data can be marked, but not made electable. Method: a witness is marked for
    replacement; then it is to hold data, which it has not."""
    witness = Member("c", holds_data=False)
    solo = Solo(config=RaftConfig(OpId(0, 0), (Member("a"), Member("b"), witness)))
    solo.lead()
    solo.ack("b", 1)
    assert refused(lambda: solo.core.propose_config([change("c")], None)) is Code.NOT_READY
    assert refused(lambda: solo.core.propose_config([change("c", holds_data=False, replace=True)], None)) is Code.OK


def test_entry_of_a_config_has_no_payload_and_no_schema() -> None:
    """Goal: other builds read it: what a CONFIG entry is on the wire and on disk. Method: the entry of a change."""
    solo = Solo()
    solo.lead()
    solo.ack("b", 1)
    opid = solo.core.propose_config([add("d", votes=False)], None)
    [appended] = solo.log.entries(opid.index, opid.index + 1, 1)
    meta = encode_config(solo.core.active_config)
    assert appended == Entry(opid, EntryKind.CONFIG, appended.hybrid_time, 0, meta, b"", crc32c(b""))


def test_config_that_a_copy_brought_is_not_adopted_again_from_the_log() -> None:
    """Goal: a copied replica's config does not go back: its metadata name a later config than its log ends at. Method:
    the entries up to that config arrive, an older config among them, and are committed."""
    older, newer = config_of("abcd"), config_of("abcde")
    solo = Solo(term=1, entries=[entry(1, 1)], config=newer.with_opid(OpId(1, 3)))
    configs = [
        entry(1, index, b"", EntryKind.CONFIG)._replace(meta=encode_config(config))
        for index, config in ((2, older), (3, newer))
    ]
    solo.step(solo.append(1, OpId(1, 1), *configs, commit=3))
    assert solo.core.active_config == solo.core.committed_config == newer.with_opid(OpId(1, 3))
    assert solo.core.pending_config is None and not any(ready.config_committed for ready in solo.readies)


def test_follower_that_learns_of_a_config_keeps_no_account_of_its_peers() -> None:
    """Goal: only a leader keeps the progress of its peers. Method: a follower is sent a config; later it leads."""
    change_entry = entry(1, 1, b"", EntryKind.CONFIG)._replace(meta=encode_config(config_of("abcd")))
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0), change_entry, commit=1))
    assert solo.core.peer_status() == []
    for _ in range(OPTIONS.election_ticks_min):
        solo.core.tick()
    solo.lead()
    assert [peer.uuid for peer in solo.core.peer_status()] == ["b", "c", "d"]


BULK = {
    "a learner comes": ([add("e", votes=False)], Code.OK),
    "a voter comes": ([add("e")], Code.OK),
    "a voter goes, and a learner": ([remove("c"), remove("d")], Code.OK),
    "a voter goes, a learner comes, another is marked": (
        [remove("c"), add("e", votes=False), change("d", votes=False, promote=True)],
        Code.OK,
    ),
    "two learners come": ([add("e", votes=False), add("f", votes=False)], Code.OK),
    "a learner is promoted": ([change("d")], Code.OK),
    "promotion with demotion": ([change("d"), change("b", votes=False)], Code.INVALID_ARGUMENT),
    "promotion with removal": ([change("d"), remove("b")], Code.INVALID_ARGUMENT),
    "a voter comes as another goes": ([add("e"), remove("b")], Code.INVALID_ARGUMENT),
    "two voters come": ([add("e"), add("f")], Code.INVALID_ARGUMENT),
    "two voters go": ([remove("b"), remove("c")], Code.INVALID_ARGUMENT),
    "two voters are demoted": ([change("b", votes=False), change("c", votes=False)], Code.INVALID_ARGUMENT),
    "the leader is demoted": ([change("a", votes=False)], Code.INVALID_ARGUMENT),
    "the leader becomes a witness": ([change("a", holds_data=False)], Code.INVALID_ARGUMENT),
    "nothing at all": ([], Code.INVALID_ARGUMENT),
    "what is so already": ([change("b")], Code.INVALID_ARGUMENT),
    "one good edit, and one that changes nothing": ([add("e", votes=False), change("b")], Code.INVALID_ARGUMENT),
    "two edits of one member": ([change("b", replace=True), remove("b")], Code.INVALID_ARGUMENT),
    "a member once more": ([add("d")], Code.ALREADY_EXISTS),
    "a stranger goes": ([remove("x")], Code.NOT_FOUND),
}


@pytest.mark.parametrize("name", BULK)
def test_bulk_change_is_taken_whole_or_refused_whole(name: str) -> None:
    """Goal: scenario 25, what may be changed in one step. Method: voters a (leads), b, c and the learner d; one list of
    edits each: refused without an entry, or one entry with all of them."""
    edits, code = BULK[name]
    solo = Solo("abc", "d")
    solo.lead()
    solo.ack("b", 1)
    before, last = solo.core.active_config, solo.log.last
    assert refused(lambda: solo.core.propose_config(edits, None)) is code
    if code is Code.OK:
        assert solo.log.last == OpId(last.term, last.index + 1) == solo.core.active_config.opid
        assert len(set(solo.core.active_config.voters) ^ set(before.voters)) <= 1
        changed = set(solo.core.active_config.members) ^ set(before.members)
        assert {m.uuid for m in changed} == {edit.member.uuid for edit in edits}
    else:
        assert (solo.core.active_config, solo.core.pending_config, solo.log.last) == (before, None, last)


def random_member(rng: random.Random) -> Member:
    host = rng.choice(["h", "h" * limits.HOST_CHARS_MAX, "h" * (limits.HOST_CHARS_MAX + 1)])
    places = (Address(host, rng.choice([1, 65535, 65536])),) if rng.random() < 0.1 else ()
    return Member(f"{rng.getrandbits(64):016x}", places, votes=False, promote=rng.random() < 0.5)


def test_whatever_a_leader_appends_its_followers_take() -> None:
    """Goal: IN-50: no config that a leader puts into its log is one that followers refuse, which would end the group.
    Method: 300 random lists of edits, of up to 80 members, some at addresses that are none; after each that is
    accepted, a follower is given the entry; after each that is refused, the log is as before."""
    rng = random.Random(6)
    sizes = []
    for _ in range(300):
        solo, follower = Solo("abc", "d"), Solo("abc", "d")
        solo.lead()
        solo.ack("b", 1)
        last = solo.log.last
        edits = [ConfigEdit(EditKind.ADD, random_member(rng)) for _ in range(rng.choice([1, 8, 12, 13, 60, 61, 80]))]
        code = refused(partial(solo.core.propose_config, edits, None))
        if code is not Code.OK:
            assert code is Code.INVALID_ARGUMENT and solo.log.last == last and solo.core.pending_config is None
            continue
        sizes.append(len(solo.core.active_config.members))
        [appended] = solo.log.entries(last.index + 1, last.index + 2, 1 << 30)
        assert follower.core.refusal(follower.append(last.term, last, appended)) == ""
        assert invalid_config_reason(solo.core.active_config) == ""
    assert max(sizes) == limits.CONFIG_MEMBERS_PROPOSED_MAX <= limits.CONFIG_MEMBERS_MAX and len(sizes) > 50


def test_config_that_is_too_large_may_become_smaller() -> None:
    """IN-50. Goal: a group with more members than may be proposed can still remove and mark members. Method: one of 20
    members: one goes, one is marked, and none may come."""
    config = config_of("abc", [f"x{n:02d}" for n in range(17)])
    marked = change("x03", votes=False, promote=True)
    for edit, code in ((remove("x03"), Code.OK), (marked, Code.OK), (add("y", votes=False), Code.INVALID_ARGUMENT)):
        solo = Solo(config=config)
        solo.lead()
        solo.ack("b", 1)
        assert refused(partial(solo.core.propose_config, [edit], None)) is code


def test_removed_leader_does_not_count_itself_and_steps_down_at_commit() -> None:
    """Goal: [thesis §4.2.2], scenario 26. Method: the config that removes the leader is in its log, and one entry more
    behind it; both need the majority of the new config without it. It steps down when the config is committed, takes
    nothing from then on and never campaigns; of the entry behind it hears from whoever leads next."""
    gone = config_of("bcd")
    solo = Solo("abcd", term=1, entries=[entry(1, 1)])
    solo.lead()
    solo.core._s.append_own(EntryKind.CONFIG, 9, 0, encode_config(gone), b"", 0)
    adopt_config(solo.core._s, gone.with_opid(solo.log.last))
    solo.core._s.append_own(EntryKind.WRITE, 10, 1, b"", b"v", 0)
    solo.persist()
    solo.ack("b", 4)
    assert solo.core.commit_index == 0, "b and the leader are two of four, and one of the three that count"
    solo.ack("c", 3)
    assert solo.core.commit_index == 3, "c has the config, and not what is behind it"
    assert solo.core.role is Role.NON_PARTICIPANT
    solo.ack("c", 4)
    assert solo.core.commit_index == 3, "it counts nothing any more"
    with pytest.raises(Refused):
        solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    assert refused(lambda: solo.core.propose_config([add("e")], None)) is Code.NOT_LEADER
    for _ in range(40):
        solo.core.tick()
    solo.core.campaign()
    assert solo.core.role is Role.NON_PARTICIPANT
    solo.step(solo.append(3, OpId(2, 4), commit=4))
    assert solo.core.commit_index == 4


def test_several_configs_of_one_message_are_stacked_and_rolled_back_one_by_one() -> None:
    """Goal: CC-23 when a follower learns of two configs before it learns of their commits. Method: cut one."""
    first, second = config_of("abcd"), config_of("abcde")
    entries = [
        entry(1, 1),
        entry(1, 2, b"", EntryKind.CONFIG)._replace(meta=encode_config(first)),
        entry(1, 3, b"", EntryKind.CONFIG)._replace(meta=encode_config(second)),
    ]
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0), *entries))
    assert solo.core.active_config.voters == tuple("abcde")
    solo.step(solo.append(2, OpId(1, 2), entry(2, 3), leader="c"))
    assert solo.core.active_config.voters == tuple("abcd")
    assert solo.core.committed_config.voters == tuple("abc")
    solo.step(solo.append(2, OpId(2, 3), commit=3, leader="c"))
    assert (solo.core.committed_config.opid, solo.core.pending_config) == (OpId(1, 2), None)
    assert [b.config_committed.opid for b in solo.readies if b.config_committed] == [OpId(1, 2)]


def test_config_that_was_rolled_back_counts_for_nobody() -> None:
    """CC-23. Goal: after a rollback, a follower asks the voters of the older config. Method: a config with one voter
    more is cut from its log; then it loses its leader."""
    more = entry(1, 1, b"", EntryKind.CONFIG)._replace(meta=encode_config(config_of("abcd")))
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0), more))
    solo.step(solo.append(2, OpId(0, 0), entry(2, 1), leader="c"))
    sent = []
    while solo.core.role is Role.FOLLOWER:
        solo.core.tick()
        sent += solo.persist()
    assert [m.to_uuid for m in sent] == ["b", "c"]


def test_committed_config_is_not_rolled_back_with_an_entry_at_its_place() -> None:
    """CC-20. Goal: the committed config stays even if the entry at its index is replaced. Method: a copied replica,
    whose metadata name a config behind its log's end, gets another entry there, and loses it to a later leader."""
    config = config_of("abcd").with_opid(OpId(1, 3))
    solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2)], config=config)
    solo.step(solo.append(1, OpId(1, 2), entry(1, 3)))
    solo.step(solo.append(2, OpId(1, 2), entry(2, 3), leader="c"))
    assert solo.log.last == OpId(2, 3) and solo.core.active_config == config


def test_uncommitted_config_of_the_log_is_pending_again_after_restart() -> None:
    """Goal: CC-24. Method: start a core over a log with a CONFIG entry above the committed one."""
    config = config_of("ab")
    log = [entry(1, 1), entry(1, 2, b"", EntryKind.CONFIG)._replace(meta=encode_config(config))]
    solo = Solo(term=1, entries=log)
    assert solo.core.pending_config == config.with_opid(OpId(1, 2))
    assert solo.core.active_config.voters == ("a", "b")


def test_committed_config_is_handed_out_once_durable() -> None:
    """Goal: CC-20, CC-21: nothing to save before the commit, then once. Method: one change on a group of one."""
    solo = Solo("a")
    solo.lead()
    solo.core.propose_config([add("b", votes=False)], None)
    solo.take()
    assert not any(b.config_committed for b in solo.readies)
    solo.persist()
    assert [b.config_committed.opid for b in solo.readies if b.config_committed] == [OpId(1, 2)]


def test_promotion_waits_for_a_short_round_and_goes_one_by_one() -> None:
    """Goal: CC-13, CC-14, TC-19. Method: two `promote` non-voters; slow rounds, then quick ones."""
    solo = Solo("a")
    solo.lead()
    solo.core.propose_config([add("b", votes=False, promote=True), add("c", votes=False, promote=True)], None)
    solo.persist()
    for round_pos in range(3):
        solo.core.propose(EntryKind.WRITE, 5, 1, b"", b"v", 0)
        for _ in range(12):
            solo.core.tick()
        solo.persist()
        solo.ack("b", solo.log.last.index - 1)
        assert solo.core.active_config.voters == ("a",), f"round {round_pos} was slow"
    solo.ack("b", solo.log.last.index)
    assert solo.core.active_config.voters == ("a", "b")
    solo.ack("c", solo.log.last.index)
    solo.ack("c", solo.log.last.index)
    assert solo.core.active_config.voters == ("a", "b"), "one change at a time"
    solo.ack("b", solo.log.last.index)
    solo.ack("c", solo.log.last.index)
    assert solo.core.active_config.voters == ("a", "b", "c")


def caught_up_learner() -> Solo:
    """A leader of `a` and `b`, its term not open; the learner `c` waits for promotion and holds the whole log."""
    solo = Solo(config=RaftConfig(OpId(0, 0), (Member("a"), Member("b"), Member("c", votes=False, promote=True))))
    solo.lead()
    for _ in range(2):
        solo.ack("c", 1)
    return solo


def test_promotion_waits_until_the_term_is_open_and_no_transfer_is_under_way() -> None:
    """CC-13. Goal: a promotion waits for the first commit of the term and for the end of a transfer, like any config
    change. Method: a caught-up learner, before the term's first commit, during a transfer, and after it was given
    up."""
    solo = caught_up_learner()
    assert solo.core.active_config.voters == ("a", "b"), "no entry of the term is committed"
    solo.core.transfer_leadership("b")
    solo.ack("b", 0)
    solo.core._s.lead.transfer_sent = True
    solo.ack("b", 1)
    assert solo.core.term_committed and solo.core.active_config.voters == ("a", "b"), "leadership is handed over"
    while solo.core.transfer_target is not None:
        solo.core.tick()
    solo.ack("c", 1)
    assert solo.core.active_config.voters == ("a", "b", "c")


def test_promotion_follows_at_once_when_the_term_is_opened() -> None:
    """CC-13. Goal: a caught-up learner is promoted right after the first commit of the term. Method: it comes with the
    learner caught up."""
    solo = caught_up_learner()
    solo.ack("b", 1)
    assert solo.core.active_config.voters == ("a", "b", "c")


@pytest.mark.parametrize(("over", "promoted"), [(0, True), (1, False)])
def test_learner_whose_present_round_lasts_too_long_is_not_promoted(over: int, promoted: bool) -> None:
    """Goal: [thesis §4.2.1]: a learner is not promoted while its present round of catching up takes too long. Method: a
    learner that was caught up lacks an entry for that long, or one tick more, when its promotion is looked at."""
    solo = Solo("a", "b")
    solo.lead()
    for _ in range(2):
        solo.ack("b", 1)
    solo.core.propose(EntryKind.WRITE, 5, 1, b"", b"v", 0)
    solo.persist()
    for _ in range(OPTIONS.promote_round_ticks_max - 1 + over):
        solo.core.tick()
    solo.core.propose_config([change("b", votes=False, promote=True)], None)
    solo.persist()
    solo.core.tick()
    solo.persist()
    assert (solo.core.active_config.voters == ("a", "b")) is promoted


def test_learner_that_lost_the_end_of_its_log_is_not_promoted_before_it_has_it_again() -> None:
    """CC-13. Goal: a learner that lost entries that it had acknowledged is not promoted before it has them again.
    Method: a caught-up learner answers that its log ends earlier, and is then to be promoted; later it holds the log
    again."""
    solo = Solo("a", "b")
    solo.lead()
    for _ in range(2):
        solo.ack("b", 1)
    lost = AppendReply(to_uuid="a", from_uuid="b", term=1, mismatch=True, last=OpId(0, 0), conflict_index=1)
    solo.step(lost)
    solo.core.propose_config([change("b", votes=False, promote=True)], None)
    solo.persist()
    solo.core.tick()
    assert solo.core.active_config.voters == ("a",)
    for _ in range(2):
        solo.ack("b", solo.log.last.index)
    assert solo.core.active_config.voters == ("a", "b")


def test_first_round_of_catching_up_ends_with_what_the_log_held_at_its_start() -> None:
    """Goal: [thesis §4.2.1]. Method: a learner is added to a leader with five entries, and acknowledges them one by
    one; meanwhile the log grows."""
    solo = Solo("a")
    solo.lead()
    for _ in range(3):
        solo.core.propose(EntryKind.WRITE, 5, 1, b"", b"v", 0)
    solo.core.propose_config([add("b", votes=False)], None)
    solo.persist()
    solo.core.propose(EntryKind.WRITE, 5, 1, b"", b"v", 0)
    solo.persist()
    caught_up = []
    for index in range(1, 6):
        solo.ack("b", index)
        caught_up.append(solo.core.peer_status()[0].caught_up)
    assert caught_up == [False] * 4 + [True]


@pytest.mark.parametrize(("over", "caught_up"), [(0, True), (1, False)])
def test_round_that_takes_as_long_as_it_may_counts_and_a_longer_one_does_not(over: int, caught_up: bool) -> None:
    """Goal: [thesis §4.2.1], the option says how long. Method: a learner acknowledges what the log held at the start
    after so many ticks, or one more; then its replica is gone, and what it was does not count any more."""
    solo = Solo("a", "b")
    solo.lead()
    for _ in range(OPTIONS.promote_round_ticks_max + over):
        solo.core.tick()
    solo.ack("b", 1)
    assert solo.core.peer_status()[0].caught_up is caught_up
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=1, code=Code.TABLET_NOT_FOUND))
    assert not solo.core.peer_status()[0].caught_up


def test_silent_learner_is_not_promoted() -> None:
    """Goal: a caught-up learner that then falls silent is not promoted. Method: mark it after silence."""
    solo = Solo("a", learners="b")
    solo.lead()
    solo.ack("b", 1)
    solo.ack("b", 1)
    for _ in range(30):
        solo.core.tick()
    solo.core.propose_config([change("b", votes=False, promote=True)], None)
    for _ in range(10):
        solo.core.tick()
        solo.persist()
    assert solo.core.active_config.voters == ("a",)


def test_removing_the_only_reachable_leader_is_refused_without_effect() -> None:
    """Goal: CC-27's refusal leaves everything as it was. Method: the other voter was never heard for long."""
    net = Net(config_of("ab"))
    net.elect("a")
    net.tick(1)
    core = net.nodes["a"].core
    net.cut("a", "b")
    for _ in range(net.options.election_ticks_max + 1):
        core.tick()
        if core.role is not Role.LEADER:
            break
    assert refused(lambda: core.propose_config([remove("a")], None)) in (Code.NOT_READY, Code.NOT_LEADER)
    assert (core.transfer_target, core.pending_config) == (None, None)


def test_transfer_ends_when_the_target_is_removed_by_a_later_config() -> None:
    """Goal: a transfer whose target is removed ends, and does not block writes (scenario 100). Method: adopt a config
    without the target."""
    solo = Solo()
    solo.lead()
    solo.ack("b", 1)
    solo.core.transfer_leadership("c")
    assert solo.core.transfer_target == "c"
    solo.core._s.append_own(EntryKind.CONFIG, 9, 0, encode_config(config_of("ab")), b"", 0)
    adopt_config(solo.core._s, config_of("ab").with_opid(solo.log.last))
    assert solo.core.transfer_target is None


def test_new_member_is_first_contacted_by_a_heartbeat_and_copied_only_after_its_reply() -> None:
    """Goal: TC-20: the leader first sends a heartbeat to a new member, and copies only after its reply. Method: look at
    what a new member is sent before and after it answered."""
    solo = Solo("a")
    solo.lead()
    solo.core.propose_config([add("b", votes=False, promote=True)], None)
    sent = solo.persist()
    assert all(isinstance(m, AppendEntries) for m in sent)
    assert not any(b.copies_needed for b in solo.readies)
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=1, code=Code.TABLET_NOT_FOUND))
    assert [c.peer_uuid for b in solo.readies for c in b.copies_needed] == ["b"]
