"""Topics between masters and jobs. Whichever process comes first creates a topic, so all must use the same
definitions."""

from __future__ import annotations

from . import limits

DECISIONS = "decisions"
REPORTS = "reports"
PROPOSALS = "proposals"
OUTCOMES = "outcomes"
HISTORY = "history"

PARTITIONS = {DECISIONS: 4, REPORTS: 4, PROPOSALS: 1, OUTCOMES: 1, HISTORY: 4}
"""Name, without the cluster's prefix, -> Kafka partitions."""

COMPACTED = (DECISIONS, REPORTS)
"""Topics of state: a later record replaces the earlier one of its key."""

EVENTS_KEPT_DAYS = 30
"""How long Kafka keeps the events of the other topics, if the masters or a job made the topic. The masters append a
snapshot to the history each day, so a replay can begin at least 28 days ago."""


FRAMINGS = ("single-object", "confluent", "bare")
"""The ways in which a record of a table's topic names its writer schema (`nyala.pipeline.Framing`)."""

WRITES_SETTINGS = {"cleanup.policy": "delete", "max.message.bytes": str(2 * limits.ROW_SIZE_BYTES_MAX)}
"""The settings of a topic that feeds a table. Compaction would drop events that the table still needs. The largest row
fits with its key, its numbers and Kafka's frame, for which Kafka's default, 1 MiB for all, has no room. How long Kafka
keeps an event that was not read yet is left to the brokers' own setting."""


def control_topics(prefix: str) -> frozenset[str]:
    """Return the names of the topics above in a cluster whose masters have this `--topic-prefix`."""
    return frozenset(prefix + name for name in PARTITIONS)


def settings_of(name: str) -> dict[str, str]:
    """Return the settings of a new topic: state is replaced under its key, events are kept for EVENTS_KEPT_DAYS.

    The broker stores records uncompressed, however their sender compressed them: a reader may lack that sender's
    library, and a compressed record may be a thousand times larger when it is read.
    """
    kept = {"cleanup.policy": "delete", "retention.ms": str(EVENTS_KEPT_DAYS * 86_400_000), "retention.bytes": "-1"}
    return {"compression.type": "uncompressed"} | ({"cleanup.policy": "compact"} if name in COMPACTED else kept)
