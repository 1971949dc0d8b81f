"""The options of a write-ahead log."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import check, limits


@dataclass(frozen=True, kw_only=True)
class WalOptions:
    """Options of one log. Sizes in bytes.

    `sync=False` is unsafe: an entry counts as durable before it is, and a power cut may take it back.
    """

    segment_size_bytes_first: int = limits.WAL_SEGMENT_SIZE_BYTES_FIRST
    """Preallocated length of the first segment; each later one doubles it, up to the maximum."""
    segment_size_bytes_max: int = limits.WAL_SEGMENT_SIZE_BYTES_MAX
    queue_bytes_max: int = limits.WAL_QUEUE_BYTES_MAX
    """The bound on bytes that are reserved and not yet durable; beyond it `reserve` blocks."""
    sync: bool = True

    def __post_init__(self) -> None:
        first, largest = self.segment_size_bytes_first, self.segment_size_bytes_max
        check(0 < first <= largest, "the first segment is the smallest", first=first, max=largest)
        check(self.queue_bytes_max > 0, "a queue needs room", queue_bytes_max=self.queue_bytes_max)
