"""Which of its orders a server is given with this heartbeat's reply: as many as fit, each of them some day. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from nyala.replica.rpc import pb
from nyala.replica.types import limits

ORDERS_MAX = 200
"""In one reply; the rest follows with the next heartbeat."""
CREATIONS_MAX = 150
CREATIONS_BYTES_MAX = limits.ORDERS_BYTES_MAX - (256 << 10)
"""What creations leave free in one reply, so that some which fail for ever do not hold up the other orders."""


class OrderBatch:
    """The orders of one reply."""

    def __init__(self) -> None:
        self.orders: list[pb.TabletOrder] = []
        self._used = 0

    def fill(
        self,
        tablet_ids: Sequence[str],
        after: str,
        order_of: Callable[[str], pb.TabletOrder | None],
        count_max: int = ORDERS_MAX,
        bytes_max: int = limits.ORDERS_BYTES_MAX,
    ) -> str:
        """Add orders for these sorted tablets, from behind `after` on and around, until the reply has `count_max` or
        the next one does not fit; the tablet to begin behind next time. Orders that are not added are not made."""
        begin = bisect_right(tablet_ids, after)
        for tablet_id in (*tablet_ids[begin:], *tablet_ids[:begin]):
            if len(self.orders) >= count_max:
                break
            order = order_of(tablet_id)
            if order is None:
                continue
            size = order.ByteSize() + 8
            if self.orders and self._used + size > bytes_max:
                break
            self._used += size
            self.orders.append(order)
            after = tablet_id
        return after
