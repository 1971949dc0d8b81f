"""Masters that are not in a server's options: which of them receive its heartbeats too, and which do not."""

from __future__ import annotations

from nyala.replica.server.heartbeats.other_masters import unheard_of
from nyala.replica.types import Address, limits

A, B, C = (Address("m.example", n) for n in (1, 2, 3))
ALIAS = Address("127.0.0.1", 1)


def test_who_is_known_by_address_or_uuid_is_not_heard_of_anew() -> None:
    """Goal: a server keeps each master once, even if it is reachable at two addresses. Method: three listed masters;
    one is known by its address, one by its uuid under another address; then no uuid is known yet; then no master
    answers."""
    listed = [("a", (A,)), ("b", (B,)), ("c", (C,))]
    assert unheard_of(listed, {ALIAS: "a", B: ""}) == {C: "c"}
    assert unheard_of(listed, {ALIAS: "", B: ""}) == {A: "a", C: "c"}, "until it answers, an alias may be anybody"
    assert unheard_of(listed, {A: "a", B: "b", C: "other"}) == {}
    assert unheard_of([("a", ()), ("b", (B, C))], {C: "b"}) == {}


def test_no_more_addresses_are_heard_of_than_the_bound() -> None:
    """Goal: the number of addresses that a server takes from masters is bounded. Method: twice as many as may be, one
    known before."""
    listed = [(f"u{n}", (Address("m.example", n + 1),)) for n in range(2 * limits.MASTER_ADDRESSES_MAX)]
    assert len(unheard_of(listed, {ALIAS: "x"})) == limits.MASTER_ADDRESSES_MAX - 1
