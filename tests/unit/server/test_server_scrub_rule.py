"""The rule for the block that the scrub reads next."""

from __future__ import annotations

import random

from nyala.replica.server.maintenance.scrub import CPU_SHARE, carried, cost_bytes, due


def test_block_is_due_an_interval_after_it_was_known_to_be_whole() -> None:
    """Goal: each block at most once in an interval. Method: just before, and just at, the end of it."""
    assert due({"a": 100.0}, 199.9, 100.0) == []
    assert due({"a": 100.0}, 200.0, 100.0) == ["a"]
    assert due({}, 200.0, 100.0) == []


def test_block_that_waited_longest_is_first_and_equal_ones_go_by_name() -> None:
    """TC-63. Goal: the block that was checked longest ago is next. Method: four blocks that are due in any order, and
    one that is not."""
    assert due({"new": 95.0, "c": 3.0, "b": 3.0, "z": 1.0, "a": 7.0}, 100.0, 10.0) == ["z", "b", "c", "a"]


def test_block_new_here_counts_as_whole_and_one_that_went_is_forgotten() -> None:
    """Goal: what was opened or written a moment ago was checked then; times of known blocks stay. Method: one each."""
    assert carried({"kept": 5.0, "gone": 6.0}, ["kept", "new"], 50.0) == {"kept": 5.0, "new": 50.0}


def test_slow_reader_comes_round_to_every_block_and_to_none_too_early() -> None:
    """Goal: if the rate is too low for the interval, rounds become longer, and every block is still checked. Method:
    thirty blocks, ten seconds each, an interval of a hundred, while blocks come and go: no block waits longer than a
    whole round."""
    rng, now, number = random.Random(7), 0.0, 30
    present = {f"b{i}" for i in range(30)}
    whole = carried({}, present, now)
    for _ in range(300):
        now += 10.0
        if rng.random() < 0.2:
            present.remove(rng.choice(sorted(present)))
            present.add(f"b{number}")
            number += 1
        whole = carried(whole, present, now)
        waiting = due(whole, now, 100.0)
        if waiting:
            assert now - whole[waiting[0]] == max(now - at for at in whole.values()) >= 100.0
            whole[waiting[0]] = now
        assert max(now - at for at in whole.values()) <= 310.0


def test_piece_costs_its_bytes_or_its_processor_whichever_is_more() -> None:
    """Goal: two bounds, one rate. Method: a second of CPU at a megabyte a second, at most a share of a core."""
    assert cost_bytes(1000, 0.0, 1_000_000) == 1000
    assert cost_bytes(1000, 1.0, 1_000_000) == 1_000_000 / CPU_SHARE
    assert cost_bytes(1000, 1.0, 0) == 1000
