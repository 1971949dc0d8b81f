"""One stack and one Spark session for all tests of the road."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nyala.infra.local import StackOptions, Supervisor
from nyala.replica.client import Client, parse_masters
from tests.harness.road import Road, spark_in_process


@pytest.fixture(scope="package")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    """Three servers, a master, a broker, a Spark session in this process."""
    folder = tmp_path_factory.mktemp("road")
    with (
        Supervisor(folder / "stack", StackOptions(servers=3)) as stack,
        spark_in_process(folder / "warehouse") as spark,
        Client(parse_masters(stack.masters)) as client,
    ):
        yield Road(stack, client, spark, folder)
