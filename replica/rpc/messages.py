"""Messages of the consensus core and their wire form: RaftMessage with one body for each message class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nyala.replica.raft import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from nyala.replica.rows import crc32c
from nyala.replica.types import Code, DataState, Refused, known_value

from . import nyala_pb2 as pb
from .values import entry_from_pb, opid_from_pb, opid_to_pb


def message_to_pb(tablet_id: str, message: Message) -> pb.RaftMessage:
    """To the wire, for one tablet."""
    wire = pb.RaftMessage()
    fill_message(wire, tablet_id, message)
    return wire


def fill_message(wire: pb.RaftMessage, tablet_id: str, message: Message) -> None:
    """Write `message` of `tablet_id` into an empty RaftMessage, in place, so that payloads are copied only once."""
    wire.tablet_id, wire.term = tablet_id, message.term
    wire.from_uuid, wire.to_uuid = message.from_uuid, message.to_uuid
    if isinstance(message, AppendEntries):
        body = wire.append_entries
        body.prev.term, body.prev.index = message.prev
        body.commit_index = message.commit_index
        body.round = message.round
        body.safe_time = message.safe_time
        body.quiet = message.quiet
        for entry in message.entries:
            body.entries.add(
                term=entry.opid.term,
                index=entry.opid.index,
                kind=entry.kind,
                hybrid_time=entry.hybrid_time,
                schema_id=entry.schema_id,
                meta=entry.meta,
                payload=entry.payload,
                payload_crc=entry.payload_crc,
            )
    elif isinstance(message, AppendReply):
        wire.append_reply.CopyFrom(
            pb.AppendReply(
                code=int(message.code),
                mismatch=message.mismatch,
                last=opid_to_pb(message.last),
                conflict_index=message.conflict_index,
                commit_index=message.commit_index,
                round=message.round,
                applied_index=message.applied_index,
                data_state=int(message.data_state),
                quiet=message.quiet,
                no_data=message.no_data,
            )
        )
    elif isinstance(message, VoteRequest):
        wire.vote_request.CopyFrom(
            pb.VoteRequest(pre_vote=message.pre_vote, last=opid_to_pb(message.last), transfer=message.transfer)
        )
    elif isinstance(message, VoteReply):
        wire.vote_reply.CopyFrom(
            pb.VoteReply(
                pre_vote=message.pre_vote, granted=message.granted, code=int(message.code), reason=message.reason
            )
        )
    else:
        wire.timeout_now.CopyFrom(pb.TimeoutNow(last=opid_to_pb(message.last)))


def message_from_pb(wire: pb.RaftMessage) -> Message:
    """From the wire; Refused(INVALID_ARGUMENT) for a body, code, state or entry kind that this build does not know.

    Refused(INVALID_BATCH) if the payload of an entry does not match its CRC; the message must not be used then.
    """
    kind = wire.WhichOneof("body")
    if kind is None:
        raise Refused(Code.INVALID_ARGUMENT, "a consensus message of unknown kind", tablet=wire.tablet_id)
    return _BODIES[kind](getattr(wire, kind), _envelope(wire))


def _envelope(wire: pb.RaftMessage) -> dict[str, Any]:
    return {"to_uuid": wire.to_uuid, "from_uuid": wire.from_uuid, "term": wire.term}


def _append_entries(body: pb.AppendEntries, envelope: dict[str, Any]) -> Message:
    entries = tuple(entry_from_pb(e) for e in body.entries)
    for entry in entries:
        # Checked before `step`: the log takes a bad payload for a bug of this server and ends the process.
        if crc32c(entry.payload) != entry.payload_crc:
            raise Refused(Code.INVALID_BATCH, "the payload of an entry does not have its CRC", opid=entry.opid)
    return AppendEntries(
        prev=opid_from_pb(body.prev),
        entries=entries,
        commit_index=body.commit_index,
        round=body.round,
        safe_time=body.safe_time,
        quiet=body.quiet,
        **envelope,
    )


def _append_reply(body: pb.AppendReply, envelope: dict[str, Any]) -> Message:
    return AppendReply(
        code=known_value(Code, body.code, "the code of a consensus message"),
        mismatch=body.mismatch,
        last=opid_from_pb(body.last),
        conflict_index=body.conflict_index,
        commit_index=body.commit_index,
        round=body.round,
        applied_index=body.applied_index,
        data_state=known_value(DataState, body.data_state, "the data state of a follower"),
        quiet=body.quiet,
        no_data=body.no_data,
        **envelope,
    )


def _vote_request(body: pb.VoteRequest, envelope: dict[str, Any]) -> Message:
    return VoteRequest(last=opid_from_pb(body.last), pre_vote=body.pre_vote, transfer=body.transfer, **envelope)


def _vote_reply(body: pb.VoteReply, envelope: dict[str, Any]) -> Message:
    return VoteReply(
        granted=body.granted,
        pre_vote=body.pre_vote,
        code=known_value(Code, body.code, "the code of a consensus message"),
        reason=body.reason,
        **envelope,
    )


def _timeout_now(body: pb.TimeoutNow, envelope: dict[str, Any]) -> Message:
    return TimeoutNow(last=opid_from_pb(body.last), **envelope)


_BODIES: dict[str, Callable[[Any, dict[str, Any]], Message]] = {
    "append_entries": _append_entries,
    "append_reply": _append_reply,
    "vote_request": _vote_request,
    "vote_reply": _vote_reply,
    "timeout_now": _timeout_now,
}
