"""The lease on a table's sources: taken at the start of a run, renewed while the query lives, released at its end.

Invariants: `done` moves only under this run's lease, and before Spark commits. So a query that lost its lease commits
nothing more, and no checkpoint is above `done`. A living owner is never displaced: a lease is taken over only if its
time has run out, or if its owner's process is certainly gone. Concurrency: `renew_until` has a thread of its own beside
`advance`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from nyala.replica.client import Client, TableHandle
from nyala.replica.rows import SourceKey
from nyala.replica.rpc import pb, source_to_pb
from nyala.replica.types import Code, Refused

from .errors import QueryRefused, of_refusal
from .owner import is_dead
from .task import Position
from .topics import TopicIdentity

POLL_S = 1.0
"""The time between two attempts to take sources that another run owns."""
RELEASE_TIMEOUT_S = 5.0
"""The longest time to release the lease when the query ends, because a stop must not wait for masters that do not
answer."""


@dataclass(eq=False)
class SourceLease:
    """One run's lease on all Kafka partitions of one topic for one table; `positions` is empty until `open`."""

    client: Client
    table: TableHandle
    topic: TopicIdentity
    owner_run: str
    lease_s: float
    positions: dict[int, Position] = field(default_factory=dict, init=False)

    def open(
        self, opens: Sequence[pb.SourceOpen], checkpoint_table_id: str, wait_s: float, stopping: threading.Event
    ) -> None:
        """Take the sources: all that `opens` names, or none.

        If another run owns one, and its process is certainly gone, its lease is released. Otherwise this waits for the
        end of the lease. Refused(SOURCE_OWNED) after `wait_s`, at `stopping`, or as soon as the owner renews its lease;
        any other refusal is the master's, at once.
        """
        deadline = time.monotonic() + wait_s
        first_seen: dict[tuple[int, str], int] = {}
        while True:
            try:
                opened = self.client.open_sources(
                    self.table.name,
                    opens,
                    owner_run=self.owner_run,
                    lease_us=self._lease_us,
                    checkpoint_table_id=checkpoint_table_id,
                )
                break
            except Refused as error:
                if error.code is not Code.SOURCE_OWNED:
                    raise
                known = self._known()
                if self._release_dead(known):
                    continue
                renewed = any(
                    p.owner_deadline_us
                    > first_seen.setdefault((p.source.kafka_partition, p.owner_run), p.owner_deadline_us)
                    for p in known
                )
                # A dead query's lease ends by itself, a live one's is renewed.
                if renewed or time.monotonic() > deadline or stopping.wait(POLL_S):
                    raise
        self.positions = {p.source.kafka_partition: Position(p.generation, p.done) for p in opened.positions}

    def advance(self, ends: Mapping[int, int], *, release: bool = False) -> None:
        """Move `done` to `ends` and renew the lease, or release it. It must succeed before Spark commits.

        Every partition is named, even if its `done` does not move: the catalog renews or releases the leases of the
        named ones, and refuses if another run has one of them. Refused(SOURCE_OWNED, STALE_GENERATION), or QueryRefused
        if the table was dropped: nothing moved.
        """
        moved = {
            partition: Position(self.positions[partition].generation, end)
            for partition, end in ends.items()
            if end > self.positions[partition].done
        }
        advances = [
            pb.SourceAdvance(source=source_to_pb(self.source(each)), generation=at.generation, done=at.done)
            for each, at in sorted({**self.positions, **moved}.items())
        ]
        try:
            self.client.advance_sources(
                self.table.table_id,
                advances,
                owner_run=self.owner_run,
                lease_us=self._lease_us,
                release=release,
                timeout_s=RELEASE_TIMEOUT_S if release else None,
            )
        except Refused as error:
            # The catalog forgets a table's sources with the table.
            raise self._dropped() if error.code is Code.NOT_FOUND else error from error
        self.positions.update(moved)

    def renew_until(self, stopping: threading.Event, refused: Callable[[QueryRefused], None]) -> None:
        """Renew the lease three times within its duration, until `stopping`. An error that passes by itself is ignored.

        If another run has the sources, or the table was dropped, the renewal ends with one call of `refused`.
        """
        while not stopping.wait(self.lease_s / 3):
            try:
                self.advance({})
            except (Refused, QueryRefused) as error:
                refusal = of_refusal(error) if isinstance(error, Refused) else error
                if isinstance(refusal, QueryRefused):
                    refused(refusal)
                    return

    def release(self) -> None:
        """Release the lease, if it is held. If that fails, the lease expires."""
        if not self.positions:
            return
        with suppress(Refused, QueryRefused):
            self.advance({}, release=True)

    def source(self, partition: int) -> SourceKey:
        """Return the source of a Kafka partition."""
        return SourceKey(self.topic.cluster_id, self.topic.topic_id, partition)

    def known_partitions(self) -> int:
        """Return how many partitions of this topic the catalog knows; 0 if none was ever opened."""
        return len(self._known())

    # ------------------------------------------------------------------------------------------------------ inside

    @property
    def _lease_us(self) -> int:
        return int(self.lease_s * 1e6)

    def _dropped(self) -> QueryRefused:
        return QueryRefused(
            f"table {self.table.name} (id {self.table.table_id}) was dropped while the query ran: nothing more is "
            "written. To feed the table that has the name now, if there is one, delete the checkpoint and start again"
        )

    def _known(self) -> list[pb.SourcePosition]:
        mine = (self.topic.cluster_id, self.topic.topic_id)
        found = self.client.list_sources(self.table.name)
        return [p for p in found if (p.source.cluster_id, p.source.topic_id) == mine]

    def _release_dead(self, known: Sequence[pb.SourcePosition]) -> bool:
        """Release, under that run's id, the lease of a run whose process is gone. Returns whether there was one."""
        dead = sorted({p.owner_run for p in known if is_dead(p.owner_run)})
        released = False
        for owner_run in dead:
            try:
                release_run(self.client, [p for p in known if p.owner_run == owner_run])
                released = True
            except Refused as error:
                # Another query released it first.
                if error.code is not Code.SOURCE_OWNED:
                    raise
        return released


def release_run(client: Client, positions: Sequence[pb.SourcePosition]) -> None:
    """Release one run's leases on one table. Refused(SOURCE_OWNED) if it no longer holds them; nothing changes then.

    If the run lives after all, it notices at its next micro-batch or renewal, and ends.
    """
    advances = [pb.SourceAdvance(source=p.source, generation=p.generation, done=p.done) for p in positions]
    first = positions[0]
    client.advance_sources(first.table_id, advances, owner_run=first.owner_run, lease_us=0, release=True)
