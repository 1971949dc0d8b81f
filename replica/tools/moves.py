"""Finds out whether a replica has moved, starts a copy by hand, and lists the copies under way."""

from __future__ import annotations

from nyala.replica.client import Client
from nyala.replica.rpc import config_from_pb, pb
from nyala.replica.types import Code, DataState, Refused, read_number


def has_moved(client: Client, tablet_id: str, from_uuid: str, to_uuid: str) -> bool:
    """Return whether the tablet's leader has committed a config in which `to_uuid` votes and `from_uuid` is gone."""
    found = _leader(client, tablet_id)
    if found is None:
        return False
    config = config_from_pb(found[1].committed_config)
    target = config.member(to_uuid)
    return target is not None and target.votes and config.member(from_uuid) is None


def start_copy(client: Client, tablet_id: str, target: pb.ServerInfo) -> pb.ServerInfo:
    """Make a server copy a tablet from its leader, the source that is returned, before it is a member [kudu
    raft-config-change, "Adding a new node to the cluster" 1].

    On return the copy has begun, and `list_copies` shows it. Refused ILLEGAL_STATE if the server has the tablet,
    ALREADY_INPROGRESS if it is copied there, UNAVAILABLE if no server leads; then nothing was begun.
    """
    found = _leader(client, tablet_id)
    if found is None:
        raise Refused(Code.UNAVAILABLE, "no server says that it leads the tablet: nothing was begun", tablet=tablet_id)
    source, leader = found
    there = next(iter(client.list_tablets(target, [tablet_id])), None)
    here = DataState.DOES_NOT_EXIST if there is None else read_number(DataState, there.data_state)
    if here is DataState.READY:
        raise Refused(
            Code.ILLEGAL_STATE,
            "the server has the tablet already: nothing was begun",
            tablet=tablet_id,
            server=target.uuid,
        )
    client.start_copy(target, source, leader, here)
    return source


def _leader(client: Client, tablet_id: str) -> tuple[pb.ServerInfo, pb.ReplicaStatus] | None:
    """Return the server that reports that it leads in the highest term, with its status; servers that do not answer are
    left out."""
    found = []
    for server in client.list_servers().servers:
        try:
            found += [(server, s) for s in client.list_tablets(server, [tablet_id]) if s.role == "LEADER"]
        except Refused:
            continue
    return max(found, key=lambda one: one[1].term, default=None)


COPY_OVER = frozenset({"DONE", "FAILED", "CANCELLED"})
"""Phases of a copy that has ended."""
COPY_UNDER_WAY = frozenset({"WAITING", "BEGIN", "SERVING", *(f"COPY.{n}" for n in range(1, 7))})
COPY_UNDER_WAY |= {f"JOIN.{n}" for n in range(1, 5)}
"""Phases of a copy that has not ended."""


def is_copy_over(job: pb.CopyJob) -> bool:
    """Return whether a copy has ended. Refused(ILLEGAL_STATE) for a phase that only a newer server knows: a caller that
    waits for the end of that copy could wait for ever."""
    if job.phase not in COPY_OVER | COPY_UNDER_WAY:
        raise Refused(
            Code.ILLEGAL_STATE,
            "this program is older than the server and does not know the copy's phase: the copy is as it was; `nyala "
            "copy list` of a program as new as the server tells whether it has ended",
            phase=repr(job.phase)[:80],
        )
    return job.phase in COPY_OVER


def list_copies(client: Client) -> list[pb.CopyJob]:
    """Return the tablet copies that the servers know of, under way and lately ended; servers that do not answer are
    left out."""
    jobs = []
    for server in client.list_servers().servers:
        try:
            jobs += client.list_copies(server)
        except Refused:
            continue
    return jobs
