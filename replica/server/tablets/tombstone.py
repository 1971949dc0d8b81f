"""Answers for a tablet without a running replica here: it is absent, deleted, being copied, or failed.

The term check comes before the DELETED reply, so a stale leader steps down and does not copy to the tombstone. A
tombstone votes, because a group may need its vote. It votes by its kept last logged OpId and never by a half-copied log
[kudu raft-tablet-copy, "Auto-vivifying Tablet Copy protocol" and "Future work"].
"""

from __future__ import annotations

import logging
from typing import Protocol

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft import Message, VoteReply, VoteRequest, invalid_reason, too_far
from nyala.replica.raft_driver import no_replica_reply
from nyala.replica.types import ZERO_OPID, Code, DataState, OpId, generation_of
from nyala.replica.types.log_records import about

from .hosted import HostedTablet

_log = logging.getLogger("nyala.server")


class Server(Protocol):
    """The calls of this module to its server."""

    uuid: str

    def reply(self, tablet_id: str, message: Message) -> None:
        """Send a message to the server in its `to_uuid`."""

    def owes_a_lease(self, hosted: HostedTablet) -> bool:
        """Whether the replica ran so recently that its leader may hold a lease because of its answers."""

    def lost_term(self, tablet_id: str) -> int:
        """The term of a tablet that was here and whose superblock is lost; 0 for any other."""


def vote_reply(
    message: VoteRequest,
    *,
    uuid: str,
    cmeta: ConsensusMeta,
    last: OpId,
    last_known: bool = True,
    owes_lease: bool = False,
) -> VoteReply:
    """A tombstone's vote; a granted one is durable on return. Call it in a thread: it may write consensus metadata.

    Without `last_known`, `last` is only a lower bound of what was acknowledged here, so no vote is given. `owes_lease`:
    its replica ran so recently that a leader may still hold a lease, so it votes for a planned transfer only.
    """
    term, voted_for = cmeta.term, cmeta.voted_for
    reason = ""
    if message.to_uuid != uuid:
        reason = "this server has another uuid"
    elif message.term < term:
        reason = f"term {message.term} is below {term}"
    elif message.term <= cmeta.vote_floor_term:
        reason = f"abstaining up to term {cmeta.vote_floor_term}"
    elif owes_lease and not message.transfer:
        reason = "its replica ran a moment ago, and a leader may hold a lease"
    elif not last_known:
        reason = "its log could not be read when it was deleted: it may have acknowledged more than it knows"
    elif message.last < last:
        reason = f"candidate's log ends at {message.last}, {last} was acknowledged here"
    elif message.term == term and not message.pre_vote and voted_for not in (None, message.from_uuid):
        reason = f"voted for {voted_for} in term {term}"
    if not reason and not message.pre_vote:
        cmeta.save_hard_state(message.term, message.from_uuid)
    return VoteReply(
        to_uuid=message.from_uuid,
        from_uuid=uuid,
        term=message.term if not reason else cmeta.term,
        granted=not reason,
        pre_vote=message.pre_vote,
        code=Code.INVALID_NAME if message.to_uuid != uuid else Code.OK,
        reason=reason,
    )


def answer_without_replica(server: Server, hosted: HostedTablet | None, tablet_id: str, message: Message) -> str:
    """Answer one message for a tablet without a running replica; drop a message that needs no answer.

    Returns why the message was refused, as one that no honest peer sends; empty if it was not.
    """
    uuid = server.uuid
    term = hosted.term if hosted is not None else server.lost_term(tablet_id)
    if refusal := _refusal(term, message):
        return refusal
    if generation_of(message.term) < generation_of(term):
        return ""  # the sender was lost and given up by a forced config; an answer would give it the new term (D-17)
    state = hosted.data_state if hosted is not None else DataState.DOES_NOT_EXIST
    reply = no_replica_reply(
        message,
        uuid=uuid,
        data_state=state,
        own_term=term,
        last_logged=hosted.last_opid if hosted is not None else ZERO_OPID,
        failed=state is DataState.READY,
    )
    if reply is not None:
        server.reply(tablet_id, reply)
        return ""
    if not isinstance(message, VoteRequest):
        return ""
    if hosted is None or hosted.cmeta is None or hosted.superblock.data_state is not DataState.DELETED:
        denied = VoteReply(
            to_uuid=message.from_uuid,
            from_uuid=uuid,
            term=term,
            granted=False,
            pre_vote=message.pre_vote,
            code=Code.TABLET_NOT_FOUND if hosted is None else Code.TABLET_FAILED,
            reason="no replica of the tablet runs here",
        )
        server.reply(tablet_id, denied)
        return ""
    cmeta, last, request, lock = hosted.cmeta, hosted.last_opid, message, hosted.cmeta_lock
    owes_lease, last_known = server.owes_a_lease(hosted), hosted.superblock.last_logged_known

    def vote() -> VoteReply:
        with lock:
            return vote_reply(request, uuid=uuid, cmeta=cmeta, last=last, last_known=last_known, owes_lease=owes_lease)

    def done(result: VoteReply | BaseException) -> None:
        if isinstance(result, BaseException):
            about(_log, tablet_id, uuid).warning("tombstone could not vote: %s", result)
        else:
            server.reply(tablet_id, result)

    hosted.meta_lane.run(vote, done)
    return ""


def _refusal(term: int, message: Message) -> str:
    if refusal := invalid_reason(message):
        return refusal
    if term and too_far(term, message.term):
        return f"term {message.term} is too far above term {term} here"
    return ""
