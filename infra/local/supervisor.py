"""Starts a broker, masters and tablet servers as child processes and keeps them alive.

Invariants: a child that dies is started again after a bounded back-off, at its former address; a child that keeps dying
stays FAILED, and the status shows it; a write that a full disk refuses is repeated without a limit, and the status
shows it; every child ends when the supervisor does, however the supervisor ends (they read a pipe whose other end only
it has). Concurrency: one thread owns the children; `call` gives it work.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nyala.infra import jars
from nyala.replica.types import limits

from .children import Child, ChildState, python_module, text_of
from .ports import Ports
from .state import StackError, earlier_addresses

POLL_S = 0.05
START_WAIT_S = 180.0
COUNTED_WAIT_S = 30.0
"""The longest wait until the masters have accepted the servers; then the start goes on, and reports that."""
SERVERS_MAX = 32
STARTS_MAX = 3
"""The deaths of a child during the start of the stack after which the start is given up."""
STATE_BACKOFF_S = 1.0
"""The pause before another attempt to write `state.json`."""
PORT_WAIT_S = 10.0
"""The longest wait until children of a killed supervisor release their ports; they end by themselves."""


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """The parts to start. `kafka` False: no broker; `kafka_bootstrap`: use one that runs already."""

    servers: int = 3
    masters: int | None = None
    """None: as many as the folder had before, or one in a new folder."""
    kafka: bool = True
    kafka_bootstrap: str = ""
    kafka_properties: str = ""
    """Lines that override the broker's own in a new folder, as for KafkaBroker."""
    execute_decisions: str = "none"
    topic_prefix: str = ""
    server_env: tuple[tuple[str, str], ...] = ()
    server_arguments: tuple[str, ...] = ()
    """More command-line options of every tablet server, such as `--log-retain-entries=100`."""
    master_arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.servers <= SERVERS_MAX:
            raise StackError(f"{self.servers} servers asked for: a stack has 1 to {SERVERS_MAX}")
        if self.masters is not None and self.masters not in limits.MASTERS:
            raise StackError(
                f"{self.masters} masters asked for: one, three or five agree, an even number gains nothing"
            )
        for address in filter(None, self.kafka_bootstrap.split(",")):
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit():
                raise StackError(f"{address!r} is no address of a Kafka broker, host:port")


def make_folder(folder: Path) -> None:
    """Create a stack's folder; StackError in one line if that is impossible."""
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StackError(f"no stack can live in {folder}: {error.strerror}; name another folder with --dir") from error


def needs_broker(options: StackOptions) -> bool:
    """Whether a stack starts a Kafka broker of its own."""
    return options.kafka and not options.kafka_bootstrap


def prepare(options: StackOptions, progress: Callable[[str], None] = lambda _: None) -> None:
    """Check Java and PySpark, and fetch the jars if the cache lacks them.

    StackError in one line, before anything is started or written.
    """
    if not needs_broker(options):
        return
    try:
        if not jars.are_ready():
            jars.java()
            jars.pyspark_folder()
            progress(f"{jars.FETCHING} into {jars.cache_folder() / 'jars'}")
        jars.java()
        jars.broker_class_path()
    except jars.JarsMissing as error:
        raise StackError(
            f"no Kafka broker can be started: {error}. Nothing was started; `nyala up --no-kafka` does without one"
        ) from error


class Supervisor:
    """A local stack under one folder: `state.json`, `logs/`, one folder for each child."""

    def __init__(self, folder: Path, options: StackOptions) -> None:
        self.folder = folder.resolve()
        self.options = options
        self.children: dict[str, Child] = {}
        self._calls: queue.Queue[tuple[Callable[[], Any], Future[Any]]] = queue.Queue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._parent_read, self._parent_write = os.pipe()
        self._ports = Ports()
        """The children's ports, reserved while a child is away."""
        self._kafka_address = ""
        self._masters: dict[str, str] = {}
        """By name, the address of every master: each gets all of them when it starts."""
        self._extra: dict[str, Any] = {}
        self._problem = ""
        """The reason why `state.json` could not be written; empty if it was."""
        self._addresses: dict[str, str] | None = None
        """The last address of each child, including those that did not start this time; None until known."""
        self._writing = threading.Lock()
        """Held while `state.json` is written: by the thread that owns the children, or by one that notes something."""

    # ------------------------------------------------------------------------------------------------- addresses

    @property
    def kafka_bootstrap(self) -> str:
        """host:port of the broker; empty without one."""
        if self.options.kafka_bootstrap:
            return self.options.kafka_bootstrap
        return self._kafka_address

    @property
    def masters(self) -> str:
        """Comma-separated addresses of the masters."""
        return ",".join(self._masters.values())

    # ------------------------------------------------------------------------------------------------- lifecycle

    def start(self, progress: Callable[[str], None] = lambda _: None, wait_s: float = START_WAIT_S) -> Supervisor:
        """Start everything and wait until it is ready; StackError says in one line what is not, and why."""
        try:
            prepare(self.options, progress)
            deadline = time.monotonic() + wait_s
            make_folder(self.folder)
            earlier = self._earlier_addresses()
            self._masters = self._choose_masters(earlier)
            self._addresses = earlier | self._masters
            self._write_state()  # the masters' group is formed at these addresses, and clients find it at no other
            if needs_broker(self.options):
                self._kafka_address = earlier.get("kafka") or self._ports.free_address()
                self._add(self._kafka_child())
            for name in self._masters:
                self._add(self._master_child(name))
            self._thread = threading.Thread(target=self._run, name="nyala-supervisor", daemon=True)
            self._thread.start()
            progress("waiting for " + ("master" if len(self._masters) == 1 else f"{len(self._masters)} masters"))
            self._wait_ready(list(self._masters), deadline)
            names = [f"server-{n}" for n in range(1, self.options.servers + 1)]
            names += [n for n in sorted(earlier) if n.startswith("server-") and n not in names]
            for name in names:
                self.call(lambda name=name: self._add(self._server_child(name, earlier.get(name, ""))))  # type: ignore[misc]
            progress(f"waiting for {len(names)} tablet servers")
            self._wait_ready(names, deadline)
            self._wait_counted(names, progress)
            if "kafka" in self.children:
                progress("waiting for Kafka broker")
                self._wait_ready(["kafka"], deadline)
            self._write_state()
        except OSError as error:
            self.stop()
            raise StackError(f"the stack in {self.folder} cannot be started: {text_of(error)}") from error
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every child, newest first, and wait for them."""
        self._stop.set()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(timeout=60)
        for name in sorted(self.children, key=self._stop_order):
            self.children[name].stop()
        self._ports.close()
        if self.folder.exists() and self._addresses is not None:
            self._try_to_write_state(running=False)
        for fd in (self._parent_write, self._parent_read):
            if fd >= 0:
                os.close(fd)
        self._parent_write = self._parent_read = -1

    def __enter__(self) -> Supervisor:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @staticmethod
    def _stop_order(name: str) -> tuple[int, str]:
        return ({"server": 0, "master": 1, "kafka": 2}.get(name.partition("-")[0], 0), name)

    # ------------------------------------------------------------------------------------------------------ calls

    def call(self, work: Callable[[], Any], wait_s: float = 60.0) -> Any:
        """Run `work` on the supervisor's thread and return its result."""
        future: Future[Any] = Future()
        self._calls.put((work, future))
        return future.result(wait_s)

    def add_server(self) -> str:
        """Start one more tablet server and wait until it is ready; returns its name."""
        taken = [int(n.partition("-")[2]) for n in self.children if n.startswith("server-")]
        name = f"server-{max(taken, default=0) + 1}"
        self.call(lambda: self._add(self._server_child(name, "")))
        self._wait_ready([name], time.monotonic() + START_WAIT_S)
        self._wait_counted([name])
        return name

    def prepare_masters(self, count: int) -> list[str]:
        """Names of further masters, whose directories are empty. `start_child` starts them. Processes that start from
        now on get their addresses; running ones do not."""

        def prepare() -> list[str]:
            names = [f"master-{len(self._masters) + n}" for n in range(1, count + 1)]
            self._masters |= {name: self._ports.free_address() for name in names}
            self.children |= {name: self._master_child(name) for name in names}
            return names

        return list(self.call(prepare))

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a child a signal; it is started again as after any death."""
        self.call(lambda: self._child(name).send_signal(number))

    def stop_child(self, name: str) -> None:
        """End a child for good, until `start_child`."""
        self.call(lambda: self._child(name).stop())

    def start_child(self, name: str) -> None:
        """Start a stopped or failed child again and wait until it is ready."""

        def begin() -> None:
            child = self._child(name)
            child.restarts = 0
            child.start(self._parent_read)

        self.call(begin)
        self._wait_ready([name], time.monotonic() + START_WAIT_S)

    def kill_for_good(self, name: str) -> None:
        """SIGKILL without a restart, like the loss of a machine."""

        def end() -> None:
            child = self._child(name)
            child.state = ChildState.STOPPED
            child.send_signal(signal.SIGKILL)
            if child.process:
                child.process.wait()

        self.call(end)

    def wipe_child(self, name: str) -> None:
        """SIGKILL a child and remove its folder, like the loss of a machine and its disk. `start_child` then starts it
        with a new identity."""
        self.kill_for_good(name)
        shutil.rmtree(self.folder / name)

    def status(self) -> dict[str, Any]:
        """Everything that `nyala status` shows; also written to state.json at each change."""
        return {
            "pid": os.getpid(),
            "folder": str(self.folder),
            "kafka": self.kafka_bootstrap,
            "masters": self.masters,
            "children": [c.row() for _, c in sorted(self.children.items())],
            "problem": self._problem,
            **self._extra,
        }

    def note(self, **values: Any) -> None:
        """Add values to the status, such as the control port."""
        self._extra.update(values)
        self._write_state()

    # ----------------------------------------------------------------------------------------------------- inside

    def _child(self, name: str) -> Child:
        if name not in self.children:
            raise StackError(f"no child named {name!r}; there are {', '.join(sorted(self.children))}")
        return self.children[name]

    def _add(self, child: Child) -> None:
        self.children[child.name] = child
        child.start(self._parent_read)

    def _run(self) -> None:
        unwritten, write_at = False, 0.0
        while not self._stop.is_set():
            changed = False
            try:
                work, future = self._calls.get(timeout=POLL_S)
            except queue.Empty:
                pass
            else:
                changed = True
                try:
                    future.set_result(work())
                except Exception as error:  # noqa: BLE001 - handed to the caller
                    future.set_exception(error)
            for child in list(self.children.values()):
                changed |= child.poll(self._parent_read)
            unwritten |= changed
            if unwritten and time.monotonic() >= write_at:
                unwritten = not self._try_to_write_state()
                write_at = time.monotonic() + STATE_BACKOFF_S if unwritten else 0.0

    def _wait_ready(self, names: list[str], deadline: float) -> None:
        while True:
            waiting = [n for n in names if self.children[n].state is not ChildState.READY]
            if not waiting:
                return
            for name in waiting:
                child = self.children[name]
                if child.problem:
                    raise StackError(f"{name} cannot be started: {child.problem}")
                if child.state is ChildState.FAILED or child.restarts >= STARTS_MAX:
                    raise StackError(
                        f"{name} ends with status {child.last_exit}: {child.last_words()} (log: {child.log_file})"
                    )
            if time.monotonic() > deadline:
                child = self.children[waiting[0]]
                raise StackError(
                    f"{', '.join(waiting)} not ready in time: {child.last_words()} (log: {child.log_file})"
                )
            self._stop.wait(POLL_S)

    def _wait_counted(self, names: list[str], progress: Callable[[str], None] = lambda _: None) -> None:
        """Wait until the masters have accepted these servers. If they do not, the stack is started nevertheless,
        because an operator may need it for a repair."""
        from .registered import wait_until_registered  # only the start of a stack imports the client's libraries

        by_uuid = {str(self.children[n].ready["uuid"]): n for n in names}
        for uuid, why in wait_until_registered(self.masters, by_uuid, COUNTED_WAIT_S, self._stop.wait).items():
            progress(f"{by_uuid[uuid]} runs, but the masters do not count it: {why}")

    def _earlier_addresses(self) -> dict[str, str]:
        """The last address of each child, if it is free: its peers and clients know that address."""
        earlier = earlier_addresses(self.folder)
        deadline = time.monotonic() + PORT_WAIT_S
        wanted = {name: address for name, address in earlier.items() if name != "kafka" or self.options.kafka}
        reserve = self._ports.reserve
        while taken := [f"{address}, where {name} was," for name, address in wanted.items() if not reserve(address)]:
            if time.monotonic() > deadline:
                raise StackError(
                    f"{' '.join(taken)} is taken by another program, `ss -ltnp` shows by which: end it and start "
                    "again, or start a stack in another folder with --dir; nothing was started or changed"
                )
            self._stop.wait(POLL_S)
        return earlier

    def _choose_masters(self, earlier: dict[str, str]) -> dict[str, str]:
        """The address of each master: the former ones, or new ones. A start does not change the number of masters."""
        held = {name: earlier[name] for name in sorted(earlier) if name.startswith("master-")}
        asked = self.options.masters
        if held and asked not in (None, len(held)):
            raise StackError(
                f"the stack in {self.folder} has {len(held)} master{'s' if len(held) > 1 else ''}, not {asked}; "
                f"nothing was started or changed. Start it with --masters {len(held)}, or another one with --dir. "
                "How one master becomes three: docs/operate/repair.md"
            )
        return held or {f"master-{n}": self._ports.free_address() for n in range(1, (asked or 1) + 1)}

    def _try_to_write_state(self, running: bool = True) -> bool:
        """Write the state; returns whether that succeeded. If not, `status` has the reason, and the file is
        unchanged."""
        try:
            self._write_state(running)
        except OSError as error:
            self._problem = f"state.json is not up to date: {text_of(error)}"
            return False
        return True

    def _write_state(self, running: bool = True) -> None:
        """Write the state; after OSError the file is unchanged."""
        path = self.folder / "state.json"
        temp = path.with_suffix(".tmp")
        with self._writing:
            now = {n: c.address for n, c in list(self.children.items()) if c.address}
            state = {
                **self.status(),
                "addresses": {**(self._addresses or {}), **now},
                "running": running,
                "problem": "",
            }
            temp.touch(mode=0o600)
            temp.write_text(json.dumps(state, indent=2))
            temp.replace(path)
            self._problem = ""

    def _paths(self, name: str) -> tuple[Path, Path]:
        return self.folder / f"{name}.ready", self.folder / "logs" / f"{name}.log"

    def _master_child(self, name: str) -> Child:
        ready, log = self._paths(name)

        def command(_: Child, parent_fd: int) -> list[str]:
            kafka = ["--kafka", self.kafka_bootstrap] if self.kafka_bootstrap else []
            prefix = ["--topic-prefix", self.options.topic_prefix] if self.options.topic_prefix else []
            peers = ["--peers", self.masters] if len(self._masters) > 1 else []
            return python_module(
                "nyala.replica.master", "--root", str(self.folder / name), "--listen", self._masters[name],
                "--ready-file", str(ready), "--parent-fd", str(parent_fd),
                "--execute-decisions", self.options.execute_decisions, *peers, *kafka, *prefix,
                *self.options.master_arguments,
            )  # fmt: skip

        return Child(name, command, ready, log)

    def _server_child(self, name: str, listen: str) -> Child:
        """`listen`: its former address; empty for a new one."""
        listen = listen or self._ports.free_address()
        ready, log = self._paths(name)

        def command(_: Child, parent_fd: int) -> list[str]:
            return python_module(
                "nyala.replica.server", "--root", str(self.folder / name), "--listen", listen,
                "--masters", self.masters, "--ready-file", str(ready), "--parent-fd", str(parent_fd),
                *self.options.server_arguments,
            )  # fmt: skip

        return Child(name, command, ready, log, env=dict(self.options.server_env))

    def _kafka_child(self) -> Child:
        ready, log = self._paths("kafka")
        port = self._kafka_address.rpartition(":")[2]

        def command(_: Child, parent_fd: int) -> list[str]:
            return python_module(
                "nyala.infra.local.kafka", "--folder", str(self.folder / "kafka"), "--port", port,
                "--ready-file", str(ready), "--parent-fd", str(parent_fd),
                "--properties", self.options.kafka_properties,
            )  # fmt: skip

        return Child("kafka", command, ready, log)
