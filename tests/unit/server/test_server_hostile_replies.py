"""Copy sources and masters that answer a server with what no honest one sends."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from nyala.replica.fs import KNOWN_MASTERS
from nyala.replica.raft import CopyNeeded
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.server.copies.copy_jobs import CopyRequester
from nyala.replica.server.copies.copy_service import FLUSH_WAIT_S
from nyala.replica.server.heartbeats import heartbeat as heartbeat_module
from nyala.replica.server.options import ServerOptions
from nyala.replica.server.requests.leaders import LeaderTime
from nyala.replica.server.runtime.channels import Channels
from nyala.replica.tablet_copy import WHOLE, CopyFile, CopyWanted, FileKind
from nyala.replica.tablet_copy.wire.remote_source import ATTEMPTS, RemoteCopySource
from nyala.replica.types import Address, Code, DataState, Member, OpId, Refused, limits
from nyala.schemas import build_level
from tests.harness.copies import TABLET
from tests.harness.hostile_fields import Must, cases
from tests.harness.patience import patience_s
from tests.harness.played_grpc import listening
from tests.harness.server_pair import until
from tests.unit.rpc.test_rpc_reply_fields import REPLIES
from tests.unit.server.test_server_heartbeat import OTHER, Hearing, beating, beats_later

UUID = "a" * 32
FILE = CopyFile(FileKind.BLOCK, "t-000001.arrow", 9, 0)


class Answering(pb_grpc.CopyServiceServicer):
    """A copy source that gives one answer to each call."""

    def __init__(self) -> None:
        self.begin: Any = REPLIES["BeginCopyReply"]
        self.open_fetch: Any = REPLIES["OpenFetchReply"]
        self.end: Any = pb.EndCopyReply()
        self.attempts: list[int] = []
        self.begin_s, self.let_go = 0.0, threading.Event()

    def BeginCopy(self, request: Any, context: Any) -> Any:
        self.attempts.append(request.attempt)
        self.let_go.wait(self.begin_s)
        return self.begin

    def OpenFetch(self, request: Any, context: Any) -> Any:
        return self.open_fetch

    def EndCopy(self, request: Any, context: Any) -> Any:
        return self.end


@contextmanager
def answering() -> Iterator[tuple[Answering, RemoteCopySource]]:
    source = Answering()
    with listening(source) as address:
        target = RemoteCopySource(UUID, [address])
        try:
            yield source, target
        finally:
            source.let_go.set()
            target.close()


def test_reply_of_a_copy_source_that_cannot_be_ends_the_attempt_by_a_refusal() -> None:
    """IN-82, IN-50. Goal: a reply of a copy source ends neither the server nor the thread of the copy. Method: a source
    over gRPC whose replies to BeginCopy, OpenFetch and EndCopy are the honest one with one hostile field: each hostile
    value is refused as CORRUPTION, others are accepted or refused; then an honest reply is accepted."""
    with answering() as (source, target):
        for case in cases(REPLIES["BeginCopyReply"]):
            source.begin = case.request
            try:
                target.begin(TABLET, UUID, False)
                assert case.must is Must.ANSWER, case.what
            except Refused as error:
                assert case.must is Must.ANSWER or error.code is Code.CORRUPTION, case.what
        source.begin = REPLIES["BeginCopyReply"]
        assert target.begin(TABLET, UUID, False).session_id == UUID
        for case in cases(pb.OpenFetchReply(error=pb.Error(code=4, message="no"))):
            source.open_fetch = case.request
            with pytest.raises(Refused):
                list(target.fetch(UUID, FILE, 0, 9))
        source.open_fetch = pb.OpenFetchReply()
        with pytest.raises(Refused, match="names no port"):
            list(target.fetch(UUID, FILE, 0, 9))
        for case in cases(REPLIES["EndCopyReply"]):
            source.end = case.request
            try:
                target.end(UUID, True)
            except Refused as error:
                assert case.must is Must.ANSWER or error.code is Code.CORRUPTION, case.what


@pytest.mark.parametrize(
    "detail", ["", "abc", "-1", "0", "\u0663", "1e9", "9" * 19, "9" * 5000, str(limits.NUMBER_MAX)]
)
def test_attempt_that_a_source_makes_up_is_refused_and_raises_no_later_number(detail: str) -> None:
    """IN-82, TC-28. Goal: a source that names a later attempt ends no process, and takes no number from later attempts.
    Method: CAS_FAILED with a text that is no number, and with numbers that no clock reaches: refused as CORRUPTION
    without a second request; the next attempt has a number of this clock's."""
    with answering() as (source, target):
        source.begin = pb.BeginCopyReply(error=pb.Error(code=Code.CAS_FAILED, detail=detail))
        with pytest.raises(Refused) as refused:
            target.begin(TABLET, UUID, False)
        assert refused.value.code is Code.CORRUPTION
        (first,) = source.attempts
        assert first < ATTEMPTS.next() < first + limits.COPY_ATTEMPT_AHEAD_US_MAX


def refused_after(target: RemoteCopySource, wanted: CopyWanted = WHOLE) -> float:
    """The seconds after which `begin` gives a silent source up."""
    begun = time.monotonic()
    with pytest.raises(Refused) as refused:
        target.begin(TABLET, UUID, False, wanted)
    assert refused.value.code is Code.UNAVAILABLE and "nothing was applied" in str(refused.value)
    return time.monotonic() - begun


@pytest.mark.deep
def test_source_that_does_not_begin_gives_its_place_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-11, TC-12. Goal: a source that says nothing keeps none of a target's places for long. Method: a source that
    takes a second longer than it may, also in two calls because it names a later attempt: UNAVAILABLE at the bound; one
    that accepts the connection and nothing else; a request for rows that the source must flush first has the time of a
    flush, too."""
    monkeypatch.setattr(limits, "COPY_BEGIN_FLUSH_S", patience_s(60.0))
    with answering() as (source, target):
        target._begin_s, source.begin_s = 1.0, patience_s(60.0)
        assert 0.9 < refused_after(target) < source.begin_s / 2
        assert len(source.attempts) == 1
        source.begin_s, source.begin = 0.7, pb.BeginCopyReply(error=pb.Error(code=Code.CAS_FAILED, detail="7"))
        assert 0.9 < refused_after(target) < 1.4
        assert len(source.attempts) == 3
        source.begin_s, source.begin = 1.5, REPLIES["BeginCopyReply"]
        assert target.begin(TABLET, UUID, False, CopyWanted(flushed=OpId(1, 1))).session_id == UUID
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        target = RemoteCopySource(UUID, [Address("127.0.0.1", deaf.getsockname()[1])], begin_s=1.0)
        assert refused_after(target) < patience_s(60.0)
        target.close()


def test_time_to_begin_is_what_an_honest_source_needs() -> None:
    """TC-11. Goal: no honest source is given up. Method: the log that a tablet may have above its last flush, and a
    flush, each four times over, and the longest superblock of a catalog, at the lowest rate that is expected of a disk,
    against the bounds."""
    options, rate = ServerOptions(root="unused"), limits.CHECKSUM_BYTES_PER_S_MIN
    assert 4 * (options.flush_wal_bytes + options.log_retain_bytes) / rate < limits.COPY_BEGIN_S_MAX
    assert FLUSH_WAIT_S + 4 * limits.MEMSTORE_FLUSH_BYTES / rate < limits.COPY_BEGIN_FLUSH_S
    assert limits.COPY_MANIFEST_BYTES_MAX / rate < limits.COPY_BEGIN_CATALOG_S_MAX


class Lying(Hearing):
    """A master that gives each of the replies once, and in between honest ones."""

    def __init__(self, replies: list[Any]) -> None:
        super().__init__()
        self.replies, self.given = replies, 0

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        reply = await super().Heartbeat(request, context)
        if self.beats % 2 and self.given < len(self.replies):
            self.given += 1
            return self.replies[self.given - 1]
        return reply


def hostile_replies() -> list[Any]:
    """The replies of a master that must be dropped."""
    good = REPLIES["HeartbeatReply"]
    found = [case.request for case in cases(good) if case.must is Must.INVALID and not case.what.startswith("orders.")]
    too_many = pb.HeartbeatReply(
        masters=[pb.ServerPlace()] * (limits.REPEATED_IN_REPLIES["HeartbeatReply.masters"] + 1)
    )
    term, level = pb.HeartbeatReply(), pb.HeartbeatReply(cluster_id="c" * 32)
    term.CopyFrom(good)
    term.catalog_term = limits.NUMBER_MAX
    level.finalized_level = build_level() + 1
    return [*found, too_many, term, level]


@pytest.mark.deep
def test_reply_of_a_master_that_cannot_be_is_dropped_told_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-82. Goal: a reply of a master that no master sends changes nothing on a server, and the server goes on.
    Method: a master answers heartbeats with the honest reply in which one field is hostile, with too many masters, with
    a term that no group reaches, and with a level above the build's. Each is counted, told and dropped: the server
    knows no new master, no term and no level, its tablets stay, and it sends further heartbeats."""
    monkeypatch.setattr(heartbeat_module, "TIMEOUT_S", 60.0)
    replies = hostile_replies()

    async def life() -> None:
        master, server = Lying(replies), grpc.aio.server()
        pb_grpc.add_MasterServiceServicer_to_server(master, server)  # type: ignore[no-untyped-call]
        address = Address("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        async with beating(tmp_path, address) as (manager, beats):
            await until(lambda: master.given == len(replies), "all were given")
            await beats_later(master)
            assert beats.replies_refused == len(replies)
            assert beats.masters == {address} and not manager.disk.exists(KNOWN_MASTERS)
            assert manager.catalog_term == 0 and beats._identity.feature_level <= build_level()
            assert sorted(manager.tablets) == [TABLET, OTHER]
        await server.stop(None)

    asyncio.run(life())
    told = [r.getMessage() for r in caplog.records if "dropped a reply of master" in r.getMessage()]
    assert len(told) == len(replies) and all("not used" in text or "none of it was used" in text for text in told)


class Calls(pb_grpc.TabletServiceServicer, pb_grpc.CopyServiceServicer):
    """Another server that answers the calls of leaders and followers."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def Scan(self, request: Any, context: Any) -> Any:
        yield self._answer

    async def StartTabletCopy(self, request: Any, context: Any) -> Any:
        return self._answer


IMPOSSIBLE: dict[str, Any] = {
    "a chunk with a long error": pb.ScanChunk(error=pb.Error(code=4, message="x" * 100_000)),
    "a chunk of negative rows": pb.ScanChunk(rows=-1),
    "a target's negative term": pb.StartTabletCopyReply(current_term=-1),
    "a target's long error": pb.StartTabletCopyReply(error=pb.Error(code=4, detail="a\nb" * 10_000)),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_answer_to_a_call_of_a_leader_or_a_follower_that_cannot_be_is_one_line_of_the_log(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-82. Goal: a server uses no impossible chunk of a scan for a time, and no impossible answer of a target of a
    copy; the log says so in one bounded line. Method: another server over gRPC that answers so."""
    answer = IMPOSSIBLE[what]
    peer = Member("b" * 32, (Address("h", 1),))
    config = SimpleNamespace(member=lambda uuid: peer, opid=OpId(1, 1))
    replica: Any = SimpleNamespace(
        active_config=config, leader_uuid=peer.uuid, tablet_id=TABLET, is_leader=True, term=3, phase=None
    )
    clock = SimpleNamespace(monotonic_us=lambda: 0)
    manager: Any = SimpleNamespace(
        tablets={TABLET: SimpleNamespace(replica=replica)}, uuid=UUID, clock=clock, stopping=False, on_fatal=None
    )

    async def asks() -> None:
        server = grpc.aio.server()
        pb_grpc.add_TabletServiceServicer_to_server(Calls(answer), server)  # type: ignore[no-untyped-call]
        pb_grpc.add_CopyServiceServicer_to_server(Calls(answer), server)  # type: ignore[no-untyped-call]
        at = Address("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        channels = Channels()
        try:
            if isinstance(answer, pb.ScanChunk):
                await LeaderTime(channels, lambda member: at).ask(replica, 7)
            else:
                CopyRequester(manager, channels, at, lambda member: at).needed(
                    TABLET, CopyNeeded(peer.uuid, DataState.READY, OpId(1, 1))
                )
                await until(lambda: bool(caplog.records), "it says why")
        finally:
            await channels.close()
            await server.stop(None)

    with caplog.at_level(logging.INFO, logger="nyala.server"):
        asyncio.run(asks())
    (line,) = [r.getMessage() for r in caplog.records]
    assert "sent what no server of this system sends" in line and line.isprintable() and len(line) < 700
