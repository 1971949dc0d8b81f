"""Six real servers on which the three replicas of a tablet are removed and replaced, over old tombstones in the end."""

from __future__ import annotations

import os

import pytest

from tests.harness.cluster import local_cluster
from tests.harness.replace_cycle import Cycle, start_servers

pytestmark = [pytest.mark.process, pytest.mark.deep]
SEED = int(os.environ.get("NYALA_SOAK_SEED", "118"))
CYCLES = 3
"""`python -m tests.soak --cycles 100` is the long form."""


def test_members_are_replaced_in_cycle_until_every_target_is_an_old_tombstone() -> None:
    """TC-12. Goal: scenario 118. Method: `tests/harness/replace_cycle.py`: six servers, three replicas, writers and a
    reader. Members are moved to servers that never had one, until there are none left; then three, drawn from the seed,
    are removed, and the master replaces each: all that could take the place are tombstones by then. A server, drawn
    too, pauses in each change, and the first copy session of the fourth change times out. V1 to V6 find nothing
    wrong."""
    print(f"again: NYALA_SOAK_SEED={SEED}")
    with local_cluster() as cluster:
        start_servers(cluster)
        cycle = Cycle(cluster, SEED)
        try:
            cycle.run(CYCLES)
            wrong = [(v.name, v.wrong) for v in cycle.verdicts() if not v.ok]
        finally:
            cycle.close()
    assert wrong == []
    assert cycle.onto_tombstones == CYCLES and cycle.expired, "it was what it says"
