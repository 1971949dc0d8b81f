"""The real processes that a fuzzer sends to: a master and tablet servers on loopback, rows that no input names, and the
checks of all of them."""

from __future__ import annotations

import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from nyala.infra.local.kafka import KafkaBroker
from nyala.replica.rpc import pb, pb_grpc
from tests.fuzz.real_topics import MastersTopics
from tests.fuzz.target import Broken
from tests.harness.cluster import SERVER, LocalCluster, ServerProcess
from tests.harness.patience import patience_s
from tests.load.judge import Measure
from tests.load.parts import MASTER_BYTES, SERVER_BYTES
from tests.load.sampler import measured
from tests.load.world import Guard, running

T = TypeVar("T")

SERVERS = 4
TABLETS_MAX = 48
"""The replicas of one server: a valid creation of a thousand tablets is refused, because it is only load."""
MASTER_ARGUMENTS = ("--execute-decisions=master", "--policy-ms=100")
SERVER_ARGUMENTS = (f"--tablets-max={TABLETS_MAX}",)
HONEST_S = patience_s(60.0)
"""An honest request must be answered within this time, the repetitions of the client included."""
GROWN = {Measure.PRIVATE_MB: 128.0, Measure.FILES: 200.0, Measure.THREADS: 40.0}
"""The growth above the level after the first check that each process may have at any later check, when no call is under
way. Stores and caches fluctuate by tens of megabytes, and each replica has open files."""
TOPICS_S = patience_s(300.0)
"""The master answers an honest proposal within this time; hostile ones before it in the topic take it 20 ms each."""
_DEFECTS = re.compile(r"Traceback \(most recent call last\)|never retrieved|Exception in callback|Fatal Python error")
_LEFT_GRPC = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?: +File \"src/python/grpcio/.*\n)+"
    r"grpc\._cython\.cygrpc\.ExecuteBatchError.*\n"
)
"""gRPC logs this if a caller cancels its call just when its reply is sent. It has no line of the product."""
LINES_SHOWN = 40
LINE_CHARS_MAX = 4096
"""The longest line that a process may log: nothing from outside comes into a log in its whole length."""
KEY = 1
SOURCES = 8


class RealCluster:
    """One master, four tablet servers, a client, the guard's table, and a table of honest writes.

    The names and ids of both tables contain random digits of this cluster. They are put into no input, and no input is
    long enough to guess them: so no input, however valid, can name them.
    """

    def __init__(self, processes: LocalCluster, cluster: Any, topics: MastersTopics | None = None) -> None:
        """`topics`: of a broker that the master uses."""
        self.processes, self.cluster, self.topics = processes, cluster, topics
        own = secrets.token_hex(8)
        self.guard = Guard(cluster, f"guard_{own}")
        self._honest = cluster.create_table(f"honest_{own}", {"k": "int64 not null", "v": "string"}, key="k")
        self.own_tables = {f"guard_{own}", f"honest_{own}"}
        self.own_tablets = {t.tablet_id for name in self.own_tables for t in cluster.client.tablet_infos(name)}
        self._guard_table = self._described()
        self._pids = {p.name: p.process.pid for p in self.all if p.process is not None}
        self._read = {p.name: p.log_path.stat().st_size for p in self.all}
        self.logged_bytes = 0
        """The bytes that all processes have logged since then, as far as checks have read them."""
        self._warm: dict[str, dict[Measure, float]] = {}
        self._written = 0
        self._number = 0
        self.grown: dict[str, float] = {}
        """By process, the highest growth of memory that a check has seen, in MB."""
        self.slowest_s = 0.0
        """The longest time of an honest request."""

    @property
    def all(self) -> list[ServerProcess]:
        """Return the processes, the master first."""
        return [*self.processes.masters, *self.processes.servers]

    @property
    def master(self) -> ServerProcess:
        return self.processes.masters[0]

    @property
    def at_master(self) -> Any:
        """Return a stub of the master."""
        return pb_grpc.MasterServiceStub(self.master.channel)  # type: ignore[no-untyped-call]

    def number(self) -> int:
        """Return a number that this cluster has not returned before."""
        self._number += 1
        return self._number

    def _described(self) -> Any:
        (name,) = [n for n in self.own_tables if n.startswith("guard")]
        reply = self.at_master.GetTable(pb.TableRequest(name=name), timeout=HONEST_S)
        if reply.error.code:
            raise Broken(f"the master does not describe the guard's table: {reply.error}")
        return reply.table

    # ------------------------------------------------------------------------------------------------------- checks

    def check_processes(self) -> None:
        """Check that each process is the one that was started."""
        for each in self.all:
            if not each.alive:
                code = each.process.returncode if each.process else None
                raise Broken(f"{each.name} ended with {code}:\n{each.log_tail()}")
            if each.process is not None and each.process.pid != self._pids[each.name]:
                raise Broken(f"{each.name} is another process")

    def check(self) -> None:
        """Check all that no input may have changed; Broken with what was found."""
        self.check_processes()
        for each in self.all:
            self._check_log(each)
        if wrong := self._in_time("the guard's rows", self.guard.errors):
            raise Broken("; ".join(wrong))
        self._in_time("an honest write and its read", self._write_and_read)
        self._in_time("honest calls of the master", self._ask_master)
        if self.topics is not None:
            self.topics.check(self.at_master, TOPICS_S)
        self._check_measures()
        self.check_processes()

    def check_new_table(self) -> None:
        """Check that a table can be made, written, read and dropped."""
        self._in_time("a new table", self._new_table)

    def _in_time(self, what: str, call: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            result = call()
        except Exception as error:
            raise Broken(f"{what}: {type(error).__name__}: {error}") from error
        took = time.monotonic() - began
        self.slowest_s = max(self.slowest_s, took)
        if took > HONEST_S:
            raise Broken(f"{what}: took {took:.1f} s, at most {HONEST_S:g} s")
        return result

    def _write_and_read(self) -> None:
        self._written += 1
        text = f"honest {self._written}"
        self._honest.upsert(pa.table({"k": [KEY], "v": [text]}))
        found = self._honest.scan().to_arrow().to_pylist()
        if found != [{"k": KEY, "v": text}]:
            raise Broken(f"the honest row is {found}, and not {text!r}")

    def _ask_master(self) -> None:
        if (found := self._described()) != self._guard_table:
            raise Broken(f"the guard's table has changed: {found}")
        source = pb.SourceKey(cluster_id="guard", topic_id="guard", kafka_partition=self._written % SOURCES)
        opens = [pb.SourceOpen(source=source, topic="guard")]
        request = pb.OpenSourcesRequest(table=found.name, owner_run="guard", lease_us=1, opens=opens)
        reply = self.at_master.OpenSources(request, timeout=HONEST_S)
        if reply.error.code:
            raise Broken(f"an honest OpenSources is refused: {reply.error}")

    def _new_table(self) -> None:
        name = f"new_{secrets.token_hex(8)}"
        table = self.cluster.create_table(name, {"k": "int64 not null", "v": "string"}, key="k")
        table.insert(pa.table({"k": [1, 2], "v": ["a", "b"]}))
        if len(table.scan().to_arrow()) != 2:
            raise Broken("the rows of a new table are not there")
        self.cluster.drop_table(name)

    def _check_log(self, each: ServerProcess) -> None:
        with each.log_path.open("rb") as log:
            log.seek(self._read[each.name])
            text = log.read().decode(errors="replace")
            self.logged_bytes += log.tell() - self._read[each.name]
            self._read[each.name] = log.tell()
        for line in text.splitlines():
            if len(line) > LINE_CHARS_MAX or not line.replace("\t", " ").isprintable():
                raise Broken(f"{each.name} logged a line of {len(line)} characters: {line[:200]!r}")
        text = _LEFT_GRPC.sub("", text)
        if found := _DEFECTS.search(text):
            lines = text[text.rfind("\n", 0, found.start()) + 1 :].splitlines()[:LINES_SHOWN]
            raise Broken(f"{each.name} logged a defect:\n" + "\n".join(lines))

    def _check_measures(self) -> None:
        now = {name: measured(pid) for name, pid in self._pids.items()}
        if not self._warm:
            self._warm = now
        for name, values in now.items():
            most = (MASTER_BYTES if name == self.master.name else SERVER_BYTES) / 2**20
            if values[Measure.PRIVATE_MB] > most:
                raise Broken(f"{name} has {values[Measure.PRIVATE_MB]:.0f} MB of memory, at most {most:.0f} MB")
            for measure, bound in GROWN.items():
                grown = values[measure] - self._warm[name][measure]
                if measure is Measure.PRIVATE_MB:
                    self.grown[name] = max(self.grown.get(name, 0.0), grown)
                if grown > bound:
                    raise Broken(f"{name}: {measure}: {grown:.0f} above the warm level, at most {bound:.0f}")


@contextmanager
def real_cluster(*, own_processes: bool = True, module: str = SERVER, kafka: bool = False) -> Iterator[RealCluster]:
    """Yield the processes. `own_processes`: each by an interpreter of its own; else they are forked from a template,
    which starts them faster. `module`: what the tablet servers run. `kafka`: with a broker, which the master uses."""
    with ExitStack() as ends:
        master, topics = MASTER_ARGUMENTS, None
        if kafka:
            folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="nyala-fuzz-"))
            broker = KafkaBroker(Path(folder))
            ends.callback(broker.close)
            broker.start()
            master = (*MASTER_ARGUMENTS, f"--kafka={broker.bootstrap}")
        processes, cluster = ends.enter_context(
            running(SERVERS, module, own_processes=own_processes, master=master, server=SERVER_ARGUMENTS)
        )
        if kafka:
            topics = MastersTopics(broker.bootstrap)
            ends.callback(topics.close)
        yield RealCluster(processes, cluster, topics)
