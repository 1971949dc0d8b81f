"""Asks tablet servers, without masters, who they are and what they hold. It changes nothing of theirs.

Of each tablet the leader is asked, and a majority confirms it: only it knows the committed config and what was applied.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import grpc

from nyala.replica.client import pages_of
from nyala.replica.consensus_metadata import path_of, read_cmeta
from nyala.replica.fs import TABLET_SERVER
from nyala.replica.master import FoundSource, FoundTablet
from nyala.replica.rpc import (
    ONCE_CHANNEL_OPTIONS,
    channel_to,
    check_reply,
    check_status,
    config_from_pb,
    feature_level_from_pb,
    pb,
    pb_grpc,
    raise_if_error,
    source_from_pb,
)
from nyala.replica.tablet_copy import CopyWanted, accept_offer
from nyala.replica.types import Address, Code, DataState, RaftConfig, Refused, ReplicaError, new_uuid

from .local_replica import CONNECT_TIMEOUT_S, open_source

CALL_TIMEOUT_S = 15.0
AT_ONCE = 8
"""So many servers are asked at once, each for one tablet after the other: a server opens few copy sessions."""
PAUSE_S = 0.5
_SENDER = "the tablet server"
T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class ServerAnswer:
    """The answer of the process at an address; `error` if there is none that counts."""

    address: Address
    uuid: str = ""
    cluster_id: str = ""
    feature_level: int = 1
    """The cluster's, as far as the server has heard."""
    error: str = ""


@dataclass(kw_only=True)
class TabletEvidence:
    """What servers without masters hold."""

    tablets: dict[str, FoundTablet] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    """By tablet, why its leader could not be asked."""
    decision_term: int = 0
    """The highest catalog term of a decision that any replica knows."""
    ids: frozenset[str] = frozenset()
    """The ids of all tables and tablets of which servers hold replicas."""


def ask_servers(addresses: Sequence[Address]) -> list[ServerAnswer]:
    """Return the answer of the process at each address."""
    return _of_each(_identity, addresses)


def server_problems(answers: Sequence[ServerAnswer], lost: Collection[str] = ()) -> list[str]:
    """Return why these are not the servers of one cluster, one text for each reason; `lost`: addresses of servers of
    which the operator says that they do not come back. Pure."""
    problems = [
        f"{a.address}: {a.error}. Start the server, or if it is lost for good, say --lost-server {a.address}"
        for a in answers
        if a.error and str(a.address) not in lost
    ]
    there = [a for a in answers if not a.error]
    times = Counter(a.uuid for a in there)
    for uuid in sorted(u for u, count in times.items() if count > 1):
        named = ", ".join(str(a.address) for a in there if a.uuid == uuid)
        problems.append(f"{named}: this is one server, {uuid}. Name it once")
    clusters: dict[str, list[str]] = {}
    for answer in there:
        clusters.setdefault(answer.cluster_id, []).append(str(answer.address))
    for cluster_id in sorted(clusters) if len(clusters) > 1 else ():
        of = f"cluster {cluster_id}" if cluster_id else "no cluster yet"
        problems.append(f"{', '.join(clusters[cluster_id])}: of {of}. Name the servers of one cluster only")
    if not there:
        problems.append("no tablet server answers")
    elif set(clusters) == {""}:
        problems.append("these servers have never joined a cluster: there is nothing to rebuild, start new masters")
    return problems


def read_tablets(
    servers: Mapping[str, Address],
    left_out: frozenset[str] = frozenset(),
    *,
    patience_s: float,
    step: Callable[[int, int], None] = lambda done, total: None,
) -> TabletEvidence:
    """Return what the leaders of all tablets on these servers say; a tablet whose leader cannot be asked within
    `patience_s` is in `unread`. Refused if a server stops answering. `step(read, all)` is called as it goes on."""
    found, deadline = TabletEvidence(), time.monotonic() + patience_s
    while True:
        listed = _of_each(lambda each: _statuses(*each), list(servers.items()))
        statuses = [(uuid, s) for uuid, page in zip(servers, listed, strict=True) for s in page]
        found.decision_term = max([found.decision_term, *(c.decision[0] for _, s in statuses for c in _configs(s))])
        ready = [(u, s) for u, s in statuses if s.data_state == DataState.READY]
        found.ids = found.ids.union(*(_ids(s) for _, s in ready))
        ready = [(u, s) for u, s in ready if not _ids(s) & left_out]
        wanted = {s.tablet_id for _, s in ready}
        found.unread = dict.fromkeys(wanted - found.tablets.keys(), "no server says that it leads it")
        leads = _leaders(ready)
        todo: dict[str, list[pb.ReplicaStatus]] = {}
        for tablet_id in sorted(found.unread.keys() & leads.keys()):
            uuid, status = leads[tablet_id]
            todo.setdefault(uuid, []).append(status)
        read = partial(_read_from, servers=servers, progress=_Progress(step, len(found.tablets), len(wanted)))
        for results in _of_each(read, [*todo.items()]):
            for tablet_id, result in results.items():
                if isinstance(result, FoundTablet):
                    found.tablets[tablet_id] = result
                    del found.unread[tablet_id]
                else:
                    found.unread[tablet_id] = result
        found.unread |= _newer(ready, found.tablets)
        if not found.unread or time.monotonic() > deadline:
            return found
        for tablet_id in found.unread:
            found.tablets.pop(tablet_id, None)
        threading.Event().wait(PAUSE_S)


class _Progress:
    """Counts the tablets that were read, on several threads."""

    def __init__(self, step: Callable[[int, int], None], done: int, total: int) -> None:
        self._step, self._done, self._total = step, done, total
        self._lock = threading.Lock()

    def read_one(self) -> None:
        with self._lock:
            self._done += 1
            self._step(self._done, self._total)


def _leaders(ready: Iterable[tuple[str, pb.ReplicaStatus]]) -> dict[str, tuple[str, pb.ReplicaStatus]]:
    """Return, by tablet, the server that says that it leads in the highest term. Pure."""
    found: dict[str, tuple[str, pb.ReplicaStatus]] = {}
    for uuid, status in ready:
        if status.role == "LEADER" and (status.tablet_id not in found or status.term > found[status.tablet_id][1].term):
            found[status.tablet_id] = uuid, status
    return found


def _newer(ready: Iterable[tuple[str, pb.ReplicaStatus]], tablets: Mapping[str, FoundTablet]) -> dict[str, str]:
    """Return the tablets of which another replica has a later committed config than the leader that was asked. Pure."""
    found = {}
    for uuid, status in ready:
        tablet = tablets.get(status.tablet_id)
        if tablet is None or not status.committed_config.members:
            continue
        opid = config_from_pb(status.committed_config).opid
        if opid > tablet.config.opid:
            found[status.tablet_id] = f"{uuid} has a later config, {opid}, than its leader, {tablet.config.opid}"
    return found


def _ids(status: pb.ReplicaStatus) -> frozenset[str]:
    return frozenset({status.tablet_id, status.table_id})


def _configs(status: pb.ReplicaStatus) -> list[RaftConfig]:
    return [config_from_pb(c) for c in (status.committed_config, status.pending_config) if c.members]


def _of_each(ask: Callable[[S], T], items: Sequence[S]) -> list[T]:
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ask") as pool:
        return list(pool.map(ask, items))


def _identity(address: Address) -> ServerAnswer:
    try:
        with channel_to(address, ONCE_CHANNEL_OPTIONS) as channel:
            stub = pb_grpc.TabletServiceStub(channel)
            reply = check_reply(
                _called(address, lambda: stub.GetIdentity(pb.Empty(), timeout=CONNECT_TIMEOUT_S)), _SENDER
            )
        if reply.kind != TABLET_SERVER:
            return ServerAnswer(address=address, error=f"this is a {reply.kind}, and no tablet server")
    except Refused as refused:
        return ServerAnswer(address=address, error=str(refused))
    level = feature_level_from_pb(reply.finalized_level)
    return ServerAnswer(address=address, uuid=reply.uuid, cluster_id=reply.cluster_id, feature_level=level)


def _statuses(uuid: str, address: Address) -> list[pb.ReplicaStatus]:
    """Return the replicas of one server, page after page."""
    with channel_to(address, ONCE_CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.TabletServiceStub(channel)

        def ask(request: pb.ListTabletsRequest) -> pb.ListTabletsReply:
            answered = _called(address, lambda: stub.ListTablets(request, timeout=CALL_TIMEOUT_S))
            reply: pb.ListTabletsReply = check_reply(answered, _SENDER)
            raise_if_error(reply.error)
            for status in reply.replicas:
                check_status(status, uuid)
            return reply

        pages = pages_of(ask, pb.ListTabletsRequest(dest_uuid=uuid))
        return [status for page in pages for status in page.replicas]


def _read_from(
    leading: tuple[str, Sequence[pb.ReplicaStatus]], *, servers: Mapping[str, Address], progress: _Progress
) -> dict[str, FoundTablet | str]:
    """Return each tablet that one server leads, or why it cannot be read. They are read one after the other."""
    uuid, statuses = leading
    address, asker = servers[uuid], new_uuid()
    found: dict[str, FoundTablet | str] = {}
    with channel_to(address, ONCE_CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.TabletServiceStub(channel)
        for status in statuses:
            try:
                found[status.tablet_id] = _found(uuid, address, asker, stub, status)
                progress.read_one()
            except ReplicaError as error:
                found[status.tablet_id] = f"its leader at {address} cannot be asked: {error}"
    return found


def _found(
    uuid: str, address: Address, asker: str, stub: pb_grpc.TabletServiceStub, status: pb.ReplicaStatus
) -> FoundTablet:
    """Return one tablet, by a copy session at its leader that copies no file, and the ledger that the leader has once a
    majority has confirmed it."""
    tablet_id = status.tablet_id
    remote = open_source(uuid, address)
    try:
        manifest = remote.begin(tablet_id, asker, False, CopyWanted(log_only=True))
        remote.end(manifest.session_id, success=False)
    finally:
        remote.close()
    superblock = accept_offer(manifest, tablet_id, status.term)
    config = read_cmeta(manifest.cmeta, path_of(tablet_id)).config
    request = pb.LedgerRequest(dest_uuid=uuid, tablet_id=tablet_id)
    ledger = check_reply(_called(address, lambda: stub.Ledger(request, timeout=CALL_TIMEOUT_S)), _SENDER)
    raise_if_error(ledger.error)
    if superblock.partition is None or not superblock.table_schemas:
        raise Refused(Code.CORRUPTION, "its superblock names no partition or no schema", tablet=tablet_id)
    return FoundTablet(
        tablet_id=tablet_id,
        table_id=superblock.table_id,
        table_name=superblock.table_name,
        bucket=superblock.bucket,
        range_pos=superblock.range_pos,
        partition=superblock.partition,
        table_schemas=superblock.table_schemas,
        history_retention_us=superblock.history_retention_us,
        config=config,
        sources=tuple(
            FoundSource(
                source=source_from_pb(s.source),
                generation=s.generation,
                position=s.last_offset + 1 if s.has_last else 0,
            )
            for s in ledger.sources
        ),
    )


def _called(address: Address, call: Callable[[], T]) -> T:
    try:
        return call()
    except grpc.RpcError as error:
        what = "no tablet server answers there"
        raise Refused(Code.UNAVAILABLE, what, address=str(address), status=error.code().name) from error
