"""The values of `types` and their wire form. An impossible value from a peer is refused, and breaks no invariant."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from nyala.replica.types import (
    ZERO_OPID,
    Action,
    Address,
    Code,
    ConfigEdit,
    Decision,
    EditKind,
    Entry,
    EntryKind,
    InvariantViolation,
    Member,
    OpId,
    Proposal,
    RaftConfig,
    Refused,
    Wanted,
    known_value,
)

from . import nyala_pb2 as pb

_address = lru_cache(maxsize=4096)(Address)
_member = lru_cache(maxsize=4096)(Member)
"""The members of many tablets are the same few servers: they are made once, and shared."""


def feature_level_from_pb(told: int) -> int:
    """The feature level that a process reports. A build from before levels reports none, which is level 1."""
    return max(told, 1)


def opid_to_pb(opid: OpId) -> pb.OpId:
    """To the wire."""
    return pb.OpId(term=opid.term, index=opid.index)


def opid_from_pb(message: pb.OpId) -> OpId:
    """From the wire; an absent message is 0.0."""
    return OpId(message.term, message.index)


def address_to_pb(address: Address) -> pb.Address:
    """To the wire."""
    return pb.Address(host=address.host, port=address.port)


def place_to_pb(uuid: str, addresses: Iterable[Address]) -> pb.ServerPlace:
    """A server's uuid and addresses, to the wire."""
    return pb.ServerPlace(uuid=uuid, addresses=map(address_to_pb, addresses))


def address_from_pb(message: pb.Address) -> Address:
    """From the wire."""
    return _address(message.host, message.port)


def addresses_from_pb(messages: Iterable[pb.Address]) -> tuple[Address, ...]:
    """From the wire."""
    return tuple(address_from_pb(m) for m in messages)


def member_to_pb(member: Member) -> pb.Member:
    """To the wire."""
    return pb.Member(
        uuid=member.uuid,
        addresses=[address_to_pb(a) for a in member.addresses],
        votes=member.votes,
        promote=member.promote,
        holds_data=member.holds_data,
        replace=member.replace,
    )


def member_from_pb(message: pb.Member) -> Member:
    """From the wire; Refused(INVALID_ARGUMENT) if it is no possible member."""
    try:
        return _member(
            message.uuid,
            addresses_from_pb(message.addresses),
            message.votes,
            message.promote,
            message.holds_data,
            message.replace,
        )
    except InvariantViolation as e:
        raise Refused(Code.INVALID_ARGUMENT, f"not a member: {e}") from e


def edit_to_pb(edit: ConfigEdit) -> pb.ConfigEdit:
    """To the wire."""
    return pb.ConfigEdit(kind=edit.kind, member=member_to_pb(edit.member))


def edit_from_pb(message: pb.ConfigEdit) -> ConfigEdit:
    """From the wire; Refused(INVALID_ARGUMENT) if it is no possible edit."""
    return ConfigEdit(known_value(EditKind, message.kind, "the kind of an edit"), member_from_pb(message.member))


def proposal_from_pb(message: pb.MoveReplicaRequest, proposal_id: str) -> Proposal:
    """A request to move a replica or, with an empty `from_uuid`, the leadership. It is not based on a config."""
    return Proposal(
        proposal_id=proposal_id,
        plan_id=message.plan_id,
        tablet_id=message.tablet_id,
        wanted=Wanted.MOVE_REPLICA if message.from_uuid else Wanted.TRANSFER_LEADERSHIP,
        from_uuid=message.from_uuid,
        to_uuid=message.to_uuid,
        config_opid=ZERO_OPID,
        deadline_us=message.deadline_us,
        reason=message.reason,
    )


def decision_to_pb(decision: Decision, dest_uuid: str) -> pb.ChangeConfigRequest | pb.TransferRequest:
    """The request to the tablet's leader that carries out the decision."""
    request: pb.ChangeConfigRequest | pb.TransferRequest
    if decision.action is Action.TRANSFER_LEADERSHIP:
        request = pb.TransferRequest(target_uuid=decision.target_uuid)
    else:
        request = pb.ChangeConfigRequest(edits=map(edit_to_pb, decision.edits))
    request.dest_uuid, request.tablet_id = dest_uuid, decision.tablet_id
    request.committed_config_id.CopyFrom(opid_to_pb(decision.config_opid))
    request.has_cas = True
    request.decision_term, request.decision_version = decision.catalog_term, decision.version
    request.deadline_us = decision.deadline_us
    return request


def config_to_pb(config: RaftConfig) -> pb.RaftConfig:
    """To the wire."""
    return pb.RaftConfig(
        opid=opid_to_pb(config.opid),
        members=[member_to_pb(m) for m in config.members],
        decision_term=config.decision[0],
        decision_version=config.decision[1],
        unsafe=config.unsafe,
    )


def config_from_pb(message: pb.RaftConfig) -> RaftConfig:
    """From the wire; Refused(INVALID_ARGUMENT) if it is no possible config."""
    members = tuple(member_from_pb(m) for m in message.members)
    try:
        return RaftConfig(
            opid=opid_from_pb(message.opid),
            members=members,
            decision=(message.decision_term, message.decision_version),
            unsafe=message.unsafe,
        )
    except InvariantViolation as e:
        raise Refused(Code.INVALID_ARGUMENT, f"not a config: {e}") from e


def entry_from_pb(message: pb.Entry) -> Entry:
    """From the wire; Refused(INVALID_ARGUMENT) for a kind that this build does not know."""
    return Entry(
        OpId(message.term, message.index),
        known_value(EntryKind, message.kind, "the kind of an entry"),
        message.hybrid_time,
        message.schema_id,
        message.meta,
        message.payload,
        message.payload_crc,
    )
