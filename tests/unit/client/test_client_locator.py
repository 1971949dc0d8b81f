"""Leaders: cached, corrected by hints, looked up once at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import pytest

from nyala.replica.client.locator import Locator
from nyala.replica.client.tables import Location
from nyala.replica.types import Address, Code, Refused

A, B, C = (Address("h", n) for n in (1, 2, 3))
MEMBERS = {"a": A, "b": B, "c": C}


def locator(leader: str = "a", look_up: Callable[[str], list[Location]] | None = None) -> Locator:
    made = Locator(look_up or (lambda name: [Location("t", name, MEMBERS, leader)]))
    made.refresh("table", made.version("table"))
    return made


def test_locator_asks_the_master_once_however_many_wait() -> None:
    """Goal: twenty threads that need a location cause one look-up. Method: twenty threads want a refresh while the
    first look-up is held open."""
    calls: list[str] = []
    entered, go = threading.Event(), threading.Event()

    def look_up(name: str) -> list[Location]:
        calls.append(name)
        entered.set()
        assert go.wait(20)
        return [Location("t", name, MEMBERS, "a")]

    shared = Locator(look_up)
    threads = [threading.Thread(target=shared.refresh, args=("table", 0)) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert entered.wait(20)
    go.set()
    for thread in threads:
        thread.join(20)
    assert calls == ["table"]
    assert shared.leader("t") == ("a", A)


def test_locator_follows_a_hint_also_to_a_server_it_did_not_know() -> None:
    """Goal: the client follows a hint, also to an unknown server. Method: hints to a member, to a new address, to the
    asked one, and none."""
    found = locator()
    assert found.follow("t", "a", "b@h:2") and found.leader("t") == ("b", B)
    assert found.follow("t", "b", "d@h:9") and found.leader("t") == ("d", Address("h", 9))
    assert not found.follow("t", "d", "d@h:9")
    assert not found.follow("t", "d", "")
    assert found.follow("t", "x", "c") and found.leader("t") == ("c", C)


def test_locator_asks_other_members_when_the_master_still_names_a_dead_leader() -> None:
    """Goal: if the master still names a dead leader, the client asks the other members. Method: the leader fails,
    refresh says the same, ask in turn."""
    found = locator()
    found.leader_failed("t", "a")
    found.refresh("table", found.version("table"))
    assert [found.leader("t")[0] for _ in range(3)] == ["b", "c", "a"]
    found.leader_answered("t", "c")
    assert [found.leader("t")[0] for _ in range(2)] == ["c", "c"]


def test_locator_does_not_go_back_to_a_silent_leader_because_followers_still_name_it() -> None:
    """Goal: hints to a leader that was silent are not followed at first, so it costs one attempt, not one for each
    follower. Method: it gives no answer in time; both others name it: their hints are not followed, and each is asked;
    then it has another chance. One that only refused is believed to lead when it is named."""
    found = locator("a")
    found.leader_failed("t", "a", silent=True)
    asked = []
    for _ in range(2):
        found.refresh("table", found.version("table"))
        uuid, _ = found.leader("t")
        asked.append(uuid)
        assert not found.follow("t", uuid, "a@h:1")
    assert asked == ["b", "c"]
    found.refresh("table", found.version("table"))
    assert found.leader("t") == ("a", A)
    found.leader_answered("t", "a")
    assert found.follow("t", "b", "a@h:1")

    found = locator("a")
    found.leader_failed("t", "a")
    assert found.follow("t", "b", "a@h:1") and found.leader("t") == ("a", A)


def test_locator_leaves_a_silent_leader_alone_while_the_others_know_no_leader() -> None:
    """Goal: while an election goes on, the client does not try the silent former leader in each round. Method: the
    leader gives no answer in time and the master goes on naming it; the members that know no leader are asked three
    times before it is, round after round; once it answers, if only that it does not lead, it has its turn like any
    other."""
    found = locator("a")

    def ask(*, silent: bool = False) -> str:
        uuid, _ = found.leader("t")
        if uuid != "a" or not silent:
            assert not found.follow("t", uuid, "")
        found.leader_failed("t", uuid, silent=silent and uuid == "a")
        found.refresh("table", found.version("table"))
        return uuid

    assert ask(silent=True) == "a"
    for _ in range(2):
        assert [ask(silent=True) for _ in range(7)] == ["b", "c"] * 3 + ["a"]
    assert [ask() for _ in range(7)] == ["b", "c"] * 3 + ["a"]
    assert [ask() for _ in range(6)] == ["b", "c", "a"] * 2


def test_locator_asks_a_leader_where_the_master_has_it_though_hints_name_its_former_address() -> None:
    """CN-34. Goal: the client finds a leader that moved, although hints name its former address. Method: the leader was
    not where it used to be; both others go on naming that place, where somebody else answers each time; within a round
    it is asked where the master says."""
    former = Address("former", 9)
    found = locator("a")
    for round_ in range(2):
        found.leader_failed("t", "a")
        found.refresh("table", found.version("table"))
        asked = []
        for _ in range(2):
            uuid, _ = found.leader("t")
            asked.append(uuid)
            assert found.follow("t", uuid, f"a@{former}") and found.leader("t") == ("a", former)
            found.leader_failed("t", "a")
            found.refresh("table", found.version("table"))
        assert (asked, found.leader("t")) == (["b", "c"], ("a", A)), round_


def test_locator_with_one_member_asks_it_again() -> None:
    """Goal: a tablet's only member is asked again. Method: the only member was silent, then another table look-up."""
    found = locator(look_up=lambda name: [Location("t", name, {"a": A}, "a")])
    for silent in (True, False, True):
        found.leader_failed("t", "a", silent=silent)
        found.refresh("table", found.version("table"))
        assert [found.leader("t") for _ in range(3)] == [("a", A)] * 3


def test_locator_forgets_tablets_that_the_table_no_longer_has() -> None:
    """Goal: a table dropped and created again is noticed. Method: the second look-up names another tablet."""
    answers = iter(["t", "t2"])
    found = locator(look_up=lambda name: [Location(next(answers), name, MEMBERS, "a")])
    found.refresh("table", found.version("table"))
    assert found.location("t") is None
    with pytest.raises(Refused) as caught:
        found.leader("t")
    assert caught.value.code is Code.NOT_READY


def test_locator_names_replicas_for_any_read_near_ones_first_and_the_leader_last() -> None:
    """Goal: reads that any replica may answer spare the leader and the network. Method: four members of which one is on
    this machine, by IPv4 or IPv6, and one leads; over many draws, the two in between come in both orders."""
    for near in ("127.0.0.1:4", "[::1]:4"):
        members = {"a": A, "b": B, "c": C, "d": Address.parse(near)}
        found = locator(look_up=lambda name, known=members: [Location("t", name, known, "a")])
        orders = {tuple(uuid for uuid, _ in found.replicas("t", Random(seed))) for seed in range(40)}
        assert orders == {("d", "b", "c", "a"), ("d", "c", "b", "a")}
    with pytest.raises(Refused) as caught:
        found.replicas("unknown", Random(1))
    assert caught.value.code is Code.NOT_READY
