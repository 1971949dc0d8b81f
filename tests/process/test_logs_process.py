"""Logs of real servers and masters: every line of JSON is one object, on standard error and in a file."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.rpc import pb
from nyala.replica.server.process import EXIT_FATAL
from tests.harness.cluster import ServerProcess, local_cluster, wait_until
from tests.harness.rows import table_info

pytestmark = pytest.mark.process

TABLET, PASSWORD = "tablet-1", "never-shown"


class Listening:
    """A port that takes every connection and ends it at once, as a broker that is about to end."""

    def __enter__(self) -> Listening:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self._socket.accept()
            except OSError:
                return
            taken.close()

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def create(server: ServerProcess) -> None:
    request = pb.CreateTabletRequest(
        dest_uuid=server.uuid,
        tablet_id=TABLET,
        table=table_info(),
        config=pb.RaftConfig(members=[server.member()]),
        leader_hint=server.uuid,
    )
    assert not server.tablets.CreateTablet(request, timeout=30).error.code


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a log. Each line must be one, but that of standard output that says that the process is ready."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line.keys() != {"uuid", "address", "pid"}]


def test_every_line_of_real_processes_is_json() -> None:
    """Goal: a program reads the logs of servers and masters from the first line to the last, also when one ends with a
    traceback. Method: a master and a server with a tablet; the server's logs are taken away, which ends it; a second
    server on the first one's directory is refused at its start."""
    with local_cluster() as cluster:
        master = cluster.add_master("--log-format=json", "--metrics-port=0")
        server = cluster.add_server("--log-format=json", "--log-level=debug")
        create(server)
        cluster.leader(TABLET)
        other = cluster.add_server("--log-format=json", start=False)
        other.root = server.root
        refused = json.loads(other.fails())
        assert refused["level"] == "CRITICAL" and refused["message"].startswith("nyala server: ")
        shutil.rmtree(server.root / "wals")
        assert server.wait_exit() == EXIT_FATAL
        assert master.stop() == 0
        for process, role in ((master, "master"), (server, "server")):
            lines = lines_of(process.log_path)
            assert {line["role"] for line in lines} == {role} and {line["uuid"] for line in lines} <= {process.uuid, ""}
            assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
        about_tablet = [line for line in lines_of(server.log_path) if line.get("tablet")]
        assert about_tablet and all(line["tablet"] == TABLET for line in about_tablet)
        last = lines_of(server.log_path)[-1]
        assert last["level"] == "CRITICAL" and last["exception"].startswith("Traceback") and "\n" in last["exception"]


def test_log_file_has_what_standard_error_had_and_no_password(tmp_path: Path) -> None:
    """Goal: with a log file, a process writes nothing to standard error, and no secret is in the file at any level.
    Method: a master that cannot reach Kafka, with a password for it, at the lowest level."""
    login, log = tmp_path / "login", tmp_path / "master.log"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain."
        f'PlainLoginModule required username="nyala" password="{PASSWORD}";\n'
    )
    with local_cluster() as cluster:
        with Listening() as broker:
            options = (f"--kafka=127.0.0.1:{broker.port}", f"--kafka-properties={login}", "--log-level=debug")
            master = cluster.add_master(*options, "--log-format=json", f"--log-file={log}")
            wait_until(lambda: "kafka" in log.read_text(), "the master misses Kafka")
            assert master.stop() == 0
        lines = lines_of(log)
        assert {line["level"] for line in lines} >= {"INFO"} and lines_of(master.log_path) == []
        assert PASSWORD not in log.read_text()
