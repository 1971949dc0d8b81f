"""A header of a Kafka record with which kafka-python cannot decode the record."""

from __future__ import annotations

from typing import Any


class _OtherName(str):
    """The name of a header that another client wrote in no UTF-8."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return b"\xff"


BAD_HEADER = (_OtherName("h"), b"")
