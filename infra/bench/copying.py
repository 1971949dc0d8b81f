"""Tablet copy, measured: one replica moves to a server that has just joined."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from nyala.replica import tools
from nyala.replica.base import limits
from nyala.replica.client import TableHandle
from nyala.replica.rpc import pb

from .failed import BenchFailed
from .foreground import Foreground, p99_ms
from .meter import Meter
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
"""Copies yield to writes that are less than a second old."""
ALONE_S = 6.0
FIRST_KEY, KEYS_PER_ROUND = 1 << 30, 1 << 20
"""Keys of the rows that are written beside copies: above those of the table that is copied, and 32 bits wide."""
_DOWNLOADING = ("WAITING", "BEGIN", "COPY.1", "COPY.2", "COPY.3", "COPY.4")


def rows_for(mb: int) -> int:
    """Rows that fill each of TABLETS tablets with `mb` MB of values; even, so that two clients share them."""
    return 2 * (-(-mb * 1_000_000 * TABLETS // (2 * ROW_BYTES)))


@dataclass
class Mover:
    """Moves one replica of the first tablet from round to round: always to a server that never held anything."""

    target: Target
    handle: TableHandle
    last: str = ""
    """Name of the server that joined for the round before."""

    def round(self, number: int) -> Figures:
        """A move while nobody writes, at full speed; then one beside one-row writes, which are also measured alone."""
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
            "move_beside_writes_s": beside["move_s"],
            "write_alone_p99_ms": p99_alone,
            "write_beside_copy_p99_ms": p99_beside,
            "write_beside_copy_p99_ratio": p99_beside / p99_alone,
        }

    def _move(self) -> Figures:
        """Add a server, move a replica there, take away the server it came from if that one had joined for this."""
        stack, client = self.target.own, self.target.client
        tablet_id = self.handle.tablets[0].tablet_id
        source = self._uuid(self.last) if self.last else self._a_follower(tablet_id)
        name = stack.add_server()
        uuid = self._uuid(name)
        server = self._wait_joined(uuid)
        meter = Meter(self.target.pids())
        began = time.monotonic()
        client.move_replica(tablet_id, source, uuid, reason="nyala bench copy")
        job, download_s = self._watch(tablet_id, source, server)
        move_s = time.monotonic() - began
        used = {n: v for n, v in meter.figures("copy", 1).items() if "memory" in n and "@" not in n}
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
            **used,
        }

    def _uuid(self, name: str) -> str:
        return str(self.target.own.children[name].ready["uuid"])

    def _a_follower(self, tablet_id: str) -> str:
        replicas = self.target.replicas(self.handle)
        found = [u for u, some in replicas.items() for r in some if r.tablet_id == tablet_id and r.role == "FOLLOWER"]
        if not found:
            raise BenchFailed(f"tablet {tablet_id} has no follower to move")
        return sorted(found)[0]

    def _wait_joined(self, uuid: str) -> pb.ServerInfo:
        deadline = time.monotonic() + JOIN_WAIT_S
        while True:
            for server in self.target.servers():
                if server.uuid == uuid:
                    return server
            if time.monotonic() > deadline:
                raise BenchFailed(f"the new server {uuid} did not register in {JOIN_WAIT_S:.0f} s")
            time.sleep(0.1)

    def _watch(self, tablet_id: str, source: str, server: pb.ServerInfo) -> tuple[pb.CopyJob, float]:
        """(the copy job, seconds of its download) once the leader's committed config has the new member for the old.

        The download lasts from the job's start, by the server's clock, to the first look at which it is over.
        """
        deadline, next_leader_look = time.monotonic() + MOVE_WAIT_S, 0.0
        job, download_s = None, 0.0
        while True:
            if not download_s:
                jobs = self.target.client.list_copies(server)
                job = next((j for j in jobs if j.tablet_id == tablet_id and j.phase != "SERVING"), None)
                if job is not None and job.phase not in (*_DOWNLOADING, "FAILED"):
                    download_s = time.time() - job.started_us / 1e6
            elif job is not None and time.monotonic() >= next_leader_look:
                if tools.has_moved(self.target.client, tablet_id, source, server.uuid):
                    return job, download_s
                next_leader_look = time.monotonic() + LEADER_LOOK_S
            if time.monotonic() > deadline:
                seen = f"copy job: {job.phase} {job.error}".rstrip() if job is not None else "no copy job"
                raise BenchFailed(f"the move is not done after {MOVE_WAIT_S:.0f} s ({seen})")
            time.sleep(LOOK_S)
