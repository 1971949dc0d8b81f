"""The quarantine calls of a tablet server."""

from __future__ import annotations

import asyncio

from nyala.replica.rpc import page_of, pb
from nyala.replica.tablet_copy import Purged, Quarantined, list_some, no_superblock, purge_quarantine
from nyala.replica.types import Code, Refused, limits

from ..tablets.manager import TabletManager
from .request_deadline import RequestDeadline


async def quarantine_list(
    manager: TabletManager, request: pb.QuarantineRequest, deadline: RequestDeadline
) -> pb.ListQuarantineReply:
    """One page of the quarantines of one tablet, or of all tablets, by path. A page may be empty although another one
    follows."""

    def some() -> tuple[list[Quarantined], str]:
        most = limits.QUARANTINES_LISTED_MAX
        return list_some(manager.disk, request.tablet_id, after=request.after, most=most, stop=deadline.stop)

    try:
        found, more = await manager.in_thread(some)
    except asyncio.CancelledError:
        deadline.leave()
        raise
    items = (
        (
            q.path,
            pb.QuarantineItem(
                path=q.path,
                tablet_id=q.tablet_id,
                table_name=q.table_name,
                data_state=int(q.data_state or 0),
                wal_bytes=q.wal_bytes,
                block_bytes=q.block_bytes,
            ),
        )
        for q in found
    )
    page, last = await page_of(items, request.limit_bytes)
    return pb.ListQuarantineReply(items=page, next=last or more)


async def quarantine_purge(
    manager: TabletManager, tablet_id: str, deadline: RequestDeadline
) -> pb.PurgeQuarantineReply:
    """Purge one tablet's quarantines; the tombstone, if it is one, keeps its term, vote and last logged OpId.

    At most QUARANTINE_PURGED_MAX files and folders are removed; the reply says how many are left to another purge. If
    the caller leaves, the purge ends soon. The tablet stays in transition until it has ended. Refused TABLET_NOT_FOUND
    for a tablet without a superblock, ALREADY_INPROGRESS while it is created, copied or deleted; Corruption if a
    superblock cannot be read, because it may name any block: then nothing is removed.
    """
    hosted = manager.tablets.get(tablet_id)
    if hosted is None:
        raise no_superblock(tablet_id)
    if hosted.copy is not None or hosted.opening or hosted.transition.locked():
        raise Refused(Code.ALREADY_INPROGRESS, "the tablet is in transition; ask again", tablet=tablet_id)

    def some() -> Purged:
        return purge_quarantine(manager.disk, tablet_id, most=limits.QUARANTINE_PURGED_MAX, stop=deadline.stop)

    async def purged() -> Purged:
        async with hosted.transition:
            return await manager.in_thread(some)

    purging = asyncio.create_task(purged())
    try:
        removed, freed, remaining = await asyncio.shield(purging)
    except asyncio.CancelledError:
        deadline.leave()
        purging.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller is gone
        raise
    return pb.PurgeQuarantineReply(removed=removed, bytes_freed=freed, remaining=remaining)
