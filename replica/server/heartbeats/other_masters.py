"""Masters that a server was not told of, and hears of from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from nyala.replica.types import Address, limits


def unheard_of(listed: Sequence[tuple[str, Sequence[Address]]], known: Mapping[Address, str]) -> dict[Address, str]:
    """Where to send heartbeats from now on, too, and who is said to be there. Pure.

    `listed`: (uuid, addresses) of the masters' config. `known`: address -> uuid of whoever answered there, empty if
    nobody does now. Who answers under one address, or has one that is known, is not heard of anew: a name and what it
    stands for are one master. No more than `limits.MASTER_ADDRESSES_MAX` are known together.
    """
    uuids = set(known.values())
    new = {at[0]: uuid for uuid, at in listed if at and uuid not in uuids and not set(at) & known.keys()}
    return dict(islice(new.items(), max(0, limits.MASTER_ADDRESSES_MAX - len(known))))
