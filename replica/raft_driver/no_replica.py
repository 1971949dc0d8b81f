"""Answers for a tablet that has no running replica here: none at all, a tombstone, or one that copies, starts or
failed."""

from __future__ import annotations

from nyala.replica.raft import AppendEntries, AppendReply, Message, VoteReply, VoteRequest
from nyala.replica.types import ZERO_OPID, Code, DataState, OpId

_CODE_OF_STATE = {
    DataState.DOES_NOT_EXIST: Code.TABLET_NOT_FOUND,
    DataState.DELETED: Code.TABLET_DELETED,
    DataState.COPYING: Code.NOT_READY,
    DataState.READY: Code.NOT_READY,
}


def no_replica_reply(
    message: Message,
    *,
    uuid: str,
    data_state: DataState,
    own_term: int = 0,
    last_logged: OpId = ZERO_OPID,
    failed: bool = False,
) -> Message | None:
    """The answer of server `uuid` to `message`, or None if there is none. Changes and creates nothing.

    AppendEntries is checked in this order: name, then term, then state. A stale leader gets the higher term, so that it
    steps down and does not copy to a tombstone [kudu raft-tablet-copy, "Auto-vivifying Tablet Copy protocol"]. READY
    means a replica that is still bootstrapping. Vote requests for other names are refused; a vote itself is neither
    given nor refused here.
    """
    if isinstance(message, AppendEntries):
        if message.to_uuid != uuid:
            code = Code.INVALID_NAME
        elif message.term < own_term:
            code = Code.INVALID_TERM
        else:
            code = Code.TABLET_FAILED if failed else _CODE_OF_STATE[data_state]
        return AppendReply(
            to_uuid=message.from_uuid,
            from_uuid=uuid,
            term=max(own_term, message.term) if code is not Code.INVALID_TERM else own_term,
            code=code,
            last=last_logged,
            round=message.round,
            data_state=data_state,
        )
    if isinstance(message, VoteRequest) and message.to_uuid != uuid:
        return VoteReply(
            to_uuid=message.from_uuid,
            from_uuid=uuid,
            term=message.term,
            granted=False,
            pre_vote=message.pre_vote,
            code=Code.INVALID_NAME,
            reason="this server has another uuid",
        )
    return None
