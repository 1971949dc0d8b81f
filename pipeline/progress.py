"""One line, or one JSON object, per micro-batch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

QUERY_STARTS = "query_starts"
QUERY_ENDED = "query_ended"
"""Events of a run: its query is about to start; its query ended by itself, with all records stored."""


@dataclass
class Progress:
    """What one micro-batch did. `ends`: first offset after it, by Kafka partition."""

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
        """Records per second of wall clock."""
        return self.records / self.duration_s if self.duration_s else 0.0

    def line(self) -> str:
        """For a person."""
        text = f"micro-batch {self.batch_id}: {self.records:,} records in {self.duration_s:.2f} s ({self.rate:,.0f}/s)"
        text += f", {self.applied:,} applied in {self.batches} batches"
        text += f", tasks {self.task_s:.2f} s of it decoding {self.decode_s:.2f} s"
        if self.replayed:
            text += f", {self.replayed:,} already there"
        if self.dead_letters:
            text += f", {self.dead_letters:,} dead letters"
        return text

    def json(self) -> str:
        """For a program: one object on one line."""
        return json.dumps({"event": "micro_batch", "rate": round(self.rate), **asdict(self)})
