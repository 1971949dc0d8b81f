"""Copies of the catalog, which this master serves to a master that replaces a lost one or joins a single master.

[kudu master permanent failure, "Changes": remote bootstrap for masters].
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nyala.replica.tablet_copy import CopyWanted, SourceSessions
from nyala.replica.tablet_copy.wire import CopyRate, SourceReplica, SourceServicer
from nyala.replica.transport import GrantTicket
from nyala.replica.types import Clock, Code, Corruption, Disk, Refused

from ..catalog.catalog import CATALOG_ID
from .catalog_group import CatalogGroup

EXPIRE_PERIOD_S = 5.0


class CatalogCopies(SourceServicer):
    """The CopyService of a master. Concurrency: the loop's thread.

    A copy is served by a leader that has applied everything committed before the request, and that a lease or a
    majority confirms as the only leader. If the caller allows it, a master that does not lead serves it, too, such as
    one that waits for the other members to get their copies.
    """

    def __init__(
        self,
        disk: Disk,
        uuid: str,
        clock: Clock,
        grant_ticket: GrantTicket,
        group: Callable[[], CatalogGroup],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`group()`: Refused NOT_READY until it is open."""
        self.disk = disk
        self.uuid = uuid
        self.sessions = SourceSessions(clock)
        self.copy_rate = CopyRate(clock, 0, 0)
        loop = self._loop = asyncio.get_running_loop()

        def fail(error: BaseException) -> None:
            loop.call_soon_threadsafe(on_fatal, error)

        self.on_fatal: Callable[[BaseException], None] = fail
        self._group = group
        self._ended = False
        super().__init__(self, grant_ticket, self._ready, self._unreadable)

    async def _ready(self, tablet_id: str, _wanted: CopyWanted) -> SourceReplica:
        if tablet_id != CATALOG_ID:
            raise Refused(Code.TABLET_NOT_FOUND, "a master has one tablet, the catalog", tablet=tablet_id)
        if self._ended:
            raise Refused(Code.STEPPING_DOWN, "this master is stopping")
        group = self._group()
        if group.is_leader:
            await group.confirm()
        return SourceReplica(group.replica, group.catalog, group.cmeta, group.log)

    def _unreadable(self, _tablet_id: str, error: Corruption) -> None:
        self.on_fatal(error)

    async def expire_forever(self) -> None:
        """Close the sessions of targets that died."""
        while True:
            await asyncio.sleep(EXPIRE_PERIOD_S)
            await self._loop.run_in_executor(None, self.sessions.expire)

    async def end(self) -> None:
        """End every session, before the log that they hold is closed."""
        self._ended = True
        await self._loop.run_in_executor(None, self.sessions.end_tablet, CATALOG_ID)
