"""The steps of a follower's loop for an append of many entries, before it accepts them."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from nyala.replica.rows import WriteMeta, crc32c
from nyala.replica.types import Entry, EntryKind, OpId, limits
from tests.harness.copies import TABLET
from tests.harness.played_replica import FOLLOWS, World, append, with_replica

SMALL = WriteMeta((1, 2), 1, client_id="c" * 8, sequence=1).encode()
ROWS = b"rows"


def write(index: int, meta: bytes = SMALL) -> Entry:
    return Entry(OpId(3, index), EntryKind.WRITE, index, 0, meta, ROWS, crc32c(ROWS))


def meta_of(size: int) -> bytes:
    """A meta of exactly so many bytes."""
    meta = WriteMeta((1,), 1, client_id="c" * (size - len(WriteMeta((1,), 1, client_id="c" * 200).encode()) + 200))
    assert len(meta.encode()) == size
    return meta.encode()


HALF = limits.APPEND_META_BYTES_MAX // 2


@pytest.mark.a_third
@pytest.mark.parametrize(
    ("metas", "decoded_on_loop"),
    [
        pytest.param([SMALL] * limits.APPEND_ENTRIES_MAX, limits.APPEND_ENTRIES_MAX, id="as many entries as one may"),
        pytest.param([SMALL] * (limits.APPEND_ENTRIES_MAX + 1), 0, id="one entry more"),
        pytest.param([SMALL] * limits.TABLET_WRITES_PENDING_MAX, 0, id="all writes that may be pending"),
        pytest.param([meta_of(HALF)] * 2, 2, id="as many bytes as one may"),
        pytest.param([meta_of(HALF), meta_of(HALF + 1)], 0, id="one byte more"),
    ],
)
def test_follower_decodes_no_more_of_one_message_on_its_loop_than_the_bound(
    metas: list[bytes], decoded_on_loop: int
) -> None:
    """IN-60. Goal: an append of thousands of small writes does not hold up the other tablets of a server. Method: calls
    of the decoder are counted on every thread while one append is taken: its entries and the bytes of their metas count
    together. All entries are in the log in the end, and each was decoded once."""
    decodes = {"loop": 0, "thread": 0}

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is WriteMeta.decode.__func__.__code__:  # type: ignore[attr-defined]
            decodes["loop" if threading.current_thread() is threading.main_thread() else "thread"] += 1

    async def scenario(world: World) -> None:
        await world.take(append(3, (3, 2), *(write(3 + n, meta) for n, meta in enumerate(metas))))
        replica = world.manager.get(TABLET).replica
        assert replica is not None and replica.last_logged == OpId(3, 2 + len(metas))
        assert decodes == {"loop": decoded_on_loop, "thread": len(metas) - decoded_on_loop}

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with_replica(FOLLOWS, scenario)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
