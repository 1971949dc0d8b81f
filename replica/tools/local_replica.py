"""Makes one replica on a stopped server a tombstone, erases it, or copies it anew from a live server. Offline.

The caller holds the directory's lock. The rules are the server's own: what it would do at its start is done first, and
a deletion and a copy have the server's six steps. Term, vote and last logged OpId outlive everything here but `erase`.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.rpc import ONCE_CHANNEL_OPTIONS, channel_to, pb, pb_grpc
from nyala.replica.server import ReplayWatch
from nyala.replica.tablet import Superblock, block_names, superblock_path
from nyala.replica.tablet_copy import (
    CopyAttempt,
    CopyProgress,
    CopySource,
    LastLogged,
    TargetCopy,
    delete_replica,
    last_of_unopened,
    named_blocks,
    purge_quarantine,
    settle_at_startup,
    wal_folder,
    was_here,
)
from nyala.replica.tablet_copy.wire import RemoteCopySource
from nyala.replica.types import ZERO_OPID, Address, Code, Corruption, DataState, Disk, OpId, Refused, limits
from nyala.replica.wal import Log

CONNECT_TIMEOUT_S = 5.0


def make_tombstone(disk: Disk, tablet_id: str) -> Superblock:
    """Delete a replica as its server would: data to quarantine, and term, vote and last logged OpId are kept for ever.

    Consensus metadata that do not read back stay as they are: no replica votes by them. A tombstone is returned as it
    is. Refused TABLET_NOT_FOUND; Corruption if the superblock cannot be read: what it
    acknowledged is then not known, and only `erase` removes it.
    """
    superblock = settle_at_startup(disk, Superblock.load(disk, tablet_id))
    if superblock.data_state is DataState.DELETED:
        return superblock
    last = last_logged_of(disk, superblock)
    superblock = delete_replica(disk, superblock, last.opid, stop=lambda: None, known=last.known)
    ReplayWatch(disk).forget(tablet_id)
    return superblock


def last_logged_of(disk: Disk, superblock: Superblock) -> LastLogged:
    """Return the last OpId that a replica at rest may have acknowledged; a log's torn end is cut, as at a start.

    For a log that cannot be read it is a lower bound (`last_of_unopened`), which is lower still if the consensus
    metadata cannot be read either. LaterFormat if a later build wrote them, because then term and vote are unknown.
    """
    if superblock.data_state is not DataState.READY:
        return LastLogged(superblock.last_logged or ZERO_OPID, superblock.last_logged_known)
    tablet_id = superblock.tablet_id
    try:
        if not disk.exists(wal_folder(tablet_id)):
            raise Corruption("the log's folder is missing", tablet=tablet_id)
        log, replay = Log.open(disk, wal_folder(tablet_id), tablet_id)
        log.close()
        end = max(superblock.end_of(replay.last), replay.withheld or ZERO_OPID)
        return LastLogged(end, known=replay.withheld is None)
    except Corruption:
        return last_of_unopened(superblock, ConsensusMeta.load_if_present(disk, tablet_id, or_lost=True))


def erase(disk: Disk, tablet_id: str) -> list[str]:
    """Remove all files of one tablet, term and vote included, although the uuid goes on; returns the sorted paths.

    Unsafe: the server may vote twice in one term and forget what it acknowledged. Blocks that another superblock names
    stay; if a superblock cannot be read, all blocks stay, and a later start sweeps those without a name. The consensus
    metadata are removed last, so that after an interruption the vote is not forgotten. A master without its catalog
    needs a copy of it before it starts again. Refused TABLET_NOT_FOUND if there is no file.
    """
    places = [superblock_path(tablet_id), path_of(tablet_id), wal_folder(tablet_id)]
    if not any(disk.exists(p) for p in places):
        raise Refused(Code.TABLET_NOT_FOUND, "nothing of this tablet is here", tablet=tablet_id)
    removed: list[str] = []
    mine: frozenset[str] = frozenset()
    if Superblock.exists(disk, tablet_id):
        try:
            mine = block_names(Superblock.load(disk, tablet_id))
            removed += purge_quarantine(disk, tablet_id).removed
        except Corruption:
            mine = frozenset()
        disk.remove(superblock_path(tablet_id))
        disk.sync_dir(superblock_path(tablet_id).rpartition("/")[0])
        removed.append(superblock_path(tablet_id))
    if mine:
        for path in sorted(mine - named_blocks(disk)):
            if disk.exists(path):
                disk.remove(path)
                removed.append(path)
    for path, is_folder in ((wal_folder(tablet_id), True), (path_of(tablet_id), False)):
        if disk.exists(path):
            if is_folder:
                disk.remove_tree(path)
            else:
                disk.remove(path)
            disk.sync_dir(path.rpartition("/")[0])
            removed.append(path)
    ReplayWatch(disk).forget(tablet_id)
    return sorted(removed)


def copy_replica(
    disk: Disk,
    tablet_id: str,
    uuid: str,
    source: CopySource,
    *,
    allow_leaderless: bool = False,
    vote_floor: int | None = None,
    progress: CopyProgress | None = None,
) -> Superblock:
    """Copy a tablet from `source` into the directory of server `uuid`: COPY.1 to COPY.5, as its server would.

    `vote_floor`: the uuid's votes are not in this directory; it abstains from votes in all terms up to that and the
    source's. The source must lead, unless `allow_leaderless`, and hold everything that this directory acknowledged.
    Consensus metadata that are lost or unreadable are replaced as by a server (`ConsensusMeta.adopt`), which never
    again votes in a term up to the source's. Then the source must lead in any case, because another one may not know
    the terms in which this server voted. A READY replica goes to quarantine first. A copy that fails leaves a
    tombstone, or nothing if there was no replica; one that fails before COPY.1 changes nothing.
    """

    def local() -> Superblock | None:
        if not Superblock.exists(disk, tablet_id):
            return None
        return settle_at_startup(disk, Superblock.load(disk, tablet_id))

    def stop_and_delete(check_source: Callable[[OpId, int], None]) -> Superblock | None:
        current = local()
        if current is None:
            return None
        last = last_logged_of(disk, current)
        check_source(last.opid, term)
        return delete_replica(disk, current, last.opid, stop=lambda: None, known=last.known)

    before = local()
    lost_here = before is None and was_here(disk, tablet_id)
    cmeta = ConsensusMeta.load_if_present(disk, tablet_id, or_lost=before is not None or lost_here)
    ready = before is not None and before.data_state is DataState.READY
    kept = last_logged_of(disk, before).opid if before is not None else ZERO_OPID
    unread = cmeta is None and (ready or lost_here or ConsensusMeta.exists(disk, tablet_id))
    lost = unread or vote_floor is not None
    term = cmeta.term if cmeta is not None else 0

    def merge(remote: bytes) -> None:
        merged = ConsensusMeta.adopt(disk, tablet_id, uuid, remote, lost=lost or lost_here or before is not None)
        if vote_floor is not None:
            # The metadata of an earlier attempt abstain from terms up to that of its own source.
            merged.raise_vote_floor(max(merged.term, vote_floor))

    copy = TargetCopy(
        CopyAttempt(disk=disk, tablet_id=tablet_id, uuid=uuid, source=source, progress=progress or CopyProgress()),
        own_last_opid=kept,
        own_term=term,
        stop_and_delete=stop_and_delete,
        allow_leaderless=allow_leaderless and not lost,
        merge=merge,
    )
    try:
        copied = copy.run()
    except Refused as refusal:
        if lost and allow_leaderless and refusal.code is Code.NOT_LEADER:
            what = "term and vote of this server are not here, or unreadable: then a copy comes from the leader only"
            raise Refused(Code.NOT_LEADER, what, tablet=tablet_id, server=uuid) from refusal
        raise
    ReplayWatch(disk).forget(tablet_id)
    return copied


def connect_source(address: Address) -> RemoteCopySource:
    """Return a copy source at the tablet server at `address`, whatever its uuid; Refused UNAVAILABLE if none
    answers."""
    with channel_to(address, ONCE_CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.TabletServiceStub(channel)
        try:
            reply = stub.GetIdentity(pb.Empty(), timeout=CONNECT_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            what = "no tablet server answers there"
            status = error.code().name
            raise Refused(Code.UNAVAILABLE, what, address=str(address), status=status) from error
    return open_source(reply.uuid, address)


def open_source(uuid: str, address: Address) -> RemoteCopySource:
    """Return a copy source at the process `uuid` at `address`, connected; Refused UNAVAILABLE if it is not there in
    time."""
    source = RemoteCopySource(uuid, [address], limits.COPY_BEGIN_CATALOG_S_MAX)
    try:
        source.wait_connected(CONNECT_TIMEOUT_S)
    except BaseException:
        source.close()
        raise
    return source
