"""One stack and one Spark session for all tests of the road."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nyala.infra.local import StackOptions, Supervisor
from nyala.infra.local.ports import Ports
from nyala.replica.client import Client, parse_masters
from tests.harness.kafka_login import login_listener
from tests.harness.road import Road, spark_in_process

HERE = Path(__file__).parent
KAFKA_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
"""kafka-python leaves sockets of brokers that were killed to the collector, which comes by in some later test."""
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for a minute: half of their CPU would go into optimizing what then hardly runs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """[pytest] Of all tests that were collected, those in this folder."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(KAFKA_SOCKETS)


@pytest.fixture(scope="package", autouse=True)
def _light_java() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", LIGHT_JAVA)
        yield


@pytest.fixture(scope="package")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    """Three servers, a master, a broker with a second port that requires a login, a Spark session in this process."""
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
