"""Reports what opening would find in a log's folder. Changes no file."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import Disk, OpId

from .handles import SegmentInfo
from .index import TermRuns
from .recovery import joined_marks, read_all, standing_mark


@dataclass(frozen=True, kw_only=True)
class LogReport:
    """A log as it is on disk. Whole blocks only: entries that opening would save from a broken last block do not
    count."""

    segments: tuple[SegmentInfo, ...]
    terms: TermRuns
    withheld: OpId | None = None
    """An entry at the end that may have been acknowledged and is damaged or missing; with one the replica would not
    vote."""
    torn: str = ""
    """A text that says what opening would cut from the end, and where; empty if nothing."""

    @property
    def first_index(self) -> int:
        """The first index; 0 if there is none."""
        return self.terms.first_index

    @property
    def last(self) -> OpId:
        """The last OpId; ZERO_OPID if there is none."""
        return self.terms.last

    @property
    def size_bytes(self) -> int:
        """Bytes of the content of all segments."""
        return sum(s.length_bytes for s in self.segments)


def inspect_log(disk: Disk, folder: str, tablet_id: str) -> LogReport:
    """Read every byte of a closed log. Raises Corruption, as `Log.open` would, with the broken segment and place."""
    found, broken = read_all(disk, folder, tablet_id)
    withheld = standing_mark(disk, folder, found.index.terms.last)
    torn = ""
    if broken is not None:
        info, damage = broken
        if damage.withheld is not None:
            withheld = joined_marks(damage.withheld, withheld)
        else:
            torn = f"{damage.what}: {info.name} byte {damage.byte_offset}"
    return LogReport(segments=tuple(found.segments), terms=found.index.terms, withheld=withheld, torn=torn)
