"""Real server processes on loopback ports: start, kill -9, stop, restart, wait for a condition, show logs if a test
fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc

from nyala.infra.local.ports import Ports
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.types import Refused, limits
from tests.harness.forked import ForkedProcess, fork, forkable
from tests.harness.patience import patience_s

T = TypeVar("T")

SERVER = "nyala.replica.server"
STEADY = "tests.harness.steady_server"
"""The module of servers among which no election begins by itself, even if the machine stops for two seconds."""

PATIENCE_S = patience_s(150.0)
"""How long a test waits for a condition: long enough for the slowest machine, because only a failing test waits so
long."""
CALL_TIMEOUT_S = 30.0
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
LOG_TAIL_BYTES = 6000
_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", 500),
]


def wait_until(condition: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Return the first truthy value of `condition`; AssertionError with `what` and the last error after the deadline.

    RPC errors and refusals of the condition count as "not yet".
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    trouble: object = None
    while time.monotonic() < deadline:
        try:
            value = condition()
            if value:
                return value
            trouble = value
        except (grpc.RpcError, Refused) as error:
            trouble = error
        pause.wait(0.02)
    raise AssertionError(f"gave up after {timeout_s:g} s waiting until {what}; last: {trouble}")


@dataclass
class ServerProcess:
    """One child process with its directory, log file and stable address."""

    name: str
    module: str
    root: Path
    extra: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    uuid: str = ""
    address: str = ""
    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """The beginning of its command line."""
    _channel: grpc.Channel | None = None

    @property
    def log_path(self) -> Path:
        return self.root.parent / f"{self.name}.log"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, *, wait: bool = True, env: dict[str, str] | None = None) -> ServerProcess:
        """Start the process; with `wait`, return when it listens. A restart listens at the former address."""
        assert not self.alive, f"{self.name} runs already"
        self.root.mkdir(parents=True, exist_ok=True)
        ready = self._ready_file
        ready.unlink(missing_ok=True)
        listen = self.address or f"{self.host}:0"
        arguments = ["--root", str(self.root), "--listen", listen, "--ready-file", str(ready), *self.extra]
        if "--tls" not in arguments and not listen.startswith(("127.", "[::1]", "localhost")):
            arguments.append("--insecure")
        environment = {**os.environ, **self.env, **(env or {})}
        if self.prefix or not forkable(environment):
            command = [*self.prefix, sys.executable, "-m", self.module, *arguments]
            with self.log_path.open("ab") as log:
                self.process = subprocess.Popen(
                    command, stderr=log, stdout=log, stdin=subprocess.DEVNULL, env=environment
                )
        else:
            self.process = fork(self.module, arguments, environment, self.log_path)
        if wait:
            self.wait_ready()
        return self

    @property
    def _ready_file(self) -> Path:
        return self.root.parent / f"{self.name}.ready"

    def wait_ready(self) -> None:
        """Wait until the ready-file names this process; a death before that is reported with its log."""

        def ready() -> dict[str, Any] | None:
            assert self.alive, f"{self.name} ended with {self.process and self.process.returncode}:\n{self.log_tail()}"
            if not self._ready_file.exists() or not (text := self._ready_file.read_text()):
                return None
            value: dict[str, Any] = json.loads(text)
            return value

        info = wait_until(ready, f"{self.name} is ready", START_TIMEOUT_S)
        assert self.process is not None and info["pid"] == self.process.pid
        self.uuid, self.address = info["uuid"], info["address"]

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Send kill -9, and reap."""
        self._end(signal.SIGKILL)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Send SIGTERM and return the exit code; kill -9 if it does not end in time."""
        return self._end(signal.SIGTERM, timeout_s)

    def fails(self) -> str:
        """Start a process that has to end by itself with status 1; returns what it prints at the end."""
        before = self.log_path.stat().st_size if self.log_path.exists() else 0
        code = self.start(wait=False).wait_exit()
        said = self.log_path.read_bytes()[before:].decode(errors="replace")
        assert code == 1, (code, said)
        return said.rstrip().rpartition("\n")[2]

    def wait_exit(self, timeout_s: float = PATIENCE_S) -> int:
        """Return the exit code of a process that should end by itself."""
        assert self.process is not None
        code = self.process.wait(timeout_s)
        self._close_channel()
        return code

    def _end(self, number: int, timeout_s: float = STOP_TIMEOUT_S) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(PATIENCE_S)
        self._close_channel()
        return self.process.returncode

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    @property
    def channel(self) -> grpc.Channel:
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.address, options=_CHANNEL_OPTIONS)
        return self._channel

    @property
    def tablets(self) -> Any:
        """Return a stub of the TabletService."""
        return pb_grpc.TabletServiceStub(self.channel)

    @property
    def copies(self) -> Any:
        """Return a stub of the CopyService."""
        return pb_grpc.CopyServiceStub(self.channel)

    def member(self, *, votes: bool = True, promote: bool = False) -> pb.Member:
        host, _, port = self.address.rpartition(":")
        return pb.Member(
            uuid=self.uuid,
            addresses=[pb.Address(host=host, port=int(port))],
            votes=votes,
            promote=promote,
            holds_data=True,
        )

    def log_tail(self) -> str:
        if not self.log_path.exists():
            return "(no log)"
        return self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


@dataclass
class LocalCluster:
    """Servers under one temporary folder; `close` ends every one of them."""

    folder: Path
    servers: list[ServerProcess] = field(default_factory=list)
    masters: list[ServerProcess] = field(default_factory=list)
    module: str = SERVER
    """The module that `add_server` runs."""
    ports: Ports = field(default_factory=Ports)
    """The ports at which they listen: no other process gets them while one of the servers is away."""

    def add_server(self, *extra: str, start: bool = True, env: dict[str, str] | None = None) -> ServerProcess:
        """Return one more tablet server with an empty directory."""
        name = f"ts{len(self.servers) + 1}"
        args = list(extra)
        if self.masters:
            args += ["--masters", ",".join(m.address for m in self.masters)]
        server = ServerProcess(name, self.module, self.folder / name, tuple(args), env or {})
        server.address = self.ports.free_address()
        self.servers.append(server)
        return server.start() if start else server

    def add_master(self, *extra: str, start: bool = True) -> ServerProcess:
        """Return one more master with an empty directory."""
        name = f"m{len(self.masters) + 1}"
        master = ServerProcess(name, "nyala.replica.master", self.folder / name, tuple(extra))
        master.address = self.ports.free_address()
        self.masters.append(master)
        return master.start() if start else master

    def server(self, uuid: str) -> ServerProcess:
        return next(s for s in self.servers if s.uuid == uuid)

    def status(self, server: ServerProcess, tablet_id: str) -> Any | None:
        """Return the replica's status as its server reports it, or None."""
        reply = server.tablets.ListTablets(
            pb.ListTabletsRequest(dest_uuid=server.uuid, tablet_ids=[tablet_id]), timeout=CALL_TIMEOUT_S
        )
        return reply.replicas[0] if reply.replicas else None

    def leader(self, tablet_id: str, timeout_s: float = PATIENCE_S) -> ServerProcess:
        """Return the server that leads the tablet in the highest term that any live server knows, once its term is
        open: a server that was just elected reports that it leads, and accepts no writes yet."""

        def found() -> ServerProcess | None:
            best: tuple[int, ServerProcess] | None = None
            for server in self.servers:
                if not server.alive:
                    continue
                try:
                    status = self.status(server, tablet_id)
                except grpc.RpcError:
                    continue
                if status and status.role == "LEADER" and (best is None or status.term > best[0]):
                    best = (status.term, server)
            if best is None:
                return None
            barrier = pb.LedgerRequest(dest_uuid=best[1].uuid, tablet_id=tablet_id)
            return best[1] if not best[1].tablets.Ledger(barrier, timeout=CALL_TIMEOUT_S).error.code else None

        return wait_until(found, f"{tablet_id} has a leader", timeout_s)

    def close(self) -> None:
        for process in (*self.servers, *self.masters):
            process.kill()
        self.ports.close()

    def logs(self) -> str:
        return "\n".join(f"---- {p.name} ({p.uuid})\n{p.log_tail()}" for p in (*self.masters, *self.servers))


@contextmanager
def local_cluster(servers: int = 0, *extra: str, module: str = SERVER) -> Iterator[LocalCluster]:
    """Yield a cluster that is killed and removed afterwards; its logs are shown if the block raises."""
    folder = Path(tempfile.mkdtemp(prefix="nyala-test-"))
    cluster = LocalCluster(folder, module=module)
    try:
        for _ in range(servers):
            cluster.add_server(*extra, start=False)
        for server in cluster.servers:
            server.start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        yield cluster
    except BaseException:
        print(cluster.logs(), file=sys.stderr)
        raise
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
