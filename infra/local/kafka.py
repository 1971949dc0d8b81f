"""One KRaft broker (controller and broker in one JVM) under a folder, from the pinned jars.

The folder keeps the port, the formatted storage and the log, so that a broker which was stopped or killed comes back
on the same port with its topics. `python -m nyala.infra.local.kafka` runs one as a supervised child.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from nyala.infra.jars import JarsMissing, broker_class_path, java

from .children import end_process, telling_line
from .parent_death import ended_with_parent
from .ports import LOOPBACK, Ports

START_WAIT_S = 120.0
STOP_WAIT_S = 20.0
READY_LINE = b"Kafka Server started"
_POLL_S = 0.05

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
message.max.bytes=4194304
log.message.timestamp.type=CreateTime
"""

_LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


class KafkaFailed(Exception):
    """The broker did not start; the text has the reason in one line, and the place of its log."""


class KafkaBroker:
    """A broker that can be started, stopped, killed and started again on the same port.

    Durability: Kafka's own: what it acknowledged is in the page cache, which outlives a killed process.
    Concurrency: one thread at a time calls the methods.
    """

    def __init__(self, folder: Path | str, *, port: int = 0, heap_mb: int = 320, properties: str = "") -> None:
        """`folder` is created; `port` 0: the port of an earlier start, otherwise a free one.

        `properties`: lines that override the broker's in a new folder; `{port}` stands for its port.
        """
        self.folder = Path(folder).resolve()
        self.log_file = self.folder / "kafka.log"
        self._heap_mb = heap_mb
        self._wanted_port = port
        self._properties = properties
        self._ports = Ports()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def port(self) -> int:
        """The port for clients; KafkaFailed before the first start."""
        return int(self._state()["port"])

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def cluster_id(self) -> str:
        """Kafka's own id of the cluster; each folder has another one."""
        return str(self._state()["cluster_id"])

    @property
    def pid(self) -> int | None:
        """The process id while the JVM runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self, *, wait: bool = True) -> KafkaBroker:
        """Format new storage, start the JVM, wait until it is ready (START_WAIT_S); KafkaFailed if it is not."""
        if self.pid is not None:
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lay_out()
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                ended_with_parent(
                    [
                        *self._java(f"-Xmx{self._heap_mb}m", "-Xms64m"),
                        "kafka.Kafka",
                        str(self.folder / "server.properties"),
                    ]
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = START_WAIT_S) -> None:
        """Return when the broker is ready; KafkaFailed if it died or took longer."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self.is_ready():
                return
            if self.pid is None:
                raise KafkaFailed(f"the broker on port {self.port} ended at its start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise KafkaFailed(
                    f"the broker on port {self.port} was not ready in {timeout_s:g} s: {self._last_words()}"
                )
            time.sleep(_POLL_S)

    def is_ready(self) -> bool:
        """Whether the log of this start says that the broker is ready."""
        if self.pid is None or not self.log_file.exists():
            return False
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return READY_LINE in log.read()

    def stop(self) -> None:
        """Stop in order (SIGTERM); SIGKILL after STOP_WAIT_S. Returns when the process is gone."""
        end_process(self._process, STOP_WAIT_S)

    def close(self) -> None:
        """Stop, and release the ports, which are reserved until then."""
        self.stop()
        self._ports.close()

    def kill(self) -> None:
        """kill -9, like the death of a machine."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        """The result of this start, in one line."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            said = log.read().decode(errors="replace")
        return f"{telling_line(said.splitlines())} (log: {self.log_file})"

    def __enter__(self) -> KafkaBroker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _state(self) -> dict[str, Any]:
        path = self.folder / "ports.json"
        if not path.exists():
            raise KafkaFailed(f"no broker was started in {self.folder} yet")
        state: dict[str, Any] = json.loads(path.read_text())
        return state

    def _lay_out(self) -> None:
        """Write the properties with its addresses. Clients' port never changes; the controller's, which only the broker
        knows, changes if another program took it."""
        path = self.folder / "ports.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        port = self._wanted_port or known.get("port") or self._ports.free()
        if not self._ports.reserve(f"{LOOPBACK}:{port}"):
            raise KafkaFailed(f"port {port} is taken by another program: end it, or choose another port for Kafka")
        controller_port = known.get("controller_port", 0)
        if not controller_port or not self._ports.reserve(f"{LOOPBACK}:{controller_port}"):
            controller_port = self._ports.free()
        cluster_id = known.get("cluster_id") or _new_cluster_id()
        now = {"port": port, "controller_port": controller_port, "cluster_id": cluster_id}
        if now == known:
            return
        data = self.folder / "data"
        # If a name occurs twice, Java uses the last one.
        text = (_PROPERTIES + self._properties).format(port=port, controller_port=controller_port, data=data)
        (self.folder / "server.properties").write_text(text)
        (self.folder / "log4j2.properties").write_text(_LOG4J)
        # Last, because its presence says that the layout is complete.
        path.write_text(json.dumps(now))

    def _format(self) -> None:
        command = [*self._java("-Xmx128m", "-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool", "format"]
        command += [
            "-t",
            str(self._state()["cluster_id"]),
            "-c",
            str(self.folder / "server.properties"),
            "--ignore-formatted",
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            said = telling_line((result.stdout + result.stderr).splitlines())
            raise KafkaFailed(f"formatting {self.folder} failed: {said}")

    def _java(self, *options: str) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile=file:{self.folder / 'log4j2.properties'}"
        return [java(), *options, "-XX:+UseSerialGC", "-Xshare:auto", log4j, "-cp", broker_class_path()]


def _new_cluster_id() -> str:
    """22 URL-safe characters. An id that begins with a dash would be parsed as an option."""
    return "n" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def main() -> int:
    """Run a broker until SIGTERM, its death, or end of file on `--parent-fd`; writes the ready file when it serves."""
    parser = argparse.ArgumentParser(description="a local Kafka broker")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--heap-mb", type=int, default=320)
    parser.add_argument("--properties", default="", help="lines that override the broker's in a new folder")
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--parent-fd", type=int)
    options = parser.parse_args()
    wake_read, wake_write = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(wake_write, b"x") and None)
    broker = KafkaBroker(options.folder, port=options.port, heap_mb=options.heap_mb, properties=options.properties)
    try:
        broker.start()
    except (KafkaFailed, JarsMissing) as error:
        print(f"nyala: {error}", file=sys.stderr)
        return 1
    if options.ready_file:
        ready = {"uuid": broker.cluster_id, "address": broker.bootstrap, "pid": broker.pid}
        temporary = options.ready_file.with_suffix(".new")
        temporary.write_text(json.dumps(ready))
        temporary.replace(options.ready_file)
    watched = [wake_read] + ([options.parent_fd] if options.parent_fd is not None else [])
    while broker.pid is not None:
        readable, _, _ = select.select(watched, [], [], 0.5)
        if readable:
            broker.stop()
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
