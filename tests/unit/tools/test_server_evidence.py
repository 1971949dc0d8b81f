"""What tablet servers say of themselves and their tablets when there are no masters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.tools import ask_servers, read_tablets, server_problems
from nyala.replica.tools.server_evidence import ServerAnswer
from nyala.replica.types import Address, Code, DataState, Refused
from tests.harness.played_grpc import listening

A, B = "a" * 32, "b" * 32
CLUSTER, OTHER = "8" * 32, "9" * 32
TABLE = "7" * 32
NOWHERE = Address("127.0.0.1", 1)


def answer(port: int, uuid: str = A, cluster_id: str = CLUSTER, error: str = "") -> ServerAnswer:
    return ServerAnswer(address=Address("h", port), uuid=uuid, cluster_id=cluster_id, error=error)


@pytest.mark.parametrize(
    ("answers", "lost", "says"),
    [
        ([answer(1), answer(2, B)], (), []),
        ([answer(1), answer(2, error="UNAVAILABLE")], (), ["h:2: UNAVAILABLE"]),
        ([answer(1), answer(2, error="UNAVAILABLE")], ("h:2",), []),
        ([answer(1), answer(2)], (), ["h:1, h:2: this is one server"]),
        ([answer(1), answer(2, B, OTHER)], (), [f"h:1: of cluster {CLUSTER}", f"h:2: of cluster {OTHER}"]),
        ([answer(1), answer(2, B, "")], (), [f"h:1: of cluster {CLUSTER}", "h:2: of no cluster yet"]),
        ([answer(1, cluster_id="")], (), ["nothing to rebuild"]),
        ([answer(1, error="UNAVAILABLE")], ("h:1",), ["no tablet server answers"]),
        ([], (), ["no tablet server answers"]),
    ],
)  # fmt: skip
def test_servers_that_are_not_those_of_one_cluster_are_named(
    answers: Sequence[ServerAnswer], lost: Sequence[str], says: Sequence[str]
) -> None:
    """OP-06. Goal: a catalog is made of all servers of one cluster. Method: answers of processes, and what is said of
    them."""
    problems = server_problems(answers, lost)
    assert len(problems) == len(says) and all(any(text in p for p in problems) for text in says), problems


class Played(pb_grpc.TabletServiceServicer):
    """A process that answers as a tablet server of `uuid` does, with these replicas, two on a page."""

    def __init__(self, uuid: str, replicas: Sequence[pb.ReplicaStatus], kind: str = "TABLET_SERVER") -> None:
        self._uuid, self._replicas, self._kind = uuid, replicas, kind

    def GetIdentity(self, request: Any, context: Any) -> pb.IdentityReply:
        return pb.IdentityReply(uuid=self._uuid, kind=self._kind, cluster_id=CLUSTER)

    def ListTablets(self, request: Any, context: Any) -> pb.ListTabletsReply:
        left = [r for r in self._replicas if r.tablet_id > request.after]
        return pb.ListTabletsReply(replicas=left[:2], next=left[1].tablet_id if len(left) > 2 else "")


def replica(number: int, *, state: DataState = DataState.READY, decided: int = 0, uuid: str = A) -> pb.ReplicaStatus:
    config = pb.RaftConfig(opid=pb.OpId(term=1, index=1), members=[pb.Member(uuid=A, votes=True, holds_data=True)])
    config.decision_term = decided
    return pb.ReplicaStatus(
        tablet_id=f"{number:032d}",
        table_id=TABLE,
        uuid=uuid,
        data_state=int(state),
        role="FOLLOWER",
        committed_config=config,
        pending_config=config,
    )


def test_every_page_is_read_and_a_tablet_without_a_leader_is_named() -> None:
    """OP-06. Goal: no replica is overlooked, and a tablet that nobody leads is not taken as it is. Method: five
    replicas on three pages, all followers, one of them a tombstone that knows the newest decision; one tablet is left
    out."""
    replicas = [replica(n) for n in range(4)] + [replica(4, state=DataState.DELETED, decided=77)]
    with listening(Played(A, replicas)) as address:
        (said,) = ask_servers([address])
        assert (said.uuid, said.cluster_id, said.error) == (A, CLUSTER, "")
        found = read_tablets({A: address}, frozenset({replicas[0].tablet_id}), patience_s=0.0)
    assert found.tablets == {} and found.unread.keys() == {r.tablet_id for r in replicas[1:4]}
    assert found.ids == {TABLE, *(r.tablet_id for r in replicas[:4])} and found.decision_term == 77


def test_process_that_is_no_tablet_server_or_lies_about_its_replicas_is_refused() -> None:
    """IN-82. Goal: nothing of an impossible answer is used. Method: no process, a master, and a server that reports
    another one's replica."""
    (nobody,) = ask_servers([NOWHERE])
    assert "UNAVAILABLE" in nobody.error
    with listening(Played(A, [], kind="MASTER")) as address:
        assert "no tablet server" in ask_servers([address])[0].error
    with listening(Played(A, [replica(0, uuid=B)])) as address:
        with pytest.raises(Refused) as refused:
            read_tablets({A: address}, patience_s=0.0)
        assert refused.value.code is Code.INVALID_ARGUMENT
