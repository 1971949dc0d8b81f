"""The framing of records' values, by which a value names its writer schema. A table's source declares it; it is never
guessed.

A bare datum can begin with any bytes, even with those of another framing, so the bytes alone do not show the framing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from nyala.pipeline.avro_columns import I64

SINGLE_OBJECT_MAGIC = b"\xc3\x01"


class Framing(StrEnum):
    """The values are stored in the catalog: never rename."""

    SINGLE_OBJECT = "single-object"
    """C3 01, then the writer schema's CRC-64-AVRO fingerprint, little-endian: ten bytes."""
    CONFLUENT = "confluent"
    """00, then the writer schema's registry id, big-endian: five bytes."""
    BARE = "bare"
    """The value has no header: every value is written with the one schema that the source declares."""


HEADER_BYTES = {Framing.SINGLE_OBJECT: 10, Framing.CONFLUENT: 5, Framing.BARE: 0}


def wrap(framing: Framing, datum: bytes, *, fingerprint: bytes = b"", registry_id: int = 0) -> bytes:
    """Return a framed value; `fingerprint`: from `schemas.fingerprint64`."""
    if framing is Framing.SINGLE_OBJECT:
        return SINGLE_OBJECT_MAGIC + fingerprint + datum
    if framing is Framing.CONFLUENT:
        return b"\x00" + registry_id.to_bytes(4, "big") + datum
    return datum


def writer_ids(framing: Framing, data: Any, starts: I64, ends: I64) -> tuple[npt.NDArray[np.uint64], Any]:
    """Return (id of each value's writer schema, whether the header is well formed), both of shape (rows,).

    The id is the fingerprint's eight bytes as a little-endian number, the registry id, or 0 for bare values.
    """
    count = starts.size
    if framing is Framing.BARE or count == 0:
        return np.zeros(count, np.uint64), np.ones(count, bool)
    size = HEADER_BYTES[framing]
    long_enough = ends - starts >= size
    last = max(0, data.size - 1)
    head = data[np.minimum(starts[:, None] + np.arange(size), last)] if data.size else np.zeros((count, size), np.uint8)
    if framing is Framing.SINGLE_OBJECT:
        good = long_enough & (head[:, 0] == 0xC3) & (head[:, 1] == 0x01)
        return np.ascontiguousarray(head[:, 2:10]).view("<u8")[:, 0].astype(np.uint64), good
    good = long_enough & (head[:, 0] == 0)
    return np.ascontiguousarray(head[:, 1:5]).view(">u4")[:, 0].astype(np.uint64), good


def fingerprint_id(fingerprint: bytes) -> int:
    """Return the id that `writer_ids` computes for this fingerprint."""
    return int.from_bytes(fingerprint, "little")
