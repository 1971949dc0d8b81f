"""Masters that are lost and replaced, at the addresses that their group has of them, by the operators' own commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from nyala.replica.client import Client, ClientOptions, ScanSpec, wire_batches
from nyala.replica.fs import RealDisk
from nyala.replica.master.catalog.catalog import Catalog
from nyala.replica.master.catalog.records import Json
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, TableSchema
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.types import Code, Refused
from nyala.replica.types.crash_points import CRASH_VARIABLE
from tests.harness.cluster import LocalCluster, ServerProcess, wait_until

MASTER = "nyala.replica.master"
FLAGS = ("--policy-ms=200",)
COLUMNS = (Column(id=1, name="id", type=ColumnType.INT64, nullable=False),)
SCHEMA, SPEC = TableSchema(1, COLUMNS, ("id",)), PartitionSpec(("id",), 1)


def nyala(*arguments: object, crash_point: str = "") -> subprocess.CompletedProcess[str]:
    """Run one command line, as an operator types it; it dies at the crash point, if it gets there."""
    dies = {CRASH_VARIABLE: crash_point} if crash_point else {}
    command = [sys.executable, "-m", "nyala.infra.cli.app", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **dies})


def done(*arguments: object) -> Any:
    """Return the `--json` output of a command that has to succeed."""
    ended = nyala(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def refused(*arguments: object) -> str:
    """Return the one line of a command that has to fail."""
    ended = nyala(*arguments)
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1, (ended.returncode, ended.stderr)
    return ended.stderr


class Masters:
    """A group of masters; the commands that replace one of them."""

    def __init__(self, cluster: LocalCluster, count: int = 3, env: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.env = dict(env or {})
        self.addresses = [cluster.ports.free_address() for _ in range(count)]
        self.members = [self.add(f"m{n + 1}", address) for n, address in enumerate(self.addresses)]
        for master in self.members:
            master.start(wait=False)
        for master in self.members:
            master.wait_ready()

    def add(self, name: str, address: str, peers: Sequence[str] | None = None) -> ServerProcess:
        """Add one more process that listens there, not started yet."""
        peers = self.addresses if peers is None else peers
        told = [f"--peers={','.join(peers)}"] if len(peers) > 1 else []
        process = ServerProcess(
            name, MASTER, self.cluster.folder / name, (*FLAGS, *told), dict(self.env), address=address
        )
        self.cluster.masters.append(process)
        return process

    @staticmethod
    def status(master: ServerProcess) -> pb.MasterStatusReply:
        return pb_grpc.MasterServiceStub(master.channel).Status(pb.Empty(), timeout=10)

    def leader(self) -> ServerProcess:
        """Return the leader, as those that run report it."""

        def found() -> ServerProcess | None:
            running = [m for m in self.cluster.masters if m.alive]
            return next((m for m in running if self.status(m).replica.role == "LEADER"), None)

        return wait_until(found, "a master leads")

    def followers(self) -> list[ServerProcess]:
        leader = self.leader()
        return [m for m in self.members if m is not leader]

    def client(self) -> Client:
        return Client(self.addresses, ClientOptions(connect_timeout_s=30))

    def create(self, *names: str, replicas: int = 1) -> None:
        """Create tables at the leader, once it knows the servers."""
        with self.client() as client:

            def is_made(name: str) -> bool:
                try:
                    made = client.create_table(name, SCHEMA, SPEC, replication_factor=replicas, request_id=name)
                    return bool(made.table_id)
                except Refused as error:
                    assert error.code in (Code.NOT_READY, Code.UNAVAILABLE) or "live tablet servers" in str(error), (
                        error
                    )
                    return False

            for name in names:
                wait_until(lambda name=name: is_made(name), f"table {name} is made")  # type: ignore[misc]

    def tables(self) -> set[str]:
        with self.client() as client:
            return {t.name for t in client.list_tables()}

    def level(self) -> None:
        """Wait until all that run have applied what any knows to be committed."""

        def even() -> bool:
            found = [self.status(m).replica for m in self.cluster.masters if m.alive]
            return len({(r.applied_index, r.commit_index, r.last_logged.index) for r in found}) == 1

        wait_until(even, "the masters are level")

    def copy(self, root: Path) -> Any:
        """Copy the leader's catalog; again if another one leads by then."""

        def copied() -> Any:
            ended = nyala("master", "copy-from", root, self.leader().address, "--yes", "--json")
            if ended.returncode == 0:
                return json.loads(ended.stdout)
            assert any(code in ended.stderr for code in ("NOT_LEADER", "NOT_READY", "UNAVAILABLE")), ended.stderr
            return None

        return wait_until(copied, "the catalog is copied")

    @staticmethod
    def catalog(root: Path) -> dict[str, Json]:
        """Return everything in the catalog of a master that was stopped in order."""
        return Catalog.open(RealDisk(root)).records

    def format(self, name: str, uuid: str = "") -> tuple[Path, str]:
        """Format a directory; returns (directory, uuid) of a new master."""
        root = self.cluster.folder / name
        given = ("--uuid", uuid) if uuid else ()
        return root, done("fs", "format", root, "--kind", "master", *given)["uuid"]


class Load:
    """A thread that writes rows, reads them at the leader and at any replica, and looks the table up at the masters,
    until it is told to stop."""

    def __init__(self, masters: Masters) -> None:
        self.client = masters.client()
        self.rounds = 0
        self.failures: list[BaseException] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self.client:
                table = self.client.get_table("old")
                with self.client.session_writer(table) as writer:
                    while not self._over.is_set():
                        for batch in wire_batches(table, pa.table({"id": [self.rounds]}), RowOp.INSERT):
                            writer.write(batch)
                        self.rounds += 1
                        for spec in (ScanSpec(), ScanSpec(staleness_us=60_000_000)):
                            assert self.client.count(self.client.get_table("old"), spec) == self.rounds
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.failures.append(error)

    def more(self) -> None:
        """Wait until one round has begun and ended from now on."""
        before = self.rounds
        wait_until(lambda: self.failures or self.rounds >= before + 2, "the load goes on")

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        assert self.failures == [] and self.rounds > 0
