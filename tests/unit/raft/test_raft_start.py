"""The start of a core: from the log, the hard state and the configs that were found on disk, together."""

from __future__ import annotations

import pytest

from nyala.replica.raft import VoteReply, VoteRequest
from nyala.replica.types import EntryKind, OpId
from tests.harness.raft_net import config_of, encode_config
from tests.harness.raft_solo import Solo, entry


def test_restarted_voter_keeps_the_vote_of_its_term() -> None:
    """Goal: one vote a term, over a restart too [raft fig. 2]. Method: the log ends in the term of the vote; the other
    candidate is denied, the one that has the vote is granted it again, and nothing is to be saved."""
    solo = Solo(term=3, voted_for="b", entries=[entry(3, 1)])
    assert (solo.core.uuid, solo.core.term, solo.core.voted_for) == ("a", 3, "b")
    for candidate, granted in (("c", False), ("b", True)):
        sent = solo.step(VoteRequest(to_uuid="a", from_uuid=candidate, term=3, last=OpId(3, 1)))
        assert [m.granted for m in sent if isinstance(m, VoteReply)] == [granted]
    assert all(ready.hard_state is None for ready in solo.readies)


def test_config_of_the_log_that_is_known_committed_is_handed_out_to_be_saved() -> None:
    """Goal: CC-21: a config whose entry was applied before the stop, and that was not saved, is saved now. Method: the
    log has two configs, and the commit index covers the first."""
    first, second = (
        entry(1, index, b"", EntryKind.CONFIG)._replace(meta=encode_config(config_of(voters)))
        for index, voters in ((2, "abcd"), (3, "abcde"))
    )
    solo = Solo(term=1, entries=[entry(1, 1), first, second], commit_index=2)
    assert solo.core.committed_config.opid == OpId(1, 2)
    assert solo.core.pending_config is not None and solo.core.pending_config.opid == OpId(1, 3)
    solo.persist()
    assert [b.config_committed.opid for b in solo.readies if b.config_committed] == [OpId(1, 2)]


def test_config_of_the_log_that_was_saved_already_is_not_handed_out_again() -> None:
    """Goal: a saved config is not saved at each start. Method: the log holds the entry of the config that is found in
    the metadata, and an older one."""
    metas = [encode_config(config_of(voters)) for voters in ("ab", "abc")]
    log = [entry(1, pos, b"", EntryKind.CONFIG)._replace(meta=meta) for pos, meta in enumerate(metas, 1)]
    solo = Solo(term=1, entries=log, config=config_of("abc").with_opid(OpId(1, 2)))
    assert (solo.core.committed_config.opid, solo.core.pending_config) == (OpId(1, 2), None)
    solo.persist()
    assert not any(ready.config_committed for ready in solo.readies)


def test_config_of_the_log_is_found_behind_entries_that_are_on_disk_only() -> None:
    """Goal: CC-24, as far as the bytes are in memory. Method: three entries without their bytes, then a config, then
    entries of a megabyte, then another config."""
    configs = {4: config_of("abcd"), 7: config_of("abcde")}
    solo = Solo(term=1)
    for index in range(1, 8):
        meta = encode_config(configs[index]) if index in configs else b""
        kind = EntryKind.CONFIG if index in configs else EntryKind.WRITE
        solo.log.append([entry(1, index, b"x" * (1 << 20) if index in (5, 6) else b"", kind)._replace(meta=meta)])
    solo.log.evict_below(4)
    again = Solo(term=1, log=solo.log)
    assert again.core.active_config.voters == tuple("abcde")
    assert again.core.pending_config is not None and again.core.pending_config.opid == OpId(1, 7)
    again.step(again.append(2, OpId(1, 6), entry(2, 7)))
    assert again.core.active_config.voters == tuple("abcd"), "the first one is in force without the second"


@pytest.mark.parametrize(("index", "in_force"), [(1, False), (2, False), (3, True)])
def test_pending_config_of_the_metadata_is_in_force_if_it_is_later_than_the_committed_one(
    index: int, in_force: bool
) -> None:
    """Goal: CC-24, where the bytes of its entry are on disk only. Method: the committed config is 1.2's, the one that
    the driver found pending an earlier, the same or a later one."""
    solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2), entry(1, 3)])
    pending = config_of("abcd").with_opid(OpId(1, index))
    committed = config_of("abc").with_opid(OpId(1, 2))
    again = Solo(term=1, log=solo.log, config=committed, pending_config=pending)
    assert (again.core.committed_config, again.core.pending_config) == (committed, pending if in_force else None)


def test_damaged_tail_that_the_log_has_again_is_healed_at_the_start() -> None:
    """Goal: the mark of a lost tail ends once the entries are durable again, also if the process stopped between the
    two. Method: a log that ends at the mark, one that ends before it, and one without a mark."""
    for last, mark, left in ((2, OpId(1, 2), None), (1, OpId(1, 2), OpId(1, 2)), (1, None, None)):
        solo = Solo(term=1, entries=[entry(1, index) for index in range(1, last + 1)], withheld=mark)
        assert solo.core.withheld == left
