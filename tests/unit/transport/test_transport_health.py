"""Health and readiness of a process: the page's answers, the event loop's question, and gRPC's health service."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPConnection
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.core import GaugeMetricFamily

from nyala.replica.rpc import async_channel_to, listen_on, load_credentials, new_server
from nyala.replica.rpc.credentials import ANY_MEMBER, Credentials
from nyala.replica.transport import Exporter, Health, Liveness, ProbedServices, health, serve_health
from nyala.replica.types import Address
from nyala.replica.types.process_options import ProcessOptions
from tests.harness.certificates import credentials_for, directory_for, speaking_as
from tests.harness.patience import patience_s

SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3
READY, PEERS = "nyala.v1.TabletService", "nyala.v1.PeerService"


class One(Exporter):
    """A page with one metric."""

    def collect(self) -> Iterable[Any]:
        yield GaugeMetricFamily("nyala_one", "one", 1)


class Loop:
    """A running event loop that a test holds up, and a clock that the test sets."""

    def __init__(self, waits_for_disk: Callable[[int], bool] | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.now_s = 0.0
        self.thread = threading.Thread(target=self._run, args=(waits_for_disk,))
        self._begun, self._go_on = threading.Event(), threading.Event()
        self.thread.start()
        assert self._begun.wait(patience_s(30))

    def _run(self, waits_for_disk: Callable[[int], bool] | None) -> None:
        async def begin() -> None:
            self.liveness = Liveness(self.loop, lambda: self.now_s, waits_for_disk)
            self._begun.set()

        self.loop.run_until_complete(begin())
        self.loop.run_forever()

    def hold(self) -> None:
        """Let the loop's thread wait until `go_on`."""
        held = threading.Event()

        def wait() -> None:
            held.set()
            self._go_on.wait()

        self.loop.call_soon_threadsafe(wait)
        assert held.wait(patience_s(30))

    def go_on(self) -> None:
        """Let the loop run again, and return when it does."""
        self._go_on.set()
        runs = threading.Event()
        self.loop.call_soon_threadsafe(runs.set)
        assert runs.wait(patience_s(30))

    def close(self) -> None:
        self._go_on.set()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(patience_s(30))
        self.loop.close()


@contextmanager
def looping(waits_for_disk: Callable[[int], bool] | None = None) -> Iterator[Loop]:
    made = Loop(waits_for_disk)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def page_of(reasons: list[str]) -> Iterator[tuple[Loop, Callable[..., tuple[int, dict[str, str], str]]]]:
    """A page, and a function that asks it: (path, method, headers) -> (status, headers, body)."""
    with looping() as loop:
        page = One()
        page.serve(0, health=Health(loop.liveness, lambda: reasons))

        def ask(path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
            connection = HTTPConnection("127.0.0.1", page.port, timeout=patience_s(30))
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            body = answer.read().decode()
            connection.close()
            return answer.status, dict(answer.headers), body

        try:
            yield loop, ask
        finally:
            page.close()


def test_page_tells_whether_the_process_lives_and_can_serve() -> None:
    """Goal: a probe without a certificate learns by one status whether the process lives, and whether it can serve; a
    person reads why not, a line each, and a program gets the same as JSON. Method: the page of a process that is ready,
    and of one with two reasons, one of which has several lines; the metrics stand where they stood."""
    reasons: list[str] = []
    with page_of(reasons) as (_, ask):
        assert ask("/healthz")[::2] == ask("/readyz")[::2] == (200, "ok\n")
        assert json.loads(ask("/readyz?json")[2]) == {"ready": True, "reasons": []}
        assert "nyala_one 1.0" in ask("/metrics")[2]
        reasons += ["the server quiesces", "a master\nrefused: 'x'"]
        status, headers, body = ask("/readyz")
        assert (status, body) == (503, "the server quiesces\na master refused: 'x'\n")
        assert headers["Content-Type"].startswith("text/plain") and headers["Cache-Control"] == "no-store"
        for found in (ask("/readyz?json"), ask("/readyz", Accept="application/json")):
            assert found[0] == 503 and found[1]["Content-Type"] == "application/json"
            assert json.loads(found[2]) == {"ready": False, "reasons": ["the server quiesces", "a master refused: 'x'"]}
        assert ask("/healthz")[::2] == (200, "ok\n")
        assert json.loads(ask("/healthz?json")[2]) == {"live": True, "reasons": []}


def test_page_answers_other_methods_without_acting() -> None:
    """Goal: a probe may use HEAD, and nothing else than a question is answered. Method: HEAD and POST."""
    with page_of(["x"]) as (_, ask):
        assert ask("/readyz", "HEAD")[::2] == (503, "") and ask("/healthz", "HEAD")[::2] == (200, "")
        status, headers, _ = ask("/readyz", "POST")
        assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_only_a_hung_event_loop_ends_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a short pause of the loop restarts nothing, and a hung one does. Method: a loop that is held up, with a
    clock: the bounds of both answers on both sides; then it runs again, as after a pause of the whole process."""
    monkeypatch.setattr(health, "ANSWER_S", 0.01)
    with page_of([]) as (loop, ask):
        monkeypatch.setattr(health, "ANSWER_S", patience_s(30))
        assert ask("/healthz")[0] == 200
        loop.hold()
        monkeypatch.setattr(health, "ANSWER_S", 0.01)
        assert ask("/healthz")[0] == ask("/readyz")[0] == 200
        loop.now_s = 4.9
        assert ask("/readyz")[0] == 200
        loop.now_s = 5.0
        assert ask("/readyz")[::2] == (503, "the event loop has not run for 5 s\n") and ask("/healthz")[0] == 200
        loop.now_s = 29.9
        assert ask("/healthz")[0] == 200
        loop.now_s = 30.0
        assert ask("/healthz")[::2] == (503, "the event loop has not run for 30 s\n")
        loop.go_on()
        assert ask("/healthz")[0] == 200


def test_loop_that_waits_for_the_disk_is_no_reason_for_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a hung disk restarts no process: the next one would wait for the same disk. Method: a loop that is held up
    for an hour, whose thread the kernel reports in state D; the state of a thread that waits for a lock is another."""
    monkeypatch.setattr(health, "ANSWER_S", 0.01)
    asked: list[int] = []
    with looping(lambda thread: bool(asked.append(thread)) or True) as loop:
        loop.hold()
        loop.liveness.silent_s()
        loop.now_s = 3600.0
        assert loop.liveness.silent_s() == 3600.0 and loop.liveness.problem() == ""
        assert asked == [loop.thread.native_id]
        assert not health.thread_waits_for_disk(loop.thread.native_id or 0)
        assert not health.thread_waits_for_disk(0)


def test_loop_that_does_not_run_has_one_question_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: probes of a hung process take no memory. Method: a loop that notes the questions and runs none."""
    monkeypatch.setattr(health, "ANSWER_S", 0.0)
    questions: list[Any] = []

    class Noting(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
            questions.append(callback)

    loop = Noting()
    try:
        liveness = Liveness(loop)
        for _ in range(5):
            liveness.silent_s()
        assert len(questions) == 1
        questions[0]()
        liveness.silent_s()
        assert len(questions) == 2
    finally:
        loop.close()
    assert Liveness(loop).silent_s() >= 0


@asynccontextmanager
async def served(reasons: list[str], credentials: Credentials | None = None) -> AsyncIterator[Address]:
    with speaking_as(credentials):
        server = new_server()
        serve_health("", lambda: reasons, ProbedServices((READY,), (PEERS,)), server, One(), ProcessOptions())
        port = listen_on(server, "127.0.0.1:0")
        await server.start()
    try:
        yield Address("127.0.0.1", port)
    finally:
        await server.stop(0)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), patience_s(60)))  # type: ignore[arg-type]


def asked(service: str) -> Any:
    return health_pb2.HealthCheckRequest(service=service)


def test_health_service_answers_for_each_name() -> None:
    """Goal: standard clients of gRPC learn whether the process is ready, and whether it lives. Method: Check and List
    of a process that is ready, and of one that is not, over a channel; a name that is not known, and one that no
    service can have."""

    async def scenario() -> None:
        reasons: list[str] = []
        async with served(reasons) as address, grpc.aio.insecure_channel(str(address)) as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            async def found() -> dict[str, int]:
                listed = (await stub.List(health_pb2.HealthListRequest(), timeout=patience_s(30))).statuses
                for name in listed:
                    answer = await stub.Check(asked(name), timeout=patience_s(30))
                    assert answer.status == listed[name].status
                return {name: listed[name].status for name in listed}

            assert await found() == {"": SERVING, READY: SERVING, "live": SERVING, PEERS: SERVING}
            reasons.append("it quiesces")
            assert await found() == {"": NOT_SERVING, READY: NOT_SERVING, "live": SERVING, PEERS: SERVING}
            with pytest.raises(grpc.aio.AioRpcError, match="no service 'x' here; write one of: '', 'live'") as error:
                await stub.Check(asked("x"), timeout=patience_s(30))
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stub.Check(asked("x" * 300), timeout=patience_s(30))
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(scenario)


def test_watch_tells_each_change_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a client that watches a process leaves it when it is about to end, and callers that watch take bounded
    memory. Method: a watch of a process that stops being ready, and of a name that is not known; with as many as there
    may be, one more is refused, and is taken once another one has ended."""
    monkeypatch.setattr(health, "WATCHERS_MAX", 2)
    monkeypatch.setattr(health, "WATCH_S", 0.01)

    async def scenario() -> None:
        reasons: list[str] = []
        async with served(reasons) as address, grpc.aio.insecure_channel(str(address)) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            first, other = stub.Watch(asked("")), stub.Watch(asked("x"))
            assert (await first.read()).status == SERVING and (await other.read()).status == UNKNOWN
            reasons.append("it quiesces")
            assert (await first.read()).status == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError, match="2 callers watch") as error:
                await stub.Watch(asked("")).read()
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            other.cancel()
            while True:
                with_room = stub.Watch(asked("live"))
                try:
                    assert (await with_room.read()).status == SERVING
                    break
                except grpc.aio.AioRpcError as full:
                    assert full.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(scenario)


def test_health_service_with_tls_answers_holders_of_a_certificate_only() -> None:
    """Goal: TLS has no hole for probes. Method: a client of the cluster, one of another cluster, and one without."""

    async def scenario() -> None:
        async def status(address: Address, credentials: Credentials | None) -> Any:
            with speaking_as(credentials):
                async with async_channel_to(address, to=ANY_MEMBER) as channel:
                    try:
                        stub = health_pb2_grpc.HealthStub(channel)
                        return (await stub.Check(asked(""), timeout=patience_s(20))).status
                    except grpc.aio.AioRpcError as error:
                        return error.code()

        async with served([], credentials_for("server", "a" * 32)) as address:
            assert await status(address, credentials_for("client", "anna")) == SERVING
            foreign = load_credentials(directory_for("server", "b" * 32, "other"))
            assert isinstance(await status(address, foreign), grpc.StatusCode)
            assert await status(address, None) is grpc.StatusCode.UNAVAILABLE

    run(scenario)
