"""Channels to other servers, one per address, for calls that are not consensus messages."""

from __future__ import annotations

from typing import Any

import grpc.aio

from nyala.replica.rpc import ANY_MEMBER, async_channel_to, credentials_of_process

CHANNELS_MAX = 256


class Channels:
    """A bounded cache of channels. When this process has new credentials, the cache makes new channels. Concurrency:
    the loop's thread."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        self._retired: list[grpc.aio.Channel] = []
        self._made_with: Any = None

    def get(self, address: str, to: str = ANY_MEMBER) -> grpc.aio.Channel:
        """The channel to `host:port`; `to`: as for `channel_to`."""
        own = credentials_of_process()
        if own is not None and own.grpc_channel is not self._made_with:
            self._made_with = own.grpc_channel
            self._retired += self._channels.values()  # calls under way end there
            self._channels.clear()
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
