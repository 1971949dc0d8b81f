"""Hostile records on the topics of real masters."""

from __future__ import annotations

from functools import partial

import pytest

from tests.fuzz.real_campaign import Campaign
from tests.fuzz.real_cluster import real_cluster
from tests.fuzz.real_targets import TOPICS

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

SEED, INPUTS = 22, 100


def test_hostile_records_on_the_masters_topics_harm_nothing() -> None:
    """IN-90. Goal: no record that a process publishes on a topic of the masters ends a master, stops its reading, or
    changes rows that it does not name. Method: seeded records for each topic on a real broker, about a tablet that
    exists. Then the leading master answers an honest proposal, uses all its topics, and has logged no exception; the
    guard's rows are unchanged, and honest requests are answered."""
    clusters = partial(real_cluster, own_processes=False, kafka=True)
    campaign = Campaign(TOPICS, SEED, inputs=INPUTS, failures_max=1, tries=0, clusters=clusters)
    campaign.run()
    assert not campaign.found, "\n".join(found.error for found in campaign.found)
    assert {total.inputs for total in campaign.totals.values()} == {INPUTS}
