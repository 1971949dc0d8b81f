"""A brief run of parts of the load on real processes. The others, and longer ones: `python -m tests.load`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.load.campaign import perform
from tests.load.parts import PARTS, Part
from tests.load.world import World, world

pytestmark = [pytest.mark.process, pytest.mark.deep]

BRIEF = [part for part in PARTS if part.name in ("scans", "long-rows", "steady")]
"""The others start hundreds of threads or tablets: too much for a machine that runs other tests beside."""


@pytest.fixture(scope="module")
def made() -> Iterator[World]:
    with world(quick_flush=True) as processes:
        yield processes


@pytest.mark.parametrize("part", BRIEF, ids=[part.name for part in BRIEF])
def test_load_costs_no_row_no_error_but_overload_and_no_memory_for_good(made: World, part: Part) -> None:
    """IN-32, IN-60. Goal: what clients do at any rate leaves rows right and nothing behind. Method: one part of the
    load against one master and three servers, which are looked at all the while: every row is as it was acknowledged,
    no error but a typed refusal for overload, no process ends; memory stays within its stated bound; once warm, memory,
    open files, threads and maps have no slope; rows that the part does not name are as they were."""
    result = perform(made, part, part.brief)
    print({"part": part.name, "latencies": result.latencies, "overloaded": result.overloaded})
    assert result.errors == []
