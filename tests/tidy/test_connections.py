"""Connections are made and accepted in one place, so that rules for all of them are in one place too."""

from __future__ import annotations

import ast

from tests.tidy.test_layers import ROOT, nodes_of, source_files

ONE_PLACE = "replica/rpc/connections.py"
ELSEWHERE = {
    "replica/types/kafka_reach.py": "asks whether Kafka's port answers, before Kafka's own client connects",
    "replica/transport/exporter.py": "the page for Prometheus and probes, with a bound on its connections",
    "replica/rpc/connection_bound.py": "looks at sockets that exist, and ends some",
    "infra/local/control.py": "how commands reach the supervisor of the local stack, on loopback",
    "infra/local/ports.py": "looks for ports that are free, and connects to nobody",
    "infra/bench/streams.py": "streams without a table, on loopback, that a benchmark compares scans with",
    "infra/bench/peers/kudu.py": "looks for ports that are free for Kudu",
}
"""File -> the reason why it opens connections. None of them is between servers, masters and clients."""
OPENING = {
    "insecure_channel", "secure_channel", "add_insecure_port", "add_secure_port", "create_connection", "create_server",
    "open_connection", "create_unix_connection", "create_unix_server", "create_datagram_endpoint",
    "start_http_server", "make_server",
    "HTTPServer", "ThreadingHTTPServer", "TCPServer", "ThreadingTCPServer", "urlopen", "socket",
}  # fmt: skip


def openings(text: str) -> list[tuple[int, str]]:
    """Return (line, name) of each call that makes or accepts connections."""
    calls = [node for node in nodes_of(text) if isinstance(node, ast.Call)]
    named = [(c.lineno, c.func.attr if isinstance(c.func, ast.Attribute) else getattr(c.func, "id", "")) for c in calls]
    return [(line, name) for line, name in named if name in OPENING]


def test_connections_are_made_in_one_place() -> None:
    """Goal: a channel, a socket or a listener that is made anywhere else turns this red, and so does an exception that
    is no longer needed. Method: the calls of every file; each way is tried on a wrong file first."""
    assert [name for _, name in openings("grpc.aio.insecure_channel(a)\nsocket.socket()\nurlopen(f)")] == [
        "insecure_channel", "socket", "urlopen",
    ]  # fmt: skip
    found = {str(path.relative_to(ROOT)): openings(path.read_text()) for path in source_files()}
    where = {place for place, calls in found.items() if calls}
    wrong = [f"{place}:{line} {name}" for place in sorted(where) for line, name in found[place]]
    assert where == {ONE_PLACE, *ELSEWHERE}, f"connections are made in {ONE_PLACE}, and not in all of:\n" + "\n".join(
        wrong
    )
