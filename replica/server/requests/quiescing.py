"""Quiescing: this process gives up its leaderships, so that its end interrupts no client."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nyala.replica.raft_driver import Replica
from nyala.replica.types import Code, Refused, ReplicaError
from nyala.replica.types.log_records import about

from ..tablets.manager import TabletManager
from .scans import when

_log = logging.getLogger("nyala.server")

TRANSFERS_MAX = 16
"""The most leaderships that are handed over at once: writes to these tablets wait meanwhile."""
TRANSFER_S = 2.0
PAUSE_S = 0.5
PAUSE_S_MAX = 30.0
"""The first pause between attempts to hand over the leaderships that are left. It doubles, because each attempt delays
writes."""


class Progress(NamedTuple):
    """The state of quiescing: the number of tablets that the server still leads, those without another voter included,
    and of reads under way."""

    quiescing: bool
    leaders: int
    reads: int
    changes: int
    """The number of changes: one more each time that quiescing begins or ends. Each process begins with a random
    number."""


class Quiescing:
    """The quiescing of one process. A restart ends it, because it only prepares the end of the process.

    While it lasts, this server stands for no election unless no other voter was elected for some seconds, takes over no
    leadership, and refuses reads of bounded staleness at replicas that do not lead. It hands each leadership to another
    voter, which serves all further reads and writes. Reads under way go on.
    Concurrency: the loop's thread.
    """

    def __init__(self, manager: TabletManager, reads: Callable[[], int]) -> None:
        """`reads()`: the reads under way."""
        self._manager = manager
        self._reads = reads
        self._changes = 1 + secrets.randbits(60)
        self._began = asyncio.Event()

    def want(self, quiesce: bool, seen: int = 0) -> None:
        """Begin or end to quiesce. If the server is in that state already, nothing changes.

        `seen`: the number of changes in the status that the caller saw, 0 for any. Refused(CAS_FAILED) if the number is
        another one now. It is another one in a later process, too, so a late request cannot make that process quiesce.
        """
        if quiesce == self._manager.quiescing:
            return
        if seen not in (0, self._changes):
            what = "this server began or ended to quiesce, or was restarted, since its status was read; nothing "
            raise Refused(Code.CAS_FAILED, what + "was changed: read it again", seen=seen, changes=self._changes)
        self._changes += 1
        self._manager.quiescing = quiesce
        _log.warning("P %s %s", self._manager.uuid, "quiesces" if quiesce else "quiesces no more")
        if quiesce:
            self._began.set()
        else:
            self._began.clear()

    def progress(self) -> Progress:
        """The present state, and how much is left to do."""
        return Progress(self._manager.quiescing, len(self._led()), self._reads(), self._changes)

    async def run_forever(self) -> None:
        """Hand leaderships over while this server quiesces, including those that it gets meanwhile."""
        while True:
            await self._began.wait()
            attempt, pause_s = 0, PAUSE_S
            while self._began.is_set():
                left = await self.hand_over(attempt)
                attempt += 1
                pause_s = min(2 * pause_s, PAUSE_S_MAX) if left else PAUSE_S
                await asyncio.sleep(pause_s)

    async def hand_over(self, attempt: int = 0) -> int:
        """Hand each leadership to another voter; returns how many could not be."""
        places = asyncio.Semaphore(TRANSFERS_MAX)

        async def one(replica: Replica) -> bool:
            target = target_of(attempt, [u for u in replica.active_config.voters if u != replica.uuid])
            async with places:
                try:
                    heir = await when(lambda done: replica.transfer(target, done), TRANSFER_S, "the transfer")
                    about(_log, replica.tablet_id, replica.uuid, peer=heir).info("handed leadership to %s", heir)
                except ReplicaError as error:
                    about(_log, replica.tablet_id, replica.uuid).info("could not hand over: %s", error)
                    return True
            return False

        return sum(await asyncio.gather(*(one(r) for r in self._led() if len(r.active_config.voters) > 1)))

    def _led(self) -> list[Replica]:
        running = (hosted.replica for hosted in self._manager.running())
        return [replica for replica in running if replica is not None and replica.is_leader]


def target_of(attempt: int, others: Sequence[str]) -> str | None:
    """The voter that shall lead next. At the first attempt it is the most up-to-date one (None). Later attempts name
    each voter in turn, because a voter on another quiescing server refuses."""
    return others[(attempt - 1) % len(others)] if attempt else None
