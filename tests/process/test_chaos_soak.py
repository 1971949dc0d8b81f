"""The short form of the soak: mixed trouble on real processes under a strict load, then all verifiers."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

import pytest

from nyala.infra.chaos import Chaos, ChaosOptions, Kind, Pace, Show
from tests.harness.stack import log_ends

pytestmark = pytest.mark.process
SEED = int(os.environ.get("NYALA_SOAK_SEED", "1275"))
"""It adds a replica first, while all is well, and moves and removes one among its first five deeds."""
SECONDS = float(os.environ.get("NYALA_SOAK_SECONDS", "40"))
"""Of trouble; `make soak` is the long form."""


def test_soak_of_mixed_trouble_ends_with_every_row_right_and_nothing_left_behind(tmp_path: Path) -> None:
    """Goal: promises 1, 5 and 7 while servers and the master are killed, paused, stopped and wiped, and replicas are
    added, removed and moved (V1 to V6, V8). Method: one seed of `infra/chaos`, whose verifiers `test_chaos_rules.py`
    shows to notice planted faults; a red run says its seed and keeps its folder. The kinds come in the seed's order, as
    far as the time goes: each waits until the cluster allows it, so a slow machine sees fewer of them (13 of 14 were
    seen under load); the long form has room for all. What is demanded here is that something was taken away
    and that members changed."""
    last: deque[Show] = deque(maxlen=1)
    pace = Pace(gap_s=(1.0, 3.0), hold_s=(1.0, 3.0), away_s=(7.0, 9.0))
    print(f"again: NYALA_SOAK_SEED={SEED}; logs and data are in {tmp_path}")
    report = Chaos(tmp_path, ChaosOptions(seed=SEED, duration_s=SECONDS, pace=pace), last.append).run()
    if not report.ok:
        print(log_ends(last[-1].patient.supervisor))
    wrong = [(v.name, v.wrong) for v in report.verdicts if not v.ok]
    assert wrong == [], report.story
    assert len(report.verdicts) == 10
    assert report.figures["row_writes_acknowledged"] > 0 and report.figures["scans_compared"] > 0
    done = {h.kind for h in report.story if h.kind and not h.what.startswith(("not done", "refused"))}
    members = {Kind.ADD, Kind.REMOVE, Kind.MOVE}
    assert done & members and done - members - {Kind.STEP_DOWN, Kind.FLUSH}, done
