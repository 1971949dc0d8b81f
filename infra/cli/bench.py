"""`nyala bench ...`: how fast, on this machine, now, and beside a peer in the same run."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.status import Status

from nyala.infra.bench import options as sizes
from nyala.infra.bench.machine import machine, machine_line
from nyala.infra.bench.options import BenchmarkError
from nyala.infra.bench.report import show
from nyala.infra.jars import JarsMissing
from nyala.infra.printing import TextConsole, line
from nyala.replica.types import ReplicaError

from .context import Json, Masters, console, masters_of, print_json

app = typer.Typer(help="measure a cluster, alone or beside Apache Kudu", no_args_is_help=True)

Local = Annotated[bool, typer.Option("--local", help="start a stack of its own in a temporary folder, end it after")]
Rounds = Annotated[int, typer.Option(min=1, max=100, help="rounds; medians and spread are over them")]
Rows = Annotated[int, typer.Option(min=1000, help="rows of a round")]
Peer = Annotated[str, typer.Option(help="also measure this one, round by round in turn: `kudu` (needs Maven)")]
Writes = Annotated[int, typer.Option(min=100, help="one-row writes by 1 client; 16 clients do 8 times as many")]
Reads = Annotated[int, typer.Option(min=100, help="reads of one key by 1 client, and by each of 16")]
Mb = Annotated[int, typer.Option(min=1, help="MB of rows in a tablet")]
PerBatch = Annotated[int, typer.Option(min=1000, help="records of a micro-batch at most, on both sides")]

Tablets = Annotated[int, typer.Option(min=1, help="tablets, three replicas each")]
StreamS = Annotated[
    float, typer.Option("--seconds", min=0.1, max=600.0, help="seconds of repeated scans and of each bare stream")
]
WatchS = Annotated[float, typer.Option(min=1.0, help="seconds for which the CPU of servers at rest is watched")]

FAILURES = (
    ReplicaError, BenchmarkError, JarsMissing, ImportError, OSError, RuntimeError, subprocess.SubprocessError,
)  # fmt: skip


def _options(local: bool, masters: str, rounds: int, peer: str) -> sizes.BenchOptions:
    try:
        return sizes.BenchOptions(masters="" if local else masters_of(masters), rounds=rounds, peer=peer)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _measure(names: Sequence[str], options: sizes.BenchOptions, as_json: bool) -> None:
    """Run and show; end with one line on an error. Results from before the error are shown all the same."""
    from nyala.infra.bench import suite
    from nyala.pipeline import PublishFailed

    facts = machine()
    status_console = TextConsole(stderr=True)
    outcomes, failure = [], ""
    for name in names:
        with status_console.status(f"{name}: beginning") as shown:
            try:
                outcome = suite.run(name, options, _progress(status_console, shown))
            except (*FAILURES, PublishFailed) as error:
                failure = f"bench {name}: {str(error).strip().splitlines()[0] if str(error).strip() else repr(error)}"
                break
        outcomes.append(outcome)
        if not as_json:
            show(console, outcome.results, f"bench {name}, {options.rounds} rounds: median (min to max)")
            for text in outcome.notes:
                console.print(text, style="yellow")
    if as_json:
        benches = [o.as_json() for o in outcomes]
        print_json({"machine": facts, "options": asdict(options), "benches": benches, "failure": failure})
    elif outcomes:
        console.print(machine_line(facts), style="dim")
    if failure:
        typer.echo(f"nyala: {failure}", err=True)
        raise typer.Exit(1)


def _progress(where: TextConsole, shown: Status) -> Callable[[str], None]:
    """A function that shows progress: one changing line on a terminal, one line each in a log."""
    began = time.monotonic()

    def tell(text: str) -> None:
        shown.update(line(text))
        if not where.is_terminal:
            where.print(f"{time.monotonic() - began:6.1f} s  {text}")

    return tell


@app.command()
def load(
    local: Local = False, rounds: Rounds = 5, rows: Rows = sizes.ROWS, peer: Peer = "", masters: Masters = "",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Bulk insert and random upsert by 2 client processes into fresh tables, counted afterwards."""
    _measure(["load"], replace(_options(local, masters, rounds, peer), rows=rows), as_json)


@app.command()
def write(
    local: Local = False, rounds: Rounds = 5, writes: Writes = sizes.WRITES, peer: Peer = "", masters: Masters = "",
    as_json: Json = False,
) -> None:  # fmt: skip
    """One-row durable writes by 1 client and by 16."""
    _measure(["write"], replace(_options(local, masters, rounds, peer), writes=writes), as_json)


@app.command()
def scan(
    local: Local = False, rounds: Rounds = 5, rows: Rows = sizes.ROWS, seconds: StreamS = sizes.STREAM_S,
    peer: Peer = "", masters: Masters = "", as_json: Json = False,
) -> None:  # fmt: skip
    """Scan 3 columns of a loaded and flushed table by 2 client processes, beside bare Arrow streams of its rows."""
    options = replace(_options(local, masters, rounds, peer), rows=rows, stream_s=seconds)
    _measure(["scan"], options, as_json)


@app.command()
def get(
    local: Local = False, rounds: Rounds = 5, rows: Rows = sizes.ROWS, reads: Reads = sizes.WRITES,
    masters: Masters = "", as_json: Json = False,
) -> None:  # fmt: skip
    """Read rows by key from a loaded and flushed table: one, many at a time, and a range of keys beside all."""
    _measure(["get"], replace(_options(local, masters, rounds, ""), rows=rows, writes=reads), as_json)


@app.command()
def pipeline(
    local: Local = False, rounds: Rounds = 5, rows: Rows = sizes.ROWS, per_batch: PerBatch = sizes.ROWS_PER_BATCH,
    peer: Peer = "", as_json: Json = False,
) -> None:  # fmt: skip
    """Kafka → Spark → table: one ingest run over a topic that is full, from the query's start to its end."""
    _need_local(local)
    _measure(["pipeline"], replace(_options(local, "", rounds, peer), rows=rows, rows_per_batch=per_batch), as_json)


@app.command()
def copy(
    local: Local = False, rounds: Rounds = 5, mb: Mb = sizes.COPY_MB, peer: Peer = "", as_json: Json = False
) -> None:
    """Move one replica to a server that has just joined: the download, and the whole move."""
    _need_local(local)
    _measure(["copy"], replace(_options(local, "", rounds, peer), mb=mb), as_json)


@app.command()
def failover(local: Local = False, rounds: Rounds = 5, peer: Peer = "", as_json: Json = False) -> None:
    """Kill -9 the server that leads a tablet under a client that writes: seconds without a write. A kill a round."""
    _need_local(local)
    _measure(["failover"], _options(local, "", rounds, peer), as_json)


@app.command()
def idle(
    local: Local = False, rounds: Rounds = 1, tablets: Tablets = 1000, watch_s: WatchS = 30.0, as_json: Json = False,
) -> None:  # fmt: skip
    """Many idle tablets on three servers: CPU, memory, disk, a cold start of all servers, the restart of one."""
    _need_local(local)
    try:
        options = replace(_options(local, "", rounds, ""), tablets=tablets, watch_s=watch_s)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _measure(["idle"], options, as_json)


@app.command()
def witness(local: Local = False, rounds: Rounds = 3, mb: Mb = 256, as_json: Json = False) -> None:
    """Kill -9 a server that holds a follower: seconds until one more loss is tolerated, by a witness and by a learner.

    Copies run at 32 MiB/s, as they do beside writes; `whole` is when the rows are there too.
    """
    _need_local(local)
    _measure(["witness"], replace(_options(local, "", rounds, ""), mb=mb), as_json)


@app.command()
def masters(local: Local = False, rounds: Rounds = 3, as_json: Json = False) -> None:
    """Restart the only master, make it three, kill -9 the one that leads, replace it: seconds in which no table can be
    made, while rows are written. Each round has a stack of its own."""
    _need_local(local)
    _measure(["masters"], _options(local, "", rounds, ""), as_json)


@app.command("masters-at-scale")
def masters_at_scale(
    servers: Annotated[int, typer.Option(help="played tablet servers")] = 20,
    tablets: Annotated[int, typer.Option(help="tablets of all of them")] = 1000,
    replicas: Annotated[int, typer.Option(help="replicas of each tablet")] = 3,
    beat_ms: Annotated[int, typer.Option(help="ms between two heartbeats of a server")] = 500,
    kafka: Annotated[bool, typer.Option("--kafka", help="start a broker too, and measure what `reports` get")] = False,
    curve: Annotated[str, typer.Option(help="numbers of tablets one after the other, as 1000,10000; with slopes")] = "",
    rounds: Rounds = 1, watch_s: WatchS = 10.0, as_json: Json = False,
) -> None:  # fmt: skip
    """A real master under the heartbeats of many played servers: CPU, memory, look-ups, reports, decisions for a lost
    server."""
    try:
        points = tuple(map(int, curve.split(","))) if curve else ()
        size = sizes.ScaleOptions(
            servers=servers, tablets=tablets, replicas=replicas, beat_ms=beat_ms, watch_s=watch_s, kafka=kafka,
            curve=points,
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _measure(["masters-at-scale"], replace(_options(True, "", rounds, ""), scale=size), as_json)


@app.command()
def decisions(
    local: Local = False, rounds: Rounds = 1,
    decisions: Annotated[int, typer.Option(help="decisions in the topic, of as many tablets")] = sizes.DECISIONS,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Decisions → Spark → leaders → outcomes: one job over a topic that is full; servers are played."""
    _need_local(local)
    try:
        options = replace(_options(local, "", rounds, ""), decisions=decisions)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _measure(["decisions"], options, as_json)


@app.command()
def checksum(rounds: Rounds = 5, mb: Annotated[int, typer.Option(min=1, help="MB of values of each kind")] = 64,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Checksums of rows with values of several lengths, beside a plain read of the same bytes from memory.

    The rates are those of one core, by CPU time. It runs in this process and needs no cluster.
    """
    _measure(["checksum"], replace(_options(True, "", rounds, ""), mb=mb), as_json)


@app.command()
def logs(
    rounds: Rounds = 5, idle: Annotated[int, typer.Option(min=1, help="idle logs")] = 1000,
    watch_s: Annotated[float, typer.Option(min=1.0, help="seconds for which each group of logs is busy")] = 1.0,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write-ahead logs that share their threads, beside logs with a thread each: 1, 8 and 64 busy ones, and idle ones.

    It runs in this process, on files in the folder for temporary ones, and needs no cluster.
    """
    _measure(["logs"], replace(_options(True, "", rounds, ""), tablets=idle, watch_s=watch_s), as_json)


@app.command()
def plan(
    replicas: Annotated[str, typer.Option(help="numbers of replicas one after the other, with slopes")] = "100000",
    tables: Annotated[int, typer.Option(help="their tables")] = 300,
    servers: Annotated[int, typer.Option(help="servers, in three racks")] = 1000,
    moves_max: Annotated[int, typer.Option(help="moves of replicas, and of leaders, in a plan")] = 1000,
    rounds: Rounds = 1, as_json: Json = False,
) -> None:  # fmt: skip
    """A rebalance plan by Spark's tasks, of made reports: seconds, memory, moves, and the lower bounds of moves.

    It needs no cluster and no Kafka. A tenth of the servers is new and empty.
    """
    try:
        size = sizes.PlanSize(
            tables=tables, servers=servers, moves_max=moves_max, curve=tuple(map(int, replicas.split(",")))
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _measure(["plan"], replace(_options(True, "", rounds, ""), plan=size), as_json)


@app.command("all")
def everything(
    local: Local = False, rounds: Rounds = 5, rows: Rows = sizes.ROWS, writes: Writes = sizes.WRITES,
    mb: Mb = sizes.COPY_MB, per_batch: PerBatch = sizes.ROWS_PER_BATCH, peer: Peer = "", as_json: Json = False,
) -> None:  # fmt: skip
    """Every benchmark, one after the other, each on a fresh stack."""
    _need_local(local)
    options = _options(local, "", rounds, peer)
    from nyala.infra.bench import suite

    _measure(suite.NAMES, replace(options, rows=rows, writes=writes, mb=mb, rows_per_batch=per_batch), as_json)


def _need_local(local: bool) -> None:
    if not local:
        raise typer.BadParameter("it kills or adds servers, so it only runs on a stack of its own: say --local")
