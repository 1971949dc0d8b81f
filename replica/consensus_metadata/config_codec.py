"""Encodes a RaftConfig as the `meta` of a CONFIG entry, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from nyala.replica.types import Address, Corruption, Member, RaftConfig
from nyala.schemas import config_from_avro, config_to_avro, decode, encode


def encode_config(config: RaftConfig) -> bytes:
    """Return the `meta` of a CONFIG entry: Avro `ConfigChange`."""
    return encode("config_change", {"config": config_to_avro(config)})


def decode_config(meta: bytes) -> RaftConfig:
    """Return the config of a CONFIG entry's `meta`; Corruption if it is no such datum."""
    try:
        value = decode("config_change", meta)
    except ValueError as error:
        raise Corruption("a CONFIG entry does not decode", cause=repr(error), length_bytes=len(meta)) from error
    return config_from_avro(value["config"])


def members_json(config: RaftConfig) -> list[dict[str, Any]]:
    """Return a config's members as JSON, as in the masters' catalog, in recovery plans and in the output of tools."""
    return [
        {**asdict(member), "addresses": [str(address) for address in member.addresses]} for member in config.members
    ]


def members_from_json(found: Iterable[Mapping[str, Any]]) -> tuple[Member, ...]:
    """Do the inverse of `members_json`. Missing marks are those of a voter with data; fields of a later build are left
    out.

    KeyError, TypeError or ValueError if it is not that JSON.
    """
    return tuple(
        _member(
            each["uuid"],
            tuple(each["addresses"]),
            votes=each.get("votes", True),
            promote=each.get("promote", False),
            holds_data=each.get("holds_data", True),
            replace=each.get("replace", False),
        )
        for each in found
    )


@lru_cache(4096)
def _member(
    uuid: str, addresses: tuple[str, ...], *, votes: bool, promote: bool, holds_data: bool, replace: bool
) -> Member:
    """Return one member, cached, because a catalog names each server thousands of times."""
    places = tuple(map(Address.parse, addresses))
    return Member(uuid, places, votes=votes, promote=promote, holds_data=holds_data, replace=replace)
