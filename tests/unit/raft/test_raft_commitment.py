"""Which entries are committed, by which votes, and what follows at once."""

from __future__ import annotations

from nyala.replica.raft import AppendEntries, AppendReply, Role
from nyala.replica.types import ConfigEdit, EditKind, Member, OpId
from tests.harness.raft_solo import Solo, entry


def beats(sent: list) -> list[AppendEntries]:  # type: ignore[type-arg]
    return [m for m in sent if isinstance(m, AppendEntries) and not m.entries]


def test_who_does_not_lead_commits_nothing_by_counting() -> None:
    """Goal: only a leader counts acknowledgements to commit [raft §5.3]. Method: the only voter of a group starts with
    an entry of its own term, which is durable on a majority already; it is committed only after the election."""
    solo = Solo("a", term=1, entries=[entry(1, 1)])
    solo.core.persisted(OpId(1, 1))
    assert solo.core.commit_index == 0
    solo.lead()
    assert solo.core.commit_index == 2


def test_learner_that_hears_of_a_commit_keeps_its_leader() -> None:
    """Goal: a config in which a replica has no vote ends only a leadership, not the replica's knowledge of its leader.
    Method: a learner is sent an entry with its commit."""
    solo = Solo("bc", "a")
    solo.step(solo.append(1, OpId(0, 0), entry(1, 1), commit=1))
    assert (solo.core.commit_index, solo.core.leader_uuid, solo.core.role) == (1, "b", Role.LEARNER)


def test_committed_config_is_told_at_once_and_only_once() -> None:
    """Goal: the leader sends a config's commit at once and only once. Method: three of four peers acknowledge a config
    whose entry is not durable here; then the fourth does."""
    solo = Solo("abcde")
    solo.lead()
    for uuid in "bcde":
        solo.ack(uuid, 1)
    solo.core.propose_config([ConfigEdit(EditKind.ADD, Member("f", votes=False))], None)
    solo.take()

    def ack(uuid: str) -> list[AppendEntries]:
        solo.core.step(AppendReply(to_uuid="a", from_uuid=uuid, term=1, last=OpId(1, 2)))
        return beats(solo.take())

    assert [ack("b"), ack("c")] == [[], []]
    assert {m.to_uuid for m in ack("d")} == set("bcdef") and solo.core.commit_index == 2
    assert ack("e") == []
