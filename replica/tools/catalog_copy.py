"""The catalog copied into the directory of a stopped master: one that takes a lost master's place, or joins its group.

[kudu master permanent failure, "Design proposal", steps 3 to 7; "Migration", steps 8 and 9]. The caller holds the
directory's lock.
"""

from __future__ import annotations

import grpc

from nyala.replica.base import Address, Code, DataState, Disk, RaftConfig, Refused
from nyala.replica.copy import CopyProgress
from nyala.replica.disk import MASTER, Instance
from nyala.replica.master import CATALOG_ID
from nyala.replica.rpc import CHANNEL_OPTIONS, config_from_pb, pb, pb_grpc
from nyala.replica.tablet import Superblock

from .local_replica import CONNECT_TIMEOUT_S, copy_replica, open_source

RIVAL_TIMEOUT_S = 2.0


def copy_catalog(
    disk: Disk,
    own: Instance,
    source: Address,
    *,
    allow_leaderless: bool = False,
    progress: CopyProgress | None = None,
) -> Superblock:
    """Copy the catalog from the master at `source` to the directory of `own`, which its next start then runs.

    The source leads, as a majority has just confirmed. With `allow_leaderless` it need not, if `own` has a uuid of its
    own: nobody counts on anything that it promised. A uuid that was inherited abstains from votes in every term up to
    the source's, since its former owner may have voted in any of them. Before anything is changed: Refused
    INVALID_ARGUMENT if either is no master, INVALID_NAME if the source's group has no such member, ILLEGAL_STATE if
    somebody answers at that member's address, UNAVAILABLE if the source does not. A copy that fails is repeated.
    """
    if own.kind != MASTER:
        what = "this is a tablet server's directory, and only a master has the catalog"
        raise Refused(Code.INVALID_ARGUMENT, what, uuid=own.uuid, path=disk.real_path(""))
    source_uuid, config = _group_at(source)
    member = config.member(own.uuid)
    if member is None:
        members = ", ".join(f"{m.uuid} at {m.addresses[0]}" for m in config.members)
        what = (
            "the masters' group has no member of this uuid: `nyala fs format --kind master --uuid` an empty directory "
            "with that of the master to be replaced"
        )
        raise Refused(Code.INVALID_NAME, what, uuid=own.uuid, members=members)
    if source_uuid == own.uuid:
        raise Refused(Code.INVALID_ARGUMENT, "that is the master itself: name another one to copy from", uuid=own.uuid)
    for address in member.addresses:
        _need_nobody(address, own.uuid)
    door = open_source(source_uuid, source)
    try:
        return copy_replica(
            disk,
            CATALOG_ID,
            own.uuid,
            door,
            allow_leaderless=allow_leaderless,
            inherited=own.inherited,
            progress=progress,
        )
    finally:
        door.close()


def has_catalog(disk: Disk) -> bool:
    """Whether a whole catalog is in this directory."""
    return Superblock.exists(disk, CATALOG_ID) and Superblock.load(disk, CATALOG_ID).data_state is DataState.READY


def _group_at(address: Address) -> tuple[str, RaftConfig]:
    """(uuid, committed config) of the master at `address`."""
    with grpc.insecure_channel(str(address), options=CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.MasterServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            status = stub.Status(pb.Empty(), timeout=CONNECT_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                what = "what answers there is no master"
                raise Refused(Code.INVALID_ARGUMENT, what, address=str(address)) from error
            what = "no master answers there"
            raise Refused(Code.UNAVAILABLE, what, address=str(address), status=error.code().name) from error
    if not status.replica.committed_config.members:
        raise Refused(Code.NOT_READY, "the master there is starting, or waits for the others", address=str(address))
    return status.uuid, config_from_pb(status.replica.committed_config)


def _need_nobody(address: Address, uuid: str) -> None:
    """Refused if a process answers where this master is to be: the one that is replaced must be dead for good."""
    with grpc.insecure_channel(str(address), options=CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.MasterServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            found = stub.GetIdentity(pb.Empty(), timeout=RIVAL_TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                return
            found = pb.IdentityReply(uuid="another program")
    if found.uuid == uuid:
        what = (
            "a master with this uuid answers at the address that the group has of it: end it for good and point its "
            "name at this machine first; nothing was changed"
        )
    else:
        what = "somebody else answers at the address that the group has of this master; nothing was changed"
    raise Refused(Code.ILLEGAL_STATE, what, address=str(address), uuid=uuid, answers=found.uuid)
