"""The server that a call goes to after a refusal: the next replica, the next time another leader, or none."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from nyala.replica.client import ClientOptions, NotApplied
from nyala.replica.client.calls import TabletCalls
from nyala.replica.client.channels import Channels
from nyala.replica.client.locator import Locator
from nyala.replica.client.retry import Deadline
from nyala.replica.client.tables import Location
from nyala.replica.rpc import pb
from nyala.replica.types import Address, Applied, Code, Refused

MEMBERS = {name: Address("h", port) for port, name in enumerate("abc", 1)}


def calls(leader: str = "a") -> TabletCalls:
    """Return a tablet with three members at addresses that are not used: the tests' own `ask` connects to none."""
    locator = Locator(lambda name: [Location("t", name, MEMBERS, leader)])
    locator.refresh("table", 0)
    return TabletCalls(Channels(), locator, ClientOptions(backoff_first_s=0.001, backoff_max_s=0.002))


class Asked:
    """Refuses with what is told for each uuid, or answers with the uuid."""

    def __init__(self, **refusals: Refused) -> None:
        self.refusals = refusals
        self.uuids: list[str] = []

    def __call__(self, stub: Any, uuid: str, timeout_s: float) -> str:
        self.uuids.append(uuid)
        if uuid in self.refusals:
            raise self.refusals[uuid]
        return uuid


class UntilAsked(Deadline):
    """A deadline that is over once so many were asked, however long a slow machine takes for it."""

    def __init__(self, asked: Asked, times: int) -> None:
        super().__init__(1.0)
        self._asked, self._times = asked, times

    @property
    def left_s(self) -> float:
        return 0.0 if len(self._asked.uuids) >= self._times else 1000.0


LAGGING = Refused(Code.LAGGING, "this replica's data is older than asked for", lag_s=9.5)
AWAY = Refused(Code.UNAVAILABLE, "nobody there")


def test_read_that_any_replica_may_answer_goes_on_to_the_next_and_to_the_leader_last() -> None:
    """CN-24. Goal: if a lagging replica refuses a read, the client asks the next one, and the leader last. Method: both
    followers refuse."""
    asked = Asked(b=LAGGING, c=AWAY)
    assert calls().at_any("table", "t", asked, deadline=Deadline(20)) == "a"
    assert sorted(asked.uuids[:2]) == ["b", "c"] and asked.uuids[2:] == ["a"]


def test_read_that_no_replica_can_answer_ends_with_the_lag_and_nothing_applied() -> None:
    """Goal: the error tells how old the data is, even if some replicas could not be reached. Method: no one is fresh
    enough until the deadline, which comes after two rounds."""
    asked = Asked(a=AWAY, b=LAGGING, c=AWAY)
    with pytest.raises(NotApplied, match=r"lag_s=9\.5") as caught:
        calls().at_any("table", "t", asked, deadline=UntilAsked(asked, 6))
    assert caught.value.code is Code.LAGGING
    assert len(asked.uuids) == 6 and set(asked.uuids[:3]) == set(asked.uuids[3:]) == set("abc")


def test_read_that_is_wrong_everywhere_is_asked_once() -> None:
    """Goal: a read that no replica could answer is refused after one call. Method: a snapshot that is too old."""
    gone = Refused(Code.HISTORY_GONE, "older than the history")
    asked = Asked(a=gone, b=gone, c=gone)
    with pytest.raises(NotApplied) as caught:
        calls().at_any("table", "t", asked, deadline=Deadline(20))
    assert caught.value.code is Code.HISTORY_GONE and len(asked.uuids) == 1


def test_call_that_ends_at_a_silent_leader_makes_the_next_one_ask_another() -> None:
    """Goal: a call that ends by its deadline at a silent leader makes the next call ask another replica. Method: the
    believed leader does not answer within the call's deadline."""
    made = calls("a")
    asked = Asked(a=Refused(Code.TIMED_OUT, "no answer in time"))
    with pytest.raises(NotApplied):
        made.at_leader("table", "t", asked, deadline=Deadline(0.0))
    assert made.at_leader("table", "t", asked, deadline=Deadline(20)) in "bc"
    assert asked.uuids[0] == "a" and asked.uuids[1] != "a"


@pytest.mark.parametrize("retry_safe", [True, False])
def test_call_that_cannot_be_repeated_has_all_the_time_for_its_first_attempt(retry_safe: bool) -> None:
    """Goal: a call that cannot be repeated gives its first attempt all of its time. Method: what a call of a minute
    gives its attempt."""
    limits: list[float] = []
    ask = lambda stub, uuid, timeout_s: limits.append(timeout_s)  # noqa: E731
    calls().at_leader("table", "t", ask, deadline=Deadline(60), mutates=True, retry_safe=retry_safe)
    (limit,) = limits
    assert limit == ClientOptions().attempt_timeout_s if retry_safe else 50 < limit <= 60


@pytest.mark.parametrize("method", ["ListTablets", "Checksum", "ListQuarantine", "Flush", "PurgeQuarantine"])
def test_look_that_found_nobody_is_no_unknown_outcome(method: str) -> None:
    """Goal: a call that only reads, at an address where no server listens, does not end as an unknown outcome. Method:
    each method that an operator's tools ask of one server, at an address where nobody listens."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        nobody = Address("127.0.0.1", kept.getsockname()[1])
        request = {"ListTablets": pb.ListTabletsRequest, "Checksum": pb.ChecksumRequest, "Flush": pb.FlushRequest}
        made = calls()
        with pytest.raises(Refused) as caught:
            made.at_server(nobody, "a", method, request.get(method, pb.QuarantineRequest)(), timeout_s=5)
        made.channels.close()
    changes = method in ("Flush", "PurgeQuarantine")
    assert caught.value.applied is (Applied.UNKNOWN if changes else Applied.NOT_APPLIED)
