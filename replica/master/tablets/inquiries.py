"""Asks the members of tablets for their configs, before a replica is deleted and when a config has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from nyala.replica.types import Clock, RaftConfig, Refused, ReportedReplica, limits
from nyala.replica.types.log_records import about

from ..catalog.catalog import Catalog
from ..catalog.records import TABLET
from ..heartbeats.soft_state import SoftState
from ..heartbeats.tablet_servers import TabletServers
from .proof import Proof, prove
from .view import wanted_voters

_log = logging.getLogger("nyala.master")
FRESH_US = 10_000_000
"""The time for which answers justify a deletion. The order is repeated with each heartbeat until the replica is
gone."""
PAUSE_US_FIRST = 250_000
PAUSE_US_MAX = 30_000_000
"""The longest pause between two inquiries that proved nothing; it doubles each time."""


@dataclass
class _Asked:
    proof: Proof | None = None
    next_us: int = 0
    pause_us: int = PAUSE_US_FIRST
    under_way: bool = False


class Inquiries:
    """The last answers of each tablet's members. Only this object's own tasks wait for answers, so no caller does.

    Invariants: inquiries about at most `limits.INQUIRIES_MAX` tablets run at once, with one call to each member. A
    bounded number of tablets waits, in all and for each server that reports. A server is called only at an address
    where it has answered, and only if that address is proven. Concurrency: the loop's thread.
    """

    def __init__(
        self, servers: TabletServers, catalog: Callable[[], Catalog], soft: Callable[[], SoftState], clock: Clock
    ) -> None:
        self._servers = servers
        self._catalog = catalog
        self._soft = soft
        self._clock = clock
        self._asked: dict[str, _Asked] = {}
        self._slots = asyncio.Semaphore(limits.INQUIRIES_MAX)
        self._tasks: dict[asyncio.Task[None], str] = {}

    def forget(self) -> None:
        """Forget all answers, because a new leadership begins."""
        self._asked = {}

    def proof(self, tablet_id: str) -> Proof | None:
        """The proof from answers of the last 10 s; None if there are none."""
        asked = self._asked.get(tablet_id)
        proof = asked.proof if asked is not None else None
        return proof if proof is not None and self._clock.monotonic_us() - proof.at_us < FRESH_US else None

    def proven(self, tablet_id: str) -> RaftConfig | None:
        """The config of the tablet that was proven last."""
        asked = self._asked.get(tablet_id)
        return asked.proof.config if asked is not None and asked.proof is not None and asked.proof.confirmed else None

    def request(self, tablet_id: str, reporter: str = "") -> None:
        """Ask soon, unless an inquiry is under way or has just proved nothing. Needs a running loop.

        `reporter`: the server whose replica needs the answer. If too many inquiries wait, in all or for that server,
        this one is dropped, and the caller requests it again later.
        """
        asked = self._asked.get(tablet_id) or _Asked()
        if asked.under_way or self._clock.monotonic_us() < asked.next_us or self._is_full(reporter):
            return
        self._asked[tablet_id] = asked
        asked.under_way = True
        task = asyncio.get_running_loop().create_task(self._ask(tablet_id, asked))
        self._tasks[task] = reporter
        task.add_done_callback(self._tasks.pop)

    def _is_full(self, reporter: str) -> bool:
        if len(self._tasks) >= limits.INQUIRIES_PENDING_MAX:
            return True
        own = sum(of == reporter for of in self._tasks.values()) if reporter else 0
        return own >= limits.INQUIRIES_PENDING_PER_SERVER_MAX

    async def settled(self) -> None:
        """Wait until every inquiry that is under way has ended."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _ask(self, tablet_id: str, asked: _Asked) -> None:
        try:
            async with self._slots:
                asked.proof = await self._inquire(tablet_id)
        finally:
            asked.under_way = False
            self._soft().touched.add(tablet_id)
            state = self._soft().tablets.get(tablet_id)
            wanted = state.config.opid if state is not None and state.config is not None else None
            proof = asked.proof
            useful = proof is not None and proof.confirmed and (wanted is None or proof.config.opid >= wanted)
            asked.pause_us = PAUSE_US_FIRST if useful else min(2 * asked.pause_us, PAUSE_US_MAX)
            asked.next_us = self._clock.monotonic_us() + asked.pause_us

    async def _inquire(self, tablet_id: str) -> Proof | None:
        tablet = self._catalog().get(TABLET, tablet_id)
        if tablet is None:
            self._asked.pop(tablet_id, None)
            return None
        known, recorded = tablet.known_config, tablet.config is not None or not tablet.formed
        answers = await self._answers(tablet_id, self._whom(tablet_id, known))
        wanted = wanted_voters(self._catalog(), tablet_id)
        proof = prove(known, answers, self._clock.monotonic_us(), recorded=recorded, wanted=wanted)
        if not proof.confirmed:
            heard = ", ".join(answers) or "nobody"
            about(_log, tablet_id).info("config %s is not confirmed: only %s answered", known.opid, heard)
        return proof

    def _whom(self, tablet_id: str, known: RaftConfig) -> list[str]:
        """The voters of the catalog's config, of the believed one, and of those that servers report, newest first."""
        state = self._soft().tablets.get(tablet_id)
        configs = [known]
        if state is not None:
            configs += [state.config] if state.config is not None else []
            configs += sorted(state.told.values(), key=lambda c: c.opid, reverse=True)
        return list(dict.fromkeys(u for c in configs for u in c.voters))[: limits.CONFIG_MEMBERS_MAX]

    async def _answers(self, tablet_id: str, uuids: list[str]) -> dict[str, ReportedReplica]:
        found = await asyncio.gather(*(self._answer(tablet_id, uuid) for uuid in uuids))
        return {uuid: status for uuid, status in zip(uuids, found, strict=True) if status is not None}

    async def _answer(self, tablet_id: str, uuid: str) -> ReportedReplica | None:
        server = self._soft().servers.get(uuid)
        if server is None or not server.addresses or server.instead_of:
            return None
        try:
            statuses = await self._servers.replicas(uuid, server.addresses, [tablet_id])
        except Refused as refused:
            about(_log, tablet_id, peer=uuid).debug("server %s gave no answer: %s", uuid, refused)
            return None
        return next((s for s in statuses if s.tablet_id == tablet_id), None)
