"""A server whose directory becomes read-only, and a master whose disk is full; each is healed while all others serve.

Run by `tests.harness.netns.contained`: `python -m tests.harness.host_disk_drive STORY FILE`. The facts go to FILE.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nyala
from nyala.replica.types import Code, Refused
from tests.harness.cluster import LocalCluster, local_cluster, wait_until
from tests.harness.one_tablet import create, lead, wait_equal, write

ROWS, ROW_BYTES = 100, 10_000
BATCHES = 12
"""Batches of a megabyte each: more than the segments that a log has open or made ready."""
MASTER_DISK_BYTES = 8 << 20
MASTER_ROOM_BYTES = 400 << 10
TABLES_MAX = 100
"""More tables than there is room for: each has 40 KB in the log."""
WIDE_COLUMNS = 250


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make the folder as a kernel leaves it after an error of its file system: nothing can be made, renamed or opened
    to write.

    Files that are open stay writable: the kernel does not make a mount read-only that has such files, and a second
    mount over the first one does not change them.
    """
    mount("--bind", str(folder), str(folder))
    mount("-o", "remount,bind,ro", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def story_of_read_only_server(cluster: LocalCluster) -> dict[str, Any]:
    for _ in range(3):
        cluster.add_server(start=False)
    for server in cluster.servers:
        server.start(wait=False)
    for server in cluster.servers:
        server.wait_ready()
    create(cluster)
    ill = cluster.servers[0]
    lead(cluster, ill)
    write(cluster, 0, ROWS)
    with read_only(ill.root):
        for number in range(1, BATCHES + 1):
            write(cluster, number * ROWS, ROWS, size=ROW_BYTES)
        code = ill.wait_exit()
        log = ill.log_path.read_text()
        at_start = ill.fails()
        write(cluster, (BATCHES + 1) * ROWS, ROWS)
    ill.start()
    at = write(cluster, (BATCHES + 2) * ROWS, ROWS)
    rows = wait_equal(cluster.servers, at)[1]
    lead(cluster, ill)
    return {"code": code, "log": log, "at_start": at_start, "rows": rows, "expected": (BATCHES + 3) * ROWS}


def story_of_full_master(cluster: LocalCluster) -> dict[str, Any]:
    master = cluster.add_master(start=False)
    master.root.mkdir()
    mount("-t", "tmpfs", "-o", f"size={MASTER_DISK_BYTES}", "tmpfs", str(master.root))
    master.start()
    for _ in range(3):
        cluster.add_server()
    columns = {"k": "int64"} | {f"column_with_a_long_name_{n:0100d}": "string" for n in range(WIDE_COLUMNS)}
    with nyala.connect(master.address) as client:
        alive = lambda: sum(s.alive for s in client.client.list_servers().servers) == 3  # noqa: E731
        wait_until(alive, "the master counts all servers")
        table = client.create_table("before", {"k": "int64", "v": "string"}, key="k")
        table.insert({"k": 1, "v": "a"})
        filler = master.root / "filler"
        filler.write_bytes(bytes(room(master.root) - MASTER_ROOM_BYTES))
        refusal, made = "", []
        while not refusal:
            assert len(made) < TABLES_MAX, "the disk has room for fewer"
            try:
                made.append(client.create_table(f"t{len(made)}", columns, key="k", if_not_exists=True).name)
            except Refused as error:
                # On a machine that stops for a moment a server may count as dead: the step is repeated then.
                assert error.code in (Code.NO_SPACE, Code.TIMED_OUT, Code.INVALID_ARGUMENT), error
                refusal = str(error) if error.code is Code.NO_SPACE else ""
        still = master.alive
        table.upsert({"k": 2, "v": "while it was full"})
        served = sorted(table.scan().to_arrow()["k"].to_pylist())
        listed = client.tables()
        wait_until(alive, "the full master counts all servers")
        master.kill()
        table.upsert({"k": 3, "v": "while it was away"})
        fill(filler)
        started = master.start().alive
        assert room(master.root) == 0, "it votes without one free page"
        table.upsert({"k": 4, "v": "while it leads without room"})
        filler.unlink()
        wait_until(lambda: _made(client, "after", columns), "with room, a table can be made")
        return {
            "refusal": refusal,
            "made": made,
            "listed": listed,
            "served": served,
            "log": master.log_path.read_text(),
            "started": still and started,
            "after": client.tables(),
            "rows": sorted(table.scan().to_arrow()["k"].to_pylist()),
        }


def _made(client: nyala.Cluster, name: str, columns: dict[str, str]) -> bool:
    return client.create_table(name, columns, key="k", if_not_exists=True).name == name


def fill(filler: Path) -> None:
    """Make the file longer until its file system has not one free page."""
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert room(filler.parent) == 0, room(filler.parent)


def room(folder: Path) -> int:
    """Return the free bytes of the file system."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


STORIES = {"read-only-server": story_of_read_only_server, "full-master": story_of_full_master}


def main(story: str, out: Path) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with local_cluster() as cluster:
        out.write_text(json.dumps(STORIES[story](cluster)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
