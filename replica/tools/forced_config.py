"""Forces a config upon a replica at rest: writes it at the end of its log and into its consensus metadata.

In the log it is the newest entry, so no older config there can come into force again, and later members receive it like
any other entry. In the metadata it is committed, and with it all earlier entries of the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nyala.replica.consensus_metadata import CmetaView, ConsensusMeta, decode_config, encode_config, path_of, read_cmeta
from nyala.replica.master import CATALOG_ID
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.types import (
    Code,
    DataState,
    Disk,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    Refused,
    generation_of,
    limits,
    next_generation,
    offset_in_generation,
)
from nyala.replica.wal import Log, read_offline

UNDO = "undo"
"""Folder under the server's directory for what offline tools replaced. No program reads it; an operator may remove
it."""
_OFFSET_BY_HAND_MAX = 1 << 31
"""The highest term within its generation that an operator may set: as many are left for elections."""


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """One file of consensus metadata, before and after, and the place where the earlier bytes are kept."""

    before: CmetaView
    after: CmetaView
    undo: str


def force_config(disk: Disk, tablet_id: str, config: RaftConfig, time: int) -> None:
    """Append `config` to the log as an entry with its OpId and hybrid `time`, then put it in force. Can be repeated.

    Refused(ILLEGAL_STATE), with no change, unless the replica is READY and its log ends right before the config, or
    with it.
    """
    superblock = Superblock.load(disk, tablet_id)
    if superblock.data_state is not DataState.READY:
        what = "a config is forced upon a READY replica only"
        raise Refused(Code.ILLEGAL_STATE, what, tablet=tablet_id, state=superblock.data_state.name)
    meta = ConsensusMeta.load(disk, tablet_id)
    log, _ = Log.open(disk, wal_folder(tablet_id), tablet_id)
    try:
        last = superblock.end_of(log.last)
        if last != config.opid:
            if last.index + 1 != config.opid.index or last.term >= config.opid.term:
                what = "the log does not end where the config is to stand"
                raise Refused(Code.ILLEGAL_STATE, what, tablet=tablet_id, last=last, config=config.opid)
            _append(log, Entry(config.opid, EntryKind.CONFIG, time, 0, encode_config(config), b"", 0))
    finally:
        log.close()
    disk.crash_point("recover.logged")
    meta.force(config, config.opid.term)


def _append(log: Log, entry: Entry) -> None:
    outcomes: list[OpId | BaseException] = []
    log.append([entry], outcomes.append)
    log.drain()
    if isinstance(outcomes[0], BaseException):
        raise outcomes[0]


def keep_undo(disk: Disk, tablet_id: str, data: bytes) -> str:
    """Keep earlier metadata in the UNDO folder and return the path. The same bytes are kept once."""
    prefix = f"{tablet_id}.cmeta-"
    kept = [n for n in disk.listdir(UNDO) if n.startswith(prefix)] if disk.exists(UNDO) else []
    for name in kept:
        if disk.read(f"{UNDO}/{name}") == data:
            return f"{UNDO}/{name}"
    disk.mkdir(UNDO)
    numbers = [int(number) for n in kept if (number := n.removeprefix(prefix)).isdecimal()]
    path = f"{UNDO}/{prefix}{max(numbers, default=0) + 1:06d}"
    disk.replace(path, data)
    return path


def rewrite_config(disk: Disk, tablet_id: str, members: tuple[Member, ...], *, dry_run: bool = False) -> Rewritten:
    """Force `members` upon one replica, in a new generation of its group; the others have to be copied from it.

    If an earlier rewrite to the same members was interrupted, it is finished. The undo folder has the metadata only:
    the entry stays in the log. Refused(INVALID_ARGUMENT) if none of the members could lead, ILLEGAL_STATE if this
    replica is a witness by its disk and is to hold data, because no rows can be copied from it. `dry_run` changes
    nothing.
    """
    if not any(m.votes and m.holds_data for m in members):
        raise Refused(Code.INVALID_ARGUMENT, "nobody could lead: name at least one voter that holds data")
    whole = all(m.votes and m.holds_data for m in members)
    if tablet_id == CATALOG_ID and (len(members) not in limits.MASTERS or not whole):
        what = "the masters are one, three or five, all of them voters: an even number survives no more failures"
        raise Refused(Code.INVALID_ARGUMENT, what, members=len(members))
    superblock = Superblock.load(disk, tablet_id)
    data, before = _read(disk, tablet_id)
    if superblock.witness and any(m.uuid == before.uuid and m.holds_data for m in members):
        what = "this replica is a witness: it has a log and no rows, and cannot become a member that holds data"
        raise Refused(Code.ILLEGAL_STATE, what, tablet=tablet_id, server=before.uuid)
    replay = read_offline(disk, wal_folder(tablet_id), tablet_id)
    last, last_time, final = superblock.end_of(replay.last), superblock.flush_time, None
    for final in replay.entries:
        last_time = max(last_time, final.hybrid_time)
    opid = OpId(next_generation(max(before.term, last.term)), last.index + 1)
    config = RaftConfig(opid, tuple(sorted(members, key=lambda m: m.uuid)), before.config.decision, unsafe=True)
    if before.config.unsafe and before.config == config.with_opid(before.config.opid) and before.config.opid == last:
        return Rewritten(before=before, after=before, undo="")
    waiting = _logged_only(before, final)
    if waiting is not None and waiting == config.with_opid(waiting.opid):
        config = waiting
    if dry_run:
        after = replace(before, term=config.opid.term, voted_for=None, config=config)
        return Rewritten(before=before, after=after, undo="")
    undo = keep_undo(disk, tablet_id, data)
    force_config(disk, tablet_id, config, last_time + 1)
    return Rewritten(before=before, after=_read(disk, tablet_id)[1], undo=undo)


def _logged_only(before: CmetaView, final: Entry | None) -> RaftConfig | None:
    """Return the forced config of an interrupted rewrite: the log ends with it, the metadata have a lower term."""
    if final is None or final.kind is not EntryKind.CONFIG or final.opid.term <= before.term:
        return None
    config = decode_config(final.meta).with_opid(final.opid)
    return config if config.unsafe else None


def raise_term(disk: Disk, tablet_id: str, term: int, *, dry_run: bool = False) -> Rewritten:
    """Make a replica at rest enter a higher term, without a vote in it. Repeating it changes nothing.

    Refused(INVALID_ARGUMENT) for a lower term, in which it may have voted before; for one of another generation, in
    which the replica would ignore its group; and for one so high in its generation that few are left to elections.
    """
    data, before = _read(disk, tablet_id)
    if term < before.term:
        raise Refused(Code.INVALID_ARGUMENT, "a term is only raised, nothing was changed", term=before.term, asked=term)
    if generation_of(term) != generation_of(before.term):
        what = "that term is of another generation: only `cmeta rewrite` and `unsafe recover` begin one"
        raise Refused(Code.INVALID_ARGUMENT, what, term=before.term, asked=term)
    if term == before.term:
        return Rewritten(before=before, after=before, undo="")
    if offset_in_generation(term) > _OFFSET_BY_HAND_MAX:
        what = "that term leaves its group few to elect in: after the last of a generation nobody is ever elected again"
        highest = term - offset_in_generation(term) + _OFFSET_BY_HAND_MAX
        raise Refused(Code.INVALID_ARGUMENT, what, term=before.term, asked=term, highest=highest)
    if dry_run:
        return Rewritten(before=before, after=replace(before, term=term, voted_for=None), undo="")
    undo = keep_undo(disk, tablet_id, data)
    ConsensusMeta.load(disk, tablet_id).save_hard_state(term, None)
    return Rewritten(before=before, after=_read(disk, tablet_id)[1], undo=undo)


def _read(disk: Disk, tablet_id: str) -> tuple[bytes, CmetaView]:
    path = path_of(tablet_id)
    if not disk.exists(path):
        what = "no consensus metadata of that tablet here, and nothing was changed: check its id and the directory"
        raise Refused(Code.NOT_FOUND, what, tablet=tablet_id, path=path)
    data = disk.read(path)
    return data, read_cmeta(data, path)
