"""The cluster under test: reads its state and injects faults. It notes each fault that must be removed later."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from nyala.infra.local import ChildState, Supervisor
from nyala.replica.client import Client, ClientOptions, TableHandle
from nyala.replica.rpc import pb
from nyala.replica.types import Applied, OpId, Refused

from .disks import Rotten, flip_block
from .refusals import explains
from .scene import Scene, ServerScene, TabletScene
from .schedule import Kind, Operation

LOOK_TIMEOUT_S = 1.5
ASK_TIMEOUT_S = 5.0
MASTER = "master-1"


class Standing(NamedTuple):
    """The state of a tablet that faults change: its committed config, its leader and term, the servers that answer."""

    config: OpId
    leader: str
    term: int
    answering: frozenset[str]


class ClusterUnderTest:
    """One supervised stack and one table on it. Concurrency: `look` from any thread, operations from one."""

    def __init__(self, supervisor: Supervisor, handle: TableHandle) -> None:
        self.supervisor = supervisor
        self.handle = handle
        self.wiped: list[str] = []
        """The server uuids that were lost with their disks."""
        self.rotten: list[Rotten] = []
        """The blocks that were damaged."""
        self.faults: list[str] = []
        """The refusals of operations that nothing explains."""
        self._stirred_s = time.monotonic()
        """The monotonic time of the last operation to a process; at first, the time at which the table was made."""
        self._moved: dict[str, tuple[Standing | None, float]] = {}
        """The last seen state of each tablet, None if it had no leader, and the time since which it holds."""
        self._wanted: set[str] = set()
        """The tablets of which a change was accepted."""
        options = ClientOptions(timeout_s=ASK_TIMEOUT_S, attempt_timeout_s=LOOK_TIMEOUT_S)
        self.client = Client([supervisor.masters], options)
        self._away: dict[str, str] = {}
        """By child: the fault that must be removed later."""
        self._due: list[tuple[float, str]] = []
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="chaos-look")

    def close(self) -> None:
        """Close channels and threads."""
        self._pool.shutdown()
        self.client.close()

    # ------------------------------------------------------------------------------------------------- looking

    def servers(self) -> list[str]:
        """The names of the tablet servers."""
        return sorted(n for n in self.supervisor.children if n.startswith("server-"))

    def scene(self) -> Scene:
        """The present state of servers and replicas; servers that do not answer soon are left out."""
        names = self.servers()
        found = {name: self._server(name) for name in names}
        asked = [n for n in names if found[n].serves]
        told = dict(zip(asked, self._pool.map(self._ask, asked), strict=True))
        tablets = []
        for tablet in self.handle.tablets:
            here = {n: s[tablet.tablet_id] for n, (s, _) in told.items() if tablet.tablet_id in s}
            tablets.append(TabletScene(tablet.tablet_id, self.handle.replication_factor, here))
            self.note(tablets[-1])
        master = self.supervisor.children[MASTER]
        copies = tuple(job for _, jobs in told.values() for job in jobs)
        return Scene(tuple(found.values()), tuple(tablets), self._away.get(MASTER) or str(master.state), copies)

    def note(self, tablet: TabletScene) -> None:
        """Note the present state of a tablet. A slow machine is a fault, too: leaders lose their leadership, and
        servers without any fault are replaced."""
        config = tablet.config
        leads = tablet.statuses[tablet.leader].term if config else 0
        now = Standing(config.opid, tablet.leader, leads, frozenset(tablet.statuses)) if config else None
        if now != self._moved.get(tablet.tablet_id, (None, 0.0))[0]:
            self._moved[tablet.tablet_id] = now, time.monotonic()

    def quiet_s(self, tablet_id: str) -> float:
        """The time for which no process had a fault and the tablet's state has not changed; 0 if it has no leader."""
        now = time.monotonic()
        standing, moved_s = self._moved.get(tablet_id, (None, now))
        return now - max(self._stirred_s, moved_s if standing else now)

    def _server(self, name: str) -> ServerScene:
        child = self.supervisor.children[name]
        return ServerScene(name, str(child.ready.get("uuid", "")), str(child.state), self._away.get(name, ""))

    def info(self, name: str) -> pb.ServerInfo:
        """The server as clients know it, from its own answer, so that no master is needed."""
        child = self.supervisor.children[name]
        host, _, port = child.address.rpartition(":")
        return pb.ServerInfo(uuid=str(child.ready["uuid"]), addresses=[pb.Address(host=host, port=int(port))])

    def _ask(self, name: str) -> tuple[dict[str, pb.ReplicaStatus], list[pb.CopyJob]]:
        try:
            info = self.info(name)
            statuses = {s.tablet_id: s for s in self.client.list_tablets(info)}
            return statuses, self.client.list_copies(info, timeout_s=LOOK_TIMEOUT_S)
        except Refused:
            return {}, []

    # --------------------------------------------------------------------------------------------------- operations

    def carry_out(self, operation: Operation) -> str:
        """Carry out an operation, and return a line on the result. A refusal that the situation explains is a result;
        any other one is a fault."""
        if operation.why_not:
            return f"not done: {operation.why_not}"
        try:
            return self._operations()[operation.kind](operation)
        except Refused as error:
            self._judge(operation, error)
            return f"refused: {error}"

    def _judge(self, operation: Operation, error: Refused) -> None:
        """Note the refusal if it is a fault."""
        quiet_s = self.quiet_s(operation.tablet_id)
        if not explains(operation.kind, error.code, quiet_s, operation.tablet_id in self._wanted):
            told = (
                f"{operation.kind} of {operation.tablet_id[:8]} was refused, {quiet_s:.0f} s after any fault: {error}"
            )
            self.faults.append(told)

    def _operations(self) -> dict[Kind, Callable[[Operation], str]]:
        return {
            Kind.KILL_LEADER: self._kill,
            Kind.KILL_FOLLOWER: self._kill,
            Kind.KILL_MASTER: self._kill,
            Kind.KILL_ALL: self._kill,
            Kind.PAUSE: self._pause,
            Kind.PAUSE_MASTER: self._pause,
            Kind.STOP: self._stop,
            Kind.LEAVE: self._stop,
            Kind.WIPE: self._wipe,
            Kind.ROT: self._rot,
            Kind.STEP_DOWN: self._step_down,
            Kind.ADD: self._change,
            Kind.REMOVE: self._change,
            Kind.MOVE: self._change,
            Kind.FLUSH: self._flush,
        }

    def _kill(self, operation: Operation) -> str:
        names = [*self.servers(), MASTER] if operation.kind is Kind.KILL_ALL else [operation.server]
        victims = [n for n in names if self._away.get(n) != "stopped"]
        self._signal(signal.SIGKILL, *victims)
        for name in victims:
            self._away.pop(name, None)  # a paused process can be killed, and its successor is not paused
        return f"killed {', '.join(victims)}" if len(victims) < 4 else f"killed {len(victims)} processes"

    def _pause(self, operation: Operation) -> str:
        self._signal(signal.SIGSTOP, operation.server)
        return self._taken(operation, "paused")

    def _stop(self, operation: Operation) -> str:
        if operation.kind is Kind.LEAVE:
            self.supervisor.kill_for_good(operation.server)
        else:
            self.supervisor.stop_child(operation.server)
        return self._taken(operation, "stopped")

    def _wipe(self, operation: Operation) -> str:
        uuid = str(self.supervisor.children[operation.server].ready["uuid"])
        self.supervisor.wipe_child(operation.server)
        self.wiped.append(uuid)
        return f"{self._taken(operation, 'stopped')}, all of {uuid[:8]} lost; it comes back as a stranger"

    def _rot(self, operation: Operation) -> str:
        """Damage a block of a server. It is flushed first, so that there is a block."""
        name, short = operation.server, operation.tablet_id[:8]
        child = self.supervisor.children[name]
        self.client.flush(self.info(name), operation.tablet_id)
        self.supervisor.kill_for_good(name)
        log_bytes = child.log_file.stat().st_size
        taken, block = self._taken(operation, "stopped"), flip_block(self.supervisor.folder / name, operation.tablet_id)
        if not block:
            return f"not done: {short} has no block there; {taken}"
        self.rotten.append(Rotten(name, operation.tablet_id, block, log_bytes))
        return f"{taken}, a bit of {short}'s {block.rpartition('/')[2]} flipped"

    def _taken(self, operation: Operation, how: str) -> str:
        self._away[operation.server] = how
        self._stirred_s = time.monotonic()
        self._due.append((time.monotonic() + operation.hold_s, operation.server))
        return f"{operation.server} {how} for {operation.hold_s:.0f} s"

    def _signal(self, number: int, *names: str) -> None:
        self._stirred_s = time.monotonic()

        def send() -> None:
            for name in names:
                child = self.supervisor.children[name]
                child.restarts = 0  # a death by an operation says nothing about the child's health
                child.send_signal(number)

        self.supervisor.call(send)

    def _step_down(self, operation: Operation) -> str:
        new = self.client.transfer_leadership(self.handle.name, operation.tablet_id)
        self._stirred_s = time.monotonic()
        return f"{new[:8]} leads {operation.tablet_id[:8]}"

    def _change(self, operation: Operation) -> str:
        short = operation.tablet_id[:8]
        try:
            said = self._ask_for(operation)
        except Refused as error:
            if error.applied is not Applied.NOT_APPLIED:
                self._wanted.add(operation.tablet_id)
            raise
        self._wanted.add(operation.tablet_id)
        return f"{short}: {said}"

    def _ask_for(self, operation: Operation) -> str:
        if operation.kind is Kind.ADD:
            self.client.add_replica(operation.tablet_id, operation.to_uuid, "PRE_VOTER")
            return f"one more on {operation.to_uuid[:8]}"
        if operation.kind is Kind.REMOVE:
            self.client.remove_replica(operation.tablet_id, operation.from_uuid)
            return f"none on {operation.from_uuid[:8]}"
        self.client.move_replica(operation.tablet_id, operation.from_uuid, operation.to_uuid, reason="chaos")
        return f"from {operation.from_uuid[:8]} to {operation.to_uuid[:8]}"

    def _flush(self, operation: Operation) -> str:
        done = 0
        for name in self.servers():
            if self._server(name).serves:
                try:
                    self.client.flush(self.info(name), operation.tablet_id, compact=bool(done % 2))
                    done += 1
                except Refused as error:
                    self._judge(operation, error)
        return f"{operation.tablet_id[:8]}: {done} replicas flushed"

    # ------------------------------------------------------------------------------------------------- undoing

    def undo_due(self, now_s: float) -> list[str]:
        """Remove the faults whose time is over; returns a line for each."""
        due = [name for at, name in self._due if at <= now_s]
        self._due = [(at, name) for at, name in self._due if at > now_s]
        return [line for name in due if (line := self._give_back(name))]

    def heal(self) -> list[str]:
        """Remove all faults and wait until all processes are ready. A master that remembers uuids which were lost with
        their disks is restarted, because it keeps heartbeats as long as it leads."""
        self._due.clear()
        told = [line for name in sorted(self._away) if (line := self._give_back(name))]
        if self.wiped:
            before = self.supervisor.children[MASTER].pid
            self._signal(signal.SIGKILL, MASTER)
            self._wait(lambda: self.supervisor.children[MASTER].pid not in (None, before), "the master is replaced")
            told.append(f"{MASTER} began anew, without {len(self.wiped)} lost identities")
        self._wait(self._all_ready, "all processes serve")
        return told

    def _give_back(self, name: str) -> str:
        how = self._away.pop(name, "")
        self._stirred_s = time.monotonic()
        if how == "paused":
            self._signal(signal.SIGCONT, name)
            return f"{name} goes on"
        if how == "stopped":
            self.supervisor.start_child(name)
            return f"{name} is back"
        return ""

    def _all_ready(self) -> bool:
        return all(child.state is ChildState.READY for child in self.supervisor.children.values())

    def _wait(self, condition: Callable[[], bool], what: str, timeout_s: float = 180.0) -> None:
        deadline = time.monotonic() + timeout_s
        tick = threading.Event()
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout_s:.0f} s it is not so that {what}")
            tick.wait(0.05)
