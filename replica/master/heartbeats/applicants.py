"""Keeps the senders of heartbeats that do not count, up to a bound. If there are too many, it chooses the one that a
new one replaces."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nyala.replica.types import Address, Code, Heartbeat, Refused, limits
from nyala.replica.types.log_records import about

_log = logging.getLogger("nyala.master")

PAUSE_US_FIRST = 500_000
PAUSE_US_MAX = 30_000_000
"""The longest pause between two calls to one applicant; each pause is twice as long as the one before."""
FORGET_US = 60_000_000
"""An applicant without a heartbeat for this time is forgotten."""

Key = tuple[str, tuple[Address, ...], int]


@dataclass
class Applicant:
    """A sender of heartbeats that does not count as a tablet server, or whose new address does not count."""

    uuid: str
    addresses: tuple[Address, ...]
    process: int
    """The number of its process in its heartbeats."""
    peer: str
    """The host from which its heartbeats come."""
    listed: bool
    """Whether the masters know the server, at these addresses."""
    heard_us: int
    pause_us: int = PAUSE_US_FIRST
    next_us: int = 0
    why: str = "it was not called yet"
    told: bool = False
    """Whether the log has reported that its server does not count."""
    task: asyncio.Task[None] | None = None

    @property
    def not_counted(self) -> str:
        """The reason why it does not count, for operators."""
        return f"{self.why} (its heartbeats come from {self.peer or 'this process'})"

    @property
    def key(self) -> Key:
        """Its claim: the uuid, the addresses and the number of the process. A sender with another claim is another
        applicant."""
        return self.uuid, self.addresses, self.process

    @property
    def share(self) -> tuple[bool, str]:
        """The share of places and calls that it uses: its host's share, separately for known servers at known
        addresses."""
        return self.listed, self.peer


class Applicants:
    """The applicants of one master, by what they claim.

    Invariants: a claim can exclude another one only within its own share. There are few applicants of one uuid, and
    fewer of one uuid and host. Unknown servers are bounded for each host and in all, and a known server at a known
    address takes no place of theirs. An applicant that is being called is never dropped.
    """

    def __init__(self) -> None:
        self._by_key: dict[Key, Applicant] = {}
        self._of_uuid: dict[tuple[str, bool], list[Applicant]] = {}
        self._of_share: Counter[tuple[bool, str]] = Counter()
        self._calls: dict[tuple[bool, str], asyncio.Semaphore] = {}
        self._strangers = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Applicant]:
        return iter(self._by_key.values())

    def get(self, key: Key) -> Applicant | None:
        """The applicant with this claim."""
        return self._by_key.get(key)

    def calls_of(self, applicant: Applicant) -> asyncio.Semaphore:
        """The bound on calls of the applicant's share."""
        return self._calls.setdefault(applicant.share, asyncio.Semaphore(limits.SERVER_CALLS_PER_HOST_MAX))

    def add(self, applicant: Applicant, now_us: int) -> None:
        """Add an applicant with a new claim. Refused OVERLOADED if its share has no place for it."""
        same = self._of_uuid.get((applicant.uuid, applicant.listed), [])
        for one in [c for c in same if c.peer == applicant.peer and c.task is None]:
            self.drop(one)  # an applicant that the master called in vain now claims another address or process
            applicant.told |= one.told
        same = self._of_uuid.get((applicant.uuid, applicant.listed), [])
        if sum(c.peer == applicant.peer for c in same) >= limits.SERVER_APPLICANTS_PER_UUID_AND_HOST_MAX:
            raise self._refuse(applicant, "this master is calling other applicants of this host with the same uuid")
        if len(same) >= limits.SERVER_APPLICANTS_PER_UUID_MAX:
            idle = [c for c in same if c.task is None]
            if not idle:
                raise self._refuse(applicant, "this master is calling too many other applicants with the same uuid")
            self.drop(min(idle, key=lambda c: c.heard_us))
        if self._is_full(applicant):
            self.forget(now_us)
        if self._is_full(applicant):
            what = "too many tablet servers wait for this master's call: it takes no more of them now"
            raise self._refuse(applicant, what)
        self._by_key[applicant.key] = applicant
        self._of_uuid.setdefault((applicant.uuid, applicant.listed), []).append(applicant)
        self._of_share[applicant.share] += 1
        self._strangers += not applicant.listed

    def _is_full(self, applicant: Applicant) -> bool:
        if applicant.listed:
            return False  # bounded by the servers that the masters know, and the few of each uuid
        of_host = self._of_share[applicant.share]
        too_many = self._strangers >= limits.SERVER_APPLICANTS_MAX
        return too_many or of_host >= limits.SERVER_APPLICANTS_PER_HOST_MAX

    def _refuse(self, applicant: Applicant, what: str) -> Refused:
        of_host = self._of_share[applicant.share]
        return Refused(Code.OVERLOADED, what, waiting=len(self), of_this_host=of_host)

    def forget(self, now_us: int) -> None:
        """Drop the applicants that have been silent for FORGET_US."""
        for one in [c for c in self._by_key.values() if c.task is None and c.heard_us < now_us - FORGET_US]:
            self.drop(one)

    def drop(self, applicant: Applicant) -> None:
        """Drop one applicant."""
        del self._by_key[applicant.key]
        same = self._of_uuid[applicant.uuid, applicant.listed]
        same.remove(applicant)
        if not same:
            del self._of_uuid[applicant.uuid, applicant.listed]
        self._of_share[applicant.share] -= 1
        if not self._of_share[applicant.share]:
            del self._of_share[applicant.share]
            self._calls.pop(applicant.share, None)
        self._strangers -= not applicant.listed


class OtherClustersServers:
    """The tablet servers of other clusters that send heartbeats here. The master refuses their heartbeats, and only
    lists the servers.

    A master that lost its catalog belongs to a new cluster. Then all its former servers, with all the data, are among
    these.
    Concurrency: the loop's thread.
    """

    MAX = 1000
    AWAY_US = 60_000_000

    def __init__(self) -> None:
        self._heard: dict[str, tuple[Heartbeat, int]] = {}

    def note(self, beat: Heartbeat, now_us: int) -> None:
        """Note a heartbeat of one of them."""
        if beat.server_uuid not in self._heard:
            about(_log, peer=beat.server_uuid).error(
                "tablet server %s belongs to cluster %s and is refused; if this master has lost its data, stop it and "
                "bring its directory back",
                beat.server_uuid,
                beat.cluster_id,
            )
            if len(self._heard) >= self.MAX:
                self._heard.pop(next(iter(self._heard)))
        self._heard[beat.server_uuid] = (replace(beat, copies_failing=()), now_us)

    def heard(self, now_us: int) -> list[Heartbeat]:
        """The recent heartbeats of such servers."""
        self._heard = {u: held for u, held in self._heard.items() if now_us - held[1] < self.AWAY_US}
        return [beat for beat, _ in self._heard.values()]
