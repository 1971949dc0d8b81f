"""The demo: a million real events from Kafka to the table, with a leader and the driver killed on the way."""

from __future__ import annotations

import math
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import nyala
from nyala.infra.local import StackOptions, Supervisor
from nyala.infra.local.jobs import JobProcess
from nyala.infra.printing import line
from nyala.pipeline import Topics, writes_topic
from nyala.replica import tools
from nyala.replica.types import Code, DataState, Refused

from . import flights

TABLE = "flights"
KAFKA_PARTITIONS = 2
TABLETS = 3
REPLICAS = 3
KILL_LEADER_AT = 0.20
KILL_DRIVER_AT = 0.40
ADD_SERVER_AT = 0.60
HELD_BACK_FROM = 0.80
"""The share of events after which the rest is published only when leader and driver have been killed, so that both
kills happen among events."""
MICRO_BATCH_EVENTS_MAX = 120_000
MICRO_BATCHES_MIN = 8
"""The least number of micro-batches, however few events there are, so that the kills happen between them."""
REBALANCE_ROUNDS_MAX = 10
REBALANCE_RUNS_MAX = 3
"""The most rounds of plans in one run of the job, and the most runs until the placement is even."""
WAIT_S = 600.0
COLUMN_TYPES = {
    "time_hour": "timestamp",
    "carrier": "string",
    "status": "string",
    "origin": "string",
    "dest": "string",
    "tailnum": "string",
}


class DemoFailed(RuntimeError):
    """A step of the demo did not happen; the text says which, and where the logs are."""


@dataclass
class Demo:
    """One run of the demo. `events_max` 0 replays the whole year."""

    folder: Path
    console: Console
    events_max: int = 0
    timings: dict[str, float] = field(default_factory=dict)
    patience_s: float = WAIT_S
    """The time for which the cluster is checked again at the end while something is wrong with it."""
    job: JobProcess | None = None
    """The streaming job, once it runs; it also carries out the masters' decisions."""

    def run(self, *, keep: bool) -> bool:
        """Run the whole demo; True if the table equals the source and the cluster has no defect."""
        began = time.monotonic()
        source = flights.raw_flights()
        total = min(self.events_max or flights.EVENTS_TOTAL, flights.EVENTS_TOTAL)
        self.total = total
        shape = f"{REPLICAS} replicas of {TABLETS} tablets"
        self.say(("An airport board", "bold"), f": {total:,} events of {source.height:,} real flights, {shape}")
        self.supervisor = Supervisor(self.folder, StackOptions(servers=3))
        verdict = False
        try:
            with self.console.status("starting Kafka, a master and three tablet servers"):
                self.supervisor.start()
            self.mark("stack up", began)
            with nyala.connect(self.supervisor.masters) as cluster:
                self.cluster = cluster
                self._create()
                self._stream(total)
                if not keep and self.job:
                    self.job.stop()
                equal = self._verdict(source, total)
                verdict = self._show_cluster() and equal
                parts = ", ".join(f"{k} {v:.0f} s" for k, v in self.timings.items())
                self.say(f"took {time.monotonic() - began:.0f} s: {parts}")
                if keep:
                    self._keep()
        finally:
            if self.job:
                self.job.stop()
            self.supervisor.stop()
        return verdict

    def say(self, *parts: str | tuple[str, str]) -> None:
        """Print one line of the demo, of texts or of (text, style)."""
        self.console.print(line(*parts))

    def mark(self, name: str, began: float) -> None:
        """Note how long a part took."""
        self.timings[name] = time.monotonic() - began

    # ------------------------------------------------------------------------------------------------ the parts

    def _create(self) -> None:
        columns = [(c, COLUMN_TYPES.get(c, "int32")) for c in flights.COLUMNS]
        self.table = self.cluster.create_table(
            TABLE,
            columns,
            key=flights.KEY,
            hash_buckets=TABLETS,
            replication_factor=REPLICAS,
            partitions=KAFKA_PARTITIONS,
            make_topic=True,
        )
        self.handle = self.cluster.client.get_table(TABLE)
        self.topics = Topics(self.supervisor.kafka_bootstrap)

    def _stream(self, total: int) -> None:
        """Publish and ingest at the same time, with the kills and the new server."""
        began = time.monotonic()
        publisher = self._start_publisher()
        self.publisher = publisher
        job = self.job = self._start_ingest()
        bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:12}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )
        story: list[tuple[float, Callable[[JobProcess], JobProcess]]] = [
            (KILL_LEADER_AT, self._kill_leader),
            (KILL_DRIVER_AT, self._kill_driver),
            (ADD_SERVER_AT, self._rebalance),
        ]
        try:
            with bars:
                published = bars.add_task("published", total=total)
                stored = bars.add_task("in the table", total=total)
                deadline, furthest = time.monotonic() + WAIT_S, 0
                while True:
                    bars.update(published, completed=self.published)
                    done = self._done()
                    if done > furthest:
                        deadline, furthest = time.monotonic() + WAIT_S, done
                    bars.update(stored, completed=done)
                    if story and done >= story[0][0] * total:
                        job = self.job = story.pop(0)[1](job)
                    if not job.running:
                        raise DemoFailed(f"the ingest job ended: {' '.join(job.messages[-2:])} (log: {job.log_file})")
                    if publisher.poll() not in (None, 0):
                        raise DemoFailed(f"the publisher ended with {publisher.returncode}; see {self.folder}/logs")
                    if done >= total and not story:
                        break
                    if time.monotonic() > deadline:
                        raise DemoFailed(
                            f"{done:,} of {total:,} events, and none more in {WAIT_S:.0f} s; logs in {self.folder}/logs"
                        )
                    time.sleep(0.2)
                self.mark("published and ingested", began)
                self._finish_moves()
        finally:
            if publisher.poll() is None:
                publisher.kill()
            publisher.wait()
            if publisher.stdin:
                publisher.stdin.close()

    def _start_publisher(self) -> subprocess.Popen[str]:
        self.published = 0
        log = (self.folder / "logs" / "publisher.log").open("w")
        command = [sys.executable, "-m", "nyala.infra.demo.publisher", "--kafka", self.supervisor.kafka_bootstrap]
        command += [
            "--topic", writes_topic(TABLE), "--schema", self.handle.schema.to_json(),
            "--limit", str(self.total), "--hold-at", str(math.ceil(HELD_BACK_FROM * self.total)),
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
        )
        log.close()

        def read() -> None:
            with process.stdout or open("/dev/null") as lines:
                for number in lines:
                    self.published = int(number)

        threading.Thread(target=read, name="published", daemon=True).start()
        return process

    def _start_ingest(self) -> JobProcess:
        arguments = [
            "--table", TABLE, "--masters", self.supervisor.masters, "--kafka", self.supervisor.kafka_bootstrap,
            "--checkpoint", str(self.folder / "checkpoint-ingest"),
            "--decisions-checkpoint", str(self.folder / "checkpoint-decisions"),
            "--offsets-per-trigger-max", str(micro_batch_events(self.total)),
        ]  # fmt: skip
        return JobProcess("ingest", arguments, self.folder / "logs" / "ingest.log").start()

    def _done(self) -> int:
        """The number of events that are in the table, by the catalog."""
        try:
            return sum(p.done for p in self.cluster.client.list_sources(TABLE))
        except Refused as refused:
            if refused.code is not Code.NOT_FOUND:
                raise
            return 0

    def _kill_leader(self, job: JobProcess) -> JobProcess:
        tablet = self.handle.tablets[0]
        leader, _ = self.cluster.client.locator.leader(tablet.tablet_id)
        name = next(n for n, c in self.supervisor.children.items() if c.ready.get("uuid") == leader)
        self.supervisor.kill(name)
        leads = f"which leads tablet {tablet.tablet_id[:8]}"
        self.say(("kill -9", "red"), f" {name}, {leads}, {self._way()}: another replica takes over")
        return job

    def _kill_driver(self, job: JobProcess) -> JobProcess:
        job.kill()
        self.say(("kill -9", "red"), f" the streaming driver {self._way()}: it starts again from its checkpoint")
        if self.publisher.stdin:
            self.publisher.stdin.close()
        return self._start_ingest()

    def _way(self) -> str:
        """A text on the progress of the events."""
        return f"with {self._done():,} of {self.total:,} events in the table"

    def _rebalance(self, job: JobProcess) -> JobProcess:
        name = self.supervisor.add_server()
        uuid = str(self.supervisor.children[name].ready["uuid"])
        self.say((name, "green"), f" ({uuid[:8]}) joins; a Spark batch job proposes a better placement on Kafka")
        self.newcomer = uuid
        self.rebalance_began = time.monotonic()
        self.rebalance = self._start_rebalance()
        return job

    def _start_rebalance(self) -> JobProcess:
        arguments = ["--kafka", self.supervisor.kafka_bootstrap, "--wait", "--rounds-max", str(REBALANCE_ROUNDS_MAX)]
        log_file = self.folder / "logs" / "rebalance.log"
        return JobProcess("rebalance", arguments, log_file, master="local[1]").start()

    def _finish_moves(self) -> None:
        """Run the job until it has nothing left to move and the new server has its share; DemoFailed if that never
        happens."""
        self.say("waiting for the moves: master decides, the second streaming query carries out, replicas are copied")
        for left in reversed(range(REBALANCE_RUNS_MAX)):
            self._watch_moves()
            status = self.rebalance.wait()
            if status not in (0, 2):
                raise DemoFailed(f"the rebalancing job ended with status {status}; see {self.rebalance.log_file}")
            problem = "the job could not settle everything" if status else ""
            problem = unevenness(self._placement(), self.newcomer) or problem
            if not problem:
                break
            if not left:
                raise DemoFailed(f"the table is not even after {REBALANCE_RUNS_MAX} runs of the job: {problem}")
            self.say(("not even yet", "yellow"), f": {problem}; the job runs again")
            self.rebalance = self._start_rebalance()
        self.mark("rebalanced", self.rebalance_began)
        held = self._placement()[self.newcomer]
        self.say(f"moved: the new server holds {held} of {TABLETS * REPLICAS} replicas, and nothing is left to move")

    def _placement(self) -> Counter[str]:
        """The number of the table's replicas by server: members of the committed configs that have their data."""
        view = tools.gather(self.cluster.client, checksum=False)
        ready = {
            (tablet_id, r.server_uuid)
            for tablet_id, replicas in view.replicas.items()
            for r in replicas
            if r.status.data_state == DataState.READY
        }
        held = Counter({server.uuid: 0 for server in view.servers})
        for tablet in self.cluster.client.tablet_infos(TABLE):
            held.update(m.uuid for m in tablet.config.members if (tablet.tablet_id, m.uuid) in ready)
        return held

    def _watch_moves(self) -> None:
        """Print the copies under way until the job has ended."""
        deadline = time.monotonic() + WAIT_S
        shown: dict[str, str] = {}
        while self.rebalance.running:
            for copy in tools.list_copies(self.cluster.client):
                percent = 100 * copy.bytes_done // max(1, copy.bytes_total)
                text = f"{copy.phase} {percent} % of {copy.bytes_total >> 20} MiB"
                if shown.get(copy.tablet_id) != copy.phase:
                    shown[copy.tablet_id] = copy.phase
                    self.say(
                        f"  copy of {copy.tablet_id[:8]} from {copy.source_uuid[:8]} to {copy.target_uuid[:8]}: {text}"
                    )
            if time.monotonic() > deadline:
                raise DemoFailed(f"moves not done after {WAIT_S:.0f} s; see {self.rebalance.log_file}")
            time.sleep(0.2)

    # ------------------------------------------------------------------------------------------------- the end

    def _verdict(self, source: Any, total: int) -> bool:
        began = time.monotonic()
        want = flights.answer(source) if not self.events_max else flights.replay(flights.events(source).head(total))
        got = self.table.scan().to_polars()
        wrong = flights.differences(got, want)
        self.mark("compared", began)
        if wrong:
            for difference in wrong:
                self.say(("WRONG", "red"), f" {difference}")
        else:
            self.say(("VERDICT: the table equals the source", "bold green"), f": {want.height:,} rows, row for row")
        return not wrong

    def _show_cluster(self) -> bool:
        """Print the last cluster check, when it finds nothing or `patience_s` are over; True if nothing is wrong."""
        view, findings = tools.checked(self.cluster.client, checksum=True, wait_s=self.patience_s)
        held = {s.uuid: 0 for s in view.servers}
        for replicas in view.replicas.values():
            for replica in replicas:
                held[replica.server_uuid] = held.get(replica.server_uuid, 0) + (
                    replica.status.data_state == DataState.READY
                )
        counts = ", ".join(f"{uuid[:8]}: {count}" for uuid, count in sorted(held.items()))
        self.say(f"replicas by server: {counts}")
        for finding in findings:
            colour = "red" if finding.severity is tools.Severity.ERROR else "yellow"
            self.say((finding.severity, colour), f" {finding.subject}: {finding.what}")
        if not findings:
            self.say("cluster check: every replica of a tablet holds the same rows")
        return not any(f.severity is tools.Severity.ERROR for f in findings)

    def _keep(self) -> None:
        """Keep the stack, and the job that reads Kafka and carries out decisions, until Ctrl-C."""
        folder, commands = shlex.quote(str(self.supervisor.folder)), shlex.quote(str(command_folder()))
        self.say()
        self.say("Everything stays up until Ctrl-C or `nyala down`. In another terminal try:")
        for command in (
            f"export NYALA_DIR={folder} PATH={commands}:$PATH",
            "nyala cluster check --checksum --wait 60",
            "nyala table scan flights --where \"carrier = 'AA' and dep_delay > 600\"",
            "nyala tablet list --table flights",
            "nyala source list",
            *self._possible_move(),
            "nyala down",
        ):
            self.console.print(line(f"  {command}"), soft_wrap=True)
        try:
            while self.job and self.job.running:
                time.sleep(0.2)
            if self.job:
                self.say(("the streaming job ended", "red"), f", the rest stays up; its log: {self.job.log_file}")
            threading.Event().wait()
        except KeyboardInterrupt:
            self.say("stopping")

    def _possible_move(self) -> list[str]:
        """A command that moves one replica to a server without one, which the streaming job then carries out."""
        view = tools.gather(self.cluster.client, checksum=False)
        for tablet_id, replicas in sorted(view.replicas.items()):
            leader, _ = self.cluster.client.locator.leader(tablet_id)
            held = {r.server_uuid for r in replicas if r.status.data_state == DataState.READY}
            free = sorted({s.uuid for s in view.servers} - held)
            followers = sorted(held - {leader})
            if free and followers:
                return [f"nyala tablet move {tablet_id[:8]} {followers[0][:8]} {free[0][:8]}"]
        return []


def micro_batch_events(total: int) -> int:
    """The most events of one micro-batch, if there are `total`."""
    return max(1, min(MICRO_BATCH_EVENTS_MAX, total // MICRO_BATCHES_MIN))


def unevenness(held: Mapping[str, int], newcomer: str) -> str:
    """A text on what is wrong with these replicas by server; empty if all exist and each server has its share."""
    total = TABLETS * REPLICAS
    if sum(held.values()) != total:
        return f"{sum(held.values())} of {total} replicas are where they should be"
    if (has := held.get(newcomer, 0)) < (share := total // len(held)):
        return f"the new server holds {has} of {total} replicas, its share is {share}"
    if max(held.values()) - min(held.values()) > 1:
        counts = ", ".join(f"{uuid[:8]} {count}" for uuid, count in sorted(held.items()))
        return f"replicas by server are {counts}"
    return ""


def command_folder() -> Path:
    """The folder of the `nyala` command that runs; without one, that of this Python's environment."""
    called = Path(sys.argv[0])
    return called.absolute().parent if called.name == "nyala" else Path(sys.executable).parent
