"""Finds masters that are not in `--masters`, and that another master names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from nyala.replica.types import Address, limits


def unheard_of(listed: Sequence[tuple[str, Sequence[Address]]], known: Mapping[Address, str]) -> dict[Address, str]:
    """Further addresses for heartbeats, with the uuids of the masters expected there. Pure.

    `listed`: (uuid, addresses) of the masters' config. `known`: address -> uuid of the master that answers there, empty
    if none does now. A listed master is left out if it answers at a known address, or if one of its addresses is known,
    because two addresses may reach one master. At most `limits.MASTER_ADDRESSES_MAX` are known in all.
    """
    uuids = set(known.values())
    new = {at[0]: uuid for uuid, at in listed if at and uuid not in uuids and not set(at) & known.keys()}
    return dict(islice(new.items(), max(0, limits.MASTER_ADDRESSES_MAX - len(known))))
