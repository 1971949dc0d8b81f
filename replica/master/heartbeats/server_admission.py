"""Admits senders of heartbeats as tablet servers: the master calls the address that a sender gives, and must be
answered with the sender's uuid."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice

from nyala.replica.types import Address, Clock, Code, Heartbeat, Refused, limits
from nyala.replica.types.log_records import about

from .applicants import PAUSE_US_MAX, Applicant, Applicants
from .heartbeat_checks import check_sender, why_not
from .soft_state import ServerState, SoftState
from .tablet_servers import TabletServers

_log = logging.getLogger("nyala.master")
SHOWN_MAX = 100
"""The most applicants in one listing of servers."""


class ServerAdmission:
    """Admits tablet servers to the soft state, each after a call to the address that it gave.

    Invariants: a server is admitted to the soft state only after a process answered at its address with its uuid, and
    that process had sent the heartbeats. A server's address changes only if no other process answers at the former one
    with that uuid, or if the catalog has the new one and the former one is not proven. Applicants and calls are
    bounded, in all and for each host from which the heartbeats come. Known servers at known addresses do not wait for
    the others. Concurrency: the loop's thread.
    """

    def __init__(
        self,
        servers: TabletServers,
        soft: Callable[[], SoftState],
        clock: Clock,
        listed: Callable[[str], Collection[Address]] = lambda uuid: (),
    ) -> None:
        """`listed(uuid)`: the addresses of a server in the catalog's configs."""
        self._listed = listed
        self._servers = servers
        self._soft = soft
        self._clock = clock
        self._applicants = Applicants()
        self._calls = {listed: asyncio.Semaphore(limits.SERVER_CALLS_MAX) for listed in (False, True)}
        """The bounds on calls: one for known servers at known addresses (True), and an equal one for all others
        (False)."""

    async def admit(self, beat: Heartbeat, peer: str, cluster_id: str) -> None:
        """Return when the heartbeat's sender counts as a tablet server at the addresses that it gives.

        `peer`: the host that it comes from. Refused: INVALID_ARGUMENT for an impossible heartbeat; NOT_READY if the
        call fails, or is not due yet; ILLEGAL_STATE if the server still answers at its former address; OVERLOADED if
        there are too many applicants. Then the whole heartbeat is ignored.
        """
        check_sender(beat)
        told, uuid = beat.addresses, beat.server_uuid
        known = self._soft().servers.get(uuid)
        if known is not None and known.addresses == told and known.process == beat.process:
            if known.instead_of and self._is_proven(known):
                self._soft().prove_place(uuid)
            return
        applicant = self._applicant(uuid, told, beat.process, peer)
        if applicant.task is None:
            if self._clock.monotonic_us() < applicant.next_us:
                raise self._refused(applicant, Code.NOT_READY)
            task = applicant.task = asyncio.create_task(self._call(applicant, cluster_id))
            task.add_done_callback(lambda done: self._ended(applicant, done))
        await asyncio.shield(applicant.task)  # shielded, because other callers may wait for the same call

    async def answering(self, uuid: str, cluster_id: str) -> Address | None:
        """The address at which the tablet server answers now. Those at which it counts, and those in the catalog, are
        tried."""
        known = self._soft().servers.get(uuid)
        told = known.addresses if known is not None else self._listed(uuid)
        async with self._calls[False]:
            for address in islice(dict.fromkeys(told), limits.SERVER_ADDRESSES_MAX):
                with suppress(Refused):
                    if not why_not(await self._servers.identity(address), uuid, cluster_id):
                        return address
        return None

    def shown(self) -> list[Applicant]:
        """The applicants whose call failed or has not begun: a bounded number, known servers first."""
        self._applicants.forget(self._clock.monotonic_us())
        return sorted(self._applicants, key=lambda c: not c.listed)[:SHOWN_MAX]

    def heard_within(self, recent_us: int) -> bool:
        """Whether an applicant sent a heartbeat that recently."""
        since_us = self._clock.monotonic_us() - recent_us
        return any(c.heard_us > since_us for c in self._applicants)

    def __len__(self) -> int:
        return len(self._applicants)

    def _applicant(self, uuid: str, told: tuple[Address, ...], process: int, peer: str) -> Applicant:
        now_us = self._clock.monotonic_us()
        found = self._applicants.get((uuid, told, process))
        if found is None:
            found = Applicant(uuid, told, process, peer, self._is_listed(uuid, told), now_us)
            self._applicants.add(found, now_us)
        found.heard_us = now_us
        return found

    def _is_listed(self, uuid: str, told: Iterable[Address]) -> bool:
        """Whether the server has counted at these addresses, or the catalog's configs have them."""
        known = self._soft().servers.get(uuid)
        return {*told} <= {*self._home(uuid), *(known.addresses if known is not None else ())}

    def _home(self, uuid: str) -> Collection[Address]:
        """The addresses of the server in the catalog's configs; if no config has it, the last ones that were proven."""
        listed, known = self._listed(uuid), self._soft().servers.get(uuid)
        return listed if listed or known is None else known.instead_of or known.addresses

    async def _call(self, applicant: Applicant, cluster_id: str) -> None:
        """Admit the applicant, or raise Refused."""
        async with self._applicants.calls_of(applicant), self._calls[applicant.listed]:
            for address in applicant.addresses:
                if why := await self._absent(address, applicant, cluster_id):
                    applicant.why = f"the master called it at {address}, and {why}"
                    raise self._refused(applicant, Code.NOT_READY)
            former = None
            while former != (former := self._former(applicant)):  # another one of its uuid may be admitted meanwhile
                if at := await self._elsewhere(applicant, former, cluster_id):
                    applicant.why = (
                        f"it gives a new address, but another process with its uuid still answers at {at}: "
                        "that one counts. End the process there; two processes may have copies of one directory"
                    )
                    raise self._refused(applicant, Code.ILLEGAL_STATE)
        now_us = self._clock.monotonic_us()
        c = applicant
        home, listed = self._home(c.uuid), bool(self._listed(c.uuid))
        instead_of = () if {*c.addresses} <= {*home} else tuple(sorted(home, key=str)[: limits.SERVER_ADDRESSES_MAX])
        claim = c.uuid, c.addresses, now_us, c.process
        if why := self._soft().admit(*claim, peer=c.peer, listed=listed, instead_of=instead_of):
            applicant.why = why
            raise self._refused(applicant, Code.OVERLOADED)

    async def _absent(self, address: Address, applicant: Applicant, cluster_id: str) -> str:
        """The reason why the sender of the applicant's heartbeats is not at the address; empty if it is."""
        try:
            identity = await self._servers.identity(address)
            if why := why_not(identity, applicant.uuid, cluster_id):
                return why
            same = await self._servers.is_process(applicant.uuid, address, applicant.process)
        except Refused as error:
            return str(error)
        return "" if same is not False else "the process that answers there did not send these heartbeats"

    def _former(self, applicant: Applicant) -> list[Address]:
        """The other addresses at which the server counts, or which the catalog's configs have.

        As long as the address at which it counts is not proven, those of the catalog are former ones, too. If the
        applicant then gives an address of the catalog, the unproven one is not a former one.
        """
        known, home = self._soft().servers.get(applicant.uuid), self._home(applicant.uuid)
        former = [*home] if known is None or known.instead_of else []
        if known is not None and not (known.instead_of and {*applicant.addresses} <= {*home}):
            former += known.addresses
        others = [a for a in dict.fromkeys(former) if a not in applicant.addresses]
        return others[: limits.SERVER_ADDRESSES_MAX]

    def _is_proven(self, server: ServerState) -> bool:
        """Whether the catalog has the server's addresses, or the server has counted there for long enough."""
        counted_us = self._clock.monotonic_us() - server.placed_us
        return counted_us >= limits.SERVER_ADDRESS_PROVEN_US or {*server.addresses} <= {*self._home(server.uuid)}

    async def _elsewhere(self, applicant: Applicant, former: Iterable[Address], cluster_id: str) -> Address | None:
        """A former address of the server at which another process answers with its uuid."""
        for address in former:
            try:
                identity = await self._servers.identity(address)
                if why_not(identity, applicant.uuid, cluster_id):
                    continue
                if await self._servers.is_process(applicant.uuid, address, applicant.process):
                    continue
            except Refused:
                continue
            return address
        return None

    def _refused(self, applicant: Applicant, code: Code) -> Refused:
        what = "the heartbeat does not count: a master must reach the server at the address that it gives (--advertise)"
        return Refused(code, what, server=applicant.uuid, reason=applicant.why)

    def _ended(self, applicant: Applicant, task: asyncio.Task[None]) -> None:
        applicant.task = None
        if task.cancelled() or task.exception() is not None:
            if not applicant.told:
                log = about(_log, peer=applicant.uuid)
                log.warning("P %s does not count as a tablet server: %s", applicant.uuid, applicant.why)
            applicant.told = True
            applicant.next_us = self._clock.monotonic_us() + applicant.pause_us
            applicant.pause_us = min(2 * applicant.pause_us, PAUSE_US_MAX)
        else:
            self._applicants.drop(applicant)
