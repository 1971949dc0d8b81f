"""How many gRPC connections one host may have."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.rpc import ConnectionBound, connection_bound, pb
from nyala.replica.rpc.connection_bound import Ends, excess
from nyala.replica.rpc.hosts import counted_host
from nyala.replica.types import limits
from tests.harness.hostile_fields import Served
from tests.harness.patience import patience_s
from tests.harness.raw_http2 import RawCaller
from tests.unit.rpc.test_rpc_call_costs import Calls

LONG_S = patience_s(60.0)
HERE = ("10.0.0.1", 7051)
ENDS = st.builds(
    lambda address, port: Ends(HERE, (address, port)),
    st.sampled_from(["10.0.0.2", "::ffff:10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"]),
    st.integers(1, 9),
)


@pytest.mark.deep
@given(st.sets(ENDS), st.sets(ENDS), st.integers(0, 5))
def test_excess_is_what_is_too_much_and_new(found: set[Ends], known: set[Ends], most: int) -> None:
    """IN-51. Goal: a host keeps as many connections as it may have, the oldest first, and other hosts keep theirs.
    Method: random connections of hosts with several addresses, some of them known before."""
    too_many = excess(found, known, most)

    def counts(connections: set[Ends]) -> Counter[str]:
        return Counter(counted_host(c.there[0]) for c in connections)

    assert too_many <= found
    assert counts(found - too_many) == Counter({h: min(n, most) for h, n in counts(found).items() if most})
    for host in counts(too_many & known):
        assert not {c for c in found - too_many - known if counted_host(c.there[0]) == host}
    in_order = sorted(found)
    for host in counts(excess(in_order, [], most)):
        of_host = [c for c in in_order if counted_host(c.there[0]) == host]
        assert [c for c in of_host if c in excess(in_order, [], most)] == of_host[most:]


def is_open(sock: socket.socket) -> bool:
    """Whether the other end has not closed it."""
    sock.settimeout(0.0)
    try:
        while sock.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except ConnectionResetError:
        pass
    return False


def test_newest_connections_of_a_greedy_host_end_and_calls_of_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """IN-51. Goal: one host cannot take all connections of a server. Method: a server in this process. From one address
    come five connections with an open call each, and two more after a look, whose descriptors are lower; where a host
    may have five, a look ends these two. From another address come three: they stay. Both hosts' calls are answered on
    connections that stay. The log tells it once. Connections to another port of this process are left alone."""

    async def scenario() -> None:
        calls = Calls()
        calls.go.set()
        async with Served({"TabletService": calls.services["TabletService"]}) as served:
            bound = ConnectionBound(int(served.address.rpartition(":")[2]), 5)
            with socket.create_server(("127.0.0.1", 0)) as elsewhere:
                others = [socket.create_connection(elsewhere.getsockname()) for _ in range(7)]
                pairs = others + [elsewhere.accept()[0] for _ in others]
            low = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
            callers = [RawCaller(served.address, source="127.0.0.2") for _ in range(5)]

            def answered(caller: RawCaller) -> bool:
                stream = caller.call("TabletService", "Ledger", pb.LedgerRequest())
                return not caller.answer(stream, pb.LedgerReply()).error.code

            assert all([await asyncio.to_thread(answered, caller) for caller in callers])
            await asyncio.to_thread(bound.look)
            assert bound.ended == 0
            for descriptor in low:
                os.close(descriptor)
            for _ in range(2):
                late = [RawCaller(served.address, source="127.0.0.2") for _ in range(2)]
                another = [RawCaller(served.address, source="127.0.0.3") for _ in range(3)]
                assert all([await asyncio.to_thread(answered, caller) for caller in (*late, *another)])
                await asyncio.to_thread(bound.look)
                for caller in late:
                    with pytest.raises(AssertionError, match="the server ended the connection"):
                        await asyncio.to_thread(caller.wait_ended, 99)
                    caller.close()
                for caller in (*callers, *another):
                    assert await asyncio.to_thread(answered, caller)
                for caller in another:
                    caller.close()
            assert bound.ended == 4 and all(is_open(sock) for sock in pairs)
            for each in (*callers, *pairs):
                each.close()

    with caplog.at_level(logging.WARNING, "nyala.rpc"):
        asyncio.run(asyncio.wait_for(scenario(), LONG_S))
    assert [r.getMessage() for r in caplog.records if r.name == "nyala.rpc"] == [
        "ended 2 gRPC connections of 127.0.0.2, which had more than 5"
    ]


def test_connection_that_gets_the_descriptor_of_another_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-51. Goal: only connections that are too much end, though gRPC closes and accepts others meanwhile. Method: a
    port of this process with three connections where two may be. While a look decides, the third one closes, and a
    connection of another host gets its descriptor: it stays open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pairs = []
        for host in ("127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.3"):
            caller = socket.create_connection(("127.0.0.1", port), source_address=(host, 0))
            pairs.append((caller, server.accept()[0]))
        third, honest = pairs[2][1].fileno(), pairs[3][1].fileno()
        bound = ConnectionBound(port, 2)
        decide = connection_bound.excess

        def decided(*arguments: Any) -> set[Ends]:
            os.dup2(honest, third)
            return decide(*arguments)

        monkeypatch.setattr(connection_bound, "excess", decided)
        bound.look()
        assert bound.ended == 1 and is_open(pairs[3][0])
        for each in sum(pairs, ()):
            each.close()


def test_look_at_a_machine_with_few_connections_reads_no_list_of_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-51. Goal: the bound costs nothing while no host can exceed it. Method: a list of sockets that cannot be read:
    it is asked for if the machine has as many connections as one host may have, or the kernel does not say how many."""

    class Asked(Exception):
        pass

    def asked(path: object) -> list[str]:
        raise Asked

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        monkeypatch.setattr(connection_bound.os, "listdir", asked)
        ConnectionBound(1, 1 << 30).look()
        with pytest.raises(Asked):
            ConnectionBound(1, 1).look()
        monkeypatch.setattr(connection_bound, "_COUNTS", (Path("/nowhere"),))
        with pytest.raises(Asked):
            ConnectionBound(1, 1 << 30).look()


def test_bound_of_one_host_leaves_room_for_others() -> None:
    """IN-51. Goal: a host's bound is half of what gRPC accepts. Method: the two numbers."""
    assert limits.GRPC_CONNECTIONS_PER_HOST_MAX * 2 == limits.GRPC_CONNECTIONS_MAX
