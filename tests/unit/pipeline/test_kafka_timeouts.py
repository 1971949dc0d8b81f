"""How long Spark's Kafka source waits."""

from __future__ import annotations

import pytest

from nyala.pipeline.kafka_timeouts import KAFKA_TIMEOUT_S, spark_options

BROKER_LOST_S = 9
"""`broker.session.timeout.ms` of Kafka: so long is a dead broker the leader of its partitions."""


@pytest.mark.parametrize("timeout_s", [0.4, 1, 2, 5, 11.9, 12, 60, 600])
def test_offsets_are_asked_for_again_within_the_time_since_one_request_may_stay_with_a_dead_broker(
    timeout_s: float,
) -> None:
    """Goal: a broker that dies costs Spark's driver one attempt, and not the whole time. Method: attempts of options
    fill the time and no more; a short time has fewer of them, and each is long enough for an answer."""
    options = spark_options(timeout_s)
    attempt_s, attempts = int(options["kafka.default.api.timeout.ms"]) / 1000, int(options["fetchOffset.numRetries"])
    assert min(2, timeout_s) <= attempt_s <= max(2, timeout_s / 6)
    assert timeout_s / 2 < attempt_s * attempts <= timeout_s
    assert int(options["kafka.request.timeout.ms"]) / 1000 <= attempt_s, "Kafka's client refuses more"


def test_at_the_default_a_second_attempt_meets_the_new_leader() -> None:
    """Goal: the first attempt lasts longer than Kafka needs to notice that a broker is gone, and others are left."""
    options = spark_options(KAFKA_TIMEOUT_S)
    assert int(options["kafka.default.api.timeout.ms"]) / 1000 > BROKER_LOST_S
    assert int(options["fetchOffset.numRetries"]) >= 3
