"""Measures a tablet copy: one replica moves to a server that has just joined."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from nyala.replica import tools
from nyala.replica.client import TableHandle
from nyala.replica.rpc import pb
from nyala.replica.types import limits

from .foreground import Foreground, p99_ms
from .meter import Meter, process_figures, resident_mb
from .options import BenchmarkError
from .report import Figures
from .target import Target

STRING_BYTES = 200
ROW_BYTES = STRING_BYTES + 12
TABLETS = 2
MOVE_WAIT_S = 300.0
JOIN_WAIT_S = 30.0
LOOK_S = 0.01
LEADER_LOOK_S = 0.05
QUIET_S = 2.0
"""The seconds to wait after writes, because copies are slower for a second after each."""
ALONE_S = 6.0
FIRST_KEY, KEYS_PER_ROUND = 1 << 30, 1 << 20
"""The keys of the rows that are written beside copies: above those of the copied table, and 32 bits wide."""
_DOWNLOADING = ("WAITING", "BEGIN", "COPY.1", "COPY.2", "COPY.3", "COPY.4")


def rows_for(mb: int, tablets: int = TABLETS) -> int:
    """Rows that fill each tablet with `mb` MB of values; even, so that two clients share them."""
    return 2 * (-(-mb * 1_000_000 * tablets // (2 * ROW_BYTES)))


@dataclass
class Mover:
    """Moves one replica of the first tablet in each round, always to a server that never had data."""

    target: Target
    handle: TableHandle
    last: str = ""
    """The name of the server that joined for the round before."""

    def round(self, number: int) -> Figures:
        """A move without writes, at full speed; then one beside one-row writes, which are also measured alone."""
        time.sleep(QUIET_S)
        quiet = self._move()
        with Foreground(self.target.masters, self.handle.name, FIRST_KEY + number * KEYS_PER_ROUND) as foreground:
            alone = foreground.for_s(ALONE_S)
            began = time.time()
            beside = self._move()
            copying = began, began + beside["move_s"]
        p99_alone, p99_beside = (p99_ms(foreground.writes, *window) for window in (alone, copying))
        return {
            **quiet,
            "copy_beside_writes_cap_mb_per_s": limits.COPY_BUSY_RATE_BYTES_PER_S / 1e6,
            "copy_beside_writes_mb_per_s": beside["copy_mb_per_s"],
            "copy_beside_writes_cap_ratio": beside["copy_mb_per_s"] * 1e6 / limits.COPY_BUSY_RATE_BYTES_PER_S,
            "move_beside_writes_s": beside["move_s"],
            "write_alone_p99_ms": p99_alone,
            "write_beside_copy_p99_ms": p99_beside,
            "write_beside_copy_p99_ratio": p99_beside / p99_alone,
        }

    def _move(self) -> Figures:
        """Add a server, move a replica there, and remove the source server if it had joined for this.

        Memory that a process had freed and kept does not count as growth, because the new server had none.
        """
        stack, client = self.target.own, self.target.client
        tablet_id = self.handle.tablets[0].tablet_id
        source = self._uuid(self.last) if self.last else self._a_follower(tablet_id)
        name = stack.add_server()
        uuid = self._uuid(name)
        server = self._wait_joined(uuid)
        pids = self.target.pids()
        before = {name: resident_mb(pid) for name, pid in pids.items()}
        meter = Meter(pids)
        began = time.monotonic()
        client.move_replica(tablet_id, source, uuid, reason="nyala bench copy")
        job, download_s = self._download(tablet_id, server)
        grown = {name: peak - before[name] for name, (peak, _) in process_figures(pids).items()}
        self._wait_moved(tablet_id, source, server, job)
        move_s = time.monotonic() - began
        used = meter.figures("copy", job.bytes_done // ROW_BYTES)
        if self.last:
            stack.kill_for_good(self.last)
            shutil.rmtree(stack.folder / self.last, ignore_errors=True)
        self.last = name
        megabytes = job.bytes_done / 1e6
        return {
            "copy_mb": megabytes,
            "download_s": download_s,
            "copy_mb_per_s": megabytes / max(download_s, 1e-3),
            "move_s": move_s,
            "copy_target_memory_mb": grown[name],
            "copy_source_memory_mb": grown[self.target.name_of(job.source_uuid)],
            **used,
        }

    def _uuid(self, name: str) -> str:
        return str(self.target.own.children[name].ready["uuid"])

    def _a_follower(self, tablet_id: str) -> str:
        replicas = self.target.replicas(self.handle)
        found = [u for u, some in replicas.items() for r in some if r.tablet_id == tablet_id and r.role == "FOLLOWER"]
        if not found:
            raise BenchmarkError(f"tablet {tablet_id} has no follower to move")
        return sorted(found)[0]

    def _wait_joined(self, uuid: str) -> pb.ServerInfo:
        deadline = time.monotonic() + JOIN_WAIT_S
        while True:
            for server in self.target.servers():
                if server.uuid == uuid:
                    return server
            if time.monotonic() > deadline:
                raise BenchmarkError(f"the new server {uuid} did not register in {JOIN_WAIT_S:.0f} s")
            time.sleep(0.1)

    def _download(self, tablet_id: str, server: pb.ServerInfo) -> tuple[pb.CopyJob, float]:
        """(the copy job, seconds) from its start, by the server's clock, to the first check that finds it complete."""
        deadline, job = time.monotonic() + MOVE_WAIT_S, None
        while True:
            jobs = self.target.client.list_copies(server)
            job = next((j for j in jobs if j.tablet_id == tablet_id and j.phase != "SERVING"), None)
            if job is not None and job.phase not in (*_DOWNLOADING, "FAILED"):
                return job, time.time() - job.started_us / 1e6
            _check_time(deadline, job)
            time.sleep(LOOK_S)

    def _wait_moved(self, tablet_id: str, source: str, server: pb.ServerInfo, job: pb.CopyJob) -> None:
        """Wait until the leader's committed config has the new member instead of the old one."""
        deadline = time.monotonic() + MOVE_WAIT_S
        while not tools.has_moved(self.target.client, tablet_id, source, server.uuid):
            _check_time(deadline, job)
            time.sleep(LEADER_LOOK_S)


def _check_time(deadline: float, job: pb.CopyJob | None) -> None:
    if time.monotonic() > deadline:
        seen = f"copy job: {job.phase} {job.error}".rstrip() if job is not None else "no copy job"
        raise BenchmarkError(f"the move is not done after {MOVE_WAIT_S:.0f} s ({seen})")
