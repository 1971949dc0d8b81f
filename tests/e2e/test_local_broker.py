"""The local Kafka broker: where it listens, when it comes back to ports of which somebody else has one."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from nyala.infra.local.kafka import KafkaBroker, KafkaFailed
from nyala.infra.local.ports import LOOPBACK

pytestmark = pytest.mark.e2e


@pytest.mark.deep
def test_broker_comes_back_where_its_clients_know_it(tmp_path: Path) -> None:
    """Goal: a broker that was away serves at its address again with what it had; a port that only it knew is replaced,
    one that its clients know is asked for in one line. Method: make a topic, end it, listen at its ports in turn."""
    with KafkaBroker(tmp_path / "kafka") as first:
        where, cluster_id = first.bootstrap, first.cluster_id
        admin = KafkaAdminClient(bootstrap_servers=where)
        admin.create_topics([NewTopic("kept", 1, 1)])
        admin.close()
    ports = json.loads((tmp_path / "kafka" / "ports.json").read_text())
    with closing(KafkaBroker(tmp_path / "kafka")) as second:
        with (
            socket.create_server((LOOPBACK, ports["port"])),
            pytest.raises(KafkaFailed, match=f"port {ports['port']} is taken by another program"),
        ):
            second.start()
        assert json.loads((tmp_path / "kafka" / "ports.json").read_text()) == ports
        with socket.create_server((LOOPBACK, ports["controller_port"])):
            second.start()
            assert (second.bootstrap, second.cluster_id) == (where, cluster_id)
            admin = KafkaAdminClient(bootstrap_servers=where)
            assert "kept" in admin.list_topics()
            admin.close()
        second.stop()
        second.start()
        assert second.is_ready() and second.bootstrap == where
