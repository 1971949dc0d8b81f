"""A server's directory, name and parent: how a server process starts and ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.rpc import pb
from nyala.replica.types import Code, new_uuid
from tests.harness.cluster import STEADY, STOP_TIMEOUT_S, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import TABLET, create, wait_equal, write
from tests.harness.rows import batch, write_request

pytestmark = pytest.mark.process
WRITTEN_AGAIN_S = 120.0
"""The time in which a running server rewrites its instance file: it checks the file once a minute, and a busy machine
may be as late again."""

METHODS = [
    (service.name, method.name)
    for service in (pb.DESCRIPTOR.services_by_name["TabletService"], pb.DESCRIPTOR.services_by_name["CopyService"])
    for method in service.methods
    if "dest_uuid" in method.input_type.fields_by_name
]


def call(server: ServerProcess, service: str, method: str, **fields: Any) -> Any:
    """Return the first reply of a call, by name; every message is made with those of `fields` that it has."""
    descriptor = pb.DESCRIPTOR.services_by_name[service].methods_by_name[method]
    request_class = getattr(pb, descriptor.input_type.name)
    known = {k: v for k, v in fields.items() if k in descriptor.input_type.fields_by_name}
    stub = server.tablets if service == "TabletService" else server.copies
    answer = getattr(stub, method)(request_class(**known), timeout=30)
    return next(iter(answer)) if descriptor.server_streaming else answer


def test_every_call_for_another_server_is_refused_by_name() -> None:
    """Goal: row TC-73: the recipient's uuid is checked first on every call. Method: call each method of both services
    with a foreign and an empty uuid; then nothing here has changed."""
    with local_cluster(1) as cluster:
        server = create(cluster, cluster.servers[:1])
        for service, method in METHODS:
            for uuid in (new_uuid(), ""):
                reply = call(server, service, method, dest_uuid=uuid, tablet_id=TABLET)
                assert reply.error.code == Code.INVALID_NAME, (service, method, reply)
        status = cluster.status(server, TABLET)
        assert status is not None and status.role == "LEADER"


def test_bad_writes_are_refused_and_leave_no_trace() -> None:
    """Goal: everything is validated before an index is reserved. Method: wrong table, tablet, CRC, schema, bytes and
    size, small and large; the log's end does not move and a good write still works."""
    with local_cluster(1) as cluster:
        server = create(cluster, cluster.servers[:1])

        def last() -> int:
            status = cluster.status(server, TABLET)
            assert status is not None
            return int(status.last_logged.index)

        before = last()
        good = write_request(server.uuid, TABLET, batch([1], ["a"]))
        big = write_request(server.uuid, TABLET, batch(list(range(3000)), ["x" * 20] * 3000))
        cases: list[tuple[Any, dict[str, Any], Code]] = [
            (good, {"table_id": "dropped-and-created-again"}, Code.WRONG_TABLE),
            (good, {"table_id": ""}, Code.WRONG_TABLE),
            (good, {"tablet_id": "nowhere"}, Code.TABLET_NOT_FOUND),
            (good, {"payload_crc": 1}, Code.INVALID_BATCH),
            (big, {"payload_crc": 1}, Code.INVALID_BATCH),
            (good, {"schema_id": 9}, Code.SCHEMA_MISMATCH),
            (big, {"schema_id": 9}, Code.SCHEMA_MISMATCH),
            (good, {"rows": 2}, Code.INVALID_BATCH),
            (good, {"payload": b"\x00" * ((9 << 20) - (64 << 10))}, Code.TOO_LARGE),
        ]
        for base, changes, code in cases:
            request = pb.WriteRequest()
            request.CopyFrom(base)
            for name, value in changes.items():
                setattr(request, name, value)
            reply = server.tablets.Write(request, timeout=30)
            assert reply.error.code == code, (changes.keys(), reply.error)
            assert not reply.error.outcome_unknown
        assert last() == before
        assert not server.tablets.Write(good, timeout=30).error.code
        assert not server.tablets.Write(big, timeout=30).error.code


def test_second_server_on_one_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    """Goal: two servers never share a directory. Method: start one by hand on a running server's directory."""
    with local_cluster(1) as cluster:
        first = cluster.servers[0]
        command = [sys.executable, "-m", "nyala.replica.server", "--root", str(first.root)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert second.returncode == 1
        assert len(second.stderr.strip().splitlines()) == 1
        assert "another server runs on this directory" in second.stderr and str(first.process.pid) in second.stderr
        assert first.alive


def test_identity_stays_over_restarts_and_a_lost_one_is_not_guessed() -> None:
    """Goal: row TC-72: a server that lost its identity beside data refuses to start. Method: restart, compare uuids;
    then remove the instance file."""
    with local_cluster(1) as cluster:
        server = create(cluster, cluster.servers[:1])
        uuid = server.uuid
        assert server.stop() == 0
        server.start()
        assert server.uuid == uuid
        server.kill()
        (server.root / "instance").unlink()
        server.start(wait=False)
        assert server.wait_exit() == 1
        assert "instance file is missing" in server.log_tail()


def test_parents_death_stops_the_server() -> None:
    """Goal: no server is orphaned. Method: start one with a pipe as its parent, and close our end."""
    with local_cluster(1) as cluster:
        folder = cluster.folder / "child"
        read_end, write_end = os.pipe()
        command = [sys.executable, "-m", "nyala.replica.server", "--root", str(folder), "--parent-fd", str(read_end)]
        child = subprocess.Popen(command, pass_fds=[read_end], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert child.stdout is not None and b"uuid" in child.stdout.readline()
            os.close(read_end)
            os.close(write_end)
            assert child.wait(STOP_TIMEOUT_S) == 0
        finally:
            child.kill()
            child.wait(5)
            if child.stdout is not None:
                child.stdout.close()


def test_planned_stop_hands_leadership_over() -> None:
    """Goal: a planned stop is no failover. Method: SIGTERM the leader of three: its log names its successor, it ends by
    itself, and another server leads."""
    with local_cluster(3, module=STEADY) as cluster:  # the leader is still the leader when it is stopped
        create(cluster)
        wait_equal(cluster.servers, write(cluster, 0, 1))  # the next leader has everything
        leader = cluster.leader(TABLET)
        assert leader.stop() == 0
        assert "handed leadership" in leader.log_tail()
        assert cluster.leader(TABLET) is not leader


def test_taken_port_is_one_clear_line() -> None:
    """Goal: a taken port is one clear line. Method: listen where another server does."""
    with local_cluster(1) as cluster:
        second = cluster.add_server(start=False)
        second.address = cluster.servers[0].address
        second.start(wait=False)
        assert second.wait_exit() == 1
        assert "cannot listen" in second.log_tail()


@pytest.mark.parametrize(
    ("module", "option"),
    [
        ("nyala.replica.server", "--listen"),
        ("nyala.replica.server", "--peer-port"),
        ("nyala.replica.server", "--metrics-port"),
        ("nyala.replica.master", "--listen"),
        ("nyala.replica.master", "--peer-port"),
    ],
)
def test_each_port_that_is_taken_is_one_clear_line(module: str, option: str, tmp_path: Path) -> None:
    """Goal: a failed start is explained by one line, last and without a traceback, whichever port is taken. Method:
    another socket listens there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        where = f"127.0.0.1:{port}" if option == "--listen" else str(port)
        command = [sys.executable, "-m", module, "--root", str(tmp_path), option, where]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert "cannot listen" in last and "is the port taken?" in last and str(port) in last, last


@pytest.mark.deep
def test_instance_file_of_a_running_server_comes_back_by_itself_within_its_time() -> None:
    """IN-21. Goal: damage to a running server's identity costs nothing, though the next start would refuse it. Method:
    three servers, whose instance file is flipped, emptied and removed while they run; each is whole again within the
    minute that DESIGN.md names, as the log reports. Killed and started, all have their identities."""
    says = "the instance file was damaged, missing or an earlier one: written again"
    with local_cluster(3) as cluster:
        paths = [server.root / "instance" for server in cluster.servers]
        before = [path.read_bytes() for path in paths]
        paths[0].write_bytes(before[0][:30] + bytes([before[0][30] ^ 1]) + before[0][31:])
        paths[1].write_bytes(b"")
        paths[2].unlink()
        for server, path, held in zip(cluster.servers, paths, before, strict=True):
            whole = lambda p=path, h=held: p.exists() and p.read_bytes() == h  # noqa: E731
            wait_until(whole, "it is written again", WRITTEN_AGAIN_S)
            wait_until(lambda s=server: says in s.log_tail(), "its log says so")  # type: ignore[misc]
        uuids = [server.uuid for server in cluster.servers]
        for server in cluster.servers:
            server.kill()
            server.start()
        assert [server.uuid for server in cluster.servers] == uuids
