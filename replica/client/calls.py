"""Calls to a tablet's leader: finds it, calls it, and reacts to each failure."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from nyala.replica.rpc import NamedRequest, raise_if_error
from nyala.replica.types import Address, Code, Refused

from .channels import Channels
from .locator import Locator
from .options import ClientOptions
from .retry import Attempts, Deadline, Reaction, final, reaction_to, refusal_of_rpc_error

T = TypeVar("T")
Ask = Callable[[Any, str, float], T]
"""(TabletService stub, uuid for dest_uuid, time limit in seconds) -> result; raises Refused or grpc.RpcError."""


class TabletCalls:
    """Calls to leaders and to single servers.

    Concurrency: any thread.
    """

    def __init__(self, channels: Channels, locator: Locator, options: ClientOptions) -> None:
        self.channels = channels
        self.locator = locator
        self.options = options
        self.rng = random.Random()
        self._time_lock = threading.Lock()
        self._time_seen = 0

    @property
    def time_seen(self) -> int:
        """Return the highest hybrid time of an acknowledged write, or of a part that was read. Requests to tablets
        carry it, so that servers assign only later times."""
        return self._time_seen

    def observe(self, hybrid_time: int) -> None:
        """Remember a reply's hybrid time."""
        with self._time_lock:
            self._time_seen = max(self._time_seen, hybrid_time)

    def at_leader(
        self,
        table_name: str,
        tablet_id: str,
        ask: Ask[T],
        *,
        deadline: Deadline,
        mutates: bool = False,
        retry_safe: bool = True,
    ) -> T:
        """Run `ask` at the tablet's leader, and repeat it as `reaction_to` each error says. NotApplied or
        OutcomeUnknown."""
        attempts = Attempts(self.options, deadline, self.rng)
        while True:
            version = self.locator.version(table_name)
            uuid = ""
            try:
                uuid, address = self.locator.leader(tablet_id)
                limit_s = attempts.limit_s(retry_safe=retry_safe or not mutates)
                result = ask(self.channels.tablet_server(address), uuid, limit_s)
                self.locator.leader_answered(tablet_id, uuid)
                return result
            except grpc.RpcError as e:
                error = refusal_of_rpc_error(e, mutates=mutates)
            except Refused as e:
                error = e
            try:
                delay_s = attempts.failed(error, retry_safe=retry_safe)
            except Refused:
                # The caller's time is over, so this call ends. The next one must not wait for the same silent server
                # again.
                if reaction_to(error) in (Reaction.REFRESH, Reaction.FOLLOW):
                    self.locator.leader_failed(tablet_id, uuid)
                raise
            try:
                self.ask_elsewhere(table_name, tablet_id, uuid, error, version, delay_s)
            except Refused as gone:
                raise final(gone, unknown=attempts.unknown) from error

    def at_any(self, table_name: str, tablet_id: str, ask: Ask[T], *, deadline: Deadline) -> T:
        """Run `ask`, which changes nothing, at one replica after the other until one answers. Raises NotApplied.

        Each round calls all of them, the leader last; between rounds there is a pause and a new look-up.
        """
        attempts = Attempts(self.options, deadline, self.rng)
        while True:
            version = self.locator.version(table_name)
            refusals: list[Refused] = []
            try:
                for uuid, address in self.locator.replicas(tablet_id, self.rng):
                    try:
                        return ask(self.channels.tablet_server(address), uuid, attempts.timeout_s)
                    except grpc.RpcError as e:
                        refusals.append(refusal_of_rpc_error(e, mutates=False))
                    except Refused as e:
                        if reaction_to(e) is Reaction.FAIL:
                            raise final(e, unknown=False) from e
                        refusals.append(e)
            except Refused as e:
                if reaction_to(e) is Reaction.FAIL:
                    raise
                refusals.append(e)
            # The lag of one replica is a more useful error for the caller than that another replica could not be
            # reached.
            told = next((e for e in refusals if e.code is Code.LAGGING), refusals[-1])
            delay_s = attempts.failed(told, retry_safe=True)
            self.ask_elsewhere(table_name, tablet_id, "", Refused(Code.NOT_READY, told.what), version, delay_s)

    def ask_elsewhere(
        self, table_name: str, tablet_id: str, uuid: str, error: Refused, version: int, delay_s: float
    ) -> None:
        """Wait, and choose the next server after `error` from `uuid`."""
        reaction = reaction_to(error)
        if reaction is Reaction.FOLLOW and self.locator.follow(tablet_id, uuid, error.detail):
            time.sleep(delay_s)
            return
        if reaction in (Reaction.REFRESH, Reaction.FOLLOW):
            self.locator.leader_failed(tablet_id, uuid, silent=error.code is Code.TIMED_OUT)
        # The wait comes before the look-up, because an election is usually under way.
        time.sleep(delay_s)
        if reaction in (Reaction.REFRESH, Reaction.FOLLOW):
            try:
                self.locator.refresh(table_name, version)
            except Refused as e:
                if e.code in (Code.NOT_FOUND, Code.WRONG_TABLE):
                    raise
                return  # Without masters, the known members may still elect a leader.
            if self.locator.location(tablet_id) is None:
                raise Refused(
                    Code.WRONG_TABLE,
                    "no tablet of the table any more: the table was dropped and created again, or this tablet was lost "
                    "and replaced by an empty one; look the table up anew",
                    table=table_name,
                    tablet_id=tablet_id,
                )

    def at_server(
        self, address: Address, uuid: str, method: str, request: NamedRequest, *, timeout_s: float | None = None
    ) -> Any:
        """Make one call to one server, not repeated. Refused with the error of the server or of the network."""
        request.dest_uuid = uuid
        mutates = method not in ("ListTablets", "Lateness", "Checksum", "ListQuarantine")
        try:
            stub = self.channels.tablet_server(address)
            reply = getattr(stub, method)(request, timeout=timeout_s or self.options.timeout_s)
        except grpc.RpcError as e:
            raise refusal_of_rpc_error(e, mutates=mutates) from e
        raise_if_error(reply.error)
        return reply
