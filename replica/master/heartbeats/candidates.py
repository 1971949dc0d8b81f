"""Senders of heartbeats that do not count yet: how many of them a master remembers, and whose place a new one takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from nyala.replica.types import Address, Code, Refused, limits

PAUSE_US_FIRST = 500_000
PAUSE_US_MAX = 30_000_000
"""Between two calls of one candidate; twice as long each time."""
FORGET_US = 60_000_000
"""A candidate that sent no heartbeat for so long is forgotten."""

Key = tuple[str, tuple[Address, ...], int]


@dataclass
class Candidate:
    """A sender of heartbeats that does not count, or whose new address does not."""

    uuid: str
    addresses: tuple[Address, ...]
    process: int
    """The number that its heartbeats carry."""
    peer: str
    """The host that its heartbeats come from."""
    listed: bool
    """Whether the masters know the server, and at these addresses."""
    heard_us: int
    pause_us: int = PAUSE_US_FIRST
    next_us: int = 0
    why: str = "it was not called yet"
    told: bool = False
    """Whether the log says that its server does not count."""
    task: asyncio.Task[None] | None = None

    @property
    def key(self) -> Key:
        """Whom it claims to be: a sender that claims anything else is another candidate."""
        return self.uuid, self.addresses, self.process

    @property
    def share(self) -> tuple[bool, str]:
        """Whose places and calls it takes: those of its host, apart for known servers at known addresses."""
        return self.listed, self.peer


class Candidates:
    """The candidates of one master, by what they claim.

    Invariants: no claim keeps another one out, but by the bounds of its own share. Of one uuid there are few, of one
    host fewer; strangers are bounded for each host and altogether, and a known server at a known address takes no place
    among them. A candidate that is being called is never dropped.
    """

    def __init__(self) -> None:
        self._by_key: dict[Key, Candidate] = {}
        self._of_uuid: dict[tuple[str, bool], list[Candidate]] = {}
        self._of_share: Counter[tuple[bool, str]] = Counter()
        self._calls: dict[tuple[bool, str], asyncio.Semaphore] = {}
        self._strangers = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._by_key.values())

    def get(self, key: Key) -> Candidate | None:
        """The candidate that claims just this."""
        return self._by_key.get(key)

    def calls_of(self, candidate: Candidate) -> asyncio.Semaphore:
        """What bounds the calls of the candidate's share."""
        return self._calls.setdefault(candidate.share, asyncio.Semaphore(limits.SERVER_CALLS_PER_HOST_MAX))

    def add(self, candidate: Candidate, now_us: int) -> None:
        """Remember one that claims what no other one does. Refused OVERLOADED if its share has no place for it."""
        same = self._of_uuid.get((candidate.uuid, candidate.listed), [])
        for one in [c for c in same if c.peer == candidate.peer and c.task is None]:
            self.drop(one)  # whoever was called in vain has another address now, or another process
            candidate.told |= one.told
        same = self._of_uuid.get((candidate.uuid, candidate.listed), [])
        if sum(c.peer == candidate.peer for c in same) >= limits.SERVER_CANDIDATES_PER_UUID_AND_HOST_MAX:
            raise self._refuse(candidate, "this master is calling others of this host that give the same uuid")
        if len(same) >= limits.SERVER_CANDIDATES_PER_UUID_MAX:
            idle = [c for c in same if c.task is None]
            if not idle:
                raise self._refuse(candidate, "this master is calling too many others that give the same uuid")
            self.drop(min(idle, key=lambda c: c.heard_us))
        if self._is_full(candidate):
            self.forget(now_us)
        if self._is_full(candidate):
            what = "too many tablet servers that this master has not reached yet: it takes no more of them"
            raise self._refuse(candidate, what)
        self._by_key[candidate.key] = candidate
        self._of_uuid.setdefault((candidate.uuid, candidate.listed), []).append(candidate)
        self._of_share[candidate.share] += 1
        self._strangers += not candidate.listed

    def _is_full(self, candidate: Candidate) -> bool:
        if candidate.listed:
            return False  # bounded by the servers that the masters know, and the few of each uuid
        of_host = self._of_share[candidate.share]
        too_many = self._strangers >= limits.SERVER_CANDIDATES_MAX
        return too_many or of_host >= limits.SERVER_CANDIDATES_PER_HOST_MAX

    def _refuse(self, candidate: Candidate, what: str) -> Refused:
        of_host = self._of_share[candidate.share]
        return Refused(Code.OVERLOADED, what, waiting=len(self), of_this_host=of_host)

    def forget(self, now_us: int) -> None:
        """Drop those that have been silent for a while."""
        for one in [c for c in self._by_key.values() if c.task is None and c.heard_us < now_us - FORGET_US]:
            self.drop(one)

    def drop(self, candidate: Candidate) -> None:
        """One that is known here is forgotten."""
        del self._by_key[candidate.key]
        same = self._of_uuid[candidate.uuid, candidate.listed]
        same.remove(candidate)
        if not same:
            del self._of_uuid[candidate.uuid, candidate.listed]
        self._of_share[candidate.share] -= 1
        if not self._of_share[candidate.share]:
            del self._of_share[candidate.share]
            self._calls.pop(candidate.share, None)
        self._strangers -= not candidate.listed
