"""Frames as bytes: other builds read them."""

from __future__ import annotations

import pytest

from nyala.replica.rpc import HEAD_BYTES, body_length, frame, frame_parts


def test_frame_is_a_length_of_four_bytes_and_the_body() -> None:
    """Goal: two builds understand each other. Method: bytes written down."""
    assert frame(b"") == b"\0\0\0\0"
    assert frame(b"abc") == b"\0\0\0\3abc"
    assert frame(b"x" * 0x010203)[:5] == b"\0\1\2\3x"
    assert body_length(b"\0\1\2\3") == 0x010203


@pytest.mark.parametrize("length", [0, 1, (256 << 10) - 1, 256 << 10, 1 << 20])
def test_parts_of_a_frame_are_the_frame(length: int) -> None:
    """Goal: how it is written does not matter. Method: short and long bodies; a long one is not copied."""
    body = b"x" * length
    parts = frame_parts(body)
    assert b"".join(parts) == frame(body) and body_length(parts[0][:HEAD_BYTES]) == length
    assert len(parts) == 1 or parts[1] is body
