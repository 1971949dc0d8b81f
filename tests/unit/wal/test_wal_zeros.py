"""Zero sectors: which a block has, what its trailer says of them, and what a lost one or a damaged byte looks like."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from nyala.replica.wal.zeros import (
    END_BYTES,
    SECTOR_BYTES,
    TRAILER_BYTES,
    ZeroSectors,
    count_zero_sectors,
    decode_trailer,
    encode_trailer,
    has_run,
    restore_lone_byte,
)

SEGMENT = 7
MARKER = bytes(range(1, 17))


def test_count_of_zero_sectors_is_the_same_however_the_bytes_are_parted() -> None:
    """Goal: the writer, which has parts of a block, and the reader, which has all of it, count the same zero sectors.
    Method: random parts of random data, against a count sector by sector."""
    rng = Random(7)
    for _ in range(300):
        data = b"".join(
            rng.choice([bytes(n), rng.randbytes(n % 700), bytes(n) + b"\x20"]) for n in rng.choices(range(1500), k=5)
        )
        offset, parts, rest = rng.randrange(2000), [], data
        while rest:
            cut = rng.choice([1, 100, 600, 3000])
            parts.append(rest[:cut])
            rest = rest[cut:]
        zeros = xored = 0
        for at in range(-(offset % SECTOR_BYTES), len(data), SECTOR_BYTES):
            sector = data[max(0, at) : at + SECTOR_BYTES]
            if at + SECTOR_BYTES > len(data) or len(sector) < 2:
                continue
            others = [place for place, byte in enumerate(sector, max(0, at)) if byte]
            zeros += not others
            if len(others) == 1 and at >= 0:
                xored ^= others[0] << 8 | data[others[0]]
        assert count_zero_sectors(parts, offset) == count_zero_sectors([data], offset) == (zeros, xored)
    two = bytes(200) + b"\x20\x21" + bytes(310)
    assert count_zero_sectors([two], SECTOR_BYTES) == (0, 0)
    assert count_zero_sectors([two[:300], b"", two[300:]], SECTOR_BYTES) == (0, 0), "a part without a byte"


def test_sector_of_less_than_two_bytes_is_never_overlooked() -> None:
    """Goal: a block without a trailer has no zero sector. Method: such sectors at every place of a payload."""
    for size in (700, 5000, 20_000):
        for at in range(0, size - 600, 7):
            payload = bytearray(b"\x03" * size)
            payload[at : at + SECTOR_BYTES] = bytes(255) + b"\x09" + bytes(256)
            assert has_run(bytes(payload)), (size, at)
    assert not has_run(bytes(100)) and not has_run(Random(2).randbytes(1 << 20))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (bytes(191), False),
        (bytes(192), True),
        (b"\3" * 100 + bytes(95) + b"\3" * 100, False),
        (b"\3" * 100 + bytes(96) + b"\3" * 100, True),
        (b"\3" * 8000, False),
        (bytes(192) + b"\3" * 8000, True),
        (b"\3" * 8000 + bytes(192), True),
        (b"\3" * 4000 + bytes(193) + b"\3" * 4000, True),
        (b"\3" * 96 + b"\0" + b"\3" * 90 + bytes(197) + b"\3" * 5000, True),
        ((b"\0" + b"\3" * 95) * 2 + b"\3" * 5000, False),
        ((b"\0" + b"\3" * 95) * 2 + b"\3" * 5000 + bytes(192), True),
        ((b"\0" + b"\3" * 95) * 50, False),
        ((b"\0" + b"\3" * 95) * 50 + bytes(192), True),
        (b"\3" * 4003 + bytes(100) + b"\3" * 4000, False),
        (b"\3" * 2003 + bytes(100) + b"\3" * 1993, True),
        ((b"\0" + b"\3" * 95) * 2 + b"\3" * 4003 + bytes(100) + b"\3" * 4000, False),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else str(value),
)
def test_long_run_of_zeros_is_found_wherever_it_is(data: bytes, found: bool) -> None:
    """Goal: a run that may be part of a zero sector is seen, and few others are. Method: runs at the limit, in small
    and in large payloads, at both ends; single zeros where a large one is looked at, few and many, with a run and
    without; shorter runs, which only the look at every byte of a small payload sees."""
    assert has_run(data) == found


def _block(body: bytes, byte_offset: int, *, says: bool = True) -> bytes:
    """A block that begins at `byte_offset`: frame and entries up to the last one's end, a trailer or none, marker."""
    if not says:
        return body + b"\0" + MARKER
    end = byte_offset + len(body) + END_BYTES
    trailer = encode_trailer(count_zero_sectors([body], byte_offset), SEGMENT, byte_offset, end)
    return body + bytes([2 * TRAILER_BYTES]) + trailer + MARKER


def _looked(data: bytes, byte_offset: int) -> tuple[bool, bytes]:
    """The answer of `restore_lone_byte` on a block in a file that goes on with zeros."""
    return restore_lone_byte(data + bytes(600), len(data.rstrip(b"\0")), byte_offset, SEGMENT, MARKER)


def _full(size: int) -> bytes:
    return b"\5" * size


LONE = bytes(300) + b"\x20" + bytes(211)
BODIES = {
    "none": _full(1700),
    "zeros": _full(700) + bytes(900) + _full(300),
    "a lone byte": _full(SECTOR_BYTES) + LONE + _full(600),
    "two lone bytes": _full(SECTOR_BYTES) + LONE + bytes(100) + b"\x41" + bytes(411) + _full(300),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("before", [0, 1, 2, 100, 511])
def test_lost_sector_of_a_block_is_told_from_its_own_zeros(name: str, before: int) -> None:
    """CN-22. Goal: a sector that was never written is recognised whatever the block's content is; a lone byte is
    restored. Method: blocks that begin so many bytes before a sector's bound, each sector of theirs lost in turn."""
    byte_offset, lone = 4 * SECTOR_BYTES - before, "lone" in name
    body = (b"\6" * before if lone else b"") + BODIES[name]
    data = _block(body, byte_offset, says="none" not in name)
    assert _looked(data, byte_offset) == (False, data + bytes(600))
    for at in range(-(byte_offset % SECTOR_BYTES), len(data), SECTOR_BYTES):
        start, end = max(0, at), min(at + SECTOR_BYTES, len(data))
        sector = data[start:end]
        hurt = data[:start] + bytes(end - start) + data[end:]
        others = len(sector) - sector.count(0)
        unwritten, rest = _looked(hurt, byte_offset)
        if others == 1 and len(sector) == SECTOR_BYTES:
            assert (unwritten, rest) == (False, data + bytes(600)), at
        else:
            seen = others > 0 and end < len(data) and len(sector) > 1
            assert (unwritten, rest) == (seen, hurt + bytes(600)), at


def test_zeros_right_before_a_trailer_are_the_blocks_own() -> None:
    """CN-22. Goal: only what the trailer does not count is looked at without it. Method: a block whose last sector
    before its trailer is zeros."""
    data = _block(_full(SECTOR_BYTES) + bytes(SECTOR_BYTES), 0)
    assert _looked(data, 0) == (False, data + bytes(600))


def test_damaged_byte_of_a_short_block_is_not_taken_for_a_lost_sector() -> None:
    """CN-22. Goal: two bytes are lost only if both are zero. Method: a block that begins two bytes before a sector's
    bound, each of its bytes damaged to zero in turn, then the first two."""
    data, byte_offset = _block(_full(5), 0, says=False), SECTOR_BYTES - 2
    for at in range(len(data)):
        hurt = data[:at] + b"\0" + data[at + 1 :]
        assert _looked(hurt, byte_offset) == (False, hurt + bytes(600)), at
    assert _looked(bytes(2) + data[2:], byte_offset)[0]


@pytest.mark.parametrize("says", [False, True])
@pytest.mark.parametrize("before", [1, 2, 20, 511])
def test_lost_sector_of_a_block_is_told_wherever_its_end_lies(before: int, says: bool) -> None:
    """CN-22. Goal: a lost sector is recognised even if trailer and marker are in two sectors. Method: blocks without
    a zero that end so many bytes behind a sector's bound, with up to two whole sectors; each sector lost in turn: the
    last one may be a damaged end too, and a single byte at the start may be a damaged byte."""
    byte_offset = 4 * SECTOR_BYTES - before
    for whole, behind in itertools.product(range(3), [*range(1, 41), 100, 512]):
        size = before + whole * SECTOR_BYTES + behind - (END_BYTES if says else 1 + len(MARKER))
        if size < 2:
            continue
        data = _block(_full(size), byte_offset, says=says)
        for start in (0, *range(before, len(data), SECTOR_BYTES)):
            end = before if not start else min(start + SECTOR_BYTES, len(data))
            hurt = data[:start] + bytes(end - start) + data[end:]
            seen = end < len(data) and end - start > 1
            assert _looked(hurt, byte_offset) == (seen, hurt + bytes(600)), (whole, behind, start)


def test_two_damages_at_a_blocks_end_are_no_sign_of_a_lost_sector() -> None:
    """CN-22. Goal: a block of full length may have been acknowledged, so that a tear has to be certain. Method: a
    marker in two sectors of which either part is damaged, and a sector that is lost, before the marker or that with its
    first part."""
    for behind in range(1, 16):
        byte_offset = 4 * SECTOR_BYTES
        data = _block(_full(2 * SECTOR_BYTES + behind - END_BYTES), byte_offset)
        first, second = bytes(SECTOR_BYTES) + data[SECTOR_BYTES:], data[:SECTOR_BYTES] + bytes(SECTOR_BYTES)
        for hurt in (
            first[: -behind - 1] + b"\x77" + first[-behind:],
            first[:-1] + b"\x77",
            second + data[2 * SECTOR_BYTES : -1] + b"\x77",
        ):
            assert _looked(hurt, byte_offset) == (False, hurt + bytes(600)), behind


def test_lone_byte_is_put_back_only_within_its_block() -> None:
    """CN-22. Goal: what two damages seem to say changes nothing behind a block's entries. Method: the sector of a lone
    byte is lost, and one of the two bytes of another sector is damaged, so that their places name one that is no
    entry's: right behind them, and far behind."""
    for lone_at, other_at, size in ((0x2FF, 0x41F, 0x6E0), (0x3FF, 0x400, 1600)):
        body = bytearray(_full(size))
        body[512:1536] = bytes(1024)
        body[lone_at], body[other_at], body[1500] = 0x20, 0x41, 0x42
        data = _block(bytes(body), 0)
        assert _looked(data, 0) == (False, data + bytes(600)) and lone_at ^ other_at >= size
        body[lone_at] = body[1500] = 0
        hurt = bytes(body) + data[size:]
        assert _looked(hurt, 0) == (False, hurt + bytes(600))


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("before", [0, 2, 511])
def test_damaged_byte_never_makes_a_block_look_unwritten(name: str, before: int) -> None:
    """CN-22. Goal: what was acknowledged is withheld, not dropped as a tear; and only a lone byte is put back. Method:
    each byte near the ends and many others of those blocks become zero, or another byte."""
    byte_offset, lone = 4 * SECTOR_BYTES - before, "lone" in name
    data = _block((b"\6" * before if lone else b"") + BODIES[name], byte_offset, says="none" not in name)
    ends = [*range(min(20, len(data))), *range(len(data) - 60, len(data))]
    lones = {at for at, byte in enumerate(data[:-END_BYTES]) if byte in (0x20, 0x41)}
    for at in {*ends, *range(0, len(data), 37), *lones}:
        for byte in (0, data[at] ^ 0x80):
            hurt = data[:at] + bytes([byte]) + data[at + 1 :]
            expected = data if at in lones and not byte else hurt
            assert _looked(hurt, byte_offset) == (False, expected + bytes(600)), (at, byte)


def test_trailer_counts_only_for_its_own_block() -> None:
    """CN-22. Goal: a trailer is accepted only for the block and place that it was written for. Method: one read back
    at its place, at another, of another length, of another segment, and with each of its bytes damaged."""
    found = ZeroSectors(3, 0x12345)
    data = encode_trailer(found, SEGMENT, 100, 900)
    assert len(data) == TRAILER_BYTES and data[-1]
    assert decode_trailer(data, SEGMENT, 100, 900) == found
    assert [decode_trailer(data, *place) for place in ((8, 100, 900), (7, 101, 900), (7, 100, 901))] == [None] * 3
    assert decode_trailer(data[:-1], SEGMENT, 100, 900) is None and decode_trailer(b"", SEGMENT, 100, 900) is None
    for at in range(len(data)):
        assert decode_trailer(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], SEGMENT, 100, 900) is None
