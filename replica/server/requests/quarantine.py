"""The quarantine calls of a tablet server."""

from __future__ import annotations

from nyala.replica.rpc import page_of, pb
from nyala.replica.tablet_copy import list_quarantine, purge_quarantine
from nyala.replica.types import Code, Refused

from ..tablets.manager import TabletManager


async def quarantine_list(manager: TabletManager, request: pb.QuarantineRequest) -> pb.ListQuarantineReply:
    """One page of the quarantines of one tablet, or of all, by path."""
    found = await manager.in_thread(lambda: list_quarantine(manager.disk, request.tablet_id))
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
        for q in sorted(found, key=lambda q: q.path)
        if q.path > request.after
    )
    page, last = await page_of(items, request.limit_bytes)
    return pb.ListQuarantineReply(items=page, next=last)


async def quarantine_purge(manager: TabletManager, tablet_id: str) -> pb.PurgeQuarantineReply:
    """Purge one tablet's quarantines; the tombstone, if it is one, keeps its promises.

    Refused TABLET_NOT_FOUND for a tablet that was never here, ALREADY_INPROGRESS while it is created, copied or
    deleted; Corruption if a superblock cannot be read, because it may name any block: then nothing is removed.
    """
    hosted = manager.get(tablet_id)
    if hosted.copy is not None or hosted.opening or hosted.transition.locked():
        raise Refused(Code.ALREADY_INPROGRESS, "the tablet is in transition; ask again", tablet=tablet_id)
    async with hosted.transition:
        removed, freed = await manager.in_thread(lambda: purge_quarantine(manager.disk, tablet_id))
    return pb.PurgeQuarantineReply(removed=removed, bytes_freed=freed)
