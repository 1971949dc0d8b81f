"""A Kafka cluster of three brokers, each of them a controller too: topics have three replicas, and two acknowledge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafka import KafkaAdminClient

from nyala.infra.local.kafka import KafkaBroker
from nyala.infra.local.ports import Ports
from tests.harness.cluster import wait_until

BROKERS = 3
CLUSTER_ID = "nThreeBrokersOfNyala00"
_PROPERTIES = """
node.id={node}
controller.quorum.voters={voters}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
"""


class ThreeBrokers:
    """Use `three_brokers`."""

    def __init__(self, brokers: list[KafkaBroker]) -> None:
        self.brokers = brokers

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as clients get them."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def leads(self, topic: str) -> set[int]:
        """Return the positions of the brokers that lead a partition of the topic."""
        return {int(each["leader_id"]) - 1 for each in self._partitions(topic)}

    def in_sync(self, topic: str) -> bool:
        """Return whether each partition of the topic has all its replicas."""
        return all(len(each["isr_nodes"]) == BROKERS for each in self._partitions(topic))

    def _partitions(self, topic: str) -> list[dict[str, list[int]]]:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            (told,) = admin.describe_topics([topic])
            found: list[dict[str, list[int]]] = told["partitions"]
            return found
        finally:
            admin.close()


@contextmanager
def three_brokers(folder: Path) -> Iterator[ThreeBrokers]:
    """Three brokers that know one another; they end with the block."""
    with ExitStack() as ending, Ports() as ports:
        controllers = [ports.free() for _ in range(BROKERS)]
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, 1))
        brokers = []
        for number, controller in enumerate(controllers, 1):
            home = folder / f"kafka-{number}"
            home.mkdir(parents=True)
            # What a broker finds of an earlier start it keeps: so all have one id, and know the controllers' ports.
            (home / "ports.json").write_text(json.dumps({"cluster_id": CLUSTER_ID, "controller_port": controller}))
            brokers.append(KafkaBroker(home, properties=_PROPERTIES.format(node=number, voters=voters)))
        for broker in brokers:
            ending.callback(broker.close)
            broker.start(wait=False)
        for broker in brokers:
            wait_until(broker.is_ready, f"the broker of {broker.folder} is ready")
        yield ThreeBrokers(brokers)
