"""Makes framed files as a later build would write them."""

from __future__ import annotations

import struct

import google_crc32c


def later_version(data: bytes) -> bytes:
    """Return a framed file in the next format version. Its CRC-32C covers version and length, as that of every later
    format does (`schemas/DESIGN.md`)."""
    head = data[:4] + struct.pack("<I", struct.unpack_from("<I", data, 4)[0] + 1) + data[8:16]
    return head + struct.pack("<I", google_crc32c.value(head + data[20:])) + data[20:]
