"""Channels to other servers, one per address, for calls that are not consensus messages."""

from __future__ import annotations

import grpc.aio

from nyala.replica.rpc import ANY_MEMBER, async_channel_to

CHANNELS_MAX = 256


class Channels:
    """A bounded cache of channels. Concurrency: the loop's thread."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        self._retired: list[grpc.aio.Channel] = []

    def get(self, address: str, to: str = ANY_MEMBER) -> grpc.aio.Channel:
        """The channel to `host:port`; `to`: as for `channel_to`."""
        channel = self._channels.get((address, to))
        if channel is None:
            if len(self._channels) >= CHANNELS_MAX:
                self._retired.append(self._channels.pop(next(iter(self._channels))))
            channel = self._channels[address, to] = async_channel_to(address, to=to)
        return channel

    async def close(self) -> None:
        """Close all channels."""
        for channel in (*self._channels.values(), *self._retired):
            await channel.close()
        self._channels.clear()
        self._retired.clear()
