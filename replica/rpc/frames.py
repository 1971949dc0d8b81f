"""Frames on connections of our own: four bytes of length, big-endian, then as many bytes."""

from __future__ import annotations

HEAD_BYTES = 4
_JOINED_BYTES_MAX = 256 << 10
"""A longer body is not copied only to be written at once with its head."""


def frame(body: bytes) -> bytes:
    """One frame."""
    return _head(body) + body


def frame_parts(body: bytes) -> tuple[bytes, ...]:
    """What to write for one frame: joined if that is cheaper than a second write."""
    return (frame(body),) if len(body) < _JOINED_BYTES_MAX else (_head(body), body)


def body_length(head: bytes | bytearray) -> int:
    """How many bytes follow the `HEAD_BYTES` of a head."""
    return int.from_bytes(head)


def _head(body: bytes) -> bytes:
    return len(body).to_bytes(HEAD_BYTES)
