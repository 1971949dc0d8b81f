"""Channels to other servers, one per address, for calls that are not consensus messages."""

from __future__ import annotations

import grpc.aio

from nyala.replica.rpc import async_channel_to

CHANNELS_MAX = 256


class Channels:
    """A bounded cache of channels. Concurrency: the loop's thread."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._retired: list[grpc.aio.Channel] = []

    def get(self, address: str) -> grpc.aio.Channel:
        """The channel to `host:port`."""
        channel = self._channels.get(address)
        if channel is None:
            if len(self._channels) >= CHANNELS_MAX:
                self._retired.append(self._channels.pop(next(iter(self._channels))))
            channel = self._channels[address] = async_channel_to(address)
        return channel

    async def close(self) -> None:
        """Close all channels."""
        for channel in (*self._channels.values(), *self._retired):
            await channel.close()
        self._channels.clear()
        self._retired.clear()
