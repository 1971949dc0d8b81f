"""Finds masters that another master names and that are not in `--masters`.

The server's directory remembers where the masters are, because those of `--masters` may have been replaced. The file
has one address on each line, and may be lost: a server without it asks the masters of `--masters`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from nyala.replica.fs import KNOWN_MASTERS
from nyala.replica.types import Address, Disk, ReplicaError, limits

_log = logging.getLogger("nyala.server")


def unheard_of(listed: Sequence[tuple[str, Sequence[Address]]], known: Mapping[Address, str]) -> dict[Address, str]:
    """Further addresses for heartbeats, with the uuids of the masters expected there. Pure.

    `listed`: (uuid, addresses) of the masters' config. `known`: address -> uuid of the master that answers there, empty
    if none does now. A listed master is left out if it answers at a known address, or if one of its addresses is known,
    because two addresses may reach one master. At most `limits.MASTER_ADDRESSES_MAX` are known in all.
    """
    uuids = set(known.values())
    new = {at[0]: uuid for uuid, at in listed if at and uuid not in uuids and not set(at) & known.keys()}
    return dict(islice(new.items(), max(0, limits.MASTER_ADDRESSES_MAX - len(known))))


def read_known_masters(disk: Disk) -> tuple[Address, ...]:
    """The addresses that the leading master named last, at most `limits.MASTER_ADDRESSES_MAX`. None if the file is
    missing or cannot be read. Lines that are no address are left out."""
    try:
        lines = disk.read(KNOWN_MASTERS).decode("ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return ()
    except ReplicaError as error:
        _log.warning(
            "the file %s cannot be read: the server asks only the masters of --masters until one of them answers: %s",
            KNOWN_MASTERS,
            error,
        )
        return ()
    found: dict[Address, None] = {}
    for line in lines:
        try:
            found[Address.parse(line)] = None
        except ValueError:
            continue
    return tuple(found)[: limits.MASTER_ADDRESSES_MAX]


def write_known_masters(disk: Disk, addresses: Iterable[Address]) -> None:
    """Replace the file, durably."""
    disk.replace(KNOWN_MASTERS, "".join(f"{address}\n" for address in addresses).encode("ascii"))


def former_masters(former: frozenset[Address], before: Iterable[Address], now: Iterable[Address]) -> frozenset[Address]:
    """The masters that have left the group: the leading one named them `before`, and does not name them `now`.

    A master that only a follower names has not left: the group may have been changed while it had no leader.
    """
    return former.union(before).difference(now)
