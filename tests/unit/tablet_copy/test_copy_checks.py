"""StartTabletCopy's checks: every one before any change, in a fixed order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.server.tablets.copy_failures import REASON_CHARS_MAX
from nyala.replica.tablet_copy import (
    CopyRequest,
    HealthyReplica,
    LocalReplica,
    replacement_refusal,
    source_refusal,
    start_tablet_copy_checks,
)
from nyala.replica.tablet_copy.checks import time_refusal
from nyala.replica.types import Address, Code, DataState, Member, OpId, RaftConfig, limits

OWN = "b" * 32
READY = LocalReplica(uuid=OWN, data_state=DataState.READY, term=5, last_opid=OpId(5, 90))
TOMBSTONE = LocalReplica(uuid=OWN, data_state=DataState.DELETED, term=5, last_opid=OpId(5, 90))
BLANK = LocalReplica(uuid=OWN, data_state=DataState.DOES_NOT_EXIST)
COPYING = LocalReplica(uuid=OWN, data_state=DataState.COPYING, term=5, last_opid=OpId(5, 90))
STARTED = LocalReplica(uuid=OWN, data_state=DataState.DELETED, copying=True, term=5, last_opid=OpId(5, 90))


def request(state: DataState, *, term: int = 5, last: OpId | None = None, dest: str = OWN) -> CopyRequest:
    return CopyRequest(
        dest_uuid=dest, from_uuid="a" * 32, tablet_id="t", term=term, current_state=state, last_opid=last
    )


def test_refusal_of_a_time_says_how_far_ahead_it_is_and_how_far_it_may_be() -> None:
    """IN-50. Goal: an operator sees which clock is wrong, and by how much. Method: a time that is as far ahead as it
    may be, and one that is eleven days ahead."""
    most_us = limits.CLOCK_AHEAD_OF_PEERS_US_MAX
    assert time_refusal("rows", 7, most_us) is None
    told = str(time_refusal("rows", 7, 10**12 + 60_000))
    assert "time=7" in told and "ahead_s=1000000.1" in told and f"max_s={most_us / 1_000_000}" in told, told


@pytest.mark.parametrize(
    ("asked", "local", "code", "detail"),
    [
        (request(DataState.DELETED, dest="c" * 32, term=1), COPYING, Code.INVALID_NAME, ""),
        (request(DataState.DELETED, term=1), COPYING, Code.ALREADY_INPROGRESS, ""),
        (request(DataState.DELETED, term=1), STARTED, Code.ALREADY_INPROGRESS, ""),
        (request(DataState.DELETED, term=4), READY, Code.BAD_TERM, "5"),
        (request(DataState.DELETED), READY, Code.ILLEGAL_STATE, "STATE"),
        (request(DataState.DOES_NOT_EXIST), TOMBSTONE, Code.ILLEGAL_STATE, "STATE"),
        (request(DataState.READY, last=OpId(5, 80)), READY, Code.ILLEGAL_STATE, "OPID"),
        (request(DataState.DELETED, last=OpId(6, 90)), TOMBSTONE, Code.ILLEGAL_STATE, "OPID"),
        (request(DataState.DELETED, term=4), TOMBSTONE, Code.BAD_TERM, "5"),
    ],
)
def test_start_copy_checks_refuse_in_order(asked: CopyRequest, local: LocalReplica, code: Code, detail: str) -> None:
    """Goal: rows TC-27, TC-28, TC-31, TC-32. Method: a table with double faults; the earlier check must win."""
    refusal = start_tablet_copy_checks(asked, local)
    assert refusal is not None and refusal.code is code
    assert refusal.detail == detail


@pytest.mark.parametrize(
    ("asked", "local"),
    [
        (request(DataState.READY, last=OpId(5, 90)), READY),
        (request(DataState.READY, term=6), READY),
        (request(DataState.DELETED, last=OpId(5, 90)), TOMBSTONE),
        (request(DataState.DOES_NOT_EXIST, term=0), BLANK),
    ],
)
def test_start_copy_checks_accept_what_the_caller_believes(asked: CopyRequest, local: LocalReplica) -> None:
    """Goal: rows TC-28 and TC-31: a request that is right about the target's state is accepted. Method: matching
    requests."""
    assert start_tablet_copy_checks(asked, local) is None


@pytest.mark.parametrize(
    ("state", "leader", "caller", "term", "may"),
    [
        (DataState.READY, "a", "a", 5, True),
        (DataState.READY, "a", "c", 5, False),
        (DataState.READY, "a", "c", 9, False),
        (DataState.READY, "b", "c", 9, False),
        (DataState.READY, "b", "b", 9, False),
        (DataState.READY, "", "c", 5, True),
        (DataState.DELETED, None, "c", 5, True),
        (DataState.READY, None, "c", 5, True),
    ],
    ids=["leader", "another", "another in a later term", "it leads", "from itself", "no leader", "tombstone", "failed"],
)
def test_intact_replica_that_follows_a_leader_is_copied_anew_for_that_one_only(
    state: DataState, leader: str | None, caller: str, term: int, may: bool
) -> None:
    """TC-28. Goal: a caller that is not the leader of an intact replica cannot have it replaced. Method: a table of the
    leader that is known here (None: no replica takes part in the group), the caller, and its term."""
    healthy = None
    if leader is not None:
        healthy = HealthyReplica(leader_uuid=leader and leader * 32, configs=(here("abc"),), committed=OpId(5, 80))
    local = LocalReplica(uuid=OWN, data_state=state, term=5, last_opid=OpId(5, 90), healthy=healthy)
    asked = replace(request(state, term=term), from_uuid=caller * 32)
    refusal = start_tablet_copy_checks(asked, local)
    assert (refusal is None) is may
    assert refusal is None or (refusal.code, refusal.detail) == (Code.ILLEGAL_STATE, "LEADER")


def here(names: str, index: int = 1) -> RaftConfig:
    """Voters by their letter; a capital letter is a member without a vote."""
    members = (Member(n.lower() * 32, (Address("h", 1),), votes=n.islower()) for n in names)
    return RaftConfig(OpId(1, index), tuple(members))


@pytest.mark.parametrize(
    ("source", "offered", "rows_end", "log_begins", "says"),
    [
        ("a", "abc", OpId(6, 90), 91, ""),
        ("a", "abc", OpId(5, 81), 82, ""),
        ("d", "abcd", OpId(6, 90), 91, ""),
        ("a", "ae", OpId(6, 90), 91, ""),
        ("e", "abcde", OpId(6, 90), 91, ""),
        ("z", "z", OpId(6, 90), 91, "votes in no config"),
        ("z", "az", OpId(6, 90), 91, "votes in no config"),
        ("e", "abce", OpId(6, 90), 91, ""),
        ("e", "abE", OpId(6, 90), 91, "votes in no config"),
        ("z", "abc", OpId(6, 90), 91, "votes in no config"),
        ("f", "abcf", OpId(6, 90), 91, ""),
        ("f", "abcF", OpId(6, 90), 91, "votes in no config"),
        ("a", "abc", OpId(6, 90), 81, "no copy is needed"),
        ("a", "abc", OpId(5, 80), 81, "no copy is needed"),
        ("a", "abc", OpId(4, 90), 91, "below what is committed"),
        ("a", "abc", OpId(5, 79), 91, "below what is committed"),
    ],
)
def test_source_that_does_not_fit_an_intact_replica_is_refused(
    source: str, offered: str, rows_end: OpId, log_begins: int, says: str
) -> None:
    """TC-58. Goal: an intact replica is replaced only by a source that votes in its own config or the next one, which
    has what is committed here, and whose log does not continue the replica's. Method: a table of offers to a replica
    with the configs a, b, c and a, b, c, d, on which 5.80 is committed."""
    healthy = HealthyReplica(leader_uuid="", configs=(here("abcd", 7), here("abc")), committed=OpId(5, 80))
    refusal = replacement_refusal(healthy, source * 32, here(offered, 9), rows_end, log_begins)
    assert (refusal is None) is (says == "")
    assert refusal is None or (says in str(refusal) and refusal.code is Code.ILLEGAL_STATE)
    assert refusal is None or "nyala local-replica delete DIR TABLET`, and start it" in str(refusal)[:REASON_CHARS_MAX]


@pytest.mark.parametrize(
    ("source", "term", "leader", "leaderless", "code"),
    [
        (OpId(5, 89), 6, True, False, Code.ILLEGAL_STATE),
        (OpId(4, 500), 6, True, True, Code.ILLEGAL_STATE),
        (OpId(5, 90), 6, False, False, Code.NOT_LEADER),
        (OpId(5, 90), 6, False, True, None),
        (OpId(5, 99), 5, True, False, Code.BAD_TERM),
        (OpId(5, 99), 5, False, True, None),
        (OpId(6, 10), 6, True, False, None),
    ],
)
def test_source_below_what_was_acknowledged_is_refused(
    source: OpId, term: int, leader: bool, leaderless: bool, code: Code | None
) -> None:
    """Goal: row TC-58: a source is refused if its log ends before what the target has acknowledged. Method: compare by
    (term, index) with a kept last OpId of 5.90, and with the own term 6; leaders only, unless allowed."""
    refusal = source_refusal(
        source_last_opid=source,
        source_term=term,
        source_is_leader=leader,
        own_last_opid=OpId(5, 90),
        own_term=6,
        allow_leaderless=leaderless,
    )
    assert (refusal.code if refusal else None) is code


@pytest.mark.parametrize("local", [READY, TOMBSTONE])
@pytest.mark.parametrize("believed", [OpId(5, 89), OpId(4, 90), OpId(5, 91), OpId(0, 0)])
def test_late_request_that_names_an_older_last_opid_is_harmless(local: LocalReplica, believed: OpId) -> None:
    """Goal: TC-09. Method: every last OpId but the own one, right in all else, over a replica and over a tombstone:
    ILLEGAL_STATE; the right one goes ahead."""
    late = start_tablet_copy_checks(request(local.data_state, last=believed), local)
    assert late is not None and (late.code, late.detail) == (Code.ILLEGAL_STATE, "OPID")
    assert start_tablet_copy_checks(request(local.data_state, last=local.last_opid), local) is None
