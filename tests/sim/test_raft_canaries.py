"""One planted bug for each verifier: a verifier that stops comparing turns these red."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nyala.replica.raft import HardState, commitment, election, lease, reads, replication
from nyala.replica.raft.quorum import VoteResult
from nyala.replica.raft.state import State
from nyala.replica.types import ZERO_OPID, Entry, EntryKind, Member, OpId, RaftConfig, ReplicaError
from tests.harness.raft_net import Net, Node
from tests.harness.raft_sim import SimNet, run_seed
from tests.harness.raft_verify import Verifiers, Violation


def raises_alarm(wanted: str, seeds: int, found_at: int = 0) -> bool:
    """Return whether this verifier complains on one of the first seeds. The core's own checks, or another verifier, may
    be faster on some; on one of them it has to be this one. `found_at`: a seed where it complained once, which is tried
    first."""
    for seed in (*range(found_at, seeds), *range(found_at)):
        try:
            run_seed(seed)
        except Violation as e:
            if e.verifier == wanted:
                return True
        except (ReplicaError, AssertionError):
            continue
    return False


def test_v1_sees_a_leader_that_commits_without_a_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: V1 compares. Method: the leader's commit rule uses the highest mark instead of the majority's."""

    def highest(voters: Sequence[str], marks: Mapping[str, int]) -> int:
        return max(marks.values())

    monkeypatch.setattr(commitment, "reached", highest)
    assert raises_alarm("V1", seeds=200)


def test_v2_sees_two_leaders_of_one_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: V2 compares. Method: one vote wins an election."""

    def any_vote(voters: Sequence[str], votes: Mapping[str, bool]) -> VoteResult:
        return VoteResult.WON if any(votes.values()) else VoteResult.PENDING

    monkeypatch.setattr(election, "tally", any_vote)
    assert raises_alarm("V2", seeds=200)


def test_v3_sees_a_skipped_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: V3 compares. Method: the range passed to apply lacks its first index now and then."""
    whole = State.committed_range

    def shortened(s: State) -> tuple[int, int] | None:
        span = whole(s)
        return (span[0] + 1, span[1]) if span and span[1] - span[0] > 2 else span

    monkeypatch.setattr(State, "committed_range", shortened)
    assert raises_alarm("V3", seeds=50)


def test_v4_sees_an_acknowledgement_that_came_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: V4 compares. Method: the driver acknowledges a write when it is proposed."""
    propose = Net.write

    def too_early(net: Net, uuid: str, payload: bytes) -> OpId:
        opid = propose(net, uuid, payload)
        net.verify.acked[payload] = opid
        return opid

    monkeypatch.setattr(Net, "write", too_early)
    assert raises_alarm("V4", seeds=200)


def test_i1_sees_a_forgotten_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: I1 compares. Method: a restart forgets term and vote."""
    restart = Net.restart

    def amnesia(net: Net, uuid: str) -> Node:
        net.crashed[uuid].hard = HardState(0, None)
        net.crashed[uuid].entries.clear()
        net.crashed[uuid].boundary, net.crashed[uuid].flushed = ZERO_OPID, 0
        return restart(net, uuid)

    monkeypatch.setattr(Net, "restart", amnesia)
    assert raises_alarm("I1", seeds=200)


def test_i4_sees_two_voters_moved_at_once() -> None:
    """Goal: I4 compares. Method: the verifier receives two such configs."""
    verify = Verifiers()
    verify.on_config(RaftConfig(OpId(1, 1), (Member("a"),)))
    with pytest.raises(Violation, match="I4"):
        verify.on_config(RaftConfig(OpId(1, 2), (Member("a"), Member("b"), Member("c"))))


def test_i4_sees_a_config_that_counts_as_committed_and_is_no_entry() -> None:
    """Goal: I4 compares configs with what was committed. Method: a config of an older term than the entry there,
    reported before and after that entry; a config where a write is; two at one index; and a sound one."""
    write = Entry(OpId(2, 3), EntryKind.WRITE, 1, 1, b"", b"x", 0)
    change = Entry(OpId(2, 3), EntryKind.CONFIG, 1, 0, b"", b"", 0)
    for term, entry in ((1, change), (2, write)):
        early, late = Verifiers(), Verifiers()
        early.on_config(RaftConfig(OpId(term, 3), (Member("a"),)))
        for verify in (early, late):
            verify.applied["a"] = 2
        with pytest.raises(Violation, match="counts as committed"):
            early.on_apply("a", entry)
        late.on_apply("a", entry)
        with pytest.raises(Violation, match="counts as committed"):
            late.on_config(RaftConfig(OpId(term, 3), (Member("a"),)))
    verify = Verifiers()
    verify.applied["a"] = 2
    verify.on_apply("a", change)
    verify.on_config(RaftConfig(OpId(2, 3), (Member("a"),)))
    with pytest.raises(Violation, match=r"configs 2\.3 and 1\.3 are committed"):
        verify.on_config(RaftConfig(OpId(1, 3), (Member("a"),)))


def test_rows_sees_a_witness_that_leads() -> None:
    """Goal: ROWS compares, and the runs have witnesses. Method: while a seed runs, the disk of a leader is declared a
    witness's disk."""
    net = SimNet(3)
    while net.leader() is None:
        net.run_tick()
    for node in net.nodes.values():
        node.durable.no_data = True
    with pytest.raises(Violation, match="ROWS"):
        net.run_tick()


def test_read_sees_a_read_without_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: READ compares. Method: a leader answers from its commit index without a round to its followers."""

    def at_once(s: State, token: int, *, judged: bool) -> None:
        s.out.read_states.append((token, s.commit_index))

    monkeypatch.setattr(reads, "read_index", at_once)
    assert raises_alarm("READ", seeds=300)


@pytest.mark.deep
def test_read_sees_a_lease_that_counts_ticks_instead_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: READ compares reads by lease too. Method: a core counts its own ticks as the time, so a process that was
    stopped wakes with its lease; plain search finds it."""

    def ticks(s: State, now: int | None) -> None:
        s.clock = s.ticks if now is not None else None

    monkeypatch.setattr(lease, "observe_clock", ticks)
    assert raises_alarm("READ", seeds=300, found_at=138)


def test_liveness_sees_a_leader_without_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the liveness phase demands progress. Method: a leader sends no heartbeats, so no lost append is found."""

    def silent(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(replication, "send_heartbeat", silent)
    with pytest.raises(AssertionError, match="does not converge"):
        for seed in range(40):
            run_seed(seed)
