"""The list of a log's segments, the holds on them, and which of them log GC may remove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from .format import Header
from .handles import Anchor, SegmentInfo


class Retention:
    """The segments of one log, oldest first, and the holds on them. Concurrency: under the log's lock."""

    def __init__(self, segments: Sequence[SegmentInfo], headers: dict[int, Header]) -> None:
        self.segments = list(segments)
        self.headers = headers
        self.anchors: set[Anchor] = set()
        self._holds: Counter[int] = Counter()

    @property
    def size_bytes(self) -> int:
        """Bytes of the content of all segments."""
        return sum(info.length_bytes for info in self.segments)

    def publish(self, info: SegmentInfo, header: Header) -> None:
        """Note that a group commit reached the newest segment, or began another."""
        self.headers[info.number] = header
        if self.segments and self.segments[-1].number == info.number:
            self.segments[-1] = info
        else:
            self.close_newest()
            self.segments.append(info)

    def close_newest(self) -> None:
        """Note that nothing more will be written to the newest segment."""
        if self.segments:
            self.segments[-1] = replace(self.segments[-1], closed=True)

    def hold(self, numbers: Sequence[int]) -> None:
        """Keep these segments' files until `release`."""
        self._holds.update(numbers)

    def release(self, numbers: Sequence[int]) -> None:
        self._holds.subtract(numbers)

    def pop_oldest(self, keep_from_index: int) -> SegmentInfo | None:
        """Take the oldest segment off the list if it is not needed; None if it must stay.

        It must stay if it is open or held, or ever contained an entry at or above the index or an anchor.
        """
        keep = min([keep_from_index, *(anchor.index for anchor in self.anchors)])
        info = self.segments[0] if self.segments else None
        if info is None or not info.closed or info.last_index >= keep:
            return None
        if self._holds[info.number] > 0:
            return None
        self.headers.pop(info.number, None)
        return self.segments.pop(0)

    def list_again(self, info: SegmentInfo) -> None:
        """Put back the segment that was popped last, because it could not be removed."""
        self.segments.insert(0, info)
