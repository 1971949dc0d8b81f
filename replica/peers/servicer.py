"""Incoming streams: SIGNATURES ONLY for now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nyala.replica.base import Address


class PeerServicer:
    """`pb_grpc.add_PeerServiceServicer_to_server(PeerServicer(uuid, deliver), server)`."""

    def __init__(
        self,
        local_uuid: str,
        deliver: Callable[[str, Any], None],  # (tablet_id, raft message), on the loop, in order per sender
        on_peer: Callable[[str, Address], None] = lambda uuid, address: None,  # where a sender says it listens
    ) -> None: ...
