"""Copy sources that send bytes too slowly, or none: each fetch makes progress or ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from nyala.replica.rpc import frame, pb
from nyala.replica.tablet_copy import CopyFile, FileKind
from nyala.replica.tablet_copy.wire.fetch_patience import FetchPatience
from nyala.replica.tablet_copy.wire.fetch_wire import receive_message
from nyala.replica.tablet_copy.wire.remote_source import RemoteCopySource
from nyala.replica.types import Code, Refused, limits
from tests.harness.patience import patience_s
from tests.unit.server.test_server_hostile_replies import UUID, answering

MIB = 1 << 20
LONG_S = patience_s(60.0)
Play = Callable[[socket.socket, "Callable[[float], None]"], None]
"""Plays the source on a connection; the second argument waits for a time, or raises ConnectionError at the test's
end."""


def part(at: int = 0, length: int = 0) -> bytes:
    return frame(pb.FetchPart(byte_offset=at, length_bytes=length).SerializeToString())


def empty_at_once(sock: socket.socket, pause: Callable[[float], None]) -> None:
    while True:
        sock.sendall(part() * 100)


def empty_now_and_then(sock: socket.socket, pause: Callable[[float], None]) -> None:
    while True:
        sock.sendall(part())
        pause(0.2)


def bytes_one_by_one(sock: socket.socket, pause: Callable[[float], None]) -> None:
    sock.sendall(part(0, 1000))
    while True:
        sock.sendall(b"x")
        pause(0.2)


def parts_of_a_byte(sock: socket.socket, pause: Callable[[float], None]) -> None:
    for at in range(1000):
        sock.sendall(part(at, 1) + b"x")
        pause(0.2)


def message_byte_by_byte(sock: socket.socket, pause: Callable[[float], None]) -> None:
    sock.sendall((1000).to_bytes(4, "big"))
    while True:
        sock.sendall(b"\x08")
        pause(0.2)


def length_byte_by_byte(sock: socket.socket, pause: Callable[[float], None]) -> None:
    sock.sendall(b"\0")
    pause(LONG_S)


def slow_and_honest(sock: socket.socket, pause: Callable[[float], None]) -> None:
    for at in range(0, 5 * MIB, MIB):
        pause(0.25)
        sock.sendall(part(at))
        pause(0.25)
        sock.sendall(part(at, MIB) + bytes(MIB))
    pause(LONG_S)


@contextmanager
def playing(play: Play) -> Iterator[RemoteCopySource]:
    """A target whose source plays so on each connection, after it has let the connection in."""
    over = threading.Event()

    def pause(wait_s: float) -> None:
        if over.wait(wait_s):
            raise ConnectionError("the test is over")

    def serve(listening: socket.socket) -> None:
        with suppress(OSError), listening.accept()[0] as sock:
            sock.sendall(part())
            assert receive_message(sock, pb.FetchRequest) is not None
            play(sock, pause)

    with answering() as (source, target), socket.create_server(("127.0.0.1", 0)) as listening:
        source.open_fetch = pb.OpenFetchReply(port=listening.getsockname()[1], ticket=b"")
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield target
        finally:
            over.set()
            target.close()
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            thread.join()


ENDLESS = (
    empty_at_once, empty_now_and_then, bytes_one_by_one, parts_of_a_byte, message_byte_by_byte, length_byte_by_byte,
)  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize("play", ENDLESS, ids=lambda play: play.__name__)
def test_fetch_from_a_source_that_makes_no_progress_ends(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-51, TC-12. Goal: a copy source cannot hold a copy, its thread and its connection for ever. Method: sources
    that send empty parts, at once or now and then, parts of a byte, and the bytes of a part or of a message one by one,
    with a bound of a second on the wait for a mebibyte: the fetch ends as UNAVAILABLE, long before the file does."""
    monkeypatch.setattr(limits, "COPY_PART_WAIT_S_MAX", 1.0)
    monkeypatch.setattr(RemoteCopySource, "SILENCE_S", 1)
    got = 0
    with playing(play) as target:
        cutter = threading.Timer(LONG_S, target.abort)  # a red test ends, too
        cutter.start()
        try:
            with pytest.raises(Refused) as refused:
                for data in target.fetch(UUID, CopyFile(FileKind.BLOCK, "t-000001.arrow", 1000, 0), 0, 1000):
                    got += len(data)
        finally:
            cutter.cancel()
    assert refused.value.code is Code.UNAVAILABLE and "does not answer" in str(refused.value)
    assert not target._aborted and got < 1000
    assert ("parts without a byte" in str(refused.value)) is (play is empty_at_once)


@pytest.mark.deep
def test_source_that_waits_for_its_rate_before_each_part_is_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-11. Goal: a source at the lowest rate is no source without progress. Method: five parts, each after a wait of
    a third of the bound with a sign of life in it, so that all of them take longer than the bound."""
    monkeypatch.setattr(limits, "COPY_PART_WAIT_S_MAX", 1.5)
    with playing(slow_and_honest) as target:
        found = target.fetch(UUID, CopyFile(FileKind.BLOCK, "t-000001.arrow", 5 * MIB, 0), 0, 5 * MIB)
        assert sum(map(len, found)) == 5 * MIB


def test_bound_on_empty_parts_begins_anew_with_each_mebibyte() -> None:
    """TC-11. Goal: a long file needs no more patience than a short one. Method: as many empty parts as there may be
    before each of two mebibytes, which come in small pieces; then one more than that."""
    patience = FetchPatience()
    for _ in range(2):
        for _ in range(limits.COPY_SIGNS_OF_LIFE_MAX):
            patience.received(0)
        for _ in range(4):
            patience.received(limits.COPY_CHUNK_BYTES // 4)
    for _ in range(limits.COPY_SIGNS_OF_LIFE_MAX):
        patience.received(0)
    with pytest.raises(TimeoutError, match="without a byte"):
        patience.received(0)


def test_bounds_fit_what_an_honest_source_needs() -> None:
    """TC-11. Goal: no honest source is given up. Method: the time that one part on each connection of a source takes at
    the lowest rate, and the signs of life in it, against the bounds."""
    waits_s = limits.COPY_FETCHES_MAX * limits.COPY_CHUNK_BYTES / limits.COPY_RATE_MIN_BYTES_PER_S
    assert waits_s < limits.COPY_PART_WAIT_S_MAX
    assert 4 * limits.COPY_PART_WAIT_S_MAX / 5 < limits.COPY_SIGNS_OF_LIFE_MAX
