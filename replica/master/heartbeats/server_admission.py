"""Admits senders of heartbeats as tablet servers: the master calls them, and they must answer with their uuid."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from nyala.replica.types import Address, Clock, Code, Heartbeat, Refused, limits

from .candidates import PAUSE_US_MAX, Candidate, Candidates
from .heartbeat_checks import check_sender, why_not
from .soft_state import SoftState
from .tablet_servers import TabletServers

_log = logging.getLogger("nyala.master")
SHOWN_MAX = 100
"""The most candidates in one listing of servers."""


class ServerAdmission:
    """Admits tablet servers to the soft state, each after a call to the address that it gave.

    Invariants: when a server was admitted to the soft state, it answered at its address with its uuid, and the process
    that answered had sent the heartbeats. A server's address changes only if no other process answers at the former one
    with that uuid. Candidates and calls are bounded, in all and for each host that they come from; known servers at
    known addresses wait for none of the others.
    Concurrency: the loop's thread.
    """

    def __init__(
        self,
        servers: TabletServers,
        soft: Callable[[], SoftState],
        clock: Clock,
        listed: Callable[[str], Iterable[Address]] = lambda uuid: (),
    ) -> None:
        """`listed(uuid)`: the addresses of a server in the catalog's configs."""
        self._listed = listed
        self._servers = servers
        self._soft = soft
        self._clock = clock
        self._candidates = Candidates()
        self._calls = {listed: asyncio.Semaphore(limits.SERVER_CALLS_MAX) for listed in (False, True)}
        """Calls of known servers at known addresses, and as many of strangers."""

    async def admit(self, beat: Heartbeat, peer: str, cluster_id: str) -> None:
        """Return when the heartbeat's sender counts, at the addresses that it gives.

        `peer`: the host that it comes from. Refused: INVALID_ARGUMENT for an impossible heartbeat; NOT_READY if the
        call fails, or is not due yet; ILLEGAL_STATE if the server still answers at its former address; OVERLOADED if
        there are too many candidates. Then the whole heartbeat is ignored.
        """
        check_sender(beat)
        told, uuid = beat.addresses, beat.server_uuid
        known = self._soft().servers.get(uuid)
        if known is not None and known.addresses == told and known.process == beat.process:
            return
        candidate = self._candidate(uuid, told, beat.process, peer)
        if candidate.task is None:
            if self._clock.monotonic_us() < candidate.next_us:
                raise self._refused(candidate, Code.NOT_READY)
            task = candidate.task = asyncio.create_task(self._call(candidate, cluster_id))
            task.add_done_callback(lambda done: self._ended(candidate, done))
        await asyncio.shield(candidate.task)  # a caller that has left must not end the call: others may wait for it

    def shown(self) -> list[Candidate]:
        """Candidates whose call failed or has not begun; a bounded number, known servers first."""
        self._candidates.forget(self._clock.monotonic_us())
        return sorted(self._candidates, key=lambda c: not c.listed)[:SHOWN_MAX]

    def heard_within(self, recent_us: int) -> bool:
        """Whether a candidate sent a heartbeat that recently."""
        since_us = self._clock.monotonic_us() - recent_us
        return any(c.heard_us > since_us for c in self._candidates)

    def __len__(self) -> int:
        return len(self._candidates)

    def _candidate(self, uuid: str, told: tuple[Address, ...], process: int, peer: str) -> Candidate:
        now_us = self._clock.monotonic_us()
        found = self._candidates.get((uuid, told, process))
        if found is None:
            found = Candidate(uuid, told, process, peer, self._is_listed(uuid, told), now_us)
            self._candidates.add(found, now_us)
        found.heard_us = now_us
        return found

    def _is_listed(self, uuid: str, told: Iterable[Address]) -> bool:
        """Whether the server has counted at these addresses, or the catalog's configs have them."""
        known = self._soft().servers.get(uuid)
        return {*told} <= {*self._listed(uuid), *(known.addresses if known is not None else ())}

    async def _call(self, candidate: Candidate, cluster_id: str) -> None:
        """Admit the candidate, or raise Refused."""
        async with self._candidates.calls_of(candidate), self._calls[candidate.listed]:
            for address in candidate.addresses:
                if why := await self._absent(address, candidate, cluster_id):
                    candidate.why = f"the master called it at {address}, and {why}"
                    raise self._refused(candidate, Code.NOT_READY)
            former = None
            while former != (former := self._former(candidate)):  # another one of its uuid may be admitted meanwhile
                if at := await self._elsewhere(candidate, former, cluster_id):
                    candidate.why = (
                        f"it gives another address than before, and another process of it still answers at {at}: "
                        "that one counts. End whatever listens there; two processes may have copies of one directory"
                    )
                    raise self._refused(candidate, Code.ILLEGAL_STATE)
        now_us = self._clock.monotonic_us()
        c = candidate
        if why := self._soft().admit(c.uuid, c.addresses, now_us, c.process, peer=c.peer, listed=c.listed):
            candidate.why = why
            raise self._refused(candidate, Code.OVERLOADED)

    async def _absent(self, address: Address, candidate: Candidate, cluster_id: str) -> str:
        """The reason why the sender of the candidate's heartbeats is not at the address; empty if it is."""
        try:
            identity = await self._servers.identity(address)
            if why := why_not(identity, candidate.uuid, cluster_id):
                return why
            same = await self._servers.is_process(candidate.uuid, address, candidate.process)
        except Refused as error:
            return str(error)
        return "" if same is not False else "the process that answers there did not send these heartbeats"

    def _former(self, candidate: Candidate) -> list[Address]:
        """The other addresses at which the server counts, or which the catalog's configs have."""
        known = self._soft().servers.get(candidate.uuid)
        former = known.addresses if known is not None else self._listed(candidate.uuid)
        others = [a for a in dict.fromkeys(former) if a not in candidate.addresses]
        return others[: limits.SERVER_ADDRESSES_MAX]

    async def _elsewhere(self, candidate: Candidate, former: Iterable[Address], cluster_id: str) -> Address | None:
        """A former address of the server at which another process answers with its uuid."""
        for address in former:
            try:
                identity = await self._servers.identity(address)
                if why_not(identity, candidate.uuid, cluster_id):
                    continue
                if await self._servers.is_process(candidate.uuid, address, candidate.process):
                    continue
            except Refused:
                continue
            return address
        return None

    def _refused(self, candidate: Candidate, code: Code) -> Refused:
        what = (
            "the heartbeat does not count: a master has to reach its server at the address that it gives (--advertise)"
        )
        return Refused(code, what, server=candidate.uuid, reason=candidate.why)

    def _ended(self, candidate: Candidate, task: asyncio.Task[None]) -> None:
        candidate.task = None
        if task.cancelled() or task.exception() is not None:
            if not candidate.told:
                _log.warning("P %s does not count as a tablet server: %s", candidate.uuid, candidate.why)
            candidate.told = True
            candidate.next_us = self._clock.monotonic_us() + candidate.pause_us
            candidate.pause_us = min(2 * candidate.pause_us, PAUSE_US_MAX)
        else:
            self._candidates.drop(candidate)
