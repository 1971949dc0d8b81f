"""The page `/metrics` under callers that hold its connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any
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


def answer(page: One) -> bytes:
    with urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=patience_s(30)) as found:
        return bytes(found.read())


def test_connections_of_the_metrics_page_are_bounded_and_silent_ones_end(
    page: One, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-51. Goal: whoever holds connections of the page takes a bounded number of threads, for a bounded time. Method:
    as many silent connections as it serves, each seen by a thread of its own, and one more, which is closed at once.
    When they are closed, the page is answered. Then silence is short: such a connection is ended by the server."""
    assert b"nyala_one 1.0" in answer(page) and 0 < (_Handler.timeout or 0) <= 10
    monkeypatch.setattr(_Handler, "timeout", patience_s(60))
    with ExitStack() as held:
        for _ in range(limits.METRICS_CONNECTIONS_MAX):
            held.enter_context(silent(page))
        # Connections are accepted in order, so that the answer to this one says that all before it were.
        more = held.enter_context(silent(page))
        assert more.recv(1) == b""
        threads = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
        assert len(threads) == limits.METRICS_CONNECTIONS_MAX
    ended = threading.Event()
    while not ended.wait(0.001):
        try:
            assert b"nyala_one 1.0" in answer(page)
            ended.set()
        except OSError:
            continue  # its threads have not noticed yet that the others are closed
    monkeypatch.setattr(_Handler, "timeout", 0.05)
    with silent(page) as connection:
        assert connection.recv(1) == b""
