"""Calls to the masters: the leading one answers, the others refuse with a hint at its address."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message

from nyala.replica.rpc import address_from_pb, error_from_pb, pb
from nyala.replica.types import Address, Code, Refused

from .channels import Channels
from .options import ClientOptions
from .paging import PagedRequest, pages_of
from .retry import NOT_OFFERED, UNREACHABLE, Attempts, Deadline, Reaction, final, reaction_to, refusal_of_rpc_error

CALLS_THAT_CHANGE = frozenset({
    "CreateTable", "DropTable", "AddWriterSchema", "OpenSources", "AdvanceSources", "ResetSource", "MoveReplica",
    "AddReplica", "RemoveReplica", "ChangeRole", "CancelChange", "SetReplication", "RetireServer", "ReplaceTablets",
    "ConfirmConfig", "FinalizeUpgrade", "ChangeMasters", "MaintainServer", "ForgetServer", "AgreeReadTime",
})  # fmt: skip
RETRY_SAFE = CALLS_THAT_CHANGE - {"ResetSource"}
"""The calls that take effect once even if they are made twice, because they carry a request id, an owner, or desired
state."""

NO_GRPC = {
    "the process that listens there is no Nyala master; `nyala env` shows the masters' addresses as NYALA_MASTERS": (
        "Failed parsing HTTP/2", "http1.x",
    ),
    "no master answers; is this Kafka's address? The masters' is NYALA_MASTERS of `nyala env`": (
        "Socket closed", "Connection reset", "End of TCP stream",
    ),
}  # fmt: skip
"""The error for a server that accepts connections and does not speak gRPC, such as a web server or a Kafka broker ->
gRPC's own text."""
NOBODY = "no master answers; check the address, and whether the cluster is up"


LEARN_EVERY_S = 10.0
LEARN_TIMEOUT_S = 1.0


class Masters:
    """The masters of one cluster.

    Concurrency: any thread.
    """

    def __init__(self, addresses: Sequence[Address], channels: Channels, options: ClientOptions) -> None:
        if not addresses:
            raise Refused(Code.INVALID_ARGUMENT, "no master is named; name at least one master: host:port[,host:port]")
        self._known = list(dict.fromkeys(addresses))
        self._channels = channels
        self._options = options
        self._lock = threading.Lock()
        self._current = 0
        self._answered = False
        self._learn_after = 0.0
        self._rng = random.Random()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Return all masters known, those of the options first."""
        with self._lock:
            return tuple(self._known)

    @property
    def current(self) -> Address:
        """Return the master that is called next: the one that answered last."""
        return self._target()

    def call(self, method: str, request: Message | PagedRequest, *, timeout_s: float | None = None) -> Any:
        """Return the reply of MasterService.`method` from the leading master.

        NotApplied or OutcomeUnknown if a master refuses for good, or none answers before the deadline.
        """
        first = not self._answered
        default_s = self._options.connect_timeout_s if first else self._options.timeout_s
        deadline = Deadline(timeout_s or default_s)
        attempts = Attempts(self._options, deadline, self._rng)
        mutates = method in CALLS_THAT_CHANGE
        safe = not mutates or method in RETRY_SAFE
        silent: set[Address] = set()
        lacking: set[Address] = set()
        """The masters of an earlier build, which does not have the call. They refuse it whether they lead or not."""
        asked: set[Address] = set()
        hinted: Address | None = None
        while True:
            address = self._target()
            asked.add(address)
            try:
                limit_s = attempts.limit_s(retry_safe=safe)
                reply = getattr(self._channels.master(address), method)(request, timeout=limit_s)
                self._answered = True
                silent.discard(address)
                error = error_from_pb(reply.error) if "error" in reply.DESCRIPTOR.fields_by_name else None
                if error is None:
                    self._learn_sometimes(address)
                    return reply
            except grpc.RpcError as e:
                error = refusal_of_rpc_error(e, mutates=mutates)
                if error.what.startswith(NOT_OFFERED):
                    lacking.add(address)
                    if lacking >= set(self.addresses):
                        self._learn(address, deadline.left_s)  # the leader may be one that the options do not name
                    # A hint may be old: the leader may be a master that was not asked yet.
                    skipped = lacking | asked if address == hinted else lacking
                    if not skipped >= set(self.addresses):
                        self._choose_next_master(address, error, skipped)
                        continue
                else:
                    silent.add(address)
            if first and not self._answered and silent >= set(self.addresses):
                self._give_up_if_nobody_listens(error, attempts)
            delay_s = attempts.failed(error, retry_safe=safe)
            hinted = self._choose_next_master(address, error, lacking)
            if delay_s:
                time.sleep(delay_s)

    def _learn_sometimes(self, address: Address) -> None:
        """From time to time, note the addresses of all masters, because those of the options may be replaced."""
        with self._lock:
            if time.monotonic() < self._learn_after:
                return
            self._learn_after = time.monotonic() + LEARN_EVERY_S
        self._learn(address)

    def _learn(self, address: Address, left_s: float = LEARN_TIMEOUT_S) -> None:
        """Note the addresses of all masters that this one knows, if it says so within the time left."""
        try:
            status = self.ask(address, "Status", pb.Empty(), max(0.001, min(LEARN_TIMEOUT_S, left_s)))
        except Refused:
            return
        found = [address_from_pb(m.addresses[0]) for m in status.replica.committed_config.members if m.addresses]
        with self._lock:
            self._known += [master for master in found if master not in self._known]

    def pages(self, method: str, request: PagedRequest, *, timeout_s: float | None = None) -> Iterator[Any]:
        """Yield the replies to one request for a list, page after page; `timeout_s` is for each."""
        return pages_of(lambda asked: self.call(method, asked, timeout_s=timeout_s), request)

    def whole_table(self, request: pb.TableRequest, *, timeout_s: float | None = None) -> pb.TableReply:
        """Return one table with all its tablets. WRONG_TABLE if it was dropped and created again between two pages."""
        return _whole_table(request, lambda asked: self.call("GetTable", asked, timeout_s=timeout_s))

    def recorded_table(self, request: pb.TableRequest, staleness_us: int) -> pb.TableReply | None:
        """Return one table from the catalog of any master, leading or not, if that catalog is at most so old. None if
        no such master answers."""
        asked = pb.TableRequest(staleness_us=staleness_us)
        asked.MergeFrom(request)
        others = [address for address in self.addresses if address != self.current]
        for address in self._rng.sample(others, len(others)):
            with suppress(Refused):
                return _whole_table(asked, partial(self._page_of, address))
        return None

    def _page_of(self, address: Address, request: pb.TableRequest) -> pb.TableReply:
        reply: pb.TableReply = self.ask(address, "GetTable", request, LEARN_TIMEOUT_S)
        return reply

    def ask(self, address: Address, method: str, request: Message, timeout_s: float) -> Any:
        """Return the reply of this one master, leader or not, called once. For calls that change nothing; Refused."""
        try:
            reply = getattr(self._channels.master(address), method)(request, timeout=timeout_s)
        except grpc.RpcError as e:
            raise refusal_of_rpc_error(e, mutates=False) from e
        if "error" in reply.DESCRIPTOR.fields_by_name and (error := error_from_pb(reply.error)) is not None:
            raise error
        return reply

    def _give_up_if_nobody_listens(self, error: Refused, attempts: Attempts) -> None:
        """Fail if each master has refused three connections in the first call, which means a wrong address and not a
        slow cluster."""
        if error.code is Code.UNAVAILABLE and attempts.count >= 3 * len(self.addresses):
            cause = error.what.removeprefix(UNREACHABLE)
            tls = next(filter(None, map(self._channels.tls_problem, self.addresses)), "")
            what = next((what for what, texts in NO_GRPC.items() if any(text in cause for text in texts)), NOBODY)
            what = tls or what
            told = Refused(error.code, what, asked=", ".join(map(str, self.addresses)), cause=cause)
            raise final(told, unknown=attempts.unknown)

    def _target(self) -> Address:
        with self._lock:
            return self._known[self._current % len(self._known)]

    def _choose_next_master(self, address: Address, error: Refused, lacking: Set[Address]) -> Address | None:
        """Choose the master to call next: the hinted one, which is returned, or the next one that has the call. A busy
        leader is called again."""
        if reaction_to(error) is Reaction.RETRY:
            return None
        with self._lock:
            hinted = leader_hint(error.detail)[1] if error.code is Code.NOT_LEADER else None
            if hinted is not None:
                if hinted not in self._known:
                    self._known.append(hinted)
                self._current = self._known.index(hinted)
            elif self._known[self._current % len(self._known)] == address:
                ring = range(self._current + 1, self._current + 1 + len(self._known))
                places = (at % len(self._known) for at in ring)
                self._current = next(at for at in places if self._known[at] not in lacking)
            return hinted


def _whole_table(request: pb.TableRequest, ask: Callable[[pb.TableRequest], pb.TableReply]) -> pb.TableReply:
    """Return one table with all its tablets, page after page."""
    pages: list[pb.TableReply] = []

    def of_same_table(asked: pb.TableRequest) -> pb.TableReply:
        if pages:
            asked.table_id = pages[0].table.table_id
        return ask(asked)

    for page in pages_of(of_same_table, request):
        pages.append(page)
    tablets = {(t.range_pos, t.bucket): t for page in pages for t in page.tablets}
    first = pages[0]
    return pb.TableReply(
        table=first.table, tablets=tablets.values(), servers=first.servers, cluster_id=first.cluster_id
    )


def leader_hint(detail: str) -> tuple[str, Address | None]:
    """Return (uuid, address) of a NOT_LEADER's detail `uuid@host:port`; either may be missing."""
    uuid, at, place = detail.partition("@")
    if not at:
        return uuid, None
    try:
        return uuid, Address.parse(place)
    except ValueError:
        return uuid, None
