"""Puts messages into a batch in place, so that the bytes of a payload are copied only once."""

from __future__ import annotations

from nyala.replica.raft import AppendEntries, Message
from nyala.replica.rpc import message_to_pb, pb


def add_message(batch: pb.PeerBatch, tablet_id: str, message: Message) -> None:
    """Append `message` of `tablet_id` to `batch`. It fills the same fields as `rpc.message_to_pb`."""
    if type(message) is not AppendEntries:
        batch.messages.append(message_to_pb(tablet_id, message))
        return
    wire = batch.messages.add(
        tablet_id=tablet_id, from_uuid=message.from_uuid, to_uuid=message.to_uuid, term=message.term
    )
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
