"""How a leader sends to one peer: each state of its progress under each kind of answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nyala.replica.raft import AppendReply
from nyala.replica.raft.progress import ProgressState
from nyala.replica.types import Code, OpId
from tests.harness.raft_solo import Solo, entry

PROBE, REPLICATE, COPY = ProgressState.PROBE, ProgressState.REPLICATE, ProgressState.COPY
BOUNDARY, LAST = 4, 8
"""The leader's log holds the entries above BOUNDARY; LAST is the first of its own term."""


def leading() -> Solo:
    """A leader of the peers `b` and `c`, of which `b` was not heard yet: it is probed."""
    boundary = OpId(1, BOUNDARY)
    entries = [entry(1, index) for index in range(BOUNDARY + 1, LAST)]
    solo = Solo(term=1, entries=entries, commit_index=BOUNDARY, boundary=boundary)
    solo.lead()
    assert solo.log.last.index == LAST and state(solo) is PROBE
    return solo


def state(solo: Solo) -> ProgressState:
    """How `b` is sent to."""
    [peer] = [peer for peer in solo.core.peer_status() if peer.uuid == "b"]
    return ProgressState(peer.state)


def answer(solo: Solo, index: int = LAST, **fields: object) -> None:
    """`b` answers that its log ends at `index`, and is ours there unless `fields` say otherwise."""
    last = OpId(solo.log.term_at(index) or 1, index)
    solo.step(AppendReply(to_uuid="a", from_uuid="b", term=solo.core.term, last=last, **fields))  # type: ignore[arg-type]


def into(solo: Solo, wanted: ProgressState) -> None:
    """Bring `b` there."""
    if wanted is REPLICATE:
        answer(solo, BOUNDARY + 1)
    elif wanted is COPY:
        answer(solo, 0, code=Code.TABLET_NOT_FOUND)
    assert state(solo) is wanted


ANSWERS: dict[str, tuple[Callable[[Solo], None], dict[ProgressState, ProgressState]]] = {
    # What is answered, and the state after it, from each state.
    "all of it": (lambda s: answer(s), {PROBE: REPLICATE, REPLICATE: REPLICATE, COPY: PROBE}),
    "some of it": (lambda s: answer(s, LAST - 1), {PROBE: REPLICATE, REPLICATE: REPLICATE, COPY: PROBE}),
    "nothing new": (lambda s: answer(s, BOUNDARY), {PROBE: REPLICATE, REPLICATE: REPLICATE, COPY: PROBE}),
    "another entry, ours goes back so far": (
        lambda s: answer(s, LAST - 1, mismatch=True, conflict_index=LAST - 2),
        {PROBE: PROBE, REPLICATE: PROBE, COPY: PROBE},
    ),
    "another entry, ours begins later": (
        lambda s: answer(s, 2, mismatch=True, conflict_index=2),
        {PROBE: COPY, REPLICATE: COPY, COPY: COPY},
    ),
    "a conflict that was stepped over before": (
        lambda s: answer(s, LAST - 1, mismatch=True, conflict_index=LAST + 2),
        {PROBE: PROBE, REPLICATE: REPLICATE, COPY: PROBE},
    ),
    "no such tablet": (
        lambda s: answer(s, 0, code=Code.TABLET_NOT_FOUND),
        {PROBE: COPY, REPLICATE: COPY, COPY: COPY},
    ),
    "a tombstone": (
        lambda s: answer(s, BOUNDARY, code=Code.TABLET_DELETED),
        {PROBE: COPY, REPLICATE: COPY, COPY: COPY},
    ),
    "it is being copied": (
        lambda s: answer(s, BOUNDARY, code=Code.NOT_READY),
        {PROBE: COPY, REPLICATE: COPY, COPY: COPY},
    ),
    "its replica has failed": (
        lambda s: answer(s, BOUNDARY, code=Code.TABLET_FAILED),
        {PROBE: PROBE, REPLICATE: REPLICATE, COPY: COPY},
    ),
    "an answer of an older term": (
        lambda s: s.step(AppendReply(to_uuid="a", from_uuid="b", term=1, last=OpId(1, LAST - 1))),
        {PROBE: PROBE, REPLICATE: REPLICATE, COPY: COPY},
    ),
    "a link that is gone": (lambda s: s.core.server_silent("b", 1), {PROBE: PROBE, REPLICATE: REPLICATE, COPY: COPY}),
}


@pytest.mark.parametrize("before", list(ProgressState))
@pytest.mark.parametrize("what", ANSWERS)
def test_progress_after_each_answer_is_that_of_the_table(what: str, before: ProgressState) -> None:
    """Goal: how a peer is sent to follows from its state and its answer alone. Method: every state, every kind
    of answer, against a table; and whatever it was, an answer that holds all of our log, twice, replicates."""
    said, table = ANSWERS[what]
    assert set(table) == set(ProgressState)
    solo = leading()
    into(solo, before)
    said(solo)
    assert state(solo) is table[before]
    answer(solo)
    answer(solo)
    assert state(solo) is REPLICATE
