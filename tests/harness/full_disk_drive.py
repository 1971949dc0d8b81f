"""Three servers, the leader's on a small disk of its own that fills up, is emptied, and meanwhile loses its process.

Run by `tests.harness.netns.contained`: `python -m tests.harness.full_disk_drive FILE`. It writes the results to FILE.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nyala.replica.types import Code
from tests.harness.cluster import LocalCluster, local_cluster, wait_until
from tests.harness.one_tablet import TABLET, create, lead, wait_equal, write
from tests.harness.rows import batch, write_request

DISK_BYTES = 24 << 20
FILLER_BYTES = 12 << 20
"""The bytes that are removed in the end: fewer than the next segment of the log would reserve."""
ROWS, ROW_BYTES = 40, 5_000
ROWS_MIN = 1000
"""The number of rows for which there certainly is room."""
WRITES_MAX = 200
"""Far more writes than the disk has room for."""


def fill(cluster: LocalCluster) -> tuple[int, list[str]]:
    """Write at the server with the small disk until it accepts no more; returns (rows acknowledged, codes of
    refusals)."""
    small, rows, refusals = cluster.servers[0], 0, []
    for _ in range(WRITES_MAX):
        keys = list(range(rows, rows + ROWS))
        request = write_request(small.uuid, TABLET, batch(keys, ["x" * ROW_BYTES] * ROWS))
        reply = small.tablets.Write(request, timeout=30)
        if not reply.error.code:
            rows += ROWS
            continue
        if reply.error.code == Code.NOT_READY:
            continue  # it was just elected
        refusals.append(Code(reply.error.code).name)
        if reply.error.outcome_unknown:
            break
        status = cluster.status(small, TABLET)
        if status is not None and status.role != "LEADER":
            if rows > ROWS_MIN:
                break
            lead(cluster, small)  # it was deposed, and has room
    return rows, refusals


def drive(cluster: LocalCluster, disk: Path) -> dict[str, Any]:
    filler = disk / "filler"
    filler.write_bytes(bytes(FILLER_BYTES))
    create(cluster)
    small = cluster.servers[0]
    lead(cluster, small)
    rows, refusals = fill(cluster)
    process, others = small.process, cluster.servers[1:]

    def led_elsewhere() -> bool:
        return any(s is not None and s.role == "LEADER" for s in (cluster.status(o, TABLET) for o in others))

    wait_until(led_elsewhere, "a server with room leads")
    write(cluster, rows, ROWS, size=ROW_BYTES)
    alive = small.alive and small.process is process
    small.kill()
    write(cluster, rows + ROWS, ROWS, size=ROW_BYTES)
    small.start()
    started = cluster.status(small, TABLET) is not None
    time = write(cluster, rows + 2 * ROWS, ROWS, size=ROW_BYTES)
    filler.unlink()
    found = wait_equal(cluster.servers, time)
    return {
        "acknowledged": rows,
        "refusals": refusals,
        "alive": alive,
        "started": started,
        "rows": found[1],
        "expected": rows + 3 * ROWS,
    }


def main(out: Path) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with local_cluster() as cluster:
        disk = cluster.folder / "ts1"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], check=True)
        for _ in range(3):
            cluster.add_server(start=False)
        for server in cluster.servers:
            server.start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        out.write_text(json.dumps(drive(cluster, disk)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
