"""Holds records until they are published: the newest value of each key, and every event. Bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

EVENTS_MAX = 10_000
KEYS_MAX = 200_000


@dataclass
class Item:
    """One record to publish. A null value deletes the key of a compacted topic.

    State (`event` false) may be replaced by a newer value of its key; events are all published, in order.
    """

    topic: str
    key: bytes
    value: bytes | None
    event: bool = False
    done: Callable[[], None] | None = None
    """Called on the publisher's thread when the record is acknowledged."""


class Outbox:
    """Keeps records until the publisher takes them. A newer value replaces an older one, so an outage leaves no backlog
    of state.

    At KEYS_MAX a new key is dropped, because its owner publishes it again. At EVENTS_MAX the oldest event without a
    `done` is dropped. Both are counted.
    Concurrency: any thread.
    """

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._latest: dict[tuple[str, bytes], Item] = {}
        self._events: deque[Item] = deque()
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """The keys whose newest value waits."""
        return len(self._latest)

    def put(self, item: Item) -> None:
        """Queue it; never blocks."""
        with self._ready:
            key = (item.topic, item.key)
            if item.event:
                if len(self._events) >= EVENTS_MAX:
                    self._drop_event()
                self._events.append(item)
            elif key in self._latest or len(self._latest) < KEYS_MAX:
                self._latest[key] = item
            else:
                self.dropped += 1
            self._ready.notify()

    def _drop_event(self) -> None:
        """Drop the oldest event without a `done`. There is always one: events with a `done` are at most one outcome and
        one batch of the history, because their callers wait."""
        del self._events[next((pos for pos, item in enumerate(self._events) if item.done is None), 0)]
        self.dropped += 1

    def take(self, count: int, timeout_s: float) -> list[Item]:
        """Up to `count` items, events first; empty if none came in time."""
        with self._ready:
            if not self._events and not self._latest:
                self._ready.wait(timeout_s)
            items = [self._events.popleft() for _ in range(min(count, len(self._events)))]
            keys = list(self._latest)[: count - len(items)]
            return items + [self._latest.pop(key) for key in keys]

    def put_back(self, items: list[Item]) -> None:
        """Queue unpublished items again: events at the front, state only if no newer value of its key waits."""
        with self._ready:
            self._events.extendleft(reversed([i for i in items if i.event]))
            for item in items:
                if not item.event:
                    self._latest.setdefault((item.topic, item.key), item)

    def drop_state(self) -> None:
        """Drop the state that waits. It is out of date, and its owners publish it anew."""
        with self._ready:
            self._latest.clear()

    def wake(self) -> None:
        """Let a waiting `take` return."""
        with self._ready:
            self._ready.notify_all()
