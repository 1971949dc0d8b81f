"""Whole data tablets under an ingest query: few seeds here, more in `python -m tests.sim`."""

from __future__ import annotations

import pytest

from tests.harness.seeds import few_then_deep
from tests.sim.runs import run


@pytest.mark.a_third
@pytest.mark.parametrize("seed", few_then_deep(3, 6))
def test_tablet_under_random_faults_applies_every_record_once(seed: int) -> None:
    """Goal: every record is applied exactly once with the same row errors, whatever dies, is retried or copied
    meanwhile. Method: each seed runs random faults; then every replica holds what the topic implies, now and at every
    snapshot taken on the way."""
    outcome = run("tablet", seed)
    assert not outcome.failure, outcome.trace
