"""Which segments a log may lose."""

from __future__ import annotations

from nyala.replica.types import OpId
from nyala.replica.wal import SegmentInfo
from nyala.replica.wal.format import Header, decode_header, encode_header, new_marker
from nyala.replica.wal.handles import Anchor
from nyala.replica.wal.retention import Retention


def _segment(number: int, last: int, *, closed: bool = True) -> SegmentInfo:
    return SegmentInfo(number, f"wal-{number:09d}", last, last, 100 * number, closed=closed)


def _header(number: int) -> Header:
    return decode_header(encode_header("t1", number, number, new_marker(), OpId(1, number)), f"wal-{number:09d}")


def _retention(*segments: SegmentInfo) -> Retention:
    return Retention(segments, {info.number: _header(info.number) for info in segments})


def test_open_segment_and_what_holds_the_index_stay() -> None:
    """Goal: log GC takes a prefix of what is closed and below the index, with its header, and nothing else. Method: an
    open segment alone; closed ones at, above and below the index; an anchor in the oldest."""
    assert _retention(_segment(1, 5, closed=False)).pop_oldest(100) is None
    assert _retention().pop_oldest(100) is None
    held = _retention(_segment(1, 5), _segment(2, 6), _segment(3, 7))
    assert held.pop_oldest(5) is None
    held.anchors.add(anchor := Anchor(5, lambda _: None))
    assert held.pop_oldest(7) is None
    held.anchors.remove(anchor)
    assert held.pop_oldest(7) == _segment(1, 5)
    assert held.headers.keys() == {2, 3} and held.size_bytes == 500


def test_segment_that_two_hold_stays_until_both_have_released_it() -> None:
    """Goal: a copy session's files stay though another one's ended. Method: two holds on one segment, released one by
    one; the segment that could not be removed is the oldest again."""
    held = _retention(_segment(1, 5), _segment(2, 6))
    held.hold([1, 2])
    held.hold([1])
    assert held.pop_oldest(100) is None
    held.release([1, 2])
    assert held.pop_oldest(100) is None
    held.release([1])
    oldest = held.pop_oldest(100)
    assert oldest == _segment(1, 5)
    held.list_again(oldest)
    assert [info.number for info in held.segments] == [1, 2]


def test_group_commit_goes_to_the_newest_segment_or_closes_it() -> None:
    """Goal: of all segments the last one may be open. Method: a commit to the newest one, then to another one."""
    held = _retention(_segment(1, 5, closed=False))
    held.publish(_segment(1, 6, closed=False), _header(1))
    assert [(info.last_index, info.closed) for info in held.segments] == [(6, False)]
    held.publish(_segment(2, 7, closed=False), _header(2))
    assert [(info.number, info.closed) for info in held.segments] == [(1, True), (2, False)]
    assert held.headers.keys() == {1, 2}
    held.close_newest()
    assert [info.closed for info in held.segments] == [True, True]
    _retention().close_newest()
