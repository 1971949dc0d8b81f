"""The client ids under which this process writes. Each has its own sequence numbers, and one writer uses it at a
time."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from nyala.replica.types import new_uuid


@dataclass
class ClientId:
    """A client's identity in the tablets' ledgers. `sequence`: the last number used."""

    client_id: str
    sequence: int = 0

    def next_sequence(self) -> int:
        """Return a number that was never used before."""
        self.sequence += 1
        return self.sequence


class ClientIds:
    """Lends client ids to writers and takes them back.

    A tablet remembers every client that wrote lately, up to a bound; so a program that makes a writer for each row must
    not become a new client each time. An id with an open write is not taken back, because that write may be repeated
    and its number must still be known. Concurrency: any thread; a forked child begins with none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._free: list[ClientId] = []

    def take(self) -> ClientId:
        """Return the id used last among the free ones, or a new one."""
        if self._pid != os.getpid():
            self._lock, self._pid, self._free = threading.Lock(), os.getpid(), []
        with self._lock:
            return self._free.pop() if self._free else ClientId(new_uuid())

    def give_back(self, identity: ClientId) -> None:
        """Take the id back from a writer all of whose writes have known outcomes."""
        if self._pid == os.getpid():
            with self._lock:
                self._free.append(identity)
