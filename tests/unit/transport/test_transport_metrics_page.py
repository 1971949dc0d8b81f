"""The page `/metrics` under callers that hold its connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.core import GaugeMetricFamily

from nyala.replica.transport import Exporter
from nyala.replica.transport.exporter import _Handler
from nyala.replica.types import limits
from tests.harness.patience import patience_s


class One(Exporter):
    """A page with one metric."""

    def collect(self) -> Iterable[Any]:
        yield GaugeMetricFamily("nyala_one", "one", 1)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterable[One]:
    exporter = One()
    exporter.serve(0)
    yield exporter
    exporter.close()


def silent(page: One) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", page.port))
    connection.settimeout(patience_s(30))
    return connection


def answer(page: Exporter) -> bytes:
    with urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=patience_s(30)) as found:
        return bytes(found.read())


def held_threads() -> int:
    """The threads that serve a connection of a page."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def test_connections_of_the_metrics_page_are_bounded_and_silent_ones_end(
    page: One, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-51. Goal: whoever holds connections of the page takes a bounded number of threads, for a bounded time. Method:
    as many silent connections as it serves, each seen by a thread of its own, and one more, for which the oldest is
    ended. When they are closed, the page is answered. Then silence is short: such a connection is ended by the
    server."""
    assert b"nyala_one 1.0" in answer(page) and 0 < (_Handler.timeout or 0) <= 10
    monkeypatch.setattr(_Handler, "timeout", patience_s(60))
    with ExitStack() as stack:
        held = [stack.enter_context(silent(page)) for _ in range(limits.METRICS_CONNECTIONS_MAX + 1)]
        # Connections are accepted in order, so that the end of the first one says that all but the last were.
        assert held[0].recv(1) == b""
        assert held_threads() <= limits.METRICS_CONNECTIONS_MAX
    assert b"nyala_one 1.0" in answer(page)
    monkeypatch.setattr(_Handler, "timeout", 0.05)
    with silent(page) as connection:
        assert connection.recv(1) == b""


def test_callers_that_send_a_byte_now_and_then_do_not_keep_prometheus_away(
    page: One, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-51. Goal: the page is answered however many callers hold a connection without ever being silent for long.
    Method: as many connections as it serves have sent a part of a request, and each sends a byte more between answers.
    Each answer ends the oldest of them, and no other: the last one gets its answer when its request is whole."""
    monkeypatch.setattr(_Handler, "timeout", patience_s(60))
    with ExitStack() as stack:
        held = [stack.enter_context(silent(page)) for _ in range(limits.METRICS_CONNECTIONS_MAX)]
        for connection in held:
            connection.sendall(b"GET /metrics HTTP/1.0\r\nX-Slow: ")
        for ended in range(3):
            for connection in held[ended:]:
                connection.sendall(b"x")
            assert b"nyala_one 1.0" in answer(page)
            assert held[ended].recv(1) == b""
            # The thread that answered ends before the next connection comes, which would end one more otherwise.
            deadline = patience_s(30) + time.monotonic()
            while held_threads() >= limits.METRICS_CONNECTIONS_MAX:
                assert time.monotonic() < deadline
            held.append(stack.enter_context(silent(page)))
            held[-1].sendall(b"GET /metrics HTTP/1.0\r\nX-Slow: ")
        held[-1].sendall(b"\r\n\r\n")
        assert held[-1].makefile("rb").read().startswith(b"HTTP/1.0 200 OK")
        held[3].sendall(b"\r\n\r\n")
        assert held[3].makefile("rb").read().startswith(b"HTTP/1.0 200 OK")


class Broken(Exporter):
    """A page with a defect."""

    def collect(self) -> Iterable[Any]:
        raise ValueError("two\nlines")


def test_defect_of_the_page_is_one_record(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: an error of the page is in the log like all others, and not beside it, where no program expects it. Method:
    a page whose metrics raise; its caller gets 500."""
    page = Broken()
    page.serve(0)
    try:
        with pytest.raises(HTTPError) as failed:
            answer(page)
        assert failed.value.code == 500
        failed.value.close()
    finally:
        page.close()
    [record] = [record for record in caplog.records if record.name == "nyala.transport"]
    assert "got status 500: Traceback" in record.getMessage() and "ValueError: two\nlines" in record.getMessage()
    assert capsys.readouterr().err == ""
