"""The outputs of a core, their order, and what it assumes the disk to hold then."""

from __future__ import annotations

from itertools import count

import pytest

from nyala.replica.raft import AppendReply, Role
from nyala.replica.types import ConfigEdit, EditKind, EntryKind, Member, OpId
from tests.harness.raft_net import OPTIONS, config_of, encode_config
from tests.harness.raft_solo import Solo, entry


@pytest.mark.parametrize(
    ("handed_out", "received", "cut_after", "void_from"),
    [(0, 3, 1, None), (3, 5, 4, None), (3, 5, 3, None), (3, 5, 2, 3), (3, 3, 1, 2)],
)
def test_truncation_voids_on_disk_what_was_handed_out_and_nothing_else(
    handed_out: int, received: int, cut_after: int, void_from: int | None
) -> None:
    """Goal: a truncation removes from the WAL exactly the entries that were handed out to it. Method: so many entries
    of term 1 are handed out, so many received; a leader of term 2 replaces those behind `cut_after`."""
    solo = Solo()
    solo.core.step(solo.append(1, OpId(0, 0), *(entry(1, index) for index in range(1, handed_out + 1))))
    solo.take()
    more = [entry(1, index) for index in range(handed_out + 1, received + 1)]
    solo.core.step(solo.append(1, OpId(min(1, handed_out), handed_out), *more))
    solo.core.step(solo.append(2, OpId(1, cut_after), entry(2, cut_after + 1), leader="c"))
    solo.take()
    ready = solo.outstanding[-1]
    first = min(handed_out, cut_after) + 1
    kept = [OpId(1, index) for index in range(first, cut_after + 1)]
    assert (ready.truncate_from, [e.opid for e in ready.entries]) == (void_from, [*kept, OpId(2, cut_after + 1)])


def test_second_truncation_before_the_first_is_handed_out_voids_from_the_lower_one() -> None:
    """Goal: two truncations before the next `Ready` become one, from the lower index. Method: two leaders in a row
    replace more and more of what was handed out."""
    solo = Solo()
    solo.core.step(solo.append(1, OpId(0, 0), *(entry(1, index) for index in range(1, 5))))
    solo.take()
    solo.core.step(solo.append(2, OpId(1, 3), entry(2, 4), leader="c"))
    solo.core.step(solo.append(3, OpId(1, 1), entry(3, 2), leader="b"))
    solo.take()
    ready = solo.outstanding[-1]
    assert (ready.truncate_from, [e.opid for e in ready.entries]) == (2, [OpId(3, 2)])


def test_entry_that_came_back_before_it_was_handed_out_again_is_not_durable() -> None:
    """CN-26. Goal: if an entry was truncated and received again, the sync of its first copy does not make the second
    one durable. Method: 1.2 is cut by a leader of term 2 and comes back by one of term 3; nothing of that is handed out
    when the sync of the first 1.2 is reported."""
    solo = Solo()
    solo.core.step(solo.append(1, OpId(0, 0), entry(1, 1), entry(1, 2)))
    solo.take()
    solo.core.step(solo.append(2, OpId(1, 1), entry(2, 2), leader="c"))
    solo.core.step(solo.append(3, OpId(1, 1), entry(1, 2), entry(3, 3), leader="b"))
    solo.core.persisted(OpId(1, 2))
    assert solo.core.persisted_index == 1
    solo.persist()
    assert solo.core.persisted_index == 3


def test_entries_that_come_twice_are_acknowledged_when_they_are_durable() -> None:
    """Goal: an acknowledgement that waits for the disk is sent when the entries are durable, also if the append was
    received twice. Method: the same append again while its first copy is on its way to the disk."""
    solo = Solo()
    append = solo.append(1, OpId(0, 0), entry(1, 1))
    solo.core.step(append)
    solo.take()
    taken = len(solo.readies)
    solo.core.step(append)
    assert solo.take() == [] and len(solo.readies) == taken + 1
    assert [m.last for m in solo.persist() if isinstance(m, AppendReply)] == [OpId(1, 1)] * 2


def test_config_that_is_committed_before_it_is_durable_here_is_handed_out_later() -> None:
    """Goal: CC-20: the metadata never name a config that the log could lose. Method: a follower learns in one message
    of a config and of its commit; then its disk is done, and an entry follows."""
    solo = Solo()
    change = entry(1, 1, b"", EntryKind.CONFIG)._replace(meta=encode_config(config_of("abcd")))
    solo.core.step(solo.append(1, OpId(0, 0), change, commit=1))
    solo.take()
    assert solo.core.committed_config.opid == OpId(1, 1)
    assert not any(ready.config_committed for ready in solo.readies)
    solo.persist()
    solo.step(solo.append(1, OpId(1, 1), entry(1, 2), commit=2))
    assert [b.config_committed.opid for b in solo.readies if b.config_committed] == [OpId(1, 1)]


@pytest.mark.parametrize("with_clock", [True, False])
def test_entry_that_the_core_makes_itself_is_stamped_later_than_the_one_before_it(with_clock: bool) -> None:
    """Goal: entries' times ascend with their indexes. Method: the entry that opens a term, a write, a config; by the
    driver's clock, or just above the last entry's time where there is none."""
    clock = count(100)
    solo = Solo("a", hybrid_now=lambda: next(clock)) if with_clock else Solo("a")
    solo.lead()
    solo.core.propose(EntryKind.WRITE, next(clock) if with_clock else 40, 1, b"", b"v", 0)
    solo.core.propose_config([ConfigEdit(EditKind.ADD, Member("b", votes=False))], None)
    times = [each.hybrid_time for each in solo.log.entries(1, 4, 1 << 20)]
    assert times == sorted(set(times)) and ((times[0] >= 100) if with_clock else (times == [1, 40, 41]))


def test_new_leader_without_a_clock_goes_on_above_the_last_time_that_it_received() -> None:
    """Goal: entries' times ascend over a change of leaders too. Method: a follower is sent two entries, and leads."""
    solo = Solo()
    solo.step(solo.append(1, OpId(0, 0), *(entry(1, index)._replace(hybrid_time=10 * index) for index in (1, 2))))
    for _ in range(OPTIONS.election_ticks_min):
        solo.core.tick()
    solo.lead()
    [opened] = solo.log.entries(3, 4, 1)
    assert (opened.kind, opened.hybrid_time) == (EntryKind.NOOP, 21)


def test_role_changes_are_handed_out_once_each_from_the_first_role_of_a_ready_to_the_last() -> None:
    """Goal: each `Ready` reports the change of role from its first to its last, so a server that shows roles misses
    none. Method: an election of three; and of one voter, which passes the pre-vote within one ready."""
    solo = Solo()
    solo.lead()
    assert [ready.role_change for ready in solo.readies if ready.role_change] == [
        (Role.FOLLOWER, Role.PRE_CANDIDATE),
        (Role.PRE_CANDIDATE, Role.CANDIDATE),
        (Role.CANDIDATE, Role.LEADER),
    ]
    alone = Solo("a")
    alone.lead()
    assert [ready.role_change for ready in alone.readies if ready.role_change] == [
        (Role.FOLLOWER, Role.CANDIDATE),
        (Role.CANDIDATE, Role.LEADER),
    ]
