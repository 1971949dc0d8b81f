"""Topics between masters and jobs. Whoever comes first creates one, so both must mean the same by it."""

from __future__ import annotations

DECISIONS = "decisions"
REPORTS = "reports"
PROPOSALS = "proposals"
OUTCOMES = "outcomes"

PARTITIONS = {DECISIONS: 4, REPORTS: 4, PROPOSALS: 1, OUTCOMES: 1}
"""Name, without the cluster's prefix, -> Kafka partitions."""

COMPACTED = (DECISIONS, REPORTS)
"""Topics of state: a later record replaces the earlier one of its key."""


WRITES_SETTINGS = {"cleanup.policy": "delete"}
"""Of a topic that feeds a table: compaction would drop events that the table still needs, and how long Kafka keeps an
event that was not read yet is the brokers' own rule."""


def settings_of(name: str) -> dict[str, str]:
    """Settings of a new topic: state is replaced under its key, events are kept for a time.

    The broker stores records as they are read, not as their sender compressed them: a reader may lack that sender's
    library, and a compressed record may be a thousand times larger than it looks.
    """
    return {"cleanup.policy": "compact" if name in COMPACTED else "delete", "compression.type": "uncompressed"}
