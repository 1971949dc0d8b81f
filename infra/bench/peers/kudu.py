"""A real Apache Kudu cluster on loopback, to measure against: the same work, the same machine, the same run.

Needs Maven (which fetches the published binaries) and unzip. `KuduMissing` says in one line what is missing. Figures
are never taken from an earlier run. WAL appends are synced, like ours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from nyala.infra.local.parent_death import ended_with_parent

VERSION = "1.18.1"
MASTER_PORT = 17051
SERVER_PORT = 17150
WEB_PORT = 18050
REPLICAS = 3
START_WAIT_S = 60.0
TOOL_WAIT_S = 900.0
HEALTHY_WAIT_S = 120.0
FAILOVER_RUNS_MAX = 4
COMMON = [
    "--unlock_experimental_flags", "--unlock_unsafe_flags", "--rpc_authentication=disabled",
    "--rpc_encryption=disabled", "--time_source=system_unsync", "--log_force_fsync_all=true", "--superuser_acl=*",
]  # fmt: skip


class KuduMissing(RuntimeError):
    """Kudu cannot run here; the text says in one line what is missing."""


def binaries(cache: Path) -> Path:
    """The folder of the unpacked release, fetched on first use; KuduMissing without Maven, unzip or network."""
    home = cache / f"kudu-binary-{VERSION}-linux-x86_64"
    if (home / "bin" / "kudu").exists():
        return home
    for tool in ("mvn", "unzip"):
        if shutil.which(tool) is None:
            raise KuduMissing(f"no Kudu figures: `{tool}` is not on the PATH")
    cache.mkdir(parents=True, exist_ok=True)
    artifact = f"org.apache.kudu:kudu-binary:{VERSION}:jar:linux-x86_64"
    copy = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cache}"]
    fetched = subprocess.run(["mvn", "-q", "-B", *copy], capture_output=True, text=True, check=False)
    if fetched.returncode:
        raise KuduMissing(f"no Kudu figures: Maven could not fetch {artifact}: {fetched.stdout.strip()[:200]}")
    jar = cache / f"kudu-binary-{VERSION}-linux-x86_64.jar"
    subprocess.run(["unzip", "-qo", str(jar), "-d", str(cache)], check=True)
    for program in (home / "bin").iterdir():
        program.chmod(0o755)
    jar.unlink()
    return home


@dataclass
class KuduCluster:
    """One master and tablet servers. Use as a context manager; everything under `folder` is removed at the end."""

    home: Path
    folder: Path
    servers: int = 3
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _trickles: int = 0

    @property
    def master(self) -> str:
        """host:port of the master."""
        return f"127.0.0.1:{MASTER_PORT}"

    @property
    def _env(self) -> dict[str, str]:
        # The bundled Kerberos and SASL libraries must win over the system's.
        lib = str(self.home / "lib")
        return {**os.environ, "LD_LIBRARY_PATH": lib, "SASL_PATH": f"{lib}/sasl2"}

    def __enter__(self) -> KuduCluster:
        for port in (MASTER_PORT, *(SERVER_PORT + number for number in range(1, self.servers + 1))):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    raise KuduMissing(f"no Kudu figures: port {port} is taken, perhaps by a Kudu that runs already")
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self._launch("m", "kudu-master", f"--rpc_bind_addresses={self.master}", f"--webserver_port={WEB_PORT}")
            for number in range(1, self.servers + 1):
                self.start_server(number)
            self.wait_registered(self.servers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_registered(self, servers: int) -> None:
        """Return when that many tablet servers have registered with the master; KuduMissing if they do not."""
        deadline = time.monotonic() + START_WAIT_S
        while len(self.server_uuids()) < servers:
            dead = [name for name, process in self.processes.items() if name == "m" and process.poll() is not None]
            if dead or time.monotonic() > deadline:
                said = (self.folder / "m.out").read_text(errors="replace").strip().splitlines()[-1:] if dead else []
                why = f"its master ended: {' '.join(said)[:200]}" if dead else f"not up in {START_WAIT_S:.0f} s"
                raise KuduMissing(f"no Kudu figures: {why}")
            time.sleep(0.25)

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _launch(self, name: str, program: str, *flags: str) -> None:
        root = self.folder / name
        logs = self.folder / f"{name}-log"
        root.mkdir(parents=True, exist_ok=True)
        logs.mkdir(exist_ok=True)
        places = [f"--fs_wal_dir={root}", f"--fs_data_dirs={root}", f"--log_dir={logs}"]
        with (self.folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                ended_with_parent(
                    [
                        str(self.home / "bin" / program),
                        *places,
                        *COMMON,
                        f"--webserver_doc_root={self.home}/www",
                        *flags,
                    ]
                ),
                env=self._env,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def start_server(self, number: int) -> None:
        """Start tablet server `number`, for the first time or again."""
        self._launch(
            f"t{number}", "kudu-tserver", f"--rpc_bind_addresses=127.0.0.1:{SERVER_PORT + number}",
            f"--webserver_port={WEB_PORT + 100 + number}", f"--tserver_master_addrs={self.master}",
        )  # fmt: skip

    def kill_server(self, number: int) -> None:
        """kill -9."""
        self.processes[f"t{number}"].send_signal(signal.SIGKILL)
        self.processes[f"t{number}"].wait()

    def cli(self, *arguments: str, check: bool = True) -> str:
        """The output of the `kudu` tool."""
        command = [str(self.home / "bin" / "kudu"), *arguments]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False, timeout=TOOL_WAIT_S)
        if check and done.returncode:
            raise RuntimeError(f"kudu {' '.join(arguments[:3])} failed: {done.stderr.strip()[-400:]}")
        return done.stdout

    def start_cli(self, *arguments: str) -> subprocess.Popen[str]:
        """The `kudu` tool as a running process."""
        command = [str(self.home / "bin" / "kudu"), *arguments]
        return subprocess.Popen(
            ended_with_parent(command),
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def server_uuids(self) -> dict[int, str]:
        """Tablet server number -> uuid, of the registered ones."""
        listing = self.cli("tserver", "list", self.master, "-format=csv", "-columns=uuid,rpc-addresses", check=False)
        found = re.findall(rf"^(\w{{32}}),127\.0\.0\.1:{SERVER_PORT // 100}(\d\d)$", listing, re.MULTILINE)
        return {int(port) - SERVER_PORT % 100: uuid for uuid, port in found}

    def pids(self) -> dict[str, int]:
        """The process ids of all running processes, under the same names as in our own stack."""
        alive = {name: p.pid for name, p in self.processes.items() if p.poll() is None}
        return {"master-1" if name == "m" else f"server-{name[1:]}": pid for name, pid in alive.items()}

    def wait_healthy(self) -> None:
        """Return when `kudu cluster ksck` finds nothing wrong."""
        deadline = time.monotonic() + HEALTHY_WAIT_S
        while "\nOK\n" not in self.cli("cluster", "ksck", self.master, check=False):
            if time.monotonic() > deadline:
                raise RuntimeError(f"kudu cluster ksck still finds faults after {HEALTHY_WAIT_S:.0f} s")
            time.sleep(0.5)

    def tablets(self, table: str) -> dict[str, list[tuple[bool, int]]]:
        """Tablet id -> (leads, server number) of its replicas."""
        return tablets_listed(self.cli("table", "list", self.master, "--list_tablets"), table)

    # ------------------------------------------------------------------------------------------------- the work

    def create_table(self, name: str, tablets: int, replicas: int = REPLICAS) -> None:
        """key int64, int_val int32, string_val string; hash-partitioned by key; each tablet led before it returns."""
        columns = [
            {"column_name": "key", "column_type": "INT64", "is_nullable": False},
            {"column_name": "int_val", "column_type": "INT32"},
            {"column_name": "string_val", "column_type": "STRING"},
        ]
        hashing = {"hash_partitions": [{"columns": ["key"], "num_buckets": tablets}]}
        request = {
            "table_name": name,
            "schema": {"columns": columns, "key_column_names": ["key"]},
            "partition": hashing,
            "num_replicas": replicas,
        }
        self.cli("table", "create", self.master, json.dumps(request))
        deadline = time.monotonic() + HEALTHY_WAIT_S
        while not all(any(leads for leads, _ in some) for some in self.tablets(name).values()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"Kudu table {name} has no leaders after {HEALTHY_WAIT_S:.0f} s")
            time.sleep(0.1)

    def delete_table(self, name: str) -> None:
        """Drop a table."""
        self.cli("table", "delete", self.master, name)

    def load(self, table: str, rows: int, *, clients: int = 2, string_bytes: int = 32, upsert: bool = False) -> float:
        """Seconds that `clients` processes need for `rows` rows in all: sequential inserts, or random upserts.

        The slower process counts, by the tool's own clock, so that its start does not count.
        """
        each = rows // clients
        mode = ["--use_random", "--use_upsert"] if upsert else []
        running = [
            self.start_cli(*self._loadgen(table, each, pos * each, string_bytes=string_bytes), *mode)
            for pos in range(clients)
        ]
        outputs = [_output(process) for process in running]
        if any(process.returncode for process in running):
            raise RuntimeError(f"kudu perf loadgen ended with {[process.returncode for process in running]}")
        return max(_seconds_printed(text) for text in outputs)

    def single_writes(self, table: str, writes: int, clients: int, *, first: int = 0, buffers: int) -> float:
        """Seconds for `writes` one-row writes by `clients` threads, as the tool itself times them.

        The tool flushes after each row without waiting (the first two rows go together), and waits for a free buffer
        before the next one. So at most `buffers` writes of a thread are under way; the default is two.
        """
        command = self._loadgen(table, writes // clients, first, threads=clients)
        return _seconds_printed(self.cli(*command, "--flush_per_n_rows=1", f"--buffers_num={buffers}"))

    def scan(self, table: str) -> tuple[int, float]:
        """(rows, seconds) of a scan of three columns by two threads."""
        out = self.cli("perf", "table_scan", self.master, table, "--num_threads=2", "--columns=key,int_val,string_val")
        rows = re.search(r"Total count (\d+) cost ([\d.]+) seconds", out)
        if not rows:
            raise RuntimeError(f"kudu perf table_scan printed no count: {out[-200:]}")
        return int(rows[1]), float(rows[2])

    def copy(self, tablet: str, source: int, target: int) -> dict[str, float]:
        """Move one replica from server `source` to `target`: bytes, seconds of the download and of the move."""
        uuids = self.server_uuids()
        before = folder_bytes(self.folder / f"t{target}")
        started = time.monotonic()
        self.cli("tablet", "change_config", "move_replica", self.master, tablet, uuids[source], uuids[target])
        moved = time.monotonic() - started
        copied = folder_bytes(self.folder / f"t{target}") - before
        stamps = [
            3600 * int(m[1]) + 60 * int(m[2]) + float(m[3])
            for log in (self.folder / f"t{target}-log").glob("*INFO*")
            for line in log.read_text(errors="replace").splitlines()
            if tablet in line
            and "tablet copy" in line.lower()
            and (m := re.match(r"I\d+ (\d+):(\d+):(\d+\.\d+)", line))
        ]
        download = max(stamps) - min(stamps) if len(stamps) > 1 else moved
        return {"bytes": copied, "download_s": download, "move_s": moved}

    def failover(self, table: str, writes: int) -> tuple[float, int]:
        """(seconds that `writes` one-row writes take longer when a tablet's leader is killed -9 half-way, failures).

        Two replicas are written faster than three on one machine, so the second half is compared with a separate run
        without the server. A failure is a run that the tool gave up because of the kill. It then prints no time, and
        another run is made.
        """
        for failures in range(FAILOVER_RUNS_MAX):
            calm_s = _seconds_printed(_output(self._trickle(table, writes)))
            leader = next(n for replicas in self.tablets(table).values() for leads, n in replicas if leads)
            writer = self._trickle(table, writes)
            try:
                time.sleep(calm_s / 2)
                self.kill_server(leader)
                text = _output(writer)
            finally:
                writer.kill()
                writer.wait()
            two_left_s = _seconds_printed(_output(self._trickle(table, writes)))
            self.start_server(leader)
            self.wait_healthy()
            if not writer.returncode:
                return _seconds_printed(text) - (calm_s + two_left_s) / 2, failures
        raise RuntimeError(f"kudu perf loadgen gave up in each of {FAILOVER_RUNS_MAX} runs: {text[-200:]}")

    def _trickle(self, table: str, writes: int) -> subprocess.Popen[str]:
        self._trickles += 1  # each run inserts its own keys
        return self.start_cli(*self._loadgen(table, writes, self._trickles * writes), "--flush_per_n_rows=1")

    def _loadgen(self, table: str, rows: int, first: int, *, threads: int = 1, string_bytes: int = 32) -> list[str]:
        """Arguments of the tool that writes `rows` rows by each thread, with keys from `first` on."""
        return [
            "perf", "loadgen", self.master, f"--table_name={table}", f"--num_threads={threads}", "--run_scan=false",
            f"--num_rows_per_thread={rows}", f"--seq_start={first}", f"--string_len={string_bytes}",
        ]  # fmt: skip


def tablets_listed(text: str, table: str) -> dict[str, list[tuple[bool, int]]]:
    """From `kudu table list --list_tablets`: tablet id -> (leads, server number) of the table's replicas."""
    found: dict[str, list[tuple[bool, int]]] = {}
    here, tablet = False, ""
    for line in text.splitlines():
        words = line.split()
        if not line.startswith(" ") and words:
            here = words[0] == table
        elif here and words[:1] == ["T"]:
            tablet = words[1]
            found[tablet] = []
        elif here and len(words) == 3 and words[0] in ("L", "V", "N"):
            found[tablet].append((words[0] == "L", int(words[2].rpartition(":")[2]) - SERVER_PORT))
    return found


def _output(process: subprocess.Popen[str]) -> str:
    """The output of a process until it ends; it is killed if it takes too long."""
    try:
        return process.communicate(timeout=TOOL_WAIT_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RuntimeError(f"a Kudu tool did not end in {TOOL_WAIT_S:.0f} s") from None


def _seconds_printed(text: str) -> float:
    found = re.search(r"time total\s*:\s*([\d.]+)\s*ms", text)
    if not found:
        raise RuntimeError(f"kudu perf loadgen printed no total: {text[-200:]}")
    return float(found[1]) / 1000


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) if folder.exists() else 0
