"""Ports that are kept for children: from their choice on, while a child is away, and from everybody else."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nyala.infra.local import ports as module
from nyala.infra.local.ports import LOOPBACK, PORT_MIN, Ports, first_given_port

WIDTH = 40
"""Ports that there are, in these tests."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ports]:
    """Some neighbours that nobody else is likely to use; each of them is tried."""
    with Ports() as first:
        start = min(first.free(), 30_000)
    monkeypatch.setattr(module, "PORT_MIN", start)
    monkeypatch.setattr(module, "first_given_port", lambda: start + WIDTH)
    with Ports() as made:
        yield made


def all_of(ports: Ports) -> set[int]:
    """Every one of the few that it can get."""
    return {ports.free() for _ in range(WIDTH)} & set(range(module.PORT_MIN, module.PORT_MIN + WIDTH))


def test_free_port_is_none_that_the_system_gives_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a child finds the port free that was chosen for it, after any time. Method: they lie below those that the
    system gives to whoever asks for any, by its own word too."""
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        assert first_given_port() <= max(PORT_MIN, other.getsockname()[1])
    monkeypatch.setattr(module, "first_given_port", lambda: PORT_MIN + 1000)
    with Ports() as ports:
        assert all(PORT_MIN <= ports.free() < PORT_MIN + 1000 for _ in range(20))


def test_free_port_goes_to_one_alone_before_anybody_listens_there(few: Ports) -> None:
    """Goal: two stacks that start at once never choose the same port. Method: few ports there are; one takes some, the
    other has the rest; what comes then is one that the system gives; one gives its own back; the other gets them."""
    with Ports() as other:
        mine = {few.free() for _ in range(5)}
        rest = all_of(other)
        assert len(mine) == 5 and not mine & rest and len(rest) > WIDTH // 2
        few.close()
        assert all_of(other) >= mine


def test_reserved_port_goes_to_no_other_process_and_to_the_child_whenever_it_comes(few: Ports) -> None:
    """Goal: a reserved port stays free for its server while that one restarts. Method: another process asks for a free
    port, all the others of which are kept; a server listens, ends, and listens again."""
    kept = all_of(few)
    port = max(kept)
    script = (
        "from nyala.infra.local import ports\n"
        f"ports.PORT_MIN, ports.first_given_port = {module.PORT_MIN}, lambda: {module.PORT_MIN + WIDTH}\n"
        "print(ports.Ports().free())"
    )
    for _ in range(2):
        with socket.create_server((LOOPBACK, port)):
            assert not Ports().reserve(f"{LOOPBACK}:{port}")
        stranger = int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
        assert stranger not in kept


def test_earlier_address_is_reserved_or_said_to_be_taken(few: Ports) -> None:
    """Goal: a stack that comes back has its addresses, or hears which one it has not. Method: keep one twice, one that
    is listened at, and one of another machine, about which the child will complain."""
    address = few.free_address()
    port = int(address.rpartition(":")[2])
    with Ports() as second, Ports() as third:
        assert few.reserve(address) and second.reserve(address) and second.reserve(address)
        few.close()
        assert port not in all_of(third)
        second.close()
        assert port in all_of(third)
        with socket.create_server((LOOPBACK, port)):
            assert not few.reserve(address)
        assert few.reserve("192.0.2.1:12345")
