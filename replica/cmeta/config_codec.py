"""RaftConfig as the `meta` of a CONFIG entry, and as JSON."""

from __future__ import annotations

from typing import Any

from nyala.replica.base import Corruption, RaftConfig
from nyala.schemas import config_from_avro, config_to_avro, decode, encode


def encode_config(config: RaftConfig) -> bytes:
    """`meta` of a CONFIG entry: Avro `ConfigChange`."""
    return encode("config_change", {"config": config_to_avro(config)})


def decode_config(meta: bytes) -> RaftConfig:
    """The config of a CONFIG entry's `meta`; Corruption if it is no such datum."""
    try:
        value = decode("config_change", meta)
    except ValueError as error:
        raise Corruption("a CONFIG entry does not decode", cause=repr(error), length_bytes=len(meta)) from error
    return config_from_avro(value["config"])


def members_json(config: RaftConfig) -> list[dict[str, Any]]:
    """A config's members as JSON: so the masters' catalog keeps them, and tools print them."""
    return [
        {
            "uuid": member.uuid,
            "addresses": [str(address) for address in member.addresses],
            "votes": member.votes,
            "promote": member.promote,
            "holds_data": member.holds_data,
            "replace": member.replace,
        }
        for member in config.members
    ]
