"""One run: a stack under load, the faults of a seed's schedule, the removal of all faults, and the verdict."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nyala.infra.local import ChildState, StackError, StackOptions, Supervisor
from nyala.replica.client import Client, ScanSpec
from nyala.replica.types import Refused

from .cluster import MASTER, ClusterUnderTest
from .schedule import QUICK_S, USUAL_DEMANDS, Event, Kind, Pace, aim, draw, pace_of
from .verify import Verdict, converge, verify_disks, verify_rot, verify_running
from .watch import Watcher
from .workload import Workload

SERVERS = 5
MASTER_ARGUMENTS = ("--server-dead-ms=2000", "--rereplicate-after-ms=6000", "--policy-ms=200")
SERVER_ARGUMENTS = ("--log-retain-entries=100", "--log-retain-bytes=1000000")
"""Little log is kept, so that a server that was away needs a copy, and not only more entries."""
TICK_S = 0.1
START_WAIT_S = 180.0
PATIENCE_S = 12.0
"""The time for which an event waits that the cluster does not allow yet."""
STRETCH_S = 20.0
STRETCHES_MAX = 30
"""The most extensions by STRETCH_S while a demanded kind of fault is missing, because a slow machine gets to it
later."""
NOT_DONE = ("not done", "refused")


@dataclass(frozen=True, kw_only=True)
class ChaosOptions:
    """The options of a run. `duration_s`: the time of the faults alone; start, healing and verdict come on top."""

    seed: int
    duration_s: float
    servers: int = SERVERS
    pace: Pace | None = None
    """None: chosen by the duration."""
    kinds: tuple[Kind, ...] = tuple(Kind)
    demands: tuple[frozenset[Kind], ...] = USUAL_DEMANDS
    """At least one kind of each set must have occurred; otherwise the faults go on for a while. Sets without any of
    `kinds` demand nothing."""


@dataclass(frozen=True)
class Happened:
    """One line of the log of a run. `kind` is empty for a line about the removal of a fault or the end."""

    at_s: float
    kind: str
    what: str


@dataclass
class Report:
    """The result of a run."""

    seed: int
    folder: str
    done: Counter[Kind] = field(default_factory=Counter)
    """The number of faults of each kind."""
    story: list[Happened] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every verifier ran, had something to compare, and found nothing wrong."""
        return bool(self.verdicts) and all(v.ok for v in self.verdicts)

    def json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "ok": self.ok,
            "seed": self.seed,
            "folder": self.folder,
            "figures": self.figures,
            "done": {str(kind): self.done[kind] for kind in Kind},
            "events": [asdict(h) for h in self.story],
            "verdicts": [{**asdict(v), "ok": v.ok} for v in self.verdicts],
        }


@dataclass
class Show:
    """The state of a run that a display reads, and a callback for each new line."""

    cluster: ClusterUnderTest
    workload: Workload
    watcher: Watcher
    report: Report
    began_s: float


class Chaos:
    """One run. `on_tick` is called about ten times a second with the state for the display."""

    def __init__(self, folder: Path, options: ChaosOptions, on_tick: Callable[[Show], None] = lambda _: None) -> None:
        self.options = options
        self.report = Report(options.seed, str(folder))
        self._folder = folder
        self._on_tick = on_tick
        self._tick = threading.Event()
        self._began = time.monotonic()
        self._late_s = 0.0
        """The delay of the schedule so far: events wait for a scene that allows them."""

    def run(self) -> Report:
        """Do the whole run; StackError if the stack does not start. Afterwards the stack is gone, and its folder
        stays."""
        supervisor = Supervisor(
            self._folder,
            StackOptions(
                servers=self.options.servers,
                kafka=False,
                execute_decisions="master",
                master_arguments=MASTER_ARGUMENTS,
                server_arguments=SERVER_ARGUMENTS,
            ),
        )
        try:
            supervisor.start()
            with Client([supervisor.masters]) as client:
                self._wait_alive(client)
                workload = Workload(client, self.options.seed)
                client.count(workload.handle, ScanSpec())
                scene = self._under_load(supervisor, workload)
                self._end(supervisor)
        finally:
            supervisor.stop()
        if scene is not None:
            by_writer = [w.expected for w in workload.writers]
            replicas = 1 if self.options.duration_s <= QUICK_S else workload.handle.replication_factor
            self.report.verdicts += verify_disks(self._folder, scene, by_writer, replicas=replicas)
            if Kind.ROT in self.options.kinds:
                logs = {name: child.log_file for name, child in supervisor.children.items()}
                self.report.verdicts.append(verify_rot(self._folder, self._show.cluster.rotten, logs))
        return self.report

    def _end(self, supervisor: Supervisor) -> None:
        """End the master first, because it would replace a server that ends much earlier than others; then all servers
        at once."""
        supervisor.kill_for_good(MASTER)

        def end() -> None:
            for child in supervisor.children.values():
                child.state = ChildState.STOPPED
                child.send_signal(signal.SIGTERM)

        supervisor.call(end)

    def _wait_alive(self, client: Client) -> None:
        deadline = time.monotonic() + START_WAIT_S
        while sum(s.alive for s in client.list_servers().servers) < self.options.servers:
            if time.monotonic() > deadline:
                raise StackError(f"not all servers report to the master after {START_WAIT_S:.0f} s")
            self._tick.wait(TICK_S)

    def _under_load(self, supervisor: Supervisor, workload: Workload) -> Any:
        cluster = ClusterUnderTest(supervisor, workload.handle)
        watcher = Watcher(cluster.scene)
        self._began = time.monotonic()
        self._show = Show(cluster, workload, watcher, self.report, self._began)
        try:
            workload.start()
            self._inject_faults(cluster, watcher, workload)
            return self._conclude(cluster, watcher, workload)
        finally:
            workload.stop(5.0)
            watcher.stop()
            cluster.close()

    # ---------------------------------------------------------------------------------------------------- faults

    def _inject_faults(self, cluster: ClusterUnderTest, watcher: Watcher, workload: Workload) -> None:
        """Carry out the schedule, and then more events until all demands are met. A defect ends this early, close to
        its cause."""
        given = self.options
        pace = given.pace or pace_of(given.duration_s)
        pending = list(draw(given.seed, given.duration_s, pace, given.kinds))
        end_s, stretches = given.duration_s, 0
        while not (workload.faults or watcher.checker.faults or watcher.error or cluster.faults):
            now = time.monotonic() - self._began
            for line in cluster.undo_due(time.monotonic()):
                self._tell("", line)
            if now >= given.duration_s and not (owed := self._owed()):
                return
            if now >= end_s:
                if stretches == STRETCHES_MAX:
                    return
                kinds = sorted(frozenset().union(*owed) & frozenset(given.kinds))
                pending = [replace(e, at_s=e.at_s + end_s) for e in draw(given.seed, STRETCH_S, pace, kinds)]
                self._late_s, end_s, stretches = 0.0, end_s + STRETCH_S, stretches + 1
            if pending and pending[0].at_s + self._late_s <= now and self._carry_out(pending[0], cluster, now):
                pending.pop(0)
            self._on_tick(self._show)
            self._tick.wait(TICK_S)

    def _owed(self) -> list[frozenset[Kind]]:
        """The demands that no operation has met yet."""
        possible = [d for d in self.options.demands if d.intersection(self.options.kinds)]
        return [d for d in possible if not any(self.report.done[kind] for kind in d)]

    def _carry_out(self, event: Event, cluster: ClusterUnderTest, now: float) -> bool:
        """Carry out one event; returns whether it is over. If the scene does not allow it, it waits for a while, and so
        do later ones: the gaps between them stay, or the cluster would never be whole for long enough."""
        operation = aim(event, cluster.scene())
        late_s = now - event.at_s
        if operation.why_not and late_s < self._late_s + PATIENCE_S:
            return False
        self._late_s = late_s
        said = cluster.carry_out(operation)
        self.report.done[event.kind] += not said.startswith(NOT_DONE)
        self._tell(event.kind, said)
        return True

    def _tell(self, kind: str, what: str) -> None:
        self.report.story.append(Happened(round(time.monotonic() - self._began, 1), str(kind), what))

    # ------------------------------------------------------------------------------------------------- the end

    def _conclude(self, cluster: ClusterUnderTest, watcher: Watcher, workload: Workload) -> Any:
        """Remove all faults, go on writing, stop, wait for rest, verify; returns the last scene."""
        ticking = threading.Event()
        pulse = threading.Thread(target=self._pulse, args=(ticking,), daemon=True)
        pulse.start()
        try:
            return self._verdict(cluster, watcher, workload)
        finally:
            ticking.set()
            pulse.join(10)

    def _pulse(self, ended: threading.Event) -> None:
        """Update the display while the run waits."""
        while not ended.wait(TICK_S):
            self._on_tick(self._show)

    def _verdict(self, cluster: ClusterUnderTest, watcher: Watcher, workload: Workload) -> Any:
        wrong: list[str] = []
        try:
            for line in cluster.heal():
                self._tell("", line)
        except (TimeoutError, Refused, StackError) as error:
            wrong.append(str(error))
        self._tell("", "everything is given back; the writers go on for a moment")
        if not workload.wait_acknowledged(10) and not workload.faults:
            wrong.append("writes are not acknowledged although everything is healed")
        if hanging := workload.stop():
            wrong.append(f"threads hang: {', '.join(hanging)}")
        if watcher.error:
            wrong.append(watcher.error)
        self.report.verdicts.append(Verdict("it goes on by itself", "the healed cluster takes writes", tuple(wrong)))
        owed = tuple(f"never done: {', '.join(sorted(one))}" for one in self._owed())
        what = f"{self.report.done.total()} deeds of {sum(n > 0 for n in self.report.done.values())} kinds"
        self.report.verdicts.append(Verdict("there was a fault of each kind that is asked for", what, owed))
        what = "a change or transfer is refused only while a fault explains it"
        self.report.verdicts.append(Verdict("operators are answered", what, tuple(cluster.faults)))
        self._tell("", "the writers have stopped; waiting until every tablet is at rest")
        self.report.verdicts.append(converge(cluster, lambda line: self._tell("", line)))
        self.report.verdicts += verify_running(cluster, workload, watcher.checker)
        self._figures(workload, watcher, cluster)
        return cluster.scene()

    def _figures(self, workload: Workload, watcher: Watcher, cluster: ClusterUnderTest) -> None:
        self.report.figures = {
            "seconds": round(time.monotonic() - self._began, 1),
            "row_writes_acknowledged": workload.rows,
            "batches_of_unknown_outcome": sum(w.unknown for w in workload.writers),
            "scans_compared": workload.reader.reads,
            "scans_refused": workload.reader.refused,
            "longest_time_without_an_acknowledgement_s": round(max(w.gap_s for w in workload.writers), 2),
            "leaderships_seen": len(watcher.checker.leaders),
            "identities_lost": len(cluster.wiped),
            "blocks_gone_bad": len(cluster.rotten),
            "events": sum(1 for h in self.report.story if h.kind),
            "events_not_done": sum(1 for h in self.report.story if h.kind and h.what.startswith(NOT_DONE)),
        }
