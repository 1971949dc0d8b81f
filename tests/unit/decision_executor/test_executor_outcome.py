"""The outcome of a decision for each refusal of a leader."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import pytest

from nyala.replica.client import Client, ClientOptions
from nyala.replica.decision_executor import execute, outcome_of
from nyala.replica.rpc import address_to_pb, description_to_pb, error_to_pb, pb, pb_grpc
from nyala.replica.types import Address, Applied, Code, Decision, Refused, Result
from nyala.schemas import decode, encode_record, from_avro
from tests.harness.catalogs import new_table
from tests.harness.played_grpc import listening


def decision(**changes: Any) -> Decision:
    """A removal that nobody listens to: port 1 refuses connections."""
    member = {
        "uuid": "a" * 32,
        "addresses": [],
        "votes": True,
        "promote": False,
        "holds_data": True,
        "replace": False,
        "reserved": b"",
    }
    fields = {
        "tablet_id": "t",
        "table_id": "T",
        "catalog_term": 3,
        "version": 2,
        "action": "CHANGE_CONFIG",
        "edits": [{"kind": "remove", "member": member}],
        "target_uuid": "",
        "config_opid": {"term": 1, "index": 4},
        "deadline_us": 1_000,
        "reason": "why",
        "plan_id": "p",
        "leader_uuid": "l" * 32,
        "leader_address": "127.0.0.1:1",
        **changes,
    }
    return from_avro(Decision, fields)


@pytest.mark.parametrize(
    ("code", "result", "retryable"),
    [
        (Code.CAS_FAILED, Result.REFUSED, False),
        (Code.STALE_DECISION, Result.REFUSED, False),
        (Code.DEADLINE_PASSED, Result.REFUSED, False),
        (Code.TABLET_NOT_FOUND, Result.REFUSED, False),
        (Code.CHANGE_PENDING, Result.FAILED, True),
        (Code.NOT_LEADER, Result.FAILED, True),
        (Code.NOT_READY, Result.FAILED, True),
        (Code.STEPPING_DOWN, Result.FAILED, True),
        (Code.UNAVAILABLE, Result.FAILED, True),
        (Code.INVALID_ARGUMENT, Result.FAILED, False),
    ],
)
def test_outcome_of_each_refusal_is_stale_or_failed(code: Code, result: Result, retryable: bool) -> None:
    """Goal: CC-28: stale decisions are never repeated, passing trouble is, a leader that hands over among it. Method:
    the table of codes."""
    outcome = outcome_of(decision(), Refused(code, "because", applied=Applied.NOT_APPLIED))
    assert (outcome.result, outcome.retryable, outcome.code) == (result, retryable, code)
    record = decode("outcome", encode_record(replace(outcome, executor="me", at_us=9)))
    assert (record["subject"], record["result"], record["at_us"]) == ("DECISION", result.value, 9)
    assert (record["subject_id"], record["plan_id"], record["executor"]) == ("t@3.2", "p", "me")


def test_execute_after_the_deadline_asks_nobody() -> None:
    """Goal: an old decision has no effect. Method: a clock past the deadline, addresses that nobody serves."""
    with Client(["127.0.0.1:1"]) as client:
        outcome = execute(decision(), client, now_us=lambda: 1_000)
    assert (outcome.result, outcome.code) == (Result.REFUSED, Code.DEADLINE_PASSED)


def test_execute_with_nobody_there_is_a_failure_that_may_pass() -> None:
    """Goal: if neither leader nor master answers, the outcome is a temporary failure. Method: a closed port."""
    options = ClientOptions(timeout_s=0.5, connect_timeout_s=0.5, attempt_timeout_s=0.2)
    with Client(["127.0.0.1:1"], options) as client:
        outcome = execute(decision(), client, now_us=lambda: 0)
    assert (outcome.result, outcome.retryable) == (Result.FAILED, True)


class Leader(pb_grpc.TabletServiceServicer):
    """A leader of one other member, whose committed config is at `index`, that refuses changes of it, or takes them."""

    def __init__(self, index: int, *, takes: bool = False) -> None:
        self.takes = takes
        self.taken: list[str] = []
        self._config = pb.RaftConfig(opid=pb.OpId(term=1, index=index), members=[pb.Member(uuid="b" * 32, votes=True)])

    def ChangeConfig(self, request: Any, context: Any) -> Any:
        if self.takes:
            self.taken.append(request.dest_uuid)
            return pb.ChangeConfigReply()
        refused = Refused(Code.CAS_FAILED, "another config is committed", applied=Applied.NOT_APPLIED)
        return pb.ChangeConfigReply(error=error_to_pb(refused))

    def ListTablets(self, request: Any, context: Any) -> Any:
        status = pb.ReplicaStatus(tablet_id="t", uuid="l" * 32, role="LEADER", committed_config=self._config)
        return pb.ListTabletsReply(replicas=[status])


@pytest.mark.parametrize(("index", "result"), [(4, Result.REFUSED), (5, Result.DONE)])
def test_decision_holds_already_only_in_a_config_after_the_one_it_was_made_for(index: int, result: Result) -> None:
    """CC-28. Goal: a refused removal counts as carried out only if a later config is without the member. Method: a
    leader whose config has not that member: the one that the decision was made for, then the next one."""
    with listening(Leader(index)) as address, Client(["127.0.0.1:1"]) as client:
        outcome = execute(decision(leader_address=str(address)), client, now_us=lambda: 0)
    assert outcome.result is result, outcome


class NamingMaster(pb_grpc.MasterServiceServicer):
    """A master that names one server as the leader of the only tablet of every table."""

    def __init__(self, uuid: str, address: str) -> None:
        member = pb.Member(uuid=uuid, votes=True, holds_data=True, addresses=[address_to_pb(Address.parse(address))])
        self._tablet = pb.TabletInfo(tablet_id="t", leader_uuid=uuid, config=pb.RaftConfig(members=[member]))

    def GetTable(self, request: Any, context: Any) -> Any:
        return pb.TableReply(table=description_to_pb(new_table("wide", buckets=1)), tablets=[self._tablet])


def test_decision_goes_to_the_leader_that_the_masters_name_if_the_believed_one_cannot_be_reached() -> None:
    """CC-28. Goal: a leader that died after a decision was made does not hold the decision up. Method: a decision for a
    leader at a closed port; the master names another server, which takes the decision once."""
    leader, server = Leader(4, takes=True), grpc.server(ThreadPoolExecutor(4))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    pb_grpc.add_TabletServiceServicer_to_server(leader, server)  # type: ignore[no-untyped-call]
    pb_grpc.add_MasterServiceServicer_to_server(NamingMaster("n" * 32, address), server)  # type: ignore[no-untyped-call]
    server.start()
    try:
        with Client([address]) as client:
            outcome = execute(decision(), client, now_us=lambda: 0)
    finally:
        server.stop(None)
    assert (outcome.result, leader.taken) == (Result.DONE, ["n" * 32]), outcome
