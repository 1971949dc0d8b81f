"""The options of the rebalance job, and its answers if one of them is wrong, or Kafka is away."""

from __future__ import annotations

import pytest

from nyala.pipeline import QueryInterrupted, QueryRefused, RebalanceOptions, Rebalancer
from nyala.pipeline.rebalance import servers_of

KNOWN = ("1a2b3c", "1a2bff", "9f")


def test_servers_are_found_by_their_beginnings() -> None:
    """Goal: a server can be named by the beginning of its uuid. Method: a prefix and a whole uuid."""
    assert servers_of(["1a2b3", "9f"], KNOWN) == ("1a2b3c", "9f")


@pytest.mark.parametrize("prefix", ["1a2b", "77", ""])
def test_server_that_is_unknown_or_ambiguous_is_refused(prefix: str) -> None:
    """Goal: an unknown or ambiguous server is refused. Method: a prefix of two, of none, an empty one."""
    with pytest.raises(QueryRefused, match=r"servers begin with.*nothing was proposed.*nyala server list"):
        servers_of(["9f", prefix], KNOWN)


def test_rebalance_without_kafka_is_one_line() -> None:
    """Goal: if Kafka does not answer, the rebalance job ends with one line instead of a traceback. Method: nobody
    listens; the topic is looked for before Spark is."""
    with pytest.raises(QueryInterrupted, match="does not answer"):
        Rebalancer(None, RebalanceOptions(bootstrap="127.0.0.1:1")).plan()
