"""The data beside a batch: its origin, the outcome of single rows, and the payload's checksum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c

from nyala import schemas
from nyala.replica.types import Corruption, RowCode

_IGNORE_NULL, _ROWS_BOUNDED = 1, 2
_MARKS_KNOWN = {bytes([marks]) if marks else b"": marks for marks in range(4)}
"""The flags in `reserved`: it has no byte, or one byte with at least one flag set."""
_FIELDS = ("rows", "generation", "after", "done", "client_id", "sequence", "first_incomplete")
"""Fields of `WriteMeta` that its Avro record has under the same names, as they are."""


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C (Castagnoli) of `data`."""
    return int(google_crc32c.value(data if isinstance(data, bytes) else bytes(data)))


class SourceKey(NamedTuple):
    """One Kafka partition of one topic id: a topic that was deleted and created again has another id."""

    cluster_id: str
    topic_id: str
    kafka_partition: int


class RowError(NamedTuple):
    """The reason why the row at `offset` of its source was not applied."""

    offset: int
    code: RowCode
    column: str = ""

    def __str__(self) -> str:
        return f"row {self.offset}: {self.code.name}" + (f" in column {self.column!r}" if self.column else "")


@dataclass(frozen=True)
class WriteMeta:
    """The meta of a WRITE entry. Either `source` is set, or `client_id`, or neither for a write without a ledger.

    `after`: the last offset of the batch that was sent to this tablet before, acknowledged or not. For a sender's first
    batch, it is the highest offset that the tablet acknowledged; None on a cold start. `done`: errors remembered below
    it may be forgotten. `first_incomplete`: the same for a client's results.
    """

    column_ids: tuple[int, ...]
    rows: int
    source: SourceKey | None = None
    generation: int = 0
    after: int | None = None
    done: int = 0
    client_id: str = ""
    sequence: int = 0
    first_incomplete: int = 0
    ignore_null: bool = False
    """Whether upserts and updates leave a column unchanged if its value is null. In `reserved`, so older builds refuse
    it."""
    rows_bounded: bool = False
    """Whether a row that would become longer than ROW_SIZE_BYTES_MAX, with the values that the batch leaves out, is an
    error. In `reserved`, too; entries without it are from before that rule, and keep their outcome."""

    def encode(self) -> bytes:
        """The bare Avro `WriteMeta`."""
        marks = _IGNORE_NULL * self.ignore_null | _ROWS_BOUNDED * self.rows_bounded
        return schemas.encode(
            "write_meta",
            {
                **{name: getattr(self, name) for name in _FIELDS},
                "column_ids": list(self.column_ids),
                "source": None if self.source is None else self.source._asdict(),
                "reserved": bytes([marks]) if marks else b"",
            },
        )

    @classmethod
    def decode(cls, data: bytes) -> WriteMeta:
        """The inverse of `encode`; Corruption if `data` is not such a datum, because only this project writes them."""
        try:
            raw = schemas.decode("write_meta", data)
        except ValueError as e:
            raise Corruption("a WRITE entry's meta cannot be decoded", bytes=len(data), reason=str(e)) from e
        marks = _MARKS_KNOWN.get(raw["reserved"])
        if marks is None:
            raise Corruption("a WRITE entry's meta carries fields of a newer build", bytes=len(raw["reserved"]))
        source = raw["source"]
        return cls(
            **{name: raw[name] for name in _FIELDS},
            column_ids=tuple(raw["column_ids"]),
            source=None if source is None else SourceKey(**source),
            ignore_null=bool(marks & _IGNORE_NULL),
            rows_bounded=bool(marks & _ROWS_BOUNDED),
        )
