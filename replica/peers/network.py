"""Outgoing streams: SIGNATURES ONLY for now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nyala.replica.base import Address, RaftConfig

from .options import PeerOptions


class PeerNetwork:
    """All outgoing streams of one server. Concurrency: the loop's thread only."""

    def __init__(self, uuid: str, address: Address, options: PeerOptions | None = None) -> None: ...

    def send(self, messages: Sequence[tuple[str, Any]]) -> None:
        """Queue (tablet id, raft message) pairs by their to_uuid; never blocks, never raises for a missing peer."""

    def learn(self, uuid: str, addresses: Sequence[Address]) -> None:
        """A member's addresses; a change makes the next connect use them."""

    def learn_config(self, config: RaftConfig) -> None: ...

    async def close(self) -> None: ...
