"""An ingest query in miniature: micro-batches of a Kafka partition, tasks that die, zombies, and lost checkpoints.

The driver and its task attempts follow the contract of the offset ledger (replica/tablet): a batch names its source and
`after`, the last offset that its sender knows acknowledged. What each record must do to the table is known from the
start, because records of one source touch keys of their own and are applied in offset order, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from nyala.replica.raft_driver import Replica
from nyala.replica.rows import RowOp, SourceKey, WriteMeta, crc32c, encode_batch
from nyala.replica.types import Code, EntryKind, Refused, RowCode
from tests.harness.sim_cluster import SimCluster
from tests.harness.sim_tablet import SCHEMA

KEYS_PER_SOURCE = 1 << 32
COLUMNS = (1, 2, 3)


class Record(NamedTuple):
    """One record of the topic, and the result that it must have."""

    offset: int
    op: RowOp
    key: int
    before: int | None
    error: RowCode | None


def payload_of(rows: Sequence[Record]) -> bytes:
    """Return the batch as it travels."""
    wire = SCHEMA.wire_schema(COLUMNS)
    return encode_batch(
        pa.RecordBatch.from_arrays(
            [
                pa.array([r.key for r in rows], pa.int64()),
                pa.array([r.before for r in rows], pa.int64()),
                pa.array([r.offset for r in rows], pa.int64()),
                pa.array([int(r.op) for r in rows], pa.uint8()),
                pa.array([r.offset for r in rows], pa.int64()),
            ],
            schema=wire,
        )
    )


@dataclass
class Attempt:
    """One attempt of one task: the rows of its micro-batch, sent in batches of its own choice."""

    rows: list[Record]
    after: int | None
    done: int
    size: int
    pos: int = 0
    current: bool = True
    """Whether the driver still waits for this attempt; otherwise it is a zombie."""
    dead: bool = False


class Ingest:
    """One Kafka partition and the query that reads it."""

    def __init__(self, cluster: SimCluster, number: int, somebody: Callable[[], Replica | None]) -> None:
        self.cluster = cluster
        self.rng: Random = cluster.world.rng
        self.key = SourceKey("cluster", "topic", number)
        self.base = (number + 1) * KEYS_PER_SOURCE
        self.stopped = False
        self.waiting = 0
        """The number of batches sent that are not answered yet."""
        self._before: dict[int, int | None] = {}
        self._somebody = somebody
        self._topic: list[Record] = []
        self._errors: dict[int, RowCode] = {}
        self._next_offset = self.rng.randint(0, 50)
        self._position = self._catalog_done = 0
        """Positions in `_topic`: the next one that the driver plans, and the one up to which the catalog's source
        position is done."""
        self._high = 0
        """The position below which everything was acknowledged once."""
        self._acked: int | None = None
        self._newest: int | None = None
        self._fresh = 0
        self._attempt: Attempt | None = None
        self._haste = Random(f"haste {cluster.seed} {number}")

    # ---- the topic

    def _produce(self) -> None:
        """Add one more record; offsets have holes, as transaction markers and other tablets' rows make them."""
        rng = self.rng
        if rng.random() < 0.2:
            self._next_offset += rng.randint(1, 30)
            self.cluster.marks["offset hole"] += 1
        offset, draw = self._next_offset, rng.random()
        error: RowCode | None = None
        if draw < 0.6 or self._newest is None:
            self._fresh += 1
            op, key, before = RowOp.INSERT, self.base + self._fresh, self._newest
            self._newest = key
        elif draw < 0.75:
            key = self.base + rng.randint(1, self._fresh)
            op, before, error = RowOp.INSERT, None, RowCode.ALREADY_PRESENT
        else:
            key = self.base + rng.randint(1, self._fresh)
            op, before = RowOp.UPSERT, self._before[key]
        if error is None:
            self._before[key] = before
        else:
            self._errors[offset] = error
        self._topic.append(Record(offset, op, key, before, error))
        self._next_offset += 1

    def expected(self) -> dict[int, tuple[int | None, int]]:
        """Return key -> (before, v): what the table must hold once nothing is under way."""
        return {r.key: (r.before, r.offset) for r in self._topic[: self._high] if r.error is None}

    # ---- the driver

    def turn(self) -> None:
        """Do one step of the driver: while a task runs nothing, or at times kill one; otherwise plan."""
        if self._attempt is None:
            if not self.stopped:
                self._plan()
        elif not self.stopped and self.rng.random() < 0.1:
            self._retry(self._attempt)

    def _plan(self) -> None:
        rng, marks = self.rng, self.cluster.marks
        if rng.random() < 0.06 and self._topic:
            # The checkpoint is gone: the next run begins at the source position, and knows of no acknowledgement.
            marks["lost checkpoint"] += 1
            self._position, self._acked = self._catalog_done, None
        if rng.random() < 0.15:
            marks["idle tablet"] += 1
            self._next_offset += rng.randint(1, 40)  # a micro-batch without rows for this tablet: nothing is sent
            return
        if self._position == len(self._topic):
            for _ in range(rng.randint(1, 30)):
                self._produce()
        rows = self._topic[self._position : self._position + rng.randint(1, 40)]
        self._begin(rows)

    def _begin(self, rows: list[Record]) -> None:
        done = self._topic[self._catalog_done].offset if self._catalog_done < len(self._topic) else 0
        self._attempt = Attempt(rows, self._acked, done, self.rng.choice([1, 3, 10, 40]))
        self._send(self._attempt)

    def _retry(self, old: Attempt) -> None:
        """Start the task again, from the beginning of its micro-batch; the old attempt may not know that."""
        self.cluster.marks["ingest task retry"] += 1
        old.current = False
        if self.rng.random() < 0.5:
            self.cluster.marks["zombie attempt"] += 1
        else:
            old.dead = True
        self._begin(old.rows)

    def finished(self) -> bool:
        """Return whether nothing of it is under way."""
        return self._attempt is None and not self.waiting

    # ---- a task attempt

    def _again(self, attempt: Attempt, delay_us: int) -> None:
        self.cluster.world.after(delay_us, lambda: self._send(attempt))

    def _send(self, attempt: Attempt) -> None:
        if attempt.dead or (self.stopped and not attempt.current):
            return
        replica = self._somebody()
        if replica is None:
            self._again(attempt, 20_000)
            return
        if self._haste.random() < 0.05:
            self._ahead(attempt, replica)
            if self.cluster.nodes[replica.uuid].replica is not replica:
                self._again(attempt, 20_000)
                return
        rows = attempt.rows[attempt.pos : attempt.pos + attempt.size]
        meta = WriteMeta(COLUMNS, len(rows), self.key, after=attempt.after, done=attempt.done)
        payload = payload_of(rows)
        node = self.cluster.nodes[replica.uuid]
        life, open_calls = node.life, [attempt]
        self.waiting += 1

        def over() -> bool:
            """Return, once per call, whether its outcome was still open."""
            self.waiting -= len(open_calls)
            return bool(open_calls and open_calls.pop())

        def answered(result: Any) -> None:
            self.cluster.verify.answered(payload, result, repeated=True)
            if not isinstance(result, Refused):
                self._check(rows, meta, result)
            if over() and not attempt.dead:
                self._go_on(attempt, rows, result)

        def look() -> None:
            """Notice that a server that died does not answer, and send again."""
            if open_calls and node.life == life:
                self.cluster.world.after(50_000, look)
            elif over():
                self._send(attempt)

        node.do(lambda: replica.write(EntryKind.WRITE, 1, meta.encode(), payload, crc32c(payload), answered))
        self.cluster.world.after(50_000, look)

    def _ahead(self, attempt: Attempt, replica: Replica) -> None:
        """Send the batch after the next one, as a sender does that counts the next one as acknowledged because its
        table was set back: it is refused whole, unless the next one is there already, by another attempt."""
        end = attempt.pos + attempt.size
        rows = attempt.rows[end : end + attempt.size]
        if not rows:
            return
        meta = WriteMeta(COLUMNS, len(rows), self.key, after=attempt.rows[end - 1].offset, done=attempt.done)
        payload = payload_of(rows)

        def answered(result: Any) -> None:
            if isinstance(result, Refused):
                return
            if isinstance(result.error, Refused) and result.error.code is Code.GAP:
                self.cluster.marks["gap refused"] += 1
            else:
                self._check(rows, meta, result)

        node = self.cluster.nodes[replica.uuid]
        node.do(lambda: replica.write(EntryKind.WRITE, 1, meta.encode(), payload, crc32c(payload), answered))

    def _go_on(self, attempt: Attempt, rows: list[Record], result: Any) -> None:
        if isinstance(result, Refused):
            attempt.size = self.rng.choice([1, 3, 10, 40])
            self._again(attempt, self.rng.randint(5_000, 40_000))
            return
        attempt.pos += len(rows)
        attempt.after = rows[-1].offset
        if attempt.pos < len(attempt.rows):
            self._again(attempt, self.rng.randint(0, 5_000))
        elif attempt is self._attempt:
            self._attempt = None
            self._position += len(attempt.rows)
            self._high = max(self._high, self._position)
            self._acked = attempt.after
            if self.rng.random() < 0.5:
                self._catalog_done = self._position
        else:
            attempt.dead = True

    def _check(self, rows: list[Record], meta: WriteMeta, result: Any) -> None:
        """Check that there is no gap, and the same row errors for every attempt. A zombie may ask about offsets that
        are done."""
        refusal, errors = result.error, result.row_errors
        assert refusal is None, f"{self.key} after {meta.after}, offsets up to {rows[-1].offset}: {refusal!r}"
        known_from = self._topic[self._catalog_done].offset if self._catalog_done < len(self._topic) else 1 << 62
        got = {e.offset: e.code for e in errors}
        must = {r.offset: r.error for r in rows if r.error is not None}
        assert got.items() <= must.items(), f"{self.key} up to {rows[-1].offset}: errors {got}, expected {must}"
        missing = {o: c for o, c in must.items() if o not in got and o >= max(known_from, meta.done)}
        assert not missing, f"{self.key} up to {rows[-1].offset}: row errors {missing} were forgotten"
