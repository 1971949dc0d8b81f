"""The measured cluster: a stack of our own in a temporary folder, or one that runs already."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nyala.infra.local import StackOptions, Supervisor
from nyala.replica.client import Client, TableHandle, parse_masters
from nyala.replica.rpc import pb
from nyala.replica.types import DataState

from .options import BenchmarkError


@dataclass
class Target:
    """A cluster with a client. `supervisor`: only for a stack of our own; `pids`: of processes on this machine, if any.

    `folders`: the folders of those processes, by name.
    """

    masters: str
    client: Client
    pids: Callable[[], dict[str, int]] = dict
    folders: dict[str, Path] = field(default_factory=dict)
    supervisor: Supervisor | None = None

    @property
    def own(self) -> Supervisor:
        """The stack of our own; BenchmarkError without one."""
        if self.supervisor is None:
            raise BenchmarkError("this benchmark kills or adds servers: it needs --local")
        return self.supervisor

    def servers(self) -> list[pb.ServerInfo]:
        """The live tablet servers."""
        return [s for s in self.client.list_servers().servers if s.alive]

    def replicas(self, handle: TableHandle) -> dict[str, list[pb.ReplicaStatus]]:
        """Server uuid -> READY replicas of the table there."""
        wanted = [t.tablet_id for t in handle.tablets]
        found = {s.uuid: self.client.list_tablets(s, wanted) for s in self.servers()}
        return {uuid: [r for r in some if r.data_state == DataState.READY] for uuid, some in found.items()}

    def name_of(self, uuid: str) -> str:
        """The name of the process of our own stack that has this uuid."""
        return next(name for name, child in self.own.children.items() if child.ready.get("uuid") == uuid)

    def flush(self, handle: TableHandle) -> None:
        """Write every replica's memory store to blocks."""
        for server in self.servers():
            for replica in self.client.list_tablets(server, [t.tablet_id for t in handle.tablets]):
                if replica.data_state == DataState.READY:
                    self.client.flush(server, replica.tablet_id)


@contextmanager
def local_stack(
    note: Callable[[str], None],
    *,
    kafka: bool = False,
    servers: int = 3,
    master_arguments: tuple[str, ...] = (),
    server_arguments: tuple[str, ...] = (),
) -> Iterator[Target]:
    """A stack of our own: started here, ended and removed at the end. The master carries decisions out."""
    folder = Path(tempfile.mkdtemp(prefix="nyala-bench-"))
    options = StackOptions(
        servers=servers,
        kafka=kafka,
        execute_decisions="master",
        master_arguments=master_arguments,
        server_arguments=server_arguments,
    )
    supervisor = Supervisor(folder, options)
    try:
        supervisor.start(progress=note)

        with Client(parse_masters(supervisor.masters)) as client:
            yield own_target(supervisor, client)
    finally:
        supervisor.stop()
        shutil.rmtree(folder, ignore_errors=True)


def own_target(supervisor: Supervisor, client: Client) -> Target:
    """A running stack of our own, which may be killed. Its broker is not among the processes."""

    def pids() -> dict[str, int]:
        return {c.name: c.pid for c in list(supervisor.children.values()) if c.pid and c.name != "kafka"}

    folders = {name: supervisor.folder / name for name in supervisor.children}
    return Target(supervisor.masters, client, pids, folders, supervisor)


@contextmanager
def running_cluster(masters: str, state: dict[str, Any] | None) -> Iterator[Target]:
    """A cluster that runs already. `state`: that of the local stack, whose processes are then measured too."""
    ours: dict[str, Any] = state if state and state.get("masters") == masters else {"children": [], "folder": "."}
    children = [c for c in ours["children"] if c["pid"] and c["name"] != "kafka"]
    with Client(parse_masters(masters)) as client:
        folders = {c["name"]: Path(ours["folder"]) / c["name"] for c in children}
        yield Target(masters, client, lambda: {c["name"]: c["pid"] for c in children}, folders)
