"""Disks that fail with EIO, and disks that put a write in the wrong place; which server may be hurt, and when.

A disk that only fails harms no replica if the process ends at once. One that loses durable data harms its replica; such
faults fall on one server at a time, while the others are a sound majority. Whatever is wrong in a history then is the
product's fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.harness.sim_disk import SECTOR_BYTES

if TYPE_CHECKING:
    from tests.harness.sim_cluster import SimCluster, SimNode

WALS, METAS, DATA = "wals/*", ("consensus-meta/*", "tablet-meta/*"), "data/*"
HARMLESS = (
    *(("datasync", WALS), ("datasync", WALS), ("sync", WALS), ("pread", WALS)),
    *(("replace", METAS[0]), ("replace", METAS[1]), ("read", METAS[0]), ("sync_dir", "*-meta")),
)
"""After EIO of these the process ends, and the next one finds all that was promised."""
HARMFUL = (("pwrite", WALS), ("pwrite", DATA), ("sync", DATA), ("pread", DATA))
"""After EIO of these the replica may abstain, or fail."""
MARKS = {
    "EIO of a read": ("pread", "read"),
    "EIO of a write": ("pwrite", "replace"),
    "EIO of a sync": ("datasync", "sync", "sync_dir"),
}
"""Mark -> the calls of the disk that are counted under it."""


def sound(cluster: SimCluster, *, but: SimNode | None = None) -> bool:
    """Return whether every known member, except `but`, is a voter with a whole replica, and they are three."""
    configs = [config for r in cluster.replicas for config in (r.committed_config, r.active_config)]
    leader = cluster.leader()
    if leader is None or len(leader.committed_config.voters) < 3:
        return False
    for uuid in {m.uuid for config in configs for m in config.members if but is None or m.uuid != but.uuid}:
        node = cluster.nodes.get(uuid)
        if node is None or not node.whole or node.may_abstain or leader.committed_config.member(uuid) is None:
            return False
    return not (cluster.replacing and but is not None) and all(
        not n.hurt and not n.failed for n in cluster.nodes.values() if n is not but
    )


def fail(cluster: SimCluster) -> None:
    """Let one call of one server's disk end in EIO."""
    rng = cluster.world.rng
    node = rng.choice(list(cluster.nodes.values()))
    harmful = rng.random() < 0.3
    if harmful:
        if not node.up or not node.whole or not sound(cluster, but=node):
            return
        node.hurt = True
    operation, pattern = rng.choice(HARMFUL if harmful else HARMLESS)
    node.disk.fail_on(operation, pattern, skip=rng.randint(0, 2))


def stray(cluster: SimCluster) -> None:
    """Let one write of one server's disk land somewhere else: in the same file, or, of a whole small file, in another.

    The log's writes stray within their segment, so that something durable is hit. A write that lands at a place that is
    never read is a write that never happened, under a sync that reported success: for the last group commit no log can
    know that.
    """
    rng = cluster.world.rng
    node = rng.choice(list(cluster.nodes.values()))
    if not node.up or not node.whole or not sound(cluster, but=node):
        return
    node.hurt = True
    room = rng.choice(("wals/", "wals/", "data/", "consensus-meta/", "tablet-meta/"))

    def taken(path: str, byte_offset: int, data: bytes) -> bool:
        if not path.startswith(room) or not data:
            return False
        within = _within(node, path, byte_offset, data) if room in ("wals/", "data/") else _elsewhere(node, path)
        if not within:
            return False
        node.disk.stray = None
        node.struck += 1
        node.disk.strike(*rng.choice(within), data)
        cluster.marks["misplaced write"] += 1
        return True

    node.disk.stray = taken


def _within(node: SimNode, path: str, byte_offset: int, data: bytes) -> list[tuple[str, int]]:
    """Return places in the same file, whole sectors away; in a log, among what is written, because nothing is read
    after its end."""
    size, step = node.disk.files.get(path, 0), SECTOR_BYTES
    end = byte_offset if path.startswith("wals/") else max(size - len(data), 0) + 1
    places = range(byte_offset % step, end, step)
    return [(path, place) for place in places if place != byte_offset]


def _elsewhere(node: SimNode, path: str) -> list[tuple[str, int]]:
    """Return the beginnings of all sectors of other files that are in use."""
    rooms = ("wals/", "data/", "consensus-meta/", "tablet-meta/")
    files = {name: size for name, size in node.disk.files.items() if name.startswith(rooms) and name != path}
    return [(name, start) for name, size in files.items() for start in range(0, size, SECTOR_BYTES)]


def count(cluster: SimCluster) -> None:
    """Count the faults of the disks, as marks."""
    for mark, operations in MARKS.items():
        fired = [n.disk.fired[operation, "EIO"] for n in cluster.everybody for operation in operations]
        cluster.marks[mark] += sum(fired)
