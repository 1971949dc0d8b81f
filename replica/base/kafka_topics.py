"""Topics between masters and jobs. Whoever comes first creates one, so both must mean the same by it."""

from __future__ import annotations

DECISIONS = "decisions"
REPORTS = "reports"
PROPOSALS = "proposals"
OUTCOMES = "outcomes"

PARTITIONS = {DECISIONS: 4, REPORTS: 4, PROPOSALS: 1, OUTCOMES: 1}
"""Name, without the cluster's prefix, -> Kafka partitions."""


def settings_of(name: str) -> dict[str, str]:
    """Settings of a new topic: state is replaced under its key, events are kept for a time."""
    return {"cleanup.policy": "compact" if name in (DECISIONS, REPORTS) else "delete"}
