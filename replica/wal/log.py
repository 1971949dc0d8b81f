"""One tablet's log (signatures; the body follows)."""

from __future__ import annotations

from collections.abc import Sequence

from nyala.replica.base import Disk, Entry, OpId

from .options import WalOptions
from .records import Anchor, Pin, Replay, SegmentInfo
from .reservation import OnDurable, Reservation


class Log:
    """Segments of one tablet."""

    @classmethod
    def open(
        cls, disk: Disk, folder: str, tablet_id: str, options: WalOptions | None = None, *, threaded: bool = True
    ) -> tuple[Log, Replay]:
        """Recover what is there, or begin."""
        raise NotImplementedError

    first_index: int
    last: OpId
    last_reserved: OpId
    queued_bytes: int
    size_bytes: int

    def reserve(self, entries: Sequence[Entry]) -> Reservation:
        raise NotImplementedError

    def append_async(self, reservation: Reservation, on_durable: OnDurable) -> None:
        raise NotImplementedError

    def append(self, entries: Sequence[Entry], on_durable: OnDurable) -> None:
        raise NotImplementedError

    def drain(self) -> None:
        raise NotImplementedError

    def read(self, lo: int, hi: int, max_bytes: int) -> list[Entry]:
        raise NotImplementedError

    def term_at(self, index: int) -> int | None:
        raise NotImplementedError

    def truncate_after(self, index: int) -> None:
        raise NotImplementedError

    def roll(self) -> None:
        raise NotImplementedError

    def gc(self, keep_from_index: int) -> int:
        raise NotImplementedError

    def anchor(self, index: int) -> Anchor:
        raise NotImplementedError

    def pin(self) -> Pin:
        raise NotImplementedError

    def segments(self) -> list[SegmentInfo]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
