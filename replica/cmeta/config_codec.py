"""RaftConfig to Avro and back: as part of consensus metadata, and as the `meta` of a CONFIG entry."""

from __future__ import annotations

from typing import Any

from nyala.replica.base import Address, Corruption, InvariantViolation, LaterFormat, Member, OpId, RaftConfig
from nyala.schemas import decode, encode


def config_to_avro(config: RaftConfig) -> dict[str, Any]:
    """The dict of Avro record `RaftConfig`."""
    return {
        "opid": {"term": config.opid.term, "index": config.opid.index},
        "members": [
            {
                "uuid": member.uuid,
                "addresses": [{"host": address.host, "port": address.port} for address in member.addresses],
                "votes": member.votes,
                "promote": member.promote,
                "holds_data": member.holds_data,
                "replace": member.replace,
                "reserved": b"",
            }
            for member in config.members
        ],
        "decision_term": config.decision[0],
        "decision_version": config.decision[1],
        "unsafe": config.unsafe,
        "reserved": b"",
    }


def config_from_avro(value: dict[str, Any]) -> RaftConfig:
    """Inverse of `config_to_avro`; Corruption if the fields contradict each other, LaterFormat if one is reserved."""
    try:
        if value["reserved"] or any(member["reserved"] for member in value["members"]):
            raise LaterFormat("a config uses fields that this build does not know")
        return RaftConfig(
            opid=OpId(value["opid"]["term"], value["opid"]["index"]),
            members=tuple(
                Member(
                    uuid=member["uuid"],
                    addresses=tuple(Address(address["host"], address["port"]) for address in member["addresses"]),
                    votes=member["votes"],
                    promote=member["promote"],
                    holds_data=member["holds_data"],
                    replace=member["replace"],
                )
                for member in value["members"]
            ),
            decision=(value["decision_term"], value["decision_version"]),
            unsafe=value["unsafe"],
        )
    except InvariantViolation as error:
        raise Corruption("a stored config contradicts itself", cause=str(error)) from error


def encode_config(config: RaftConfig) -> bytes:
    """`meta` of a CONFIG entry: Avro `ConfigChange`."""
    return encode("config_change", {"config": config_to_avro(config), "reserved": b""})


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
