"""One outgoing stream: a bounded queue, one task that writes it out, and reconnection with capped back-off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from nyala.replica.base import Address
from nyala.replica.raft import AppendEntries, Message
from nyala.replica.rpc import address_to_pb, error_from_pb, pb, pb_grpc

from .encode import add_message
from .options import CHANNEL_OPTIONS, PeerOptions

_log = logging.getLogger("nyala.peers")
_FIXED_BYTES = 64


@dataclass(frozen=True)
class PeerChannelStatus:
    """State of one outgoing stream. `error` is what ended the last connection, empty if none did."""

    uuid: str
    address: str
    connected: bool
    queued_messages: int
    queued_bytes: int
    sent_batches: int
    sent_messages: int
    dropped_messages: int
    error: str


class PeerChannel:
    """The stream to one server.

    Invariants: at most `queue_bytes_max` of entries wait; over it, appends are dropped and votes, heartbeats and
    replies are kept. What waits when a connection breaks is dropped: it is stale by the time of the next one.
    Concurrency: the loop's thread only; one task, owned here, from the first message to `close`.
    """

    def __init__(
        self,
        uuid: str,
        address: Address,
        dest_uuid: str,
        addresses: tuple[Address, ...],
        options: PeerOptions,
        on_state: Callable[[PeerChannelStatus], None],
    ) -> None:
        self._uuid = uuid
        self._address = address
        self._dest_uuid = dest_uuid
        self._addresses = addresses
        self._options = options
        self._on_state = on_state
        self._queue: list[tuple[str, Message]] = []
        self._bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._moved = False
        self._connected = False
        self._failures = 0
        self._error = ""
        self._batches = 0
        self._messages = 0
        self._dropped = 0
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"peer {dest_uuid}")

    def put(self, tablet_id: str, message: Message) -> None:
        """Queue one message, or drop it."""
        size = _FIXED_BYTES
        if type(message) is AppendEntries and message.entries:
            for entry in message.entries:
                size += entry.size_bytes
            if self._bytes + size > self._options.queue_bytes_max and self._queue:
                self._dropped += 1
                return
        if len(self._queue) >= self._options.queue_messages_max:
            self._dropped += 1
            return
        self._queue.append((tablet_id, message))
        self._bytes += size
        self._wake_up()

    def move(self, addresses: tuple[Address, ...]) -> None:
        """Other addresses are known now: connect to the first, unless that is where the stream goes already."""
        same = bool(self._addresses) and self._connected and self._target() == addresses[0]
        self._addresses = addresses
        if not same:
            self._moved = True
            self._failures = 0
            self._wake_up()

    def status(self) -> PeerChannelStatus:
        """What this stream did and what waits."""
        return PeerChannelStatus(
            uuid=self._dest_uuid,
            address=str(self._target()) if self._addresses else "",
            connected=self._connected,
            queued_messages=len(self._queue),
            queued_bytes=self._bytes,
            sent_batches=self._batches,
            sent_messages=self._messages,
            dropped_messages=self._dropped,
            error=self._error,
        )

    async def close(self) -> None:
        """End the stream and its task."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _target(self) -> Address:
        return self._addresses[self._failures % len(self._addresses)]

    def _wake_up(self, *_: object) -> None:
        wake = self._wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def _sleep_until_woken(self) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    async def _run(self) -> None:
        while True:
            while not self._queue or not self._addresses:
                if self._queue and not self._addresses:
                    self._drop_queue()  # nobody knows where that server is; Raft will ask again
                await self._sleep_until_woken()
            self._moved = False
            try:
                await self._session()
                continue  # moved
            except grpc.aio.AioRpcError as error:
                self._note(f"{error.code().name}: {error.details()}")
            except (grpc.aio.UsageError, asyncio.InvalidStateError, OSError, _Rejected) as error:
                self._note(str(error))
            except asyncio.CancelledError:
                raise
            except Exception:  # noqa: BLE001 - task root
                _log.exception("P %s stream to %s at %s ended", self._uuid, self._dest_uuid, self._target())
                self._note("internal error")
            self._drop_queue()
            self._failures += 1
            self._on_state(self.status())
            await self._back_off()

    def _note(self, text: str) -> None:
        if text != self._error:
            _log.info("P %s stream to %s at %s ended: %s", self._uuid, self._dest_uuid, self._target(), text)
        self._error = text

    def _drop_queue(self) -> None:
        self._dropped += len(self._queue)
        self._queue.clear()
        self._bytes = 0

    async def _back_off(self) -> None:
        doubled = self._options.backoff_first_ms << min(self._failures - 1, 16)
        delay_s = min(doubled, self._options.backoff_max_ms) / 1000
        loop = asyncio.get_running_loop()
        end = loop.time() + delay_s
        while not self._moved and (left := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._sleep_until_woken()
            except TimeoutError:
                return

    async def _session(self) -> None:
        """One connection, until it breaks (raises) or the server's address changes (returns)."""
        async with grpc.aio.insecure_channel(str(self._target()), options=CHANNEL_OPTIONS) as channel:
            async with asyncio.timeout(self._options.connect_timeout_ms / 1000):
                await channel.channel_ready()
            call = pb_grpc.PeerServiceStub(channel).Exchange()  # type: ignore[no-untyped-call]
            acks = asyncio.create_task(self._read_acks(call))
            acks.add_done_callback(self._wake_up)
            try:
                self._connected = True
                while not self._moved:
                    if acks.done():
                        acks.result()
                        raise _Rejected("the server ended the stream")
                    if self._queue:
                        await call.write(self._take())
                    else:
                        await self._sleep_until_woken()
            finally:
                self._connected = False
                call.cancel()
                acks.cancel()
                await asyncio.gather(acks, return_exceptions=True)

    async def _read_acks(self, call: Any) -> None:
        async for ack in call:
            refusal = error_from_pb(ack.error)
            if refusal is not None:
                raise _Rejected(str(refusal))
            self._failures = 0
            self._error = ""
            self._on_state(self.status())

    def _take(self) -> pb.PeerBatch:
        """Everything that waits, up to one batch's bound; at least one message."""
        queue = self._queue
        bound = self._options.batch_bytes_max
        if self._bytes <= bound:
            taken, self._queue, self._bytes = queue, [], 0
        else:
            total = count = 0
            for _, message in queue:
                size = _size(message)
                if count and total + size > bound:
                    break
                total += size
                count += 1
            taken = queue[:count]
            del queue[:count]
            self._bytes -= total
        self._batches += 1
        self._messages += len(taken)
        batch = pb.PeerBatch(from_uuid=self._uuid, dest_uuid=self._dest_uuid, from_address=address_to_pb(self._address))
        for tablet_id, message in taken:
            add_message(batch, tablet_id, message)
        return batch


class _Rejected(Exception):
    """The server refused the stream or ended it."""


def _size(message: Message) -> int:
    size = _FIXED_BYTES
    if type(message) is AppendEntries:
        for entry in message.entries:
            size += entry.size_bytes
    return size
