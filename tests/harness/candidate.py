"""A member that asks real servers for votes, or gives them, over links as servers have them, and never leads."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from nyala.replica.raft import AppendEntries, AppendReply, Message, VoteReply, VoteRequest
from nyala.replica.rpc import address_to_pb, new_server, pb, pb_grpc
from nyala.replica.transport import PeerNetwork, PeerServicer
from nyala.replica.types import Address, Code, OpId, new_uuid
from tests.harness.cluster import ServerProcess, wait_until
from tests.harness.links import trusting
from tests.harness.patience import patience_s

WAIT_S = patience_s(30.0)


class Candidate:
    """A uuid with the product's two ends of links, in a loop of its own.

    Concurrency: `ask` by one thread at a time.
    """

    def __init__(self) -> None:
        self.uuid = new_uuid()
        self._answers: dict[str, queue.SimpleQueue[VoteReply]] = {}
        self._nobody = (f"nobody-{number}" for number in itertools.count())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    def ask(self, server: ServerProcess, tablet_id: str, term: int, last: OpId, *, pre_vote: bool = False) -> VoteReply:
        """Return the server's answer. A message may be lost while a link opens, so the links are tried first."""
        known = Address.parse(server.address)
        self._loop.call_soon_threadsafe(self._network.learn, server.uuid, (known,))

        def meets() -> bool:
            nobody = next(self._nobody)
            met = self._answer(server, nobody, 1, OpId(0, 0), True, 0.5)
            assert met is None or met.code is Code.TABLET_NOT_FOUND, met
            return met is not None

        wait_until(meets, f"{server.name} answers on a link")
        answer = self._answer(server, tablet_id, term, last, pre_vote, WAIT_S)
        assert answer is not None, f"{server.name} says nothing about {tablet_id}"
        return answer

    def ask_now(self, server: ServerProcess, tablet_id: str, term: int, last: OpId) -> VoteReply | None:
        """Return its answer to a pre-vote, if one comes soon: a replica that is being opened does not answer. The links
        must be open. A late answer counts for the next request, so all requests must be the same."""
        return self._answer(server, tablet_id, term, last, True, 0.3)

    def ask_after_lease(self, server: ServerProcess, tablet_id: str, term: int, last: OpId) -> VoteReply:
        """Return its answer once no leader can hold a lease any more that its last life took part in."""

        def asked() -> VoteReply | None:
            answer = self.ask(server, tablet_id, term, last)
            return None if "lease" in answer.reason else answer

        return wait_until(asked, "no lease is owed")

    def _answer(
        self, server: ServerProcess, tablet_id: str, term: int, last: OpId, pre_vote: bool, wait_s: float
    ) -> VoteReply | None:
        request = VoteRequest(to_uuid=server.uuid, from_uuid=self.uuid, term=term, last=last, pre_vote=pre_vote)
        answers = self._answers[tablet_id] = queue.SimpleQueue()
        self._loop.call_soon_threadsafe(self._network.send, [(tablet_id, request)])
        try:
            return answers.get(timeout=wait_s)
        except queue.Empty:
            return None

    def _deliver(self, tablet_id: str, message: Message) -> None:
        if isinstance(message, VoteReply) and tablet_id in self._answers:
            self._answers[tablet_id].put(message)

    async def _listen(self) -> None:
        self._door = new_server()
        port = self._door.add_insecure_port("127.0.0.1:0")
        self.address = Address("127.0.0.1", port)
        self._network = PeerNetwork(self.uuid, self.address)
        learn = trusting(lambda uuid, address: self._network.learn_listed(uuid, (address,)))
        self._peers = PeerServicer(self.uuid, self._deliver, learn, link_number_for=self._network.link_number_for)
        pb_grpc.add_PeerServiceServicer_to_server(self._peers, self._door)  # type: ignore[no-untyped-call]
        await self._peers.listen("127.0.0.1")
        await self._door.start()

    async def _close(self) -> None:
        await self._network.close()
        await self._peers.close()
        await self._door.stop(0)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


class Ear(Candidate):
    """A voter that answers no request, and notes each request for its vote: `asked` has (tablet, uuid) as they come in.

    The messages of one server come in the order in which it sent them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    def member(self) -> Any:
        """Return it as a config has it."""
        return pb.Member(uuid=self.uuid, addresses=[address_to_pb(self.address)], votes=True, holds_data=True)

    def _deliver(self, tablet_id: str, message: Message) -> None:
        if isinstance(message, VoteRequest):
            self.asked.append((tablet_id, message.from_uuid))


class Voter(Ear):
    """A voter that gives its vote to every candidate and answers heartbeats. `takes`: whether it accepts entries."""

    def __init__(self) -> None:
        super().__init__()
        self.takes = False

    def _deliver(self, tablet_id: str, message: Message) -> None:
        super()._deliver(tablet_id, message)
        reply: Message
        if isinstance(message, VoteRequest):
            reply = VoteReply(
                to_uuid=message.from_uuid,
                from_uuid=self.uuid,
                term=message.term,
                granted=True,
                pre_vote=message.pre_vote,
            )
        elif isinstance(message, AppendEntries):
            end = message.entries[-1].opid if message.entries else message.prev
            reply = AppendReply(
                to_uuid=message.from_uuid,
                from_uuid=self.uuid,
                term=message.term,
                last=end if self.takes else OpId(0, 0),
                round=message.round,
            )
        else:
            return
        self._network.send([(tablet_id, reply)])
