"""The one call that servers make to leaders on other servers: a read at a given hybrid time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc.aio

from nyala.replica.raft_driver import Replica
from nyala.replica.rpc import check_reply, pb, pb_grpc, raise_if_error
from nyala.replica.types import Address, Member, Refused
from nyala.replica.types.log_records import about

from ..runtime.channels import Channels

_log = logging.getLogger("nyala.server")
_ASK_TIMEOUT_S = 5.0


class LeaderTime:
    """Makes the leader of an idle tablet replicate an entry, so that a follower reaches a time. Concurrency: the loop's
    thread."""

    def __init__(self, channels: Channels, place: Callable[[Member], Address | None]) -> None:
        """`place(member)`: the member's address for calls."""
        self._channels = channels
        self._place = place

    async def ask(self, replica: Replica, hybrid_time: int) -> None:
        """Ask the leader for a small read at that time. Before it serves the snapshot, it replicates an entry with a
        later time.

        Errors are only logged, because the caller waits for the entry and not for the leader.
        """
        member = replica.active_config.member(replica.leader_uuid or "")
        place = self._place(member) if member is not None else None
        if member is None or place is None:
            return
        stub: Any = pb_grpc.TabletServiceStub(self._channels.get(str(place), member.uuid))
        request = pb.ScanRequest(
            dest_uuid=member.uuid,
            tablet_id=replica.tablet_id,
            snapshot_time=hybrid_time,
            count_only=True,
            limit=1,
            timeout_us=int(_ASK_TIMEOUT_S * 1e6),
        )
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S):
                async for chunk in stub.Scan(request, timeout=_ASK_TIMEOUT_S):
                    raise_if_error(check_reply(chunk, "the leader").error)
        except grpc.aio.AioRpcError as error:
            self._log_why(replica, member, error.code().name)
        except (Refused, TimeoutError) as error:
            self._log_why(replica, member, str(error) or "it did not answer in time")

    @staticmethod
    def _log_why(replica: Replica, leader: Member, why: str) -> None:
        about(_log, replica.tablet_id, peer=leader.uuid).info("the leader %s gives no time: %s", leader.uuid, why)
