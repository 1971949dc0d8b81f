"""A steady stream of row events that each leave a trace if they are applied twice, and the rows that they must
leave."""

from __future__ import annotations

import threading

from nyala.pipeline import RowPublisher
from nyala.replica.rows import RowOp
from tests.harness.road import SCHEMA, Lane, Row, key_of, row

PAUSE_S = 0.1
KEYS_A_ROUND = 10


class EventLoad:
    """Publishes until it is stopped, and applies every event to a dict: one at a time, in the order of its key.

    Each key is inserted, updated, deleted and inserted anew, and updated again much later; so an event that came twice
    would fail, bring an old version back, or remove a row. Every seventh key is inserted once more, which makes a dead
    letter.
    """

    def __init__(self, lane: Lane) -> None:
        self.events = 0
        """The number of events that Kafka acknowledged."""
        self.rows: dict[int, Row] = {}
        self.letters: list[bytes] = []
        """The keys whose insert must fail, each once."""
        self._lane = lane
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        first = 0
        with RowPublisher(self._lane.road.kafka, self._lane.topic, SCHEMA) as publisher:
            while not self._stop.wait(PAUSE_S):
                events = [e for k in range(first, first + KEYS_A_ROUND) for e in self._history(k)]
                for op, fields in events:
                    publisher.publish(fields, op)
                publisher.flush()
                first += KEYS_A_ROUND
                self.events += len(events)

    def _history(self, k: int) -> list[tuple[RowOp, Row]]:
        """Return the events of key k and, late, of one from long ago; they are applied to the dict at once."""
        events = [(RowOp.INSERT, row(k, "first")), (RowOp.UPDATE, row(k, "second")), (RowOp.DELETE, row(k))]
        self.rows[k] = row(k, "third")
        events.append((RowOp.INSERT, self.rows[k]))
        if k % 7 == 0:
            events.append((RowOp.INSERT, row(k, "refused")))
            self.letters.append(key_of(k))
        if (old := k - 30 * KEYS_A_ROUND) >= 0:
            self.rows[old] = row(old, f"updated with {k}")
            events.append((RowOp.UPDATE, self.rows[old]))
        return events

    def finish(self) -> int:
        """Stop; returns how many events Kafka has acknowledged."""
        self._stop.set()
        self._thread.join(240)
        assert not self._thread.is_alive()
        return self.events
