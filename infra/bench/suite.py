"""The benchmarks by name: the clusters of each, and its rounds, alone or beside a peer."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nyala.infra import local
from nyala.infra.jars import cache_folder

from . import (
    checksums,
    copying,
    deciding,
    failover,
    idle,
    masters,
    masters_at_scale,
    pipeline,
    planning,
    sides,
    witness,
    work,
)
from .logs import OWN_THREADS, logs_round
from .options import BenchmarkError, BenchOptions
from .peers import kudu_sides
from .peers.kudu import KuduCluster, KuduMissing, binaries
from .peers.kudu_pipeline import KuduPipeline
from .report import Figures, elections_told, interleave, ratios, slopes_told, summary, verdicts
from .target import Target, local_stack, running_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = "nyala"
FAILOVER_WRITES = 4000
"""The one-row writes of Kudu's tool in a failover round; the server is killed half-way."""
LOCAL_ONLY = ("pipeline", "copy", "failover", "idle", "witness", "masters", "masters-at-scale", "decisions")


@dataclass
class Outcome:
    """The figures of one benchmark: side -> rounds; `notes` say what is missing and why."""

    name: str
    results: dict[str, list[Figures]]
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        found = {
            side: {"rounds": rounds, "summary": summary(rounds), "limits": verdicts(rounds)}
            for side, rounds in self.results.items()
        }
        sides = list(self.results.values())
        beside = {name: asdict(one) for name, one in ratios(*sides).items()} if len(sides) == 2 else {}
        return {"name": self.name, "sides": found, "ratios": beside, "notes": self.notes}


Note = Callable[[str], None]
Measure = Callable[[int], Figures]


@dataclass
class _Setting:
    """The clusters of one benchmark while it runs. Everything on `stack` ends with them."""

    name: str
    options: BenchOptions
    kudu: KuduCluster | None
    stack: ExitStack
    note: Note

    @cached_property
    def target(self) -> Target:
        """One cluster for all rounds, started or found at the first use."""
        self.note("connecting" if self.options.masters else "starting a local stack")
        target: Target = self.stack.enter_context(_target(self.name, self.options, self.note))
        return target

    @cached_property
    def spark(self) -> SparkSession:
        """One session of Spark for all rounds, started at the first use."""
        self.note("starting Spark")
        return self.stack.enter_context(planning.local_spark())


def run(name: str, options: BenchOptions, note: Note) -> Outcome:
    """Run one benchmark. BenchmarkError if the work was not done; a missing peer is a note."""
    if options.masters and name in LOCAL_ONLY:
        raise BenchmarkError(f"`bench {name}` kills or adds servers: it needs --local")
    outcome = Outcome(name, {})
    with ExitStack() as stack:
        kudu = None
        if options.peer:
            try:
                note("getting Kudu ready")
                if name == "pipeline":
                    KuduPipeline(peer_cache())
                kudu = stack.enter_context(_kudu_cluster())
            except KuduMissing as missing:
                outcome.notes.append(str(missing))
        setting = _Setting(name, options, kudu, stack, note)
        ours, theirs = _BENCHES[name](setting)
        measures = [(OURS, ours)] + ([(_BESIDE.get(name, "kudu"), theirs)] if theirs is not None else [])
        curve: tuple[int, ...] = ()
        if name == "masters-at-scale" and (curve := options.scale.curve):
            measures = [(f"{tablets:,} tablets", _at_scale(setting, tablets)) for tablets in curve]
        if name == "plan" and (curve := options.plan.curve):
            measures = [(f"{replicas:,} replicas", _planned(setting, replicas)) for replicas in curve]
        outcome.results = interleave(options.rounds, measures, lambda text: note(f"{name}, {text}"))
        outcome.notes += elections_told(outcome.results)
        outcome.notes += slopes_told(dict(zip(curve, outcome.results.values(), strict=True))) if curve else []
    return outcome


def peer_cache() -> Path:
    """The folder with everything that peers need."""
    return cache_folder() / "peers"


def _target(name: str, options: BenchOptions, note: Note) -> Any:
    if name == "witness":
        arguments = witness.MASTER_ARGUMENTS, witness.SERVER_ARGUMENTS
        return local_stack(note, servers=4, master_arguments=arguments[0], server_arguments=arguments[1])
    if name == "idle":
        return local_stack(note, server_arguments=("--tablets-max", str(options.tablets)))
    if not options.masters:
        return local_stack(note, kafka=name in ("pipeline", "decisions"))
    return running_cluster(options.masters, _local_state())


def _local_state() -> dict[str, Any] | None:
    state = local.read_state(Path(os.environ.get("NYALA_DIR", ".nyala")))
    return state if local.is_running(state) else None


@contextmanager
def _kudu_cluster() -> Iterator[KuduCluster]:
    home = binaries(peer_cache())
    folder = Path(tempfile.mkdtemp(prefix="nyala-bench-kudu-"))
    try:
        with KuduCluster(home, folder) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------------------------------------ each benchmark


def _load(s: _Setting) -> tuple[Measure, Measure | None]:
    kudu, target, rows = s.kudu, s.target, s.options.rows
    theirs = (lambda n: kudu_sides.load_round(kudu, rows, n)) if kudu else None
    return lambda n: sides.load_round(target, rows, n), theirs


def _write(s: _Setting) -> tuple[Measure, Measure | None]:
    kudu, target, writes = s.kudu, s.target, s.options.writes
    theirs = (lambda n: kudu_sides.write_round(kudu, writes, n)) if kudu else None
    return lambda n: sides.write_round(target, writes, n), theirs


def _scan(s: _Setting) -> tuple[Measure, Measure | None]:
    kudu, rows = s.kudu, s.options.rows - s.options.rows % 2
    s.note("loading the table to scan")
    table = s.stack.enter_context(sides.loaded_table(s.target, rows))
    if kudu:
        kudu_sides.load_table(kudu, table, rows)
    theirs = (lambda _: kudu_sides.scan_round(kudu, table, rows)) if kudu else None
    return lambda _: sides.scan_round(s.target, table, rows, s.options.stream_s), theirs


def _get(s: _Setting) -> tuple[Measure, Measure | None]:
    rows = s.options.rows - s.options.rows % 2
    s.note("loading the table to read")
    table = s.stack.enter_context(sides.loaded_table(s.target, rows))
    return lambda _: work.key_reads(s.target.masters, table, rows, s.options.writes), None


def _pipeline(s: _Setting) -> tuple[Measure, Measure | None]:
    kudu, rows, per_batch = s.kudu, s.options.rows, s.options.rows_per_batch
    stack = s.target.own
    pipeline.publish(stack.kafka_bootstrap, rows, s.note)

    def ours(number: int) -> Figures:
        return pipeline.pipeline_round(s.target, rows, per_batch, number)

    if kudu is None:
        return ours, None
    job = KuduPipeline(peer_cache())
    return ours, lambda n: kudu_sides.pipeline_round(kudu, job, stack, rows, per_batch, n)


def _copy(s: _Setting) -> tuple[Measure, Measure | None]:
    rows = copying.rows_for(s.options.mb)
    s.note("loading the table to copy")
    loaded = sides.loaded_table(s.target, rows, tablets=copying.TABLETS, string_bytes=copying.STRING_BYTES)
    table = s.stack.enter_context(loaded)
    ours = copying.Mover(s.target, s.target.client.get_table(table)).round
    return ours, kudu_sides.copy_table(s.kudu, table, rows, copying.TABLETS).round if s.kudu else None


def _failover(s: _Setting) -> tuple[Measure, Measure | None]:
    kudu = s.kudu
    handle = s.stack.enter_context(sides.fresh_table(s.target, "bench_failover", failover.TABLETS))
    if kudu is not None:
        kudu.create_table(handle.name, failover.TABLETS)

    def theirs(_: int) -> Figures:
        if not kudu:
            return {}
        seconds, failures = kudu.failover(handle.name, FAILOVER_WRITES)
        return {"failover_s": seconds, "failover_clients_failed": failures}

    return lambda n: failover.failover_round(s.target, handle, n), theirs if kudu else None


def _idle(s: _Setting) -> tuple[Measure, Measure | None]:
    target, tablets, watch_s = s.target, s.options.tablets, s.options.watch_s
    return lambda n: idle.idle_round(target, tablets, watch_s, n, s.note), None


def _witness(s: _Setting) -> tuple[Measure, Measure | None]:
    s.note("loading the table that loses replicas")
    rows = copying.rows_for(s.options.mb, tablets=1)
    loaded = sides.loaded_table(s.target, rows, tablets=1, string_bytes=copying.STRING_BYTES)
    return witness.Losses(s.target, s.target.client.get_table(s.stack.enter_context(loaded))).round, None


def _checksum(s: _Setting) -> tuple[Measure, Measure | None]:
    sums = checksums.Sums(s.options.mb)
    return sums.checksum_round, sums.read_round


def _logs(s: _Setting) -> tuple[Measure, Measure | None]:
    measure = partial(logs_round, s.options.tablets, s.options.watch_s)
    return lambda _: measure(shared=True), lambda _: measure(shared=False)


def _masters(s: _Setting) -> tuple[Measure, Measure | None]:
    return lambda n: masters.masters_round(n, s.note), None


def _masters_at_scale(s: _Setting) -> tuple[Measure, Measure | None]:
    return _at_scale(s, s.options.scale.tablets), None


def _at_scale(s: _Setting, tablets: int) -> Measure:
    size = replace(s.options.scale, tablets=tablets, curve=())
    return lambda _: masters_at_scale.masters_at_scale_round(size, s.note)


def _plan(s: _Setting) -> tuple[Measure, Measure | None]:
    return _planned(s, s.options.plan.replicas), None


def _planned(s: _Setting, replicas: int) -> Measure:
    size = replace(s.options.plan, replicas=replicas, curve=())
    return lambda _: planning.plan_round(s.spark, size)


def _decisions(s: _Setting) -> tuple[Measure, Measure | None]:
    target, count = s.target, s.options.decisions
    return lambda n: deciding.decisions_round(target, count, n, s.note), None


_BENCHES: dict[str, Callable[[_Setting], tuple[Measure, Measure | None]]] = {
    "load": _load,
    "write": _write,
    "scan": _scan,
    "get": _get,
    "pipeline": _pipeline,
    "copy": _copy,
    "failover": _failover,
    "idle": _idle,
    "witness": _witness,
    "masters": _masters,
    "masters-at-scale": _masters_at_scale,
    "decisions": _decisions,
    "checksum": _checksum,
    "logs": _logs,
    "plan": _plan,
}
_BESIDE = {"checksum": checksums.MEMORY_READ, "logs": OWN_THREADS}
"""The comparison of a benchmark that is not compared with Kudu."""
_ALONE = ("get", "idle", "witness", "masters", "masters-at-scale", "decisions", "checksum", "logs", "plan")
NAMES = tuple(name for name in _BENCHES if name not in _ALONE)
"""The benchmarks of `bench all`; the others are not compared with Kudu."""
