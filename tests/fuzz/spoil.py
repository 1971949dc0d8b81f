"""Changes bytes whatever they mean: cut, flipped, overwritten, doubled, swapped, with false lengths."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

INPUT_BYTES_MAX = 1 << 20
"""Bounds the inputs: what is refused by its length alone needs one input, not thousands."""
WORDS = (0, 1, 2, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1)
LONGS = (0, 1, -1, 2**31, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, -(2**63))


def bits(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def cut(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    return data[: rng.randrange(len(data))]


def drop(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 4, 8, 64, 512))]
    return data


def insert(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8, 64, 512))
    data[at:at] = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size)))
    return data


def word(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    form = rng.choice(("<I", ">I", "<H", ">H", "<B"))
    size = struct.calcsize(form)
    if len(data) >= size:
        at = rng.randrange(len(data) - size + 1)
        at -= at % rng.choice((1, size))
        struct.pack_into(form, data, at, rng.choice(WORDS) & ((1 << 8 * size) - 1))
    return data


def long(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    if len(data) >= 8:
        at = rng.randrange(len(data) - 7)
        at -= at % rng.choice((1, 8))
        struct.pack_into(rng.choice(("<q", ">q")), data, at, rng.choice(LONGS))
    return data


def zeros(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    at, size = rng.randrange(len(data)), rng.choice((1, 8, 64, 512, 4096))
    data[at : at + size] = bytes(len(data[at : at + size]))
    return data


def double(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    """Repeat a part once or often."""
    at, size = rng.randrange(len(data)), rng.choice((1, 2, 8, 64, 512, 4096))
    part = data[at : at + size]
    times = rng.choice((1, 1, 2, 16, 256, 4096))
    data[at:at] = part * min(times, 1 + (64 << 10) // max(1, len(part)))
    return data


def swap(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    """Swap two parts of one length."""
    size = rng.choice((1, 4, 8, 64, 512))
    if len(data) >= 2 * size:
        one, two = sorted((rng.randrange(len(data) - size + 1), rng.randrange(len(data) - size + 1)))
        if one + size <= two:
            data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]
    return data


def splice(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> bytearray:
    """Continue the input as another valid input."""
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


Spoil = Callable[[bytearray, random.Random, Sequence[bytes]], bytearray]
WAYS: tuple[Spoil, ...] = (bits, bits, cut, drop, insert, word, long, zeros, double, swap, splice)


def spoilt(data: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return the bytes after one to three of these changes."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not found:
            return rng.randbytes(rng.choice((0, 1, 4, 16, 200)))
        found = rng.choice(WAYS)(found, rng, others or (data,))
    return bytes(found[:INPUT_BYTES_MAX])
