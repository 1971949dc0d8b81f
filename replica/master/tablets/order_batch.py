"""Chooses the orders that fit into the reply to one heartbeat. Over several replies, each order has its turn. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from nyala.replica.rpc import pb
from nyala.replica.types import limits

ORDERS_MAX = 200
"""The most orders in one reply; the rest follows with the next heartbeat."""
CREATIONS_MAX = 150
CREATIONS_BYTES_MAX = limits.ORDERS_BYTES_MAX - (256 << 10)
"""The most bytes of creations in one reply. The rest is room for other orders, so that creations that always fail do
not delay those."""


def around(tablet_ids: Sequence[str], after: str) -> list[str]:
    """These sorted tablets in turn: first those after `after`, then the others."""
    begin = bisect_right(tablet_ids, after)
    return [*tablet_ids[begin:], *tablet_ids[:begin]]


class OrderBatch:
    """The orders of one reply."""

    def __init__(self) -> None:
        self.orders: list[pb.TabletOrder] = []
        self._used = 0

    def fill(
        self,
        orders: Iterable[tuple[str, pb.TabletOrder]],
        count_max: int = ORDERS_MAX,
        bytes_max: int = limits.ORDERS_BYTES_MAX,
    ) -> str:
        """Add these orders, each with its tablet, until the reply has `count_max` of them, or the next one does not
        fit.

        Returns the tablet of the last added order, or "". `orders` is read only as far as needed.
        """
        last = ""
        if len(self.orders) >= count_max:
            return last
        for tablet_id, order in orders:
            size = order.ByteSize() + 8
            if self.orders and self._used + size > bytes_max:
                break
            self._used += size
            self.orders.append(order)
            last = tablet_id
            if len(self.orders) >= count_max:
                break
        return last
