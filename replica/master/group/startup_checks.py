"""Checks, before a master sends anything, whether its directory and its options let it take part in its group.

[kudu master permanent failure, "Design proposal"]: every master has the same list of addresses, and a master that
replaces another one has its uuid and a copy of the catalog.
"""

from __future__ import annotations

from collections.abc import Sequence

from nyala.replica.fs import Instance
from nyala.replica.tablet import Superblock
from nyala.replica.types import Address, Code, DataState, Disk, Member, RaftConfig, Refused, limits

from ..catalog.catalog import CATALOG_ID


def has_taken_part(instance: Instance) -> bool:
    """Whether the uuid of a directory without a catalog has taken part in a group before, and so may have voted."""
    return instance.inherited or bool(instance.cluster_id)


def has_catalog(disk: Disk) -> bool:
    """Whether a whole catalog is in this directory."""
    return Superblock.exists(disk, CATALOG_ID) and Superblock.load(disk, CATALOG_ID).data_state is DataState.READY


def need_catalog(disk: Disk, instance: Instance, *, joins: bool = False) -> None:
    """Raise Refused NOT_READY if this directory lacks the Raft state of its uuid: it took over the uuid, or a copy did
    not end. A new master that joins (`joins`) is not refused: it has not voted before its copy ends, so it begins the
    copy again."""
    if not Superblock.exists(disk, CATALOG_ID):
        if has_taken_part(instance):
            what = (
                "this directory lacks the term, vote and log of its uuid, because it took that of a master that it "
                "replaces, or lost its catalog: copy it from the leading master, `nyala master copy-from`, or put the "
                "files back from a backup if this is the only one; nothing was started"
            )
            raise Refused(Code.NOT_READY, what, uuid=instance.uuid, path=disk.real_path(""))
        return
    if not has_catalog(disk) and (has_taken_part(instance) or not joins):
        what = (
            "the catalog here is not whole, as after a copy that did not end: repeat `nyala master copy-from`, or "
            "start a new master with --join again"
        )
        raise Refused(Code.NOT_READY, what, uuid=instance.uuid, path=disk.real_path(""))


def check_peers(own: Address, peers: Sequence[Address]) -> None:
    """Raise Refused INVALID_ARGUMENT for a list that no group can have: one without this master, or with two, four or
    more than five."""
    listed = dict.fromkeys(peers)
    if len(listed) < 2:
        return
    if own not in listed:
        what = "--peers leaves out this master itself: list it, too, at the address of --advertise"
        raise Refused(Code.INVALID_ARGUMENT, what, own=own, peers=_text(listed))
    if len(listed) not in limits.MASTERS:
        what = f"{len(listed)} masters are listed: list one, three or five; an even number tolerates no more failures"
        raise Refused(Code.INVALID_ARGUMENT, what, peers=_text(listed))


def check_config(config: RaftConfig, own: Member, peers: Sequence[Address]) -> str:
    """Raise Refused ILLEGAL_STATE if this master belongs to another group than the one in its options.

    Returns a note for the log, or an empty text. If the group has changed its members since it was formed, `peers` may
    be the former list, and the stored config counts.
    """
    member = config.member(own.uuid)
    if member is None:
        raise removed(own.uuid, config)
    stored = {address for m in config.members for address in m.addresses}
    changed = config.opid.index > 0 and not config.unsafe
    if len(config.members) > 1 and stored != set(peers) and not changed:
        what = "--peers is not what this master's group agreed on; it has to list the same addresses on each of them"
        raise Refused(Code.ILLEGAL_STATE, what, peers=_text(peers) or "(none)", agreed=_text(stored))
    if len(config.members) > 1 and not set(own.addresses) & set(member.addresses):
        what = "the group knows this master at another address than that of its --advertise or --listen"
        raise Refused(Code.ILLEGAL_STATE, what, told=_text(own.addresses), agreed=_text(member.addresses))
    if changed and peers and stored != set(peers):
        return f"the masters have changed since --peers={_text(peers)}: the group is {_text(stored)}, which counts"
    return ""


def removed(uuid: str, config: RaftConfig) -> Refused:
    """The error of a master that the group of its catalog has removed."""
    what = (
        "this master was removed from the masters' group: no master asks it for a vote. Its directory is no longer "
        "needed; to use the machine again, `nyala fs wipe` the directory and start with --join"
    )
    return Refused(Code.ILLEGAL_STATE, what, uuid=uuid, members=" ".join(m.uuid for m in config.members))


def _text(addresses: Sequence[Address] | dict[Address, None] | set[Address]) -> str:
    return ",".join(sorted(map(str, addresses)))
