"""Reports each micro-batch as one line, or one JSON object."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

QUERY_STARTS = "query_starts"
QUERY_ENDED = "query_ended"
"""Events of a run: its query is about to start, or its query ended by itself, with all records stored."""


@dataclass
class Progress:
    """The totals of one micro-batch. `ends`: first offset after it, by Kafka partition."""

    batch_id: int
    duration_s: float
    ends: dict[int, int] = field(default_factory=dict)
    records: int = 0
    rows: int = 0
    applied: int = 0
    replayed: int = 0
    dead_letters: int = 0
    batches: int = 0
    bytes_sent: int = 0
    decode_s: float = 0.0
    task_s: float = 0.0

    def add(self, row: Any) -> None:
        """Add a task's totals: a row of task.RESULT_SCHEMA."""
        self.records += row.records
        self.rows += row.rows
        self.applied += row.applied
        self.replayed += row.replayed
        self.dead_letters += row.dead_letters
        self.batches += row.batches
        self.bytes_sent += row.bytes
        self.decode_s += row.decode_us / 1e6
        self.task_s += row.task_us / 1e6

    @property
    def rate(self) -> float:
        """Return the records per second of wall-clock time."""
        return self.records / self.duration_s if self.duration_s else 0.0

    def line(self) -> str:
        """Return one line for an operator."""
        text = f"micro-batch {self.batch_id}: {self.records:,} records in {self.duration_s:.2f} s ({self.rate:,.0f}/s)"
        text += f", {self.applied:,} applied in {self.batches} batches"
        text += f", tasks {self.task_s:.2f} s of it decoding {self.decode_s:.2f} s"
        if self.replayed:
            text += f", {self.replayed:,} already there"
        if self.dead_letters:
            text += f", {self.dead_letters:,} dead letters"
        return text

    def json(self) -> str:
        """Return one object on one line, for a program."""
        return json.dumps({"event": "micro_batch", "rate": round(self.rate), **asdict(self)})
