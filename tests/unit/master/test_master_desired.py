"""Desired state in the catalog: what is accepted, what is refused and why, what is shown; it outlives a master."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nyala import schemas
from nyala.replica.master import Catalog
from nyala.replica.master.catalog.records import DESIRED_CHANGE, RETIRED, TABLET
from nyala.replica.master.catalog.tables import create_table
from nyala.replica.master.decisions.reporter import Reporter
from nyala.replica.master.requests import change_requests, desired
from nyala.replica.master.requests.infos import tablet_infos
from nyala.replica.master.tablets.view import wanted_voters
from nyala.replica.policy import ChangeKind, ServerView, decide
from nyala.replica.rpc import pb, proposal_from_pb
from nyala.replica.types import Address, Code, Member, OpId, Proposal, Refused, Wanted
from tests.harness.catalogs import new_table
from tests.harness.leading_master import OPTIONS, Masters, S
from tests.harness.whole_view import cluster_view


def test_replication_wanted_of_a_table_or_a_tablet_is_odd_and_fits_the_servers() -> None:
    """TC-82. Goal: an impossible replication factor is refused with the reason, and changes nothing. Method: a table of
    numbers, tables and tablets; then the table's factor, the tablet's own one, and the end of the tablet's own one."""
    m = Masters(5)
    before = m.box.index
    cases: list[tuple[int, dict[str, Any], Code]] = [
        (0, {}, Code.INVALID_ARGUMENT),
        (2, {}, Code.INVALID_ARGUMENT),
        (4, {}, Code.INVALID_ARGUMENT),
        (9, {}, Code.INVALID_ARGUMENT),
        (-1, {}, Code.INVALID_ARGUMENT),
        (7, {}, Code.INVALID_ARGUMENT),
        (3, {"table": "nobody"}, Code.NOT_FOUND),
        (3, {"tablet_id": "elsewhere"}, Code.TABLET_NOT_FOUND),
        (3, {"tablet_id": m.tablet, "table": "other"}, Code.WRONG_TABLE),
    ]
    for replicas, fields, code in cases:
        with pytest.raises(Refused) as refused:
            m.set(replicas, **fields)
        assert refused.value.code is code and m.box.index == before, (replicas, fields)
    m.set(5)
    assert wanted_voters(m.box.catalog, m.tablet) == 5 and m.decided() == ["add d"]
    m.set(1, tablet_id=m.tablet)
    assert wanted_voters(m.box.catalog, m.tablet) == 1
    (info,) = tablet_infos(m.state, str((m.box.catalog.records.get(TABLET + m.tablet) or {})["table_id"]))
    assert (info.replication_factor, info.own_replication_factor) == (1, True)
    m.set(0, tablet_id=m.tablet)
    assert wanted_voters(m.box.catalog, m.tablet) == 5
    written = m.box.index
    m.set(5)
    assert m.box.index == written, "said again, it is no change"


def test_retired_server_is_wanted_empty_by_every_later_master() -> None:
    """TC-83. Goal: the catalog keeps that a server is retired, so the next master goes on with it after a failover; a
    new master does not call the server empty before all servers have reported. Method: retire; a new leadership over
    the catalog read back from the disk; reports one by one; then the replica has moved."""
    m = Masters()
    assert m.retire(S[2], reason="old disk") is True and m.retire(S[2]) is False
    assert m.decided() == ["add d"]
    m.box.catalog.flush()
    m.box.catalog = Catalog.open(m.box.disk)
    m.lead()
    assert m.state.kept.unreported() == 1, "nothing was looked at"
    assert not m.drain(S[2]).done
    listed = {i.uuid: i for i in m.infos()}
    assert listed[S[2]].draining and not listed[S[2]].alive, "one that was not heard of yet is shown"
    m.report(only=S[3])
    m.report(only=S[2])
    drain = m.drain(S[2])
    assert (drain.left, drain.unreported, drain.done) == (1, 0, False)
    m.report()
    assert m.decided() == ["add d"]
    m.members, m.index = [*m.members[:2], Member(S[3], (Address("h", 1),))], 9
    m.report()
    (info,) = [i for i in m.infos() if i.uuid == S[2]]
    assert (info.drained, info.tablets_left, info.tablets_at_first, info.drain_reason) == (True, 0, 1, "old disk")
    assert m.retire(S[2], undo=True) is True and m.box.catalog.records.get(RETIRED + S[2]) is None
    assert m.retire(S[2], undo=True) is False


def test_retirement_that_leaves_too_few_servers_or_meets_nobody_is_refused() -> None:
    """Goal: a retirement is refused if the server is unknown or if too few servers would remain. Method: three servers
    for three replicas; an unknown server; then with four servers."""
    m = Masters(3)
    with pytest.raises(Refused, match=r"too few servers would be left.*replicas_wanted=3, servers_left=2"):
        m.retire(S[0])
    for undo in (False, True):
        with pytest.raises(Refused, match="no such tablet server"):
            m.retire("f" * 32, undo=undo)
    m = Masters(4)
    m.retire(S[0])
    with pytest.raises(Refused, match="too few servers would be left"):
        m.retire(S[1])
    assert m.retire(S[3]) is True, "nothing stands on it"


def test_what_full_servers_could_not_hold_is_refused_with_the_room_there_is() -> None:
    """CN-03. Goal: the limit on tablets of a server also holds for desired changes, and the refusal says how much room
    there is. Method: a fourth server that has a replica of another table and is full: it is the target, or would be
    needed, of a move, an added member, a retirement, five replicas, the removal of a voter. The reports for jobs give
    the limit."""
    m = Masters(5)
    hosts = [ServerView(uuid=u, member=Member(u, (Address("h", 1),))) for u in S[3:5]]
    m.box.commit(create_table(m.box.catalog, new_table("other", buckets=1, rf=1), hosts[:1], {}, 1))
    m.limits = {S[3]: 1, S[0]: 1, S[1]: 1, S[2]: 1, S[4]: 1}
    m.report()
    before = m.box.index
    request = proposal_from_pb(pb.MoveReplicaRequest(tablet_id=m.tablet, from_uuid=S[2], to_uuid=S[3]), "w")
    with pytest.raises(Refused, match=r"holds as many replicas as it may.*held=1, max=1") as refused:
        change_requests.move(m.state, request)
    assert refused.value.code is Code.ILLEGAL_STATE
    with pytest.raises(Refused, match=r"holds as many replicas as it may"):
        m.want(change_requests.add, S[3])
    with pytest.raises(Refused, match=r"no room for so many more replicas.*needed=2, room=1"):
        m.set(5)
    assert change_requests.remove(m.state, change_requests.Request(m.tablet, S[2]))[0], "the fifth takes it"
    assert desired.retire(m.state, S[2])[0]
    m.limits[S[4]] = 0
    m.report()
    m.set(5)
    m.set(3)
    m.servers = S[:4]
    m.lead()
    m.report()
    with pytest.raises(Refused, match=r"no room for its tablets.*needed=1, room=0"):
        m.retire(S[2])
    with pytest.raises(Refused, match=r"no other server could take its place.*as many replicas as they may"):
        m.want(change_requests.remove, S[2])
    assert m.box.index == before + 2
    view = cluster_view(m.box.catalog, m.state.soft, OPTIONS, m.clock.now_us, m.clock.now_us)
    m.state.kept.refresh(m.clock.now_us, m.clock.now_us)
    reporter = Reporter(m.state)
    reporter.note(view.servers, m.state.kept.refreshed)
    said = reporter.take(10)
    assert [r.numbers["tablets_max"] for k, r in sorted(said.items()) if k.startswith("server:") and r] == [1] * 4
    assert all(schemas.decode("report", schemas.encode_record(r))["numbers"] == r.numbers for r in said.values() if r)


def test_members_wanted_carelessly_are_refused_with_the_reason() -> None:
    """TC-03, TC-04. Goal: AddReplica and RemoveReplica refuse, with the reason, unknown tablets and servers, members
    that exist already or do not exist, and a removal for which no replacement is possible. Method: a table of requests,
    nothing written; then good ones."""
    m = Masters()
    m.retire(S[3])
    before = m.box.index
    cases: list[tuple[Any, str, str, str, Code]] = [
        (change_requests.add, S[3], "", "elsewhere", Code.TABLET_NOT_FOUND),
        (change_requests.add, "f" * 32, "", "", Code.NOT_FOUND),
        (change_requests.add, S[0], "", "", Code.ALREADY_EXISTS),
        (change_requests.add, S[3], "", "", Code.INVALID_ARGUMENT),
        (change_requests.add, S[0], "OBSERVER", "", Code.INVALID_ARGUMENT),
        (change_requests.remove, S[0], "", "elsewhere", Code.TABLET_NOT_FOUND),
        (change_requests.remove, S[3], "", "", Code.NOT_FOUND),
        (change_requests.remove, S[0], "", "", Code.INVALID_ARGUMENT),
        (change_requests.change_role, S[0], "VOTER", "", Code.INVALID_ARGUMENT),
        (change_requests.change_role, S[0], "NON_VOTER", "", Code.INVALID_ARGUMENT),
        (change_requests.change_role, S[0], "LEADER", "", Code.INVALID_ARGUMENT),
        (change_requests.change_role, S[3], "VOTER", "", Code.NOT_FOUND),
    ]
    for change, uuid, role, tablet, code in cases:
        with pytest.raises(Refused) as refused:
            m.want(change, uuid, role, tablet)
        assert refused.value.code is code and m.box.index == before, (change.__name__, uuid[0], role)
    m.retire(S[3], undo=True)
    wanted = m.want(change_requests.add, S[3], "PRE_VOTER")
    assert m.want(change_requests.add, S[3], "PRE_VOTER") == wanted, "asked again after a lost answer"
    assert m.decided() == ["add d"]
    with pytest.raises(Refused, match="another change of this tablet is wanted already"):
        m.want(change_requests.remove, S[1])


def test_silent_server_is_refused_with_a_code_that_nobody_waits_for() -> None:
    """TC-03. Goal: a change that needs a silent server is refused at once with a code that is not retried. With
    UNAVAILABLE the client would retry, and a proposal would be read again and delay those behind it. Method: the fourth
    server falls silent; an operator adds it and moves a replica to it, and a proposal names it."""
    m = Masters()
    m.clock.now_us += 3_600_000_000
    m.servers = S[:3]
    m.report()
    before = m.box.index
    proposal = Proposal(
        proposal_id="p", plan_id="", tablet_id=m.tablet, wanted=Wanted.MOVE_REPLICA, from_uuid=S[2], to_uuid=S[3],
        config_opid=OpId(1, m.index), deadline_us=0, reason="",
    )  # fmt: skip
    move = proposal_from_pb(pb.MoveReplicaRequest(tablet_id=m.tablet, from_uuid=S[2], to_uuid=S[3]), "w")
    for ask in (
        lambda: m.want(change_requests.add, S[3]),
        lambda: change_requests.move(m.state, move),
        lambda: change_requests.propose(m.state, proposal),
    ):
        with pytest.raises(Refused, match="not alive") as refused:
            ask()
        assert refused.value.code is Code.ILLEGAL_STATE and m.box.index == before


def test_proposal_becomes_the_desired_change_that_a_request_for_the_same_becomes() -> None:
    """TC-79. Goal: a proposal of a job and a request of an operator become the same desired change. Method: the same
    move as a request and as a proposal; the two records differ only in the origin. A proposal is refused if its text
    would be refused in a request, or if it was made for another config."""
    m = Masters()
    proposal = Proposal(
        proposal_id="p", plan_id="plan", tablet_id=m.tablet, wanted=Wanted.MOVE_REPLICA, from_uuid=S[2], to_uuid=S[3],
        config_opid=OpId(1, m.index), deadline_us=0, reason="even",
    )  # fmt: skip
    request = proposal_from_pb(
        pb.MoveReplicaRequest(tablet_id=m.tablet, from_uuid=S[2], to_uuid=S[3], plan_id="plan", reason="even"), "w"
    )
    (asked, proposed) = (
        change[0][DESIRED_CHANGE + m.tablet]
        for change in (change_requests.move(m.state, request), change_requests.propose(m.state, proposal))
    )
    assert proposed == replace(asked, wish_id="p", proposal=True) and asked.proposal is False
    transfer = replace(proposal, wanted=Wanted.TRANSFER_LEADERSHIP, to_uuid=S[1])
    kept = change_requests.propose(m.state, transfer)[0][DESIRED_CHANGE + m.tablet]
    assert (kept.kind, kept.from_uuid, kept.to_uuid) == (ChangeKind.TRANSFER, "", S[1])
    wrong = {"to_uuid": "a/b", "from_uuid": "..", "plan_id": "a\0", "reason": "a\0", "config_opid": OpId(1, 99)}
    for name, value in wrong.items():
        with pytest.raises(Refused) as refused:
            change_requests.propose(m.state, replace(proposal, **{name: value}))
        expected = Code.CAS_FAILED if name == "config_opid" else Code.INVALID_ARGUMENT
        assert refused.value.code is expected, name


def test_cancelled_desired_change_is_taken_back_unless_the_new_replica_votes() -> None:
    """TC-79. Goal: a desired change can be cancelled until the new replica votes, and what it had begun is undone.
    Method: an added learner whose server is silent; a move whose target votes already; no desired change at all. Fields
    of the record that a later build wrote are kept."""
    m = Masters()
    with pytest.raises(Refused, match="nothing is wanted of this tablet"):
        m.want(change_requests.cancel, "")
    m.want(change_requests.add, S[3])
    m.members, m.index = [*m.members, Member(S[3], (Address("h", 1),), votes=False, promote=True)], 5
    m.servers = S[:3]
    m.report()
    assert m.decided() == [], "it waits for the silent one"
    later = {**(m.box.catalog.records.get(DESIRED_CHANGE + m.tablet) or {}), "later": 7}
    m.box.commit(({DESIRED_CHANGE + m.tablet: later}, [], "", None))
    m.want(change_requests.cancel, "")
    assert m.box.catalog.records.get(DESIRED_CHANGE + m.tablet) == {**later, "deadline_us": 1, "cancelled": True}
    assert m.decided() == ["remove d"]
    (info,) = tablet_infos(m.state, str((m.box.catalog.records.get(TABLET + m.tablet) or {})["table_id"]))
    assert info.wish.cancelled and info.wish.kind == "ADD"
    m.box.commit(({}, [DESIRED_CHANGE + m.tablet], "", None))
    m.members, m.index, m.servers = m.members[:3], 6, S[:5]
    m.report()
    request = proposal_from_pb(pb.MoveReplicaRequest(tablet_id=m.tablet, from_uuid=S[1], to_uuid=S[4]), "w")
    m.box.commit(change_requests.move(m.state, request))
    m.members, m.index = [*m.members, Member(S[4], (Address("h", 1),))], 7
    m.report()
    with pytest.raises(Refused, match="too late"):
        m.want(change_requests.cancel, "")
    assert m.decided() == ["remove b"]


def test_desired_change_asked_again_is_the_same_one_only_while_it_still_holds_and_asks_for_the_same() -> None:
    """TC-79. Goal: a repeated request gets the id of the existing desired change only if that one is still in force and
    asks for the same role. Method: an added voter requested again as a non-voter; the same request after a cancellation
    and after the deadline, and again after the remains of the first one are gone."""
    m = Masters()
    first = m.want(change_requests.add, S[3])
    with pytest.raises(Refused, match="wanted already") as refused:
        m.want(change_requests.add, S[3], "NON_VOTER")
    assert refused.value.code is Code.CHANGE_PENDING
    assert m.want(change_requests.add, S[3]) == first
    m.want(change_requests.cancel, "")
    with pytest.raises(Refused, match="being taken back") as refused:
        m.want(change_requests.add, S[3])
    assert refused.value.code is Code.CHANGE_PENDING and m.decided() == []
    m.box.commit(({}, [DESIRED_CHANGE + m.tablet], "", None))
    second = m.want(change_requests.add, S[3], "NON_VOTER")
    assert second != first and m.decided() == ["add d"]
    m.clock.now_us += change_requests.ADMIN_DEADLINE_US + 1
    m.report()
    with pytest.raises(Refused, match="being taken back"):
        m.want(change_requests.add, S[3], "NON_VOTER")


def test_fewer_replicas_are_wanted_of_a_tablet_although_servers_are_missing() -> None:
    """TC-82. Goal: the replication factor can be lowered while servers are missing, because that is the repair. Method:
    a table of five on two live servers; its tablet, which has no number of its own, is to have three, then seven; the
    table three."""
    m = Masters(5)
    m.set(5)
    m.clock.now_us += 60_000_000
    m.servers = S[:2]
    m.report()
    for fields in ({"tablet_id": m.tablet}, {}):
        with pytest.raises(Refused, match="live tablet server"):
            m.set(7, **fields)
        assert m.set(3, **fields) == 3 and wanted_voters(m.box.catalog, m.tablet) == 3
    with pytest.raises(Refused, match="live tablet server"):
        m.set(5, tablet_id=m.tablet)


def test_masters_derive_the_same_need_anew_and_never_a_second_add() -> None:
    """TC-65. Goal: a new leading master derives the same decision again if the former one died before the commit, and
    does not add a second replica if the change was committed meanwhile. Method: a desired change; a new leadership
    before and after the change was committed at the leader; each sends at most one add."""
    m = Masters()
    m.want(change_requests.add, S[3])
    assert m.decided() == ["add d"]
    m.lead()
    assert m.decided() == [], "a master that heard of nobody decides nothing"
    m.report()
    assert m.decided() == ["add d"]
    m.members, m.index = [*m.members, Member(S[3], (Address("h", 1),), votes=False, promote=True)], 5
    m.lead()
    m.report()
    assert m.decided() == []
    kinds = {k.partition("/")[0] for k in m.box.catalog.records}
    assert kinds == {"name", "table", "tablet", "wish"}, "facts only"


def test_witness_wanted_of_a_tablet_joins_without_data_after_a_failover_too() -> None:
    """CC-47, CC-52. Goal: a witness wanted by command, and the masters' option, reach the policy. Method: want one on
    the fourth server, read the catalog back: the decision adds a member without vote or data; asked as a voter it is
    another desired change. Masters that heal by witness say so of every tablet, others do not."""
    m = Masters()
    m.want(change_requests.add, S[3], "WITNESS")
    with pytest.raises(Refused) as refused:
        m.want(change_requests.add, S[3], "VOTER")
    assert refused.value.code is Code.CHANGE_PENDING
    m.box.catalog.flush()
    m.box.catalog = Catalog.open(m.box.disk)
    m.lead()
    m.report()
    for heal in (False, True):
        options = replace(OPTIONS, heal_by_witness=heal)
        view = cluster_view(m.box.catalog, m.state.soft, options, m.clock.now_us, m.clock.now_us)
        assert [t.by_witness for t in view.tablets] == [heal]
        (decision,) = decide(view, 1)
        (edit,) = decision.edits
        assert (edit.member.uuid, edit.member.votes, edit.member.promote, edit.member.holds_data) == (
            S[3], False, True, False,
        )  # fmt: skip
