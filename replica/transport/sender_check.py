"""Finds whether the process that opens a link is the member that it names: it is asked for at a known address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from enum import Enum

import grpc
import grpc.aio

from nyala.replica.rpc import (
    ANSWER_CHANNEL_OPTIONS,
    CallBounds,
    CallsInFlight,
    channel_for_one_call,
    check_reply,
    pb,
    pb_grpc,
)
from nyala.replica.types import Address, Code, Refused, limits

from .network import PeerNetwork

_log = logging.getLogger("nyala.transport")
ASK_TIMEOUT_S = 1.0
"""The time-out of a call. Two of them, one after the other, are shorter than the sender's wait for its link."""


class Answer(Enum):
    """The answer at an address where a server is known: its process is the sender, another one, or not there."""

    SAME = 1
    OTHER = 2
    ABSENT = 3


async def ask(own_uuid: str, uuid: str, address: Address, link_number: int) -> Answer:
    """Whether the process of server `uuid` at `address` opens its links to `own_uuid` with that link number.
    Never raises.

    A process of 0.2.0 does not know the call, and sends no link number. It only has to be there.
    """
    try:
        async with channel_for_one_call(address, ANSWER_CHANNEL_OPTIONS, to=uuid) as channel:
            stub = pb_grpc.PeerServiceStub(channel)
            request = pb.ProcessRequest(dest_uuid=uuid, from_uuid=own_uuid, process=link_number)
            try:
                reply = check_reply(await stub.IsProcess(request, timeout=ASK_TIMEOUT_S), "the server")
                if reply.error.code:
                    return Answer.ABSENT
                return Answer.SAME if reply.same and link_number else Answer.OTHER
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
            there = pb.OpenLinkRequest(from_uuid=own_uuid, dest_uuid=uuid)  # without an address: it learns nothing
            refused = check_reply(await stub.OpenLink(there, timeout=ASK_TIMEOUT_S), "the server").error.code
            if refused == Code.INVALID_NAME:
                return Answer.ABSENT
            return Answer.OTHER if link_number else Answer.SAME
    except Refused:
        return Answer.ABSENT


def is_proven(answers: Iterable[Sequence[Answer]]) -> bool:
    """Whether the answers prove the sender: of its process, and of no other one. Pure.

    `answers`: by source of addresses, the most trusted one first. The first source decides at one of whose addresses
    any process of the uuid answers.
    """
    for found in answers:
        if set(found) - {Answer.ABSENT}:
            return Answer.OTHER not in found
    return False


class SenderCheck:
    """Asks for the senders of links at the addresses where this server knows them.

    Invariants: a sender counts as a member only if its process answered at an address that a config here, the masters
    or the command line give, and no other process of its uuid did; its own word for its address counts only if it
    answered there too. Bounded: calls under way, in all and for each host; their time. Concurrency: the loop's thread.
    """

    def __init__(self, uuid: str, network: PeerNetwork, told: Sequence[Address] = ()) -> None:
        """`told`: addresses of members on the command line, for uuids that no config and no master names."""
        self._uuid = uuid
        self._network = network
        self._told = tuple(told)
        self._calls = CallsInFlight(CallBounds(limits.LINK_CALLS_MAX, limits.LINK_CALLS_PER_HOST_MAX))

    async def is_member(self, uuid: str, link_number: int, address: Address | None, host: str) -> bool:
        """Whether the sender, which calls from `host`, is the member `uuid`; its address is learned if it is.

        `link_number`: that of its request. `address`: the one that it gives.
        """
        sources = self._network.trusted(uuid)
        if not sources and not self._network.knows(uuid):
            sources = (self._told,)
        if not self._network.knows(uuid) and address is not None:
            self._network.hint(uuid, address)
        try:
            call = self._calls.begin(host)
        except Refused:
            return False
        try:
            answers = await asyncio.gather(*(self._ask(uuid, places, link_number) for places in sources))
            if not is_proven(answers):
                return False
            known = {place for places in sources for place in places}
            if address is not None and (
                address in known or await ask(self._uuid, uuid, address, link_number) is Answer.SAME
            ):
                self._network.learn(uuid, (address,))
            return True
        finally:
            call.end()

    async def _ask(self, uuid: str, places: Sequence[Address], link_number: int) -> list[Answer]:
        asked = (ask(self._uuid, uuid, at, link_number) for at in places[: limits.SERVER_ADDRESSES_MAX])
        return await asyncio.gather(*asked)
