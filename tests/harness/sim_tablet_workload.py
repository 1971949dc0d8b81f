"""Clients of a simulated data tablet: an ingest query, a client with sequence numbers, snapshots; their checks."""

from __future__ import annotations

from random import Random
from typing import Any

from nyala.replica.raft_driver import Replica
from nyala.replica.rows import RowError, RowOp, WriteMeta, crc32c
from nyala.replica.types import Corruption, EntryKind, Refused, RowCode
from tests.harness.sim_cluster import SimCluster
from tests.harness.sim_ingest import COLUMNS, Ingest, Record, payload_of
from tests.harness.sim_workload import Swarm, Workload

CLIENT_KEYS = 1 << 50
PENDING_MAX = 12


class TabletWorkload(Workload):
    """Writes rows that the tablet's own code checks and applies."""

    def __init__(self, cluster: SimCluster, swarm: Swarm, *, write_period_us: int = 25_000) -> None:
        super().__init__(cluster, swarm, write_period_us=write_period_us)
        self.ingests = [Ingest(cluster, n, self._somebody) for n in range(1 + cluster.world.rng.randint(0, 1))]
        self.unanswered: set[int] = set()
        self.inserted: set[int] = set()
        self._told: dict[int, Any] = {}
        self.checksums: list[tuple[int, tuple[int, int]]] = []
        self._twice = cluster.seed % 6 < 2 and not swarm.stray_period_us
        """Whether each write inserts its row twice, so that every answer has an error, and answers are lost on the way.
        Histories of kept seeds, and of failing disks, whose finds are rare, stay as they are."""
        self._road = Random(f"answers {cluster.seed}")

    def begin(self) -> None:
        super().begin()
        for ingest in self.ingests:
            self._every(30_000, ingest.turn)

    def end(self) -> None:
        super().end()
        for ingest in self.ingests:
            ingest.stopped = True

    def drained(self) -> bool:
        return not self.unanswered and all(ingest.finished() for ingest in self.ingests)

    # ---- the client

    def write(self) -> None:
        """Insert one row under the next sequence number, until it is known to be there; the answer must be the first
        one every time."""
        if len(self.unanswered) >= PENDING_MAX:
            return
        self.written += 1
        self.unanswered.add(self.written)
        self._send(self.written)

    def last_write(self, leader: Replica, done: Any) -> None:
        self.written += 1
        self.unanswered.add(self.written)
        self._told[self.written] = done
        self._send(self.written, leader)

    def _send(self, number: int, replica: Replica | None = None) -> None:
        world = self.cluster.world
        if number not in self.unanswered:
            return
        replica = replica or self._somebody()
        if replica is None:
            world.after(20_000, lambda: self._send(number))
            return
        rows = [Record(pos, RowOp.INSERT, CLIENT_KEYS + number, None, None) for pos in range(1 + self._twice)]
        wrong = tuple(RowError(row.offset, RowCode.ALREADY_PRESENT, "") for row in rows[1:])
        payload, first = payload_of(rows), min(self.unanswered, default=number)
        meta = WriteMeta(COLUMNS, len(rows), client_id="client", sequence=number, first_incomplete=first)
        node = self.cluster.nodes[replica.uuid]
        life, open_calls = node.life, [number]

        def answered(result: Any) -> None:
            self.cluster.verify.answered(payload, result, repeated=True)
            refused = isinstance(result, Refused)
            if not refused and number not in self.unanswered:
                pass  # a call that was given up long ago: its result may be forgotten by now
            elif not refused:
                told = (result.error, result.rows_applied, tuple(result.row_errors))
                assert told == (None, 1, wrong), (
                    f"the client's write {number} is answered {told}, not {(None, 1, wrong)}"
                )
                self.cluster.marks["client write repeated"] += result.rows_replayed > 0
                if self._twice and not self.stopped and self._road.random() < 0.4:
                    open_calls.clear()
                    world.after(self._road.randint(20_000, 400_000), lambda: self._send(number))
                    return
                self.unanswered.discard(number)
                self.inserted.add(number)
                self._told.pop(number, lambda _: None)(result)
            if open_calls:
                open_calls.clear()
                if refused:
                    world.after(world.rng.randint(5_000, 40_000), lambda: self._send(number))

        def look() -> None:
            """Notice that a server that died does not answer, and send again."""
            if open_calls and node.life == life:
                world.after(60_000, look)
            elif open_calls:
                open_calls.clear()
                self._send(number)

        self._do(
            replica,
            lambda: replica.write(EntryKind.WRITE, 1, meta.encode(), payload, crc32c(payload), answered),
        )
        world.after(60_000, look)

    # ---- snapshots

    def snapshot(self) -> None:
        """Take a snapshot at this server's present: it has no dangling link, and is the same for ever, everywhere."""
        replica = self._somebody()
        if replica is None:
            return
        node = self.cluster.nodes[replica.uuid]
        time = node.hybrid_clock.now()
        machine = node.machine

        def done(result: Any) -> None:
            if isinstance(result, Refused):
                return
            self.cluster.verify.snapshot_served(replica, time)
            if self.cluster.world.rng.random() < 0.3:
                try:
                    self.linked(machine, time)
                    self.checksums.append((time, machine.tablet.checksum(time)))
                except Corruption as error:
                    if not node.hurt:
                        raise
                    replica.fail(error)  # as a server's scans do: this replica only

        self._do(replica, lambda: replica.wait_safe(time, done))

    def linked(self, machine: Any, time: int | None) -> dict[int, tuple[int | None, int]]:
        """Check V5: every row names an earlier one that is there, and no row is named twice. Returns the rows."""
        rows: dict[int, tuple[int | None, int]] = {}
        for batch in machine.tablet.scan(snapshot_time=time):
            for key, before, value in zip(*(batch.column(n).to_pylist() for n in ("k", "before", "v")), strict=True):
                assert key not in rows, f"key {key} is there twice"
                rows[key] = (before, value)
        named = [before for before, _ in rows.values() if before is not None]
        self.cluster.verify.looks["V5"] += len(named)
        assert len(named) == len(set(named)), f"a key is linked twice at {time}"
        dangling = [key for key in named if key not in rows]
        assert not dangling, f"at {time}, rows name {dangling[:3]}, which are not there"
        return rows

    # ---- at the end

    def at_end(self) -> None:
        """Check V4, V5, V6: all that was acknowledged is there once and nothing else; replicas are equal, then and
        now."""
        leader = self.cluster.leader()
        assert leader is not None
        expected: dict[int, tuple[int | None, int]] = {}
        for ingest in self.ingests:
            expected.update(ingest.expected())
        members = [self.cluster.nodes[m.uuid] for m in leader.active_config.members]
        for node in members:
            rows = self.linked(node.machine, None)
            clients = {key - CLIENT_KEYS for key in rows if key >= CLIENT_KEYS}
            assert clients == self.inserted, f"{node.uuid}: client rows differ by {sorted(clients ^ self.inserted)[:5]}"
            found = {key: row for key, row in rows.items() if key < CLIENT_KEYS}
            wrong = sorted(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))
            assert not wrong, f"{node.uuid}: {[(k, found.get(k), expected.get(k)) for k in wrong[:3]]}"
            for time, checksum in self.checksums:
                now = node.machine.tablet.checksum(time)
                assert now == checksum, f"{node.uuid}: the snapshot at {time} was {checksum} and is {now}"
        self.cluster.verify.looks["V6"] += len(self.checksums)
        self.cluster.marks["checksum"] += len(self.checksums)
