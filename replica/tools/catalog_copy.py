"""Copies the catalog into the directory of a stopped master that takes a lost master's place, or joins its group.

[kudu master permanent failure, "Design proposal", steps 3 to 7; "Migration", steps 8 and 9]. The caller holds the
directory's lock.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from nyala.replica.fs import MASTER, Instance, take_over
from nyala.replica.master import CATALOG_ID, has_catalog, has_taken_part
from nyala.replica.rpc import ONCE_CHANNEL_OPTIONS, channel_to, config_from_pb, pb, pb_grpc, raise_if_error
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import CopyProgress
from nyala.replica.types import Address, Code, Disk, Member, RaftConfig, Refused

from .local_replica import CONNECT_TIMEOUT_S, copy_replica, open_source

RIVAL_TIMEOUT_S = 2.0
TAKE_OVER_TIMEOUT_S = 30.0
HEARD_WAIT_S = 15.0
"""A leader counts a dead master as alive for an election timeout, 1 s, and a new leader counts from its election."""
HEARD_POLL_S = 0.2
NUMBER = re.compile("[0-9]{1,9}")
TOLD_TIMEOUT_S = 30.0
TOLD_POLL_S = 0.05


def copy_catalog(
    disk: Disk, own: Instance, source: Address, *, allow_leaderless: bool = False, progress: CopyProgress | None = None
) -> Superblock:
    """Copy the catalog from the master at `source` to the directory of `own`, which runs it at its next start.

    The source must lead. With `allow_leaderless` it need not, unless the Raft state of `own` is lost: its uuid was
    another directory's, or its catalog was lost. Then it first takes that uuid over: the group commits this, and every
    other master that answers has applied it before the copy begins, so that none accepts messages of the former one
    again. The new one abstains from votes in every term that any of them knows, because the former one may have voted
    in it. Refused, before any change: INVALID_ARGUMENT if either is no master, INVALID_NAME if the source's group has
    no such member, ILLEGAL_STATE if a process answers at that member's address, UNAVAILABLE if the source does not. A
    copy that fails can be repeated.
    """
    if own.kind != MASTER:
        what = "this is a tablet server's directory, and only a master has the catalog"
        raise Refused(Code.INVALID_ARGUMENT, what, uuid=own.uuid, path=disk.real_path(""))
    there = _status_of(source)
    config = config_from_pb(there.replica.committed_config)
    member = config.member(own.uuid)
    if member is None:
        members = ", ".join(f"{m.uuid} at {m.addresses[0]}" for m in config.members)
        what = (
            "the masters' group has no member of this uuid: `nyala fs format --kind master --uuid` an empty directory "
            "with that of the master to be replaced"
        )
        raise Refused(Code.INVALID_NAME, what, uuid=own.uuid, members=members)
    if there.uuid == own.uuid:
        raise Refused(Code.INVALID_ARGUMENT, "that is the master itself: name another one to copy from", uuid=own.uuid)
    for address in member.addresses:
        _need_nobody(address, own.uuid)
    floor, progress = None, progress or CopyProgress()
    if has_taken_part(own) and not has_catalog(disk):
        floor = _take_over(disk, own, source, there.uuid, config, progress)
    remote = open_source(there.uuid, source)
    try:
        return copy_replica(
            disk,
            CATALOG_ID,
            own.uuid,
            remote,
            allow_leaderless=allow_leaderless,
            vote_floor=floor,
            progress=progress,
        )
    finally:
        remote.close()


def _take_over(
    disk: Disk, own: Instance, source: Address, leader: str, config: RaftConfig, progress: CopyProgress
) -> int:
    """Make this directory the only one with its uuid; returns the highest term that any other master knows.

    While the leader still counts the lost master as alive, the request is repeated, for HEARD_WAIT_S at most.
    """
    with _stub_of(source) as stub:
        seen = own.takeover
        deadline = time.monotonic() + HEARD_WAIT_S
        while True:
            request = pb.TakeOverRequest(dest_uuid=leader, uuid=own.uuid, seen=seen)
            try:
                taken = stub.TakeOver(request, timeout=TAKE_OVER_TIMEOUT_S)
            except grpc.RpcError as error:
                raise _no_master(source, error) from error
            heard = taken.error.code == Code.ILLEGAL_STATE  # the lost one died a moment ago, or another one leads since
            if taken.error.code not in (Code.ILLEGAL_STATE, Code.CAS_FAILED) or time.monotonic() > deadline:
                break
            if heard:
                progress.phase = "WAITING until the leader has not heard the lost master for a while"
                threading.Event().wait(HEARD_POLL_S)
            elif NUMBER.fullmatch(taken.error.detail):
                seen = int(taken.error.detail)  # others have done so before
            else:
                break
    raise_if_error(taken.error)
    take_over(disk, own, taken.number)
    floor = 0
    for member in config.members:
        if member.uuid != own.uuid:
            floor = max(floor, _term_once_told(member, taken.index))
    return floor


def _term_once_told(member: Member, index: int) -> int:
    """Return the term of another master, when it has applied that entry; 0 if it does not answer.

    A master that does not answer and lacks the entry cannot be elected by those that have it.
    """
    deadline = time.monotonic() + TOLD_TIMEOUT_S
    while True:
        try:
            replica = _status_of(member.addresses[0]).replica
        except Refused:
            return 0
        if replica.applied_index >= index:
            return int(replica.term)
        if time.monotonic() > deadline:
            what = "a master answers and does not learn of the takeover; nothing was copied: repeat this when it does"
            raise Refused(Code.TIMED_OUT, what, master=member.uuid, knows=replica.applied_index, wanted=index)
        threading.Event().wait(TOLD_POLL_S)


@contextmanager
def _stub_of(address: Address) -> Iterator[Any]:
    """Yield a stub of the MasterService at `address`, on a connection of its own."""
    with channel_to(address, ONCE_CHANNEL_OPTIONS) as channel:
        yield pb_grpc.MasterServiceStub(channel)


def _status_of(address: Address) -> pb.MasterStatusReply:
    """Return the status of the master at `address` and of its group."""
    with _stub_of(address) as stub:
        try:
            status: pb.MasterStatusReply = stub.Status(pb.Empty(), timeout=CONNECT_TIMEOUT_S)
        except grpc.RpcError as error:
            raise _no_master(address, error) from error
    if not status.replica.committed_config.members:
        raise Refused(Code.NOT_READY, "the master there is starting, or waits for the others", address=str(address))
    return status


def _no_master(address: Address, error: grpc.RpcError) -> Refused:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return Refused(Code.INVALID_ARGUMENT, "what answers there is no master", address=str(address))
    return Refused(Code.UNAVAILABLE, "no master answers there", address=str(address), status=error.code().name)


def _need_nobody(address: Address, uuid: str) -> None:
    """Raise Refused if a process answers at this master's address: the replaced master must be dead for good."""
    with _stub_of(address) as stub:
        try:
            answers = stub.GetIdentity(pb.Empty(), timeout=RIVAL_TIMEOUT_S).uuid
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return
            silent = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            answers = "a process that hangs, or a network that swallows" if silent else "another program"
    if answers == uuid:
        what = (
            "a master with this uuid answers at the address that the group has of it: end it for good and point its "
            "name at this machine first; nothing was changed"
        )
    else:
        what = "somebody else is at the address that the group has of this master; nothing was changed"
    raise Refused(Code.ILLEGAL_STATE, what, address=str(address), uuid=uuid, answers=answers)
