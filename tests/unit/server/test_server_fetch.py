"""Connections on which copies are fetched: which servers may have one, what is answered, and when either end gives
up."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import google_crc32c
import grpc
import pytest

from nyala.replica.rpc import connection_to, frame, pb, pb_grpc
from nyala.replica.tablet_copy import CopyFile, CopyManifest
from nyala.replica.tablet_copy.wire import fetch_serving
from nyala.replica.tablet_copy.wire.fetch_wire import (
    MESSAGE_BYTES_MAX,
    receive,
    receive_message,
    send_message,
    set_timeouts,
)
from nyala.replica.tablet_copy.wire.remote_source import ATTEMPTS, RemoteCopySource
from nyala.replica.types import Code, Refused, limits, new_uuid
from tests.harness.certificates import credentials_for
from tests.harness.copies import TABLET, TestClock
from tests.harness.patience import patience_s
from tests.harness.server_pair import Pair, run_pair
from tests.unit.server.test_server_copy_pace import Held

REQUESTOR = "c" * 32
LONG_S = int(patience_s(60.0))


@contextmanager
def connection(port: int, ticket: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), LONG_S) as sock:
        sock.settimeout(None)
        set_timeouts(sock, LONG_S)
        sock.sendall(frame(ticket))
        yield sock


class Caller:
    """Calls of one requestor to a server of a pair, from a thread."""

    def __init__(self, pair: Pair) -> None:
        self.uuid = pair.leader.uuid
        self.source = RemoteCopySource(self.uuid, [pair.leader.address])
        self.channel = grpc.insecure_channel(str(pair.leader.address))
        self.stub = pb_grpc.CopyServiceStub(self.channel)  # type: ignore[no-untyped-call]
        self.manifest: CopyManifest = self.source.begin(TABLET, REQUESTOR, False)

    @property
    def file(self) -> CopyFile:
        return self.manifest.files[0]

    def open_fetch(self, **changes: str) -> Any:
        fields = {"dest_uuid": self.uuid, "session_id": self.manifest.session_id, **changes}
        return self.stub.OpenFetch(pb.OpenFetchRequest(**fields), timeout=LONG_S)

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        granted = self.open_fetch()
        assert not granted.error.code, granted.error
        with connection(granted.port, granted.ticket) as sock:
            assert receive_message(sock, pb.FetchPart) == pb.FetchPart()
            yield sock

    def request(self, **changes: Any) -> Any:
        file = self.file
        fields = {"dest_uuid": self.uuid, "session_id": self.manifest.session_id, "kind": int(file.kind)}
        fields |= {"name": file.name, "byte_offset": 0, "length_bytes": file.length_bytes}
        return pb.FetchRequest(**{**fields, **changes})

    def fetched(self) -> bytes:
        return b"".join(self.source.fetch(self.manifest.session_id, self.file, 0, self.file.length_bytes))

    def close(self) -> None:
        self.source.close()
        self.channel.close()


def run_caller(scenario: Callable[[Pair, Caller], None]) -> None:
    """`scenario(pair, caller)` in a thread, with one session of a log segment at the leader."""

    async def all_of_it(pair: Pair) -> None:
        await pair.put(*range(1, 40))
        caller = await asyncio.to_thread(Caller, pair)
        try:
            await asyncio.to_thread(scenario, pair, caller)
        finally:
            await asyncio.to_thread(caller.close)

    run_pair(all_of_it)


def test_request_that_is_not_for_this_session_here_is_refused_and_the_connection_goes_on() -> None:
    """Goal: TC-73 for what is asked on a connection. Method: requests with another and an empty uuid, of another
    session, for a file and for ranges that the session does not name: each by its code; then the right one."""

    def scenario(pair: Pair, caller: Caller) -> None:
        length = caller.file.length_bytes
        with caller.connected() as sock:
            for changes, code in (
                ({"dest_uuid": new_uuid()}, Code.INVALID_NAME),
                ({"dest_uuid": "", "session_id": "no"}, Code.INVALID_NAME),
                ({"session_id": new_uuid()}, Code.EXPIRED),
                ({"name": "../instance"}, Code.INVALID_ARGUMENT),
                ({"name": "instance"}, Code.NOT_FOUND),
                ({"kind": 9}, Code.NOT_FOUND),
                ({"byte_offset": 1}, Code.INVALID_ARGUMENT),
                ({"byte_offset": -1}, Code.INVALID_ARGUMENT),
                ({"length_bytes": 1 << 62}, Code.INVALID_ARGUMENT),
            ):
                send_message(sock, caller.request(**changes))
                part = receive_message(sock, pb.FetchPart)
                assert (part.error.code, part.length_bytes) == (code, 0), (changes, part)
            send_message(sock, caller.request())
            assert receive_message(sock, pb.FetchPart) == pb.FetchPart(byte_offset=0, length_bytes=length)
            assert google_crc32c.value(receive(sock, length)) == caller.file.crc

    run_caller(scenario)


def test_target_whose_clock_was_set_back_begins_all_the_same() -> None:
    """TC-28. Goal: a target whose wall clock was set back can begin a copy, although its attempts are numbered by that
    clock. Method: an attempt from a time to come; the next one, numbered by now, opens a session in its place; numbers
    rise from then on."""

    def scenario(pair: Pair, caller: Caller) -> None:
        ahead = time.time_ns() // 1000 + 3_600_000_000
        request = pb.BeginCopyRequest(dest_uuid=caller.uuid, requestor_uuid=REQUESTOR, tablet_id=TABLET, attempt=ahead)
        before = caller.stub.BeginCopy(request, timeout=LONG_S)
        assert not before.error.code, before.error
        manifest = caller.source.begin(TABLET, REQUESTOR, False)
        (session,) = pair.leader.manager.sessions.sessions()
        assert session.manifest.session_id == manifest.session_id != before.session_id
        assert caller.stub.BeginCopy(request, timeout=LONG_S).error.code == Code.CAS_FAILED
        assert ATTEMPTS.next() > ahead

    run_caller(scenario)


def test_connection_is_given_to_who_names_this_server_and_a_session() -> None:
    """Goal: TC-73: OpenFetch gives a ticket only to a caller that names this server and one of its sessions. Method:
    another uuid, none, another session: refused by code, no ticket; a ticket that nobody was given, and one that was
    used: not a byte comes back."""

    def scenario(pair: Pair, caller: Caller) -> None:
        for changes, code in (
            ({"dest_uuid": new_uuid()}, Code.INVALID_NAME),
            ({"dest_uuid": ""}, Code.INVALID_NAME),
            ({"session_id": new_uuid()}, Code.EXPIRED),
        ):
            refused = caller.open_fetch(**changes)
            assert refused.error.code == code and not refused.ticket and not refused.port
        granted = caller.open_fetch()
        with connection(granted.port, granted.ticket) as first:
            assert receive_message(first, pb.FetchPart) == pb.FetchPart()
            for ticket in (granted.ticket, bytes(16), b""):
                with connection(granted.port, ticket) as sock:
                    assert _comes(sock) == b""

    run_caller(scenario)


def _comes(sock: socket.socket) -> bytes:
    """Return the bytes that come until the other end ends the connection."""
    data = b""
    try:
        while more := sock.recv(1 << 16):
            data += more
    except ConnectionError:
        pass  # ended with what we sent unread
    return data


@pytest.mark.a_third
@pytest.mark.parametrize("noise", [b"\xff" * 40, (MESSAGE_BYTES_MAX + 1).to_bytes(4), b"\0\0\0\3\xff\xff\xff"])
def test_bytes_that_are_no_request_end_their_connection_and_nothing_else(noise: bytes) -> None:
    """Goal: invalid bytes end only the connection that they came on. Method: frames too long, a message that is none;
    then the same session is fetched whole on another connection."""

    def scenario(pair: Pair, caller: Caller) -> None:
        with caller.connected() as sock:
            sock.sendall(noise)
            assert _comes(sock) == b""
        assert google_crc32c.value(caller.fetched()) == caller.file.crc

    run_caller(scenario)


def test_connections_are_bounded_and_their_places_are_given_back() -> None:
    """IN-51. Goal: nothing unbounded, and no session takes another's connections. Method: as many connections as a
    session may have; one more is refused OVERLOADED, or ended if it was granted before. Strangers have two sessions and
    no third. When the first session is over, the next connection of another ends its connections."""

    def scenario(pair: Pair, caller: Caller) -> None:
        granted = caller.open_fetch()
        with ExitStack() as open_ones:
            first = open_ones.enter_context(caller.connected())
            for _ in range(1, limits.COPY_FETCHES_PER_SESSION_MAX):
                open_ones.enter_context(caller.connected())
            assert caller.open_fetch().error.code == Code.OVERLOADED
            with connection(granted.port, granted.ticket) as late:
                assert _comes(late) == b""
            ours = caller.manifest
            fields = {"dest_uuid": caller.uuid, "tablet_id": TABLET}
            begin = [pb.BeginCopyRequest(requestor_uuid=f"{n:032x}", **fields) for n in range(2)]
            other = caller.stub.BeginCopy(begin[0], timeout=LONG_S)
            assert not other.error.code, other.error
            refused = caller.stub.BeginCopy(begin[1], timeout=LONG_S).error
            assert refused.code == Code.OVERLOADED and "no members" in refused.message
            caller.source.end(ours.session_id, False)
            granted = caller.open_fetch(session_id=other.session_id)
            open_ones.enter_context(connection(granted.port, granted.ticket))
            first.settimeout(LONG_S / 3)  # by far less than a server's patience with one that asks for nothing
            assert _comes(first) == b""

    run_caller(scenario)


def _wait(condition: Callable[[], bool], what: str) -> None:
    pause, deadline = threading.Event(), time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting until {what}"
        pause.wait(0.005)


def test_files_one_after_the_other_share_a_connection_that_is_fresh() -> None:
    """Goal: several small files share a connection, unless it was idle so long that the source may be closing it.
    Method: three fetches take one connection; with no idle time allowed, each takes its own."""

    def scenario(pair: Pair, caller: Caller) -> None:
        def opened() -> int:
            return sum(what == "OpenFetch" for _, what, _ in pair.trace)

        caller.source.IDLE_S = 3600.0  # type: ignore[misc]
        for _ in range(3):
            assert google_crc32c.value(caller.fetched()) == caller.file.crc
        assert opened() == 1
        caller.source.IDLE_S = -1.0  # type: ignore[misc]
        for _ in range(3):
            assert google_crc32c.value(caller.fetched()) == caller.file.crc
        assert opened() == 4
        assert len(caller.source._connections) == 1

    run_caller(scenario)


def test_source_that_waits_for_its_rate_is_not_taken_for_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: TC-11: a source that waits for its rate sends signs of life, so its target does not give up. Method: a
    target bears the silence between several signs of life. The source's rate stands still: a connection hears sign
    after sign, and so does a target, which waits on; then the rate pays: both have the whole file."""
    assert 3 * fetch_serving.SIGN_OF_LIFE_S <= RemoteCopySource.SILENCE_S
    monkeypatch.setattr(fetch_serving, "SIGN_OF_LIFE_S", 0.01)

    def scenario(pair: Pair, caller: Caller) -> None:
        held = pair.leader.manager.copy_rate = Held()
        fetched: list[bytes] = []
        target = threading.Thread(target=lambda: fetched.append(caller.fetched()))
        with caller.connected() as sock:
            target.start()
            send_message(sock, caller.request())
            for _ in range(10):
                assert receive_message(sock, pb.FetchPart) == pb.FetchPart()
            _wait(lambda: len(held.asked_by) == 2 and min(held.asked_by.values()) > 10, "both wait for the rate")
            assert not fetched
            held.clock.now_us += 86_400 * 1_000_000
            part = receive_message(sock, pb.FetchPart)
            while not part.length_bytes:
                part = receive_message(sock, pb.FetchPart)
            assert google_crc32c.value(receive(sock, part.length_bytes)) == caller.file.crc
        target.join(LONG_S)
        assert [google_crc32c.value(data) for data in fetched] == [caller.file.crc]

    run_caller(scenario)


def test_source_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-12. Goal: a source that hangs ends the attempt. Method: a source whose connection is let in and then stays
    silent: UNAVAILABLE; so ends a fetch that is aborted, not because of the silence but at once."""

    def scenario(pair: Pair, caller: Caller) -> None:
        free, held = threading.Event(), threading.Event()

        def on_request(request: Any) -> None:
            held.set()
            free.wait(LONG_S)

        pair.on_request = on_request
        monkeypatch.setattr(RemoteCopySource, "SILENCE_S", 1)
        with pytest.raises(Refused, match="silent for 1 s") as refused:
            caller.fetched()
        assert refused.value.code is Code.UNAVAILABLE
        monkeypatch.setattr(RemoteCopySource, "SILENCE_S", LONG_S)
        held.clear()
        cutter = threading.Thread(target=lambda: held.wait(LONG_S) and caller.source.abort())
        cutter.start()
        with pytest.raises(Refused) as refused:
            caller.fetched()
        assert refused.value.code is Code.UNAVAILABLE and "silent" not in str(refused.value)
        cutter.join()
        with pytest.raises(Refused, match="cancelled"):
            caller.fetched()
        free.set()

    run_caller(scenario)


def test_server_that_stops_ends_its_connections() -> None:
    """Goal: no thread outlives the server's stop. Method: one connection waits for a request, one for the rate: both
    end when the servicer closes, and a later one is not let in."""

    def scenario(pair: Pair, caller: Caller) -> None:
        held = pair.leader.manager.copy_rate = Held()
        with caller.connected() as idle, caller.connected() as waiting:
            send_message(waiting, caller.request())
            _wait(lambda: held.asked > 1, "it waits for the rate")
            granted = caller.open_fetch()
            pair.leader.copies.close()
            assert _comes(idle) == b"" and _comes(waiting) == b""
            with connection(granted.port, granted.ticket) as late:
                assert _comes(late) == b""
            _wait(lambda: not pair.leader.copies.fetches._connections, "its threads have let go")

    run_caller(scenario)


def test_long_download_keeps_its_session_and_an_expired_one_is_told() -> None:
    """Goal: a session stays open as long as its target fetches. Method: requests apart by less than its time to live,
    longer in all: served; then one later than that: EXPIRED on the same connection."""

    def scenario(pair: Pair, caller: Caller) -> None:
        clock = pair.leader.manager.sessions.clock = TestClock()
        with caller.connected() as sock:
            for _ in range(5):
                clock.now_us += limits.COPY_SESSION_TTL_US * 2 // 3
                send_message(sock, caller.request(length_bytes=10))
                assert receive_message(sock, pb.FetchPart).length_bytes == 10
                receive(sock, 10)
            clock.now_us += limits.COPY_SESSION_TTL_US + 1
            send_message(sock, caller.request(length_bytes=10))
            assert receive_message(sock, pb.FetchPart).error.code == Code.EXPIRED

    run_caller(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_messages_and_bytes_come_out_as_they_went_in_however_they_are_cut(seed: int) -> None:
    """Goal: messages and file bytes are received correctly however the stream is cut into parts. Method: parts with
    bytes behind them, sent in seeded pieces."""
    rng = random.Random(seed)
    given = [(offset, rng.randbytes(rng.choice([0, 1, 5, 70_000]))) for offset in (0, 1, 1 << 40)]
    stream = b"".join(
        frame(pb.FetchPart(byte_offset=at, length_bytes=len(data)).SerializeToString()) + data for at, data in given
    )
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as left:
        right, _ = server.accept()

        def send() -> None:
            pos = 0
            while pos < len(stream):
                cut = rng.choice([1, 2, 3, 40_000])
                left.sendall(stream[pos : pos + cut])
                pos += cut
            left.close()

        thread = threading.Thread(target=send)
        thread.start()
        with right:
            set_timeouts(right, LONG_S)
            for at, data in given:
                part = receive_message(right, pb.FetchPart)
                assert (part.byte_offset, receive(right, part.length_bytes)) == (at, data)
            assert receive_message(right, pb.FetchPart) is None
        thread.join()


@pytest.mark.a_third
@pytest.mark.parametrize(
    ("role", "holder"), [("server", "c"), ("server", "d"), ("master", "c"), ("client", "c"), ("operator", "c")]
)
def test_files_come_over_tls_to_the_server_that_opened_the_session_alone(role: str, holder: str) -> None:
    """Goal: with TLS, a copy brings the same bytes, and a ticket that another process has seen brings it nothing.
    Method: a file over a connection with the certificate of the session's requestor, with another server's, and with
    those of a master, a client and an operator of the requestor's name."""

    def scenario(pair: Pair, caller: Caller) -> None:
        whole = caller.fetched()
        pair.leader.copies.fetches.credentials = credentials_for("server", caller.uuid)
        granted, tls = caller.open_fetch(), credentials_for(role, holder * 32)
        with connection_to(pair.leader.address, granted.port, granted.ticket, caller.uuid, LONG_S, tls) as sock:
            set_timeouts(sock, LONG_S)
            if (role, holder * 32) != ("server", REQUESTOR):
                with suppress(ConnectionError):
                    assert receive_message(sock, pb.FetchPart) is None
                return
            assert receive_message(sock, pb.FetchPart) == pb.FetchPart()
            send_message(sock, caller.request())
            found = b""
            while len(found) < len(whole):
                part = receive_message(sock, pb.FetchPart)
                assert not part.error.code
                found += receive(sock, part.length_bytes)
        assert found == whole

    run_caller(scenario)
