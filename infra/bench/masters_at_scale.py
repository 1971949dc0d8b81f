"""Measures one real master that knows many tablets on many played servers: CPU, memory, look-ups, reports, decisions.

The catalog is written into the directory of a stopped master, as though its tables had been created long ago.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from nyala.infra.local.children import end_process, python_module
from nyala.infra.local.kafka import KafkaBroker, KafkaFailed
from nyala.replica.client import parse_masters
from nyala.replica.client.channels import Channels
from nyala.replica.client.paging import pages_of
from nyala.replica.consensus_metadata import members_json
from nyala.replica.fs import RealDisk
from nyala.replica.rows import PartitionSpec, TableDescription
from nyala.replica.rpc import description_to_json, pb, pb_grpc
from nyala.replica.tablet import Superblock
from nyala.replica.types import Address

from . import work
from .meter import process_figures, resident_mb
from .options import BenchmarkError, ScaleOptions
from .played_servers import HOST, config_of, members_of, tablet_id_of
from .players import PROBE_S, Players
from .report import Figures, percentile_ms
from .reports_watch import ReportsWatch

CATALOG = "0" * 32
SMALL_TABLETS, LARGE_TABLETS = 4, 1000
"""The tablets of the first table, and of each other one."""
LOOKUPS_S = 5.0
"""The seconds of look-ups of each size of table."""
WAIT_S = 900.0
STOP_S = 30.0

Note = Callable[[str], None]


def masters_at_scale_round(options: ScaleOptions, note: Note) -> Figures:
    """A master at rest under heartbeats, under look-ups, after a restart, and when a server falls silent."""
    with (
        tempfile.TemporaryDirectory(prefix="nyala-bench-scale-") as folder,
        ExitStack() as stack,
        Players(options.servers, options.tablets, options.replicas, options.beat_ms) as players,
    ):
        note(f"{options.servers:,} servers are played")
        with _master(Path(folder), options) as (_, _, stub):
            cluster_id = str(stub.GetIdentity(pb.Empty(), timeout=WAIT_S).cluster_id)
        _write_catalog(Path(folder) / "master", options, players.addresses)
        note(f"the catalog has {options.tablets:,} tablets")
        figures: Figures = {
            "scale_servers": options.servers, "scale_tablets": options.tablets, "scale_beat_ms": options.beat_ms,
        }  # fmt: skip
        kafka = ""
        if options.kafka:
            note("a broker is started")
            try:
                kafka = stack.enter_context(KafkaBroker(Path(folder) / "kafka")).bootstrap
            except KafkaFailed as error:
                raise BenchmarkError(str(error)) from error
        began = time.monotonic()
        with _master(Path(folder), options, kafka) as (process, address, stub), players.beside(process):
            figures["scale_start_s"] = time.monotonic() - began
            watch = None
            if kafka:
                cpu_s = partial(_cpu_s, process.pid)
                watch = stack.enter_context(ReportsWatch(kafka, options.servers, options.tablets, cpu_s))
            began, began_wall_s = time.monotonic(), time.time()
            players.tell(beat=address, cluster=cluster_id)
            players.hear_all("known")
            figures["scale_known_s"] = time.monotonic() - began
            if watch is not None:
                note("the master knows all, and publishes reports")
                watch.wait_whole(WAIT_S)
                figures |= watch.figures(began_wall_s)
            note("the master knows all; at rest")
            figures |= _at_rest(process.pid, stub, players, options)
            rest = figures["scale_rest_cpu_percent"] / 100
            for size, name in (("small", _name(0)), ("large", _name(1))):
                note(f"look-ups of a {size} table")
                figures |= _lookups(process.pid, stub, size, name, rest)
            figures["scale_memory_mb"] = resident_mb(process.pid)
            figures |= watch.ages() if watch is not None else {}
            note("a server falls silent")
            figures["scale_decided_s"] = _decided(stub, players, options)
        return figures


def _name(table: int) -> str:
    return f"scale_{table:04}"


def _tables(tablets: int) -> Iterator[tuple[int, range]]:
    """(number of a table, its tablets)."""
    yield 0, range(min(SMALL_TABLETS, tablets))
    for table, first in enumerate(range(SMALL_TABLETS, tablets, LARGE_TABLETS), 1):
        yield table, range(first, min(first + LARGE_TABLETS, tablets))


def _write_catalog(root: Path, options: ScaleOptions, addresses: list[Address]) -> None:
    """Put the tables into the catalog of a stopped master, beside what it holds already, such as the cluster's id."""
    disk = RealDisk(str(root))
    superblock = Superblock.load(disk, CATALOG)
    kept = json.loads(superblock.state or b"{}")
    records: dict[str, Any] = kept.get("records", {})
    for table, tablets in _tables(options.tablets):
        table_id = f"{table:032x}"
        described = TableDescription(
            table_id=table_id,
            name=_name(table),
            schema=work.SCHEMA,
            partition=PartitionSpec(("key",), len(tablets)),
            replication_factor=options.replicas,
            history_retention_us=0,
            created_us=0,
        )
        records[f"table/{table_id}"] = description_to_json(described)
        records[f"name/{described.name}"] = {"table_id": table_id}
        for bucket, tablet in enumerate(tablets):
            config = config_of(tablet, options.replicas, addresses)
            members = [{"uuid": m.uuid, "addresses": [str(a) for a in m.addresses]} for m in config.members]
            marks = {"term": config.opid.term, "index": config.opid.index, "decision": [0, 0], "unsafe": False}
            records[f"tablet/{tablet_id_of(tablet)}"] = {
                "table_id": table_id, "bucket": bucket, "range_pos": 0, "members": members, "formed": True,
                "config": marks | {"members": members_json(config)},
            }  # fmt: skip
    superblock.state = json.dumps({"requests": [], **kept, "records": records}).encode()
    superblock.save(disk)


@contextmanager
def _master(
    folder: Path, options: ScaleOptions, kafka: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], str, pb_grpc.MasterServiceStub]]:
    """A master process that leads: (process, its address, a stub)."""
    ready, dead_ms = folder / "ready", max(3_000, 4 * options.beat_ms)
    ready.unlink(missing_ok=True)
    command = python_module(
        "nyala.replica.master", "--root", str(folder / "master"), "--listen", f"{HOST}:0", "--ready-file", str(ready),
        "--execute-decisions", "master", "--server-dead-ms", str(dead_ms), "--rereplicate-after-ms",
        str(options.rereplicate_ms), "--moves-max", "1000000", "--moves-per-server-max", "1000000",
        "--kafka", kafka,
    )  # fmt: skip
    channels = Channels()
    with (folder / "master.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + WAIT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"the master did not start: {_last_line(folder / 'master.log')}")
            time.sleep(0.02)
        address = str(json.loads(ready.read_text())["address"])
        yield process, address, channels.master(parse_masters(address)[0])
    except (BenchmarkError, grpc.RpcError) as error:
        try:
            process.wait(PROBE_S)
        except subprocess.TimeoutExpired:
            raise error from None
        raise BenchmarkError(f"the master has ended: {_last_line(folder / 'master.log')}") from error
    finally:
        channels.close()
        end_process(process, STOP_S)


def _last_line(log: Path) -> str:
    return ([line for line in log.read_text(errors="replace").splitlines() if line] or ["?"])[-1]


def _cpu_s(pid: int) -> float:
    figures = process_figures({"master": pid})
    if not figures:
        raise BenchmarkError("the master has ended")
    return figures["master"][1]


def _at_rest(pid: int, stub: pb_grpc.MasterServiceStub, players: Players, options: ScaleOptions) -> Figures:
    """CPU under heartbeats alone; then the longest call, of a client that looks a small table up every 50 ms."""
    players.tell(tell=True)
    players.hear_all("beats")
    before, began = _cpu_s(pid), time.monotonic()
    time.sleep(options.watch_s)
    cpu, seconds = _cpu_s(pid) - before, time.monotonic() - began
    calls, ends = [], time.monotonic() + options.watch_s
    while (at := time.monotonic()) < ends:
        _look_up(stub, _name(0))
        calls.append(time.monotonic() - at)
        time.sleep(PROBE_S)
    players.tell(tell=True)
    beats = players.hear_all("beats")
    if beats["refused"]:
        raise BenchmarkError(f"{beats['refused']} heartbeats were refused")
    return {
        "scale_rest_cpu_percent": 100 * cpu / seconds,
        "scale_beats_per_s": beats["beats"] / (seconds + options.watch_s),
        "scale_beat_ms_max": beats["beat_ms_max"],
        "scale_call_ms_p99": percentile_ms(calls, 0.99),
        "scale_call_ms_max": 1000 * max(calls),
    }


def _look_up(stub: pb_grpc.MasterServiceStub, name: str) -> int:
    """The tablets of a table, page by page."""
    request = pb.TableRequest(name=name, with_tablets=True)
    pages = pages_of(lambda asked: stub.GetTable(asked, timeout=WAIT_S), request)
    return sum(len(page.tablets) for page in pages)


def _lookups(pid: int, stub: pb_grpc.MasterServiceStub, size: str, name: str, rest: float) -> Figures:
    """The master's CPU for a look-up by one client, without what it uses at rest (`rest`: of a core)."""
    before, began, done = _cpu_s(pid), time.monotonic(), 0
    while time.monotonic() - began < LOOKUPS_S:
        tablets = _look_up(stub, name)
        done += 1
    cpu_s = _cpu_s(pid) - before - rest * (time.monotonic() - began)
    return {
        f"scale_{size}_lookup_tablets": tablets,
        f"scale_{size}_lookup_cpu_us": 1e6 * max(0.0, cpu_s) / done,
        f"scale_{size}_lookups_per_s": done / (time.monotonic() - began),
    }


def _decided(stub: pb_grpc.MasterServiceStub, players: Players, options: ScaleOptions) -> float:
    """Seconds from the end of the re-replication delay until every replica of a silent server has its decision."""
    replicas = sum(0 in members_of(t, options.servers, options.replicas) for t in range(options.tablets))
    sinks = 2 if options.kafka else 1  # each decision counts for the executor, and for the topic
    before = stub.Status(pb.Empty(), timeout=WAIT_S).decisions_published
    players.tell(silence=0)
    began = time.monotonic()
    while stub.Status(pb.Empty(), timeout=WAIT_S).decisions_published < before + sinks * replicas:
        if time.monotonic() - began > WAIT_S:
            raise BenchmarkError(f"not all {replicas} replicas of a lost server have decisions after {WAIT_S:.0f} s")
        time.sleep(PROBE_S)
    return max(0.0, time.monotonic() - began - options.rereplicate_ms / 1000)
