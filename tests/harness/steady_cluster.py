"""Three servers that a test can slow down, and that do not mistake a short stall of the machine for a silent leader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.cluster import LocalCluster, local_cluster
from tests.harness.slow_server import TICK_VARIABLE
from tests.harness.steady_server import TICK_MS


@contextmanager
def steady_cluster() -> Iterator[LocalCluster]:
    """Yield servers with the tick of steady ones: no stall shorter than three seconds looks like a silent leader."""
    with local_cluster(module="tests.harness.slow_server") as made:
        for _ in range(3):
            made.add_server(start=False, env={TICK_VARIABLE: str(TICK_MS)}).start(wait=False)
        for server in made.servers:
            server.wait_ready()
        yield made
