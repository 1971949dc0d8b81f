"""One stack and one Spark session for all tests of the road."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nyala.infra.local import StackOptions, Supervisor
from nyala.infra.local.ports import Ports
from nyala.replica.client import Client, parse_masters
from tests.harness.kafka_login import login_listener
from tests.harness.road import Road, spark_in_process

LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for a minute: half of their CPU would go into optimizing what then hardly runs."""


@pytest.fixture(scope="package", autouse=True)
def _light_java() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", LIGHT_JAVA)
        yield


@pytest.fixture(scope="package")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    """Three servers, a master, a broker with a second door that asks who comes, a Spark session in this process."""
    folder = tmp_path_factory.mktemp("road")
    with Ports() as ports:
        login_port = ports.free()
        options = StackOptions(servers=3, kafka_properties=login_listener(login_port))
        with (
            Supervisor(folder / "stack", options) as stack,
            spark_in_process(folder / "warehouse") as spark,
            Client(parse_masters(stack.masters)) as client,
        ):
            yield Road(stack, client, spark, folder, f"127.0.0.1:{login_port}")
