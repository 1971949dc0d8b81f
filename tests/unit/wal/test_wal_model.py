"""The log against a list, under random appends, replacements, GC, restarts and power cuts."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.types import Entry, OpId
from nyala.replica.wal import Log
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, append_now, entry

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.sampled_from([0, 20, 900, 20_000])),
        st.tuples(st.just("replace"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("truncate"), st.integers(0, 5), st.just(0)),
        st.tuples(st.sampled_from(["roll", "reopen", "power", "kill", "full"]), st.just(0), st.just(0)),
        st.tuples(st.just("gc"), st.integers(0, 12), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_log_equals_a_list_under_any_history(steps: list[tuple[str, int, int]], seed: int) -> None:
    """CN-04, CN-22. Goal: what is read and replayed is what a list would hold. Method: hypothesis, all drained.

    A truncation is logical, so a restart may bring the truncated entries back: the list forgets it then too.
    """
    rng = random.Random(seed)
    disk = SimDisk()
    log, _ = Log.open(disk, FOLDER, TABLET, SMALL)
    model: list[Entry] = []
    on_disk: list[Entry] = []
    term = 1
    for action, size, detail in steps:
        last = model[-1].opid.index if model else 0
        if action == "append":
            new = [entry(last + 1 + k, rng.randbytes(detail), term=term) for k in range(size)]
            append_now(log, new)
            model += new
            on_disk = list(model)
        elif action in ("replace", "truncate"):
            floor = log.first_index
            keep = max(floor, last - size)
            if not model or keep > last:
                continue
            term += 1
            log.truncate_after(keep)
            model = [e for e in model if e.opid.index <= keep]
            if action == "replace":
                new = [entry(keep + 1 + k, term=term) for k in range(detail)]
                append_now(log, new)
                model += new
                on_disk = list(model)
        elif action == "roll":
            log.roll()
        elif action == "full":
            disk.fail_on("pwrite", f"{FOLDER}/wal-*", "ENOSPC")
            append_now(log, [entry(last + 1, rng.randbytes(900), term=term)])
            disk.heal()
        elif action == "gc":
            log.gc(max(0, last - size))
            first = log.first_index
            assert not model or first <= max(1, last - size) or first <= last
            model = [e for e in model if e.opid.index >= first]
            on_disk = [e for e in on_disk if e.opid.index >= first]
        else:
            if action == "reopen":
                log.close()
            elif action == "power":
                disk.power_loss(rng)
            else:
                disk.restart()
            log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
            assert list(replay.entries) == on_disk
            assert replay.withheld is None
            model = list(on_disk)
        assert log.last == (model[-1].opid if model else OpId(0, 0))
        assert log.read(log.first_index, log.last.index + 1, 1 << 30) == model
        for index in (log.first_index, log.last.index):
            assert log.term_at(index) == next((e.opid.term for e in model if e.opid.index == index), None)
    if model:
        lo = rng.randint(model[0].opid.index, model[-1].opid.index)
        hi = rng.randint(lo, model[-1].opid.index + 1)
        assert log.read(lo, hi, 1 << 30) == [e for e in model if lo <= e.opid.index < hi]
