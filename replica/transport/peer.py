"""The connection to one server: a bounded queue, the link, and reconnection with a bounded back-off."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc.aio

from nyala.replica.raft import AppendEntries, Message
from nyala.replica.rpc import fill_message, pb
from nyala.replica.types import Address, Post, Refused, limits
from nyala.replica.types.log_records import About, about

from .link import Link, open_link
from .options import PeerOptions

_log = logging.getLogger("nyala.transport")
_FIXED_BYTES = 64


@dataclass(frozen=True)
class PeerStatus:
    """The state of the link to the server `uuid`. `error`: why the last attempt or connection failed; empty if it did
    not."""

    uuid: str
    address: str
    connected: bool
    queued_messages: int
    queued_bytes: int
    sent_batches: int
    sent_messages: int
    dropped_messages: int
    error: str


@dataclass(eq=False)
class Peer:
    """The link to one server.

    Invariants: at most `queue_messages_max` messages wait; above it, every message is dropped. Above `queue_bytes_max`
    only appends with entries are dropped, unless the queue is empty; votes, heartbeats and replies are kept. When a
    connection breaks, the queue is dropped, because it will be out of date at the next one.
    Concurrency: the loop's thread only; one task, owned here, from the first message to `close`.
    """

    own_uuid: str
    own_address: Address
    dest_uuid: str
    addresses: tuple[Address, ...]
    options: PeerOptions
    on_state: Callable[[PeerStatus], None]
    process: int = 0
    soon: Post | None = None
    takeover: int = 0
    link_number_for: Callable[[str], int] = lambda uuid: 0
    """Returns the number that `OpenLink` carries to a server. By it that server finds that this process opens the
    link."""
    _pulse_due: bool = field(default=False, init=False)
    _queue: list[tuple[str, Message]] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)
    _wake: asyncio.Future[None] | None = field(default=None, init=False)
    _reconnect: bool = field(default=False, init=False)
    _link: Link | None = field(default=None, init=False)
    """The open link; None while there is no connection."""
    _pumping: bool = field(default=False, init=False)
    """Whether a write of the queue is scheduled, after the current event or in the next iteration."""
    _failures: int = field(default=0, init=False)
    _error: str = field(default="", init=False)
    _batches: int = field(default=0, init=False)
    _messages: int = field(default=0, init=False)
    _dropped: int = field(default=0, init=False)
    _batches_at_pulse: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._soon = self.soon or loop.call_soon
        self._task = loop.create_task(self._run(), name=f"peer {self.dest_uuid}")

    def put(self, tablet_id: str, message: Message) -> None:
        """Queue one message, or drop it."""
        size = _FIXED_BYTES
        if type(message) is AppendEntries and message.entries:
            for entry in message.entries:
                size += entry.size_bytes
            if self._bytes + size > self.options.queue_bytes_max and self._queue:
                self._dropped += 1
                return
        if len(self._queue) >= self.options.queue_messages_max:
            self._dropped += 1
            return
        self._queue.append((tablet_id, message))
        self._bytes += size
        self._send_soon()

    def pulse(self) -> None:
        """Send an empty batch, so that the other server hears this one, unless a batch left since the last call."""
        self._pulse_due = self._batches == self._batches_at_pulse
        self._batches_at_pulse = self._batches
        if self._pulse_due:
            self._send_soon()

    def _send_soon(self) -> None:
        if self._link is None:
            self._wake_up()
        elif not self._pumping and self._link.writable:
            # After the current event, so that everything for this server leaves as one batch.
            self._pumping = True
            self._soon(self._pump)

    def move(self, addresses: tuple[Address, ...]) -> None:
        """The network learned other addresses: connect to the first, unless the link goes there already."""
        same = bool(self.addresses) and self._link is not None and self._target() == addresses[0]
        self.addresses = addresses
        if not same:
            self._reconnect = True
            self._failures = 0
            self._wake_up()

    def relink(self) -> None:
        """Give the link up and connect again, at the same addresses: another process has taken over the uuid of the
        other end, or a config or a master names that server now, so that the link can be opened with its number."""
        self._reconnect = True
        self._wake_up()

    @property
    def linked_to(self) -> Address | None:
        """The address of the link's other end, if there is a link."""
        return self._target() if self._link is not None else None

    @property
    def unreachable(self) -> bool:
        """Whether there is no link, and the last attempt failed or no address is known. The server asks the masters
        for addresses of such servers."""
        return self._link is None and (bool(self._error) or not self.addresses)

    def status(self) -> PeerStatus:
        """The state of this link, and of its queue."""
        return PeerStatus(
            uuid=self.dest_uuid,
            address=str(self._target()) if self.addresses else "",
            connected=self._link is not None,
            queued_messages=len(self._queue),
            queued_bytes=self._bytes,
            sent_batches=self._batches,
            sent_messages=self._messages,
            dropped_messages=self._dropped,
            error=self._error,
        )

    def end(self) -> None:
        """End the link, without waiting for its task."""
        self._task.cancel()

    async def close(self) -> None:
        """End the link and its task."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _target(self) -> Address:
        return self.addresses[self._failures % len(self.addresses)]

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
            while not (self._queue or self._pulse_due) or not self.addresses:
                if self._queue and not self.addresses:
                    self._drop_queue()  # no address of that server is known; Raft will send again
                await self._sleep_until_woken()
            self._reconnect = False
            try:
                await self._session()
                continue  # to another address, or again by `relink`
            except grpc.aio.AioRpcError as error:
                self._note(f"{error.code().name}: {error.details()}")
            except (Refused, OSError) as error:
                self._note(str(error) or type(error).__name__)
            except asyncio.CancelledError:
                raise
            except Exception:  # noqa: BLE001 - task root
                self._log().exception("link to %s at %s ended", self.dest_uuid, self._target())
                self._note("internal error")
            self._drop_queue()
            self._failures += 1
            self.on_state(self.status())
            await self._back_off()

    def _log(self) -> About:
        return about(_log, process=self.own_uuid, peer=self.dest_uuid)

    def _note(self, text: str) -> None:
        if text != self._error:
            self._log().info("link to %s at %s ended: %s", self.dest_uuid, self._target(), text)
        self._error = text

    def _drop_queue(self) -> None:
        self._pulse_due = False
        self._dropped += len(self._queue)
        self._queue.clear()
        self._bytes = 0

    async def _back_off(self) -> None:
        doubled = self.options.backoff_first_ms << min(self._failures - 1, 16)
        delay_s = min(doubled, self.options.backoff_max_ms) / 1000
        loop = asyncio.get_running_loop()
        end = loop.time() + delay_s
        while not self._reconnect and (left := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._sleep_until_woken()
            except TimeoutError:
                return

    async def _session(self) -> None:
        """One connection, until it breaks (raises), or `move` or `relink` asks for another one (returns)."""
        loop, linked_at = asyncio.get_running_loop(), math.inf
        link = Link(self.options, self._pump)
        try:
            target, takeover = self._target(), self.takeover
            number = self.link_number_for(self.dest_uuid)
            await open_link(
                target, self.own_uuid, self.own_address, self.dest_uuid, self.options, link, takeover, number
            )
            self._link, linked_at = link, loop.time()
            self._error = ""
            self.on_state(self.status())
            link.ended.add_done_callback(self._wake_up)
            self._pump()
            while not self._reconnect:
                if link.ended.done():
                    link.ended.result()
                await self._sleep_until_woken()
        finally:
            if loop.time() - linked_at >= self.options.backoff_max_ms / 1000:
                self._failures = 0  # a link that the other end drops at once is no success
            self._link = None
            link.close()

    def _pump(self) -> None:
        """Write the queue, as far as the link takes it."""
        self._pumping = False
        link = self._link
        while link is not None and link.writable and (self._queue or self._pulse_due):
            link.send(self._take().SerializeToString())

    def _take(self) -> pb.PeerBatch:
        """One batch from the queue, up to its bounds: at least one message, or none for a sign of life."""
        self._pulse_due = False
        queue = self._queue
        bound = self.options.batch_bytes_max
        if self._bytes <= min(bound, _FIXED_BYTES * limits.PEER_BATCH_ENTRIES_SENT):
            # Each message and each entry counts as at least `_FIXED_BYTES`, so there are not too many of them either.
            taken, self._queue, self._bytes = queue, [], 0
        else:
            total = entries = count = 0
            for _, message in queue:
                size = _size(message)
                entries += len(message.entries) if type(message) is AppendEntries else 0
                over = total + size > bound or entries > limits.PEER_BATCH_ENTRIES_SENT
                if (count and over) or count == limits.PEER_BATCH_MESSAGES_MAX:
                    break
                total += size
                count += 1
            taken = queue[:count]
            del queue[:count]
            self._bytes -= total
        self._batches += 1
        self._messages += len(taken)
        batch = pb.PeerBatch(
            from_uuid=self.own_uuid, dest_uuid=self.dest_uuid, process=self.process, takeover=self.takeover
        )
        for tablet_id, message in taken:
            fill_message(batch.messages.add(), tablet_id, message)
        return batch


def _size(message: Message) -> int:
    size = _FIXED_BYTES
    if type(message) is AppendEntries:
        for entry in message.entries:
            size += entry.size_bytes
    return size
