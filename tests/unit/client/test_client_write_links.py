"""Small writes over one connection: which thread sends, which reads, and the result of each when it ends."""

from __future__ import annotations

import queue
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from nyala.replica.client import ClientOptions, link_ports, write_links
from nyala.replica.client.write_links import SmallWrites
from nyala.replica.client.writes import WriteWindow
from nyala.replica.rpc import HEAD_BYTES, body_length, frame, pb
from nyala.replica.types import Address, Applied, Code, Refused
from tests.harness.cluster import wait_until
from tests.harness.patience import patience_s

LONG_S = patience_s(30.0)
SOON_S = 3.0
"""After which a thread that reads gives up. It waits for the socket all that time, whatever a test's clock says."""
LATE_S = LONG_S * 2 / 3
"""After which a write is late, by a clock that the test moves; nothing is late before that on a slow machine."""


class Peer:
    """The server's end of write links, played by the test: it takes tickets, and answers when the test says so."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self._accepted: queue.Queue[socket.socket] = queue.Queue()
        self._all: list[socket.socket] = []
        self.opened = 0
        self.called: list[Any] = []

    def OpenWrites(self, request: Any, timeout: float) -> Any:
        """[gRPC] A ticket; the connection is accepted behind it."""
        self.opened += 1
        threading.Thread(target=self._accept, daemon=True).start()
        return pb.OpenWritesReply(port=self.listening.getsockname()[1], ticket=b"t" * 16)

    def Write(self, request: Any, timeout: float) -> Any:
        """[gRPC] One write as a call."""
        self.called.append(request)
        return pb.WriteReply(rows_applied=7)

    def _accept(self) -> None:
        connection, _ = self.listening.accept()
        connection.settimeout(LONG_S)
        shown = frame(b"t" * 16)
        assert connection.recv(len(shown), socket.MSG_WAITALL) == shown
        self._all.append(connection)
        connection.sendall(frame(b""))
        self._accepted.put(connection)

    def accepted(self) -> socket.socket:
        """The next connection that is opened; what is read and replied goes over it."""
        return self._accepted.get(timeout=LONG_S)

    @property
    def connection(self) -> socket.socket:
        """The latest connection."""
        return self._all[-1]

    def read(self) -> list[Any]:
        """The numbered writes of the next message."""
        length = body_length(self.connection.recv(HEAD_BYTES, socket.MSG_WAITALL))
        return list(pb.WriteBundle.FromString(self.connection.recv(length, socket.MSG_WAITALL)).writes)

    def reply(self, *writes: Any, pieces: int = 1) -> None:
        """Answer each with its own row count, in one message that arrives in so many pieces."""
        bundle = pb.ReplyBundle()
        for write in writes:
            bundle.replies.add(number=write.number, reply=pb.WriteReply(rows_applied=write.request.rows))
        data = frame(bundle.SerializeToString())
        cut = max(1, -(-len(data) // pieces))
        for at in range(0, len(data), cut):
            self.connection.sendall(data[at : at + cut])

    def close(self) -> None:
        """End everything."""
        for sock in (self.listening, *self._all):
            sock.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A peer that listens."""
    made = Peer()
    yield made
    made.close()


@pytest.fixture
def writes(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallWrites]:
    """Small writes to the peer, which has time to accept them."""
    monkeypatch.setattr(link_ports, "CONNECT_S", LONG_S)
    made = SmallWrites(peer, Address("127.0.0.1", 1))
    yield made
    made.close()


def request(rows: int) -> Any:
    """A small write, recognised by its row count."""
    return pb.WriteRequest(dest_uuid="u", rows=rows, payload=b"x")


def write(writes: SmallWrites, one: Any, timeout_s: float) -> Any:
    """Write as a client does: over the link, or as a call if there is none."""
    linked = writes.begin(one, timeout_s)
    return linked.result() if linked is not None else writes.stub.Write(one, timeout=timeout_s)


def begin(pool: ThreadPoolExecutor, writes: SmallWrites, rows: int, timeout_s: float = LONG_S + LATE_S) -> Future[Any]:
    """A write on a thread of its own."""
    return pool.submit(write, writes, request(rows), timeout_s)


def test_each_thread_gets_its_own_reply_whatever_the_order_and_the_pieces(peer: Peer, writes: SmallWrites) -> None:
    """Goal: each thread gets the reply to its own request. Method: 12 threads; all requests are read, then answered
    backwards, some in one message, one message in many pieces; a thousand more by the same threads, answered at
    once."""
    with ThreadPoolExecutor(12) as pool:
        futures = [begin(pool, writes, n) for n in range(12)]
        seen: list[Any] = []
        peer.accepted()
        while len(seen) < 12:
            seen += peer.read()
        peer.reply(*reversed(seen[6:]))
        peer.reply(*reversed(seen[:6]), pieces=9)
        assert [f.result(LONG_S).rows_applied for f in futures] == list(range(12))

        def some(first: int) -> list[int]:
            return [write(writes, request(n), LONG_S).rows_applied for n in range(first, first + 100)]

        rounds = [pool.submit(some, 1000 * n) for n in range(10)]
        answered = 0
        while answered < 1000:
            got = peer.read()
            peer.reply(*got)
            answered += len(got)
        assert [f.result(LONG_S) for f in rounds] == [list(range(1000 * n, 1000 * n + 100)) for n in range(10)]
    assert peer.opened == 1 and writes.linked == 1012 and writes.under_way == 0


def test_one_thread_has_several_writes_under_way(peer: Peer, writes: SmallWrites) -> None:
    """Goal: a thread can have several writes under way. Method: one thread begins three; all arrive, and are answered
    backwards, before it asks for an outcome; then it has each one's. A fourth is given up: its reply is nobody's."""
    made = [writes.begin(request(n), LONG_S) for n in range(3)]
    peer.accepted()
    seen: list[Any] = []
    while len(seen) < 3:
        seen += peer.read()
    assert writes.under_way == 3
    peer.reply(*reversed(seen))
    assert [one.result().rows_applied for one in made if one is not None] == [0, 1, 2]
    dropped, kept = writes.begin(request(4), LONG_S), writes.begin(request(5), LONG_S)
    assert dropped is not None and kept is not None
    dropped.cancel()
    peer.reply(*peer.read(), *peer.read())
    assert kept.result().rows_applied == 5
    assert (writes.linked, writes.under_way, peer.opened) == (4, 0, 1)
    assert writes._link is not None and not writes._link._waiting


def test_thread_that_is_away_is_not_asked_to_read(peer: Peer, writes: SmallWrites) -> None:
    """Goal: replies are read by a thread that waits for one. Method: a thread begins a write and goes away; two others
    wait, one of them reads. Who reads is answered and leaves: the other one, not the oldest write's thread, reads
    on."""
    away = writes.begin(request(1), LONG_S)
    assert away is not None
    peer.accepted()
    first = peer.read()
    with ThreadPoolExecutor(2) as pool:
        reads = begin(pool, writes, 2)
        second = peer.read()
        link = writes._link
        assert link is not None
        wait_until(lambda: link._reader is not None, "somebody reads")
        sleeps = begin(pool, writes, 3)
        third = peer.read()
        wait_until(lambda: sum(one.present for one in list(link._waiting.values())) == 2, "both wait")
        peer.reply(*second)
        assert reads.result(LONG_S).rows_applied == 2
        peer.reply(*third)
        assert sleeps.result(LONG_S).rows_applied == 3
    peer.reply(*first)
    assert away.result().rows_applied == 1


def test_small_write_does_not_overtake_a_call_before_it(peer: Peer, writes: SmallWrites) -> None:
    """Goal: writes to a tablet arrive in the order in which they were put into the window, whatever their sizes,
    because a source's writes would be refused for a gap otherwise. Method: a window into which a small, a large, a
    small one are put: the first goes over the link, the others are calls; when all are settled, the next small one goes
    over the link again."""
    calls, outcomes = [], []

    def call(one: Any, timeout: float) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(pb.WriteReply(rows_applied=one.rows))
        calls.append(one.rows)
        return answer

    here = Address("127.0.0.1", 1)
    locator = SimpleNamespace(
        version=lambda table: 1, leader=lambda tablet: ("u", here), leader_answered=lambda *_: None
    )
    stub = SimpleNamespace(Write=SimpleNamespace(future=call))
    channels = SimpleNamespace(small_writes=lambda address: writes, tablet_server=lambda address: stub)
    made: Any = SimpleNamespace(
        options=ClientOptions(), rng=Random(1), locator=locator, channels=channels, time_seen=0, observe=lambda _: None
    )
    window = WriteWindow(made, SimpleNamespace(name="t"), lambda told: outcomes.append(told.rows_applied))  # type: ignore[arg-type]
    window.put(request(1))
    peer.accepted()
    window.put(pb.WriteRequest(dest_uuid="u", rows=2, payload=bytes(20 << 10)))
    window.put(request(3))
    assert calls == [2, 3]
    peer.reply(*peer.read())
    window.drain()
    window.put(request(4))
    peer.reply(*peer.read())
    window.drain()
    assert (calls, outcomes) == ([2, 3], [1, 2, 3, 4])


class Clock:
    """The clock by which writes are late: the machine's, and what the test lets pass at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._passed_s = 0.0
        monkeypatch.setattr(write_links, "time", SimpleNamespace(monotonic=self.now))
        monkeypatch.setattr(write_links, "_await", self._await)

    def now(self) -> float:
        return time.monotonic() + self._passed_s

    def pass_by(self, seconds: float) -> None:
        """Who waits for a socket notices it within moments."""
        self._passed_s += seconds

    def _await(self, sock: socket.socket, event: int, deadline: float) -> bool:
        poll = select.poll()
        poll.register(sock, event)
        while not (ready := bool(poll.poll(10))) and self.now() < deadline:
            pass
        return ready


@pytest.mark.deep
def test_thread_that_gives_up_hands_reading_over(peer: Peer, writes: SmallWrites) -> None:
    """Goal: if the thread that reads replies gives up, another waiting thread reads on. Method: a thread reads and is
    late; the others' replies come after that. A reply that is too late for its thread is nobody's."""
    with ThreadPoolExecutor(3) as pool:
        late = begin(pool, writes, 1, timeout_s=SOON_S)
        peer.accepted()
        seen = peer.read()
        others = [begin(pool, writes, n) for n in (2, 3)]
        while len(seen) < 3:
            seen += peer.read()
        with pytest.raises(Refused) as told:
            late.result(LONG_S)
        assert (told.value.code, told.value.applied) == (Code.TIMED_OUT, Applied.UNKNOWN)
        peer.reply(*seen)
        assert [f.result(LONG_S).rows_applied for f in others] == [2, 3]


@pytest.mark.parametrize("end", ["close", "garbage", "endless"])
def test_broken_link_leaves_every_outcome_unknown_and_the_next_write_opens_another(
    peer: Peer, writes: SmallWrites, end: str
) -> None:
    """Goal: once sent, unknown; and no write is lost to a dead connection. Method: three wait when the server closes
    the connection, sends what is no message, or announces one without end; a fourth comes after that."""
    with ThreadPoolExecutor(4) as pool:
        futures = [begin(pool, writes, n) for n in range(3)]
        seen: list[Any] = []
        first = peer.accepted()
        while len(seen) < 3:
            seen += peer.read()
        if end == "garbage":
            first.sendall(frame(b"\xff\xff\xff"))
        elif end == "endless":
            first.sendall(b"\xff" * HEAD_BYTES)
        else:
            first.close()
        for future in futures:
            with pytest.raises(Refused) as told:
                future.result(LONG_S)
            assert (told.value.code, told.value.applied) == (Code.UNAVAILABLE, Applied.UNKNOWN)
        again = begin(pool, writes, 9)
        peer.accepted()
        peer.reply(*peer.read())
        assert again.result(LONG_S).rows_applied == 9 and peer.opened == 2


def test_port_that_cannot_be_reached_costs_one_attempt(peer: Peer, writes: SmallWrites) -> None:
    """Goal: if the port for links cannot be reached, writes are sent as calls. Method: no process listens there: writes
    are calls, and the port is not tried again for each."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        nobody = pb.OpenWritesReply(port=kept.getsockname()[1], ticket=b"t" * 16)
        asked: list[Any] = []
        peer.OpenWrites = lambda request, timeout: asked.append(request) or nobody  # type: ignore[method-assign,func-returns-value]
        assert [write(writes, request(n), LONG_S).rows_applied for n in range(3)] == [7, 7, 7]
    assert (len(asked), len(peer.called), writes.linked) == (1, 3, 0)


def test_server_that_does_not_open_a_link_has_applied_nothing(peer: Peer, writes: SmallWrites) -> None:
    """Goal: NOT_APPLIED where it is certain. Method: the server has another uuid; then nobody answers the call."""
    refusal = pb.OpenWritesReply(error=pb.Error(code=Code.INVALID_NAME, message="another"))
    peer.OpenWrites = lambda request, timeout: refusal  # type: ignore[method-assign]
    with pytest.raises(Refused) as told:
        write(writes, request(1), LONG_S)
    assert (told.value.code, told.value.applied) == (Code.INVALID_NAME, Applied.NOT_APPLIED)

    class Gone(grpc.RpcError):
        def code(self) -> Any:
            return grpc.StatusCode.UNAVAILABLE

        def details(self) -> str:
            return "nobody there"

    def nobody(request: Any, timeout: float) -> Any:
        raise Gone

    peer.OpenWrites = nobody  # type: ignore[method-assign]
    with pytest.raises(Refused) as told:
        write(writes, request(1), LONG_S)
    assert told.value.applied is Applied.NOT_APPLIED


def test_large_writes_are_calls_of_their_own(peer: Peer, writes: SmallWrites) -> None:
    """Goal: a large write does not hold up small ones. Method: 20 kB."""
    large = pb.WriteRequest(dest_uuid="u", rows=1, payload=bytes(20 << 10))
    assert write(writes, large, LONG_S).rows_applied == 7 and peer.opened == 0


def test_closed_client_tells_who_waits(peer: Peer, writes: SmallWrites) -> None:
    """Goal: closing a client ends all waits. Method: one waits, then close."""
    with ThreadPoolExecutor(1) as pool:
        waits = begin(pool, writes, 1)
        peer.accepted()
        peer.read()
        writes.close()
        with pytest.raises(Refused) as told:
            waits.result(LONG_S)
    assert told.value.applied is Applied.UNKNOWN


class Gate:
    """Stands before what the link sends: each message waits until it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._came = threading.Semaphore(0)
        self._pass = threading.Semaphore(0)
        self._send_all = write_links._send_all
        self._settle = write_links._Link._settle
        self.settled = threading.Semaphore(0)
        monkeypatch.setattr(write_links, "_send_all", self._wait)
        monkeypatch.setattr(write_links._Link, "_settle", lambda link, bundle: self._settled(link, bundle))

    def _wait(self, *args: Any) -> None:
        self._came.release()
        assert self._pass.acquire(timeout=LONG_S)
        self._send_all(*args)

    def _settled(self, link: Any, bundle: Any) -> None:
        self._settle(link, bundle)
        if bundle.replies:
            self.settled.release()

    def wait(self) -> None:
        """Wait until a message is here."""
        assert self._came.acquire(timeout=LONG_S)

    def open(self, messages: int = 1) -> None:
        """Let so many through."""
        self._pass.release(messages)


@pytest.mark.parametrize("others_leave", [False, True], ids=["others-wait", "only-the-reader-waits"])
def test_sender_that_leaves_leaves_nothing_unsent(
    peer: Peer, writes: SmallWrites, monkeypatch: pytest.MonkeyPatch, others_leave: bool
) -> None:
    """CN-25. Goal: a write is sent at once, even if the thread that sends for all leaves with its reply, and the thread
    that reads for all gets none. Method: while the first sends the second's write his own reply comes and the third's
    write is queued; the second reads, and waits on or gives up, so that the third reads. Nobody else is answered before
    all three writes have arrived."""
    gate, clock = Gate(monkeypatch), Clock(monkeypatch)
    with ThreadPoolExecutor(3) as pool:
        first = begin(pool, writes, 1)
        peer.accepted()
        gate.wait()
        second = begin(pool, writes, 2, timeout_s=LATE_S if others_leave else LONG_S)
        link = writes._link
        assert link is not None
        wait_until(lambda: link._reader is not None, "the second to read")
        gate.open()
        gate.wait()
        peer.reply(*peer.read())
        assert gate.settled.acquire(timeout=LONG_S)
        third = begin(pool, writes, 3)
        wait_until(lambda: len(link._queue) == 1, "the third's write to be queued")
        if others_leave:
            clock.pass_by(LATE_S)
            with pytest.raises(Refused):
                second.result(LONG_S)
            wait_until(lambda: link._reader is not None, "the third to read")
        gate.open(2)
        assert first.result(LONG_S).rows_applied == 1
        seen = peer.read()
        seen += peer.read()
        assert [write.request.rows for write in seen] == [2, 3]
        peer.reply(*seen)
        assert third.result(LONG_S).rows_applied == 3


def test_write_that_never_left_is_known_not_to_be_applied(
    peer: Peer, writes: SmallWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CN-25. Goal: a write whose time is over before it was sent is not sent later. Method: one is late while another
    one's message is held up; then that goes on, and what arrives next is a third."""
    gate = Gate(monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        first = begin(pool, writes, 1)
        peer.accepted()
        gate.wait()
        with pytest.raises(Refused) as told:
            write(writes, request(2), 0.2)
        assert (told.value.code, told.value.applied) == (Code.TIMED_OUT, Applied.NOT_APPLIED)
        gate.open(2)
        peer.reply(*peer.read())
        assert first.result(LONG_S).rows_applied == 1
        third = begin(pool, writes, 3)
        seen = peer.read()
        assert [write.request.rows for write in seen] == [3]
        peer.reply(*seen)
        assert third.result(LONG_S).rows_applied == 3


def test_interrupted_thread_leaves_a_client_that_works(peer: Peer, writes: SmallWrites) -> None:
    """CN-25. Goal: Ctrl-C while a write waits costs that write only. Method: a signal's handler raises in the thread
    that reads; the next write goes over a link of its own and is answered."""

    class Interrupted(BaseException):
        pass

    def interrupt(number: int, frame: Any) -> None:
        raise Interrupted

    def when_it_has_arrived() -> None:
        peer.accepted()
        peer.read()
        wait_until(lambda: getattr(writes._link, "_reader", None) is not None, "it reads, and sends no more")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(when_it_has_arrived)
            with pytest.raises(Interrupted):
                write(writes, request(1), LONG_S)
            done.result(LONG_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    with ThreadPoolExecutor(1) as pool:
        again = begin(pool, writes, 2)
        peer.accepted()
        peer.reply(*peer.read())
        assert again.result(LONG_S).rows_applied == 2 and peer.opened == 2


def test_server_of_an_earlier_build_gets_calls(peer: Peer, writes: SmallWrites) -> None:
    """CN-25. Goal: clients may be newer than servers. Method: the call that opens links is not known there."""

    class Unknown(grpc.RpcError, grpc.Call):  # type: ignore[misc]
        def code(self) -> Any:
            return grpc.StatusCode.UNIMPLEMENTED

    Unknown.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]

    def refuse(request: Any, timeout: float) -> Any:
        raise Unknown

    peer.OpenWrites = refuse  # type: ignore[method-assign]
    assert write(writes, request(1), LONG_S).rows_applied == 7 and len(peer.called) == 1
