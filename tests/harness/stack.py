"""A supervised stack under load: its leaders, kills, acknowledged rows, and the content of the disks at the end."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nyala.infra.local import StackOptions, Supervisor
from nyala.infra.local.children import ChildState
from nyala.replica.client import Client, ScanSpec, TableHandle, wire_batches
from nyala.replica.fs import RealDisk
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, TableSchema
from nyala.replica.tools import ClusterView, Severity, gather, judge
from nyala.replica.types import DataState, Refused
from nyala.replica.wal import Log
from tests.harness.cluster import wait_until

KEYS_PER_WRITER = 1 << 40
ROWS = 60
"""The rows of each batch of the load; the three tablets get about a third each."""
PAUSE_S = 0.02
"""A writer's pause between its batches: a steady load that leaves two cores some room to start processes."""
SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
        Column(id=3, name="n", type=ColumnType.INT32, nullable=False, default=7),
        Column(id=4, name="must", type=ColumnType.INT32, nullable=False),
    ),
    ("k",),
)


class Stack:
    """One master and three tablet servers, restarted by their supervisor, with one client."""

    def __init__(self, supervisor: Supervisor, client: Client) -> None:
        self.supervisor = supervisor
        self.client = client

    def new_table(self, name: str, buckets: int = 3) -> TableHandle:
        """Return a table with replication factor 3 whose tablets all have leaders."""
        wait_until(lambda: sum(s.alive for s in self.client.list_servers().servers) >= 3, "three servers are alive")
        handle = self.client.create_table(name, SCHEMA, PartitionSpec(("k",), buckets))
        self.count(handle)
        return handle

    def count(self, handle: TableHandle) -> int:
        """Return the rows at the latest time, by a strong read of every tablet."""
        return self.client.count(handle, ScanSpec())

    def kill(self, *names: str, again: bool = True) -> None:
        """Kill -9 all of them in one turn of the supervisor; they come back after its shortest back-off."""

        def end() -> None:
            for name in names:
                child = self.supervisor.children[name]
                child.restarts = 0
                if not again:
                    child.state = ChildState.STOPPED
                child.send_signal(signal.SIGKILL)

        self.supervisor.call(end)

    def pids(self) -> dict[str, int | None]:
        return {name: child.pid for name, child in self.supervisor.children.items()}

    def wait_replaced(self, before: dict[str, int | None], *names: str) -> None:
        """Wait until each of `names` serves again as another process than in `before`."""
        children = self.supervisor.children

        def replaced() -> bool:
            return all(
                children[n].state is ChildState.READY and children[n].pid not in (None, before[n]) for n in names
            )

        wait_until(replaced, f"{', '.join(names)} serve again")

    def leader(self, tablet_id: str) -> str:
        """Return the name of the server that leads the tablet in the highest term that any server knows."""

        def found() -> str | None:
            best = (0, "")
            for name, status in self.statuses(tablet_id).items():
                if status.role == "LEADER":
                    best = max(best, (status.term, name))
            return best[1] or None

        return wait_until(found, f"{tablet_id} has a leader")

    def followers(self, tablet_id: str) -> list[str]:
        leader = self.leader(tablet_id)
        return [n for n in sorted(self.supervisor.children) if n.startswith("server") and n != leader]

    def info(self, name: str) -> Any:
        """Return the server `name` as the master lists it, once it does: a master that was just started knows no
        server."""

        def listed() -> Any:
            uuid = self.supervisor.children[name].ready["uuid"]
            return next((s for s in self.client.list_servers().servers if s.uuid == uuid), None)

        return wait_until(listed, f"the master knows {name}")

    def statuses(self, tablet_id: str) -> dict[str, Any]:
        """Return the status of each replica that answers, by server name."""
        names = {c.ready.get("uuid"): n for n, c in self.supervisor.children.items()}
        found = {}
        for server in (s for s in self.client.list_servers().servers if s.uuid in names):
            try:
                for status in self.client.list_tablets(server, [tablet_id]):
                    found[names[server.uuid]] = status
            except Refused:
                continue
        return found

    def _ready(self, tablet_id: str) -> dict[str, Any]:
        return {n: s for n, s in self.statuses(tablet_id).items() if s.data_state == DataState.READY}

    def verify_replicas(self) -> None:
        """Check V6: nothing is wrong anywhere, and all replicas of a tablet have one checksum at one time."""

        def sound() -> list[str]:
            view = gather(self.client)
            return [f"{f.subject}: {f.what}" for f in judge(view) if f.severity is Severity.ERROR]

        wait_until(lambda: not sound(), "no replica is in trouble")

        def compared() -> ClusterView | None:
            """Return the view once all servers answered in time and every tablet had a leader; replicas that differ
            then, differ for good."""
            view = gather(self.client, checksum=True)
            wrong = [f for f in judge(view) if f.severity is Severity.ERROR]
            assert not [f for f in wrong if "replicas differ" in f.what], wrong
            return None if wrong else view

        view = wait_until(compared, "all replicas tell their checksums")
        for table in view.tables:
            for tablet in table.tablets:
                assert len([r for r in view.replicas[tablet.tablet_id] if r.checksum]) == table.replication_factor

    def verify_logs(self, handle: TableHandle, scratch: Path) -> None:
        """Check V1: no index that two disks hold has two terms, or two contents, up to what is committed."""
        for tablet in handle.tablets:
            found = lambda t=tablet: len(s := self._ready(t.tablet_id)) == handle.replication_factor and s  # noqa: E731
            statuses: dict[str, Any] = wait_until(found, "all replicas tell where they are")  # type: ignore[arg-type]
            logs = {
                name: self._log(name, tablet.tablet_id, status.commit_index, scratch)
                for name, status in statuses.items()
            }
            seen: dict[int, tuple[Any, ...]] = {}
            for name, entries in logs.items():
                assert entries, f"{name} has no log of {tablet.tablet_id}"
                for index, content in entries.items():
                    assert seen.setdefault(index, content) == content, (name, tablet.tablet_id, index)

    def _log(self, name: str, tablet_id: str, commit_index: int, scratch: Path) -> dict[int, tuple[Any, ...]]:
        """Return the log on the disk of one server, read from a copy: opening a log settles its tail."""
        root = scratch / f"{name}-{tablet_id}"
        source = self.supervisor.folder / name / "wals" / tablet_id

        def copied() -> bool:
            """Copy the log; segments that are renamed or collected while they are listed make it begin anew."""
            shutil.rmtree(root, ignore_errors=True)
            try:
                # The number of the newest segment may be of one that came after the list was made.
                shutil.copytree(source, root / "wals" / tablet_id, ignore=shutil.ignore_patterns(".*"))
            except shutil.Error:
                return False
            return True

        wait_until(copied, f"the log of {name} stands still")
        log, replay = Log.open(RealDisk(root), f"wals/{tablet_id}", tablet_id)
        try:
            return {
                e.opid.index: (e.opid.term, e.kind, e.hybrid_time, e.payload_crc)
                for e in replay.entries
                if e.opid.index <= commit_index
            }
        finally:
            log.close()
            shutil.rmtree(root)


class InsertLoad:
    """Threads that insert ever new keys through exactly-once sessions, and remember which were acknowledged.

    Keys of a thread ascend without gaps, so all that was attempted is known by one number per thread.
    """

    def __init__(self, stack: Stack, handle: TableHandle, threads: int = 2, rows: int = ROWS, first: int = 0) -> None:
        """`first`: the number of the first thread, whose keys no other load of the table has."""
        self._stack = stack
        self._handle = handle
        self._rows = rows
        self._first = first
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,), daemon=True) for n in range(threads)]
        self.acknowledged: list[list[int]] = [[] for _ in range(threads)]
        """The first keys of acknowledged batches, by thread."""
        self.attempted = [0] * threads
        self.unknown: list[str] = []
        self.surprises: list[str] = []

    def _write(self, number: int) -> None:
        key = (self._first + number) * KEYS_PER_WRITER
        writer = self._stack.client.session_writer(self._handle, on_error="return")
        while not self._stop.wait(PAUSE_S):
            columns = pa.table({"k": np.arange(key, key + self._rows), "must": np.ones(self._rows, np.int32)})
            self.attempted[number] += self._rows
            try:
                for batch in wire_batches(self._handle, columns, RowOp.INSERT):
                    writer.send(batch)
                writer.flush()
                self.acknowledged[number].append(key)
            except Refused as error:
                self.unknown.append(str(error))
                writer.close()
                writer = self._stack.client.session_writer(self._handle, on_error="return")
            except Exception as error:  # noqa: BLE001 - told by `finish`
                self.surprises.append(repr(error))
                return
            if writer.row_errors:
                self.surprises.append(f"a key inserted once has an error: {writer.row_errors[:3]}")
                return
            key += self._rows

    @property
    def batches(self) -> int:
        """Return the number of batches acknowledged by now."""
        return sum(map(len, self.acknowledged))

    def progress(self, batches: int = 5, timeout_s: float = 180.0) -> None:
        """Wait until each thread has had as many more batches acknowledged."""
        before = [len(a) for a in self.acknowledged]

        def advanced() -> bool:
            assert not self.surprises, self.surprises
            return all(len(a) >= b + batches for a, b in zip(self.acknowledged, before, strict=True))

        wait_until(advanced, f"{batches} more batches of each writer are acknowledged", timeout_s)

    def finish(self) -> None:
        """Check V4: every acknowledged row is there exactly once, every other attempted one at most once, and no
        other."""
        self._stop.set()
        for thread in self._threads:
            thread.join(180)
            assert not thread.is_alive(), "a writer hangs"
        assert self.surprises == []
        parts = [b["k"] for p in self._stack.client.scan(self._handle, ScanSpec(columns=("k",))) for b in p.batches]
        keys = np.sort(pa.chunked_array(parts).to_numpy())
        assert len(np.unique(keys)) == len(keys), "rows doubled"
        width = np.arange(self._rows)
        acknowledged = np.concatenate([np.add.outer(np.array(a), width).ravel() for a in self.acknowledged])
        missing = np.setdiff1d(acknowledged, keys)
        assert not len(missing), f"{len(missing)} acknowledged rows lost, the first {missing[:5]}"
        assert bool(np.all(keys % KEYS_PER_WRITER < np.array(self.attempted)[keys // KEYS_PER_WRITER]))
        assert self._stack.count(self._handle) == len(keys)

    def __enter__(self) -> InsertLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(180)


def log_ends(supervisor: Supervisor) -> str:
    """Return the last lines of every child's log."""
    return "\n".join(f"---- {name}\n{child.last_lines(40)}" for name, child in sorted(supervisor.children.items()))


@contextmanager
def running_stack(
    folder: Path, servers: int = 3, *, execute_decisions: str = "none", server_arguments: tuple[str, ...] = ()
) -> Iterator[Stack]:
    """Yield a stack without a broker; the ends of all logs are shown if the block raises."""
    options = StackOptions(
        servers=servers, kafka=False, execute_decisions=execute_decisions, server_arguments=server_arguments
    )
    supervisor = Supervisor(folder, options)
    supervisor.start()
    try:
        with Client([supervisor.masters]) as client:
            stack = Stack(supervisor, client)
            alive: Callable[[], bool] = lambda: sum(s.alive for s in client.list_servers().servers) == servers  # noqa: E731
            wait_until(alive, f"{servers} servers are alive")
            yield stack
    except BaseException:
        print(log_ends(supervisor))
        raise
    finally:
        supervisor.stop()
