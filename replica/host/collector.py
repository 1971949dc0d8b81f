"""How much log to keep: a pure function, so that each of its reasons can be tested alone."""

from __future__ import annotations

from collections.abc import Sequence

from nyala.replica.wal import SegmentInfo


def keep_from(
    *,
    flush_index: int,
    config_saved_index: int,
    config_committed_index: int,
    peers_match: Sequence[int],
    segments: Sequence[SegmentInfo],
    retain_entries: int,
    retain_bytes_max: int,
) -> int:
    """First index that must stay. Holds of copy sessions are the log's own business.

    Unflushed entries and a config whose record is not durable yet stay whatever it costs. Below them, what the slowest
    peer still needs and a tail of `retain_entries` stay as long as closed segments together take `retain_bytes_max`.
    """
    must = flush_index + 1
    if config_saved_index < config_committed_index:
        must = min(must, config_committed_index)
    wanted = min([must - retain_entries, *(match + 1 for match in peers_match)])
    total = 0
    affordable = 1
    for segment in reversed(segments):
        total += segment.length_bytes
        if total > retain_bytes_max:
            affordable = segment.last_index + 1
            break
    return max(min(must, max(wanted, affordable)), 1)
