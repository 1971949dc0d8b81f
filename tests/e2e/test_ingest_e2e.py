"""Kafka, spark-submit and three replicas together: exactly once through replay, a lost checkpoint and bad records."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from nyala import schemas
from nyala.infra.local import StackOptions, Supervisor
from nyala.pipeline import RowPublisher, Topics, dead_letter_topic, row_schema_json, submit_command, submit_environment
from nyala.replica.base import RowCode
from nyala.replica.client import Client, ScanSpec, SourceFormat, WriterSchemaInfo, parse_masters
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, TableSchema

pytestmark = pytest.mark.e2e
ROWS = 3000
SCHEMA = TableSchema(
    1,
    (Column(id=1, name="k", type=ColumnType.INT64, nullable=False), Column(id=2, name="v", type=ColumnType.STRING)),
    ("k",),
)


@dataclass
class Road:
    """A running stack with one table and its topic."""

    stack: Supervisor
    client: Client
    folder: Path

    def ingest(self, *more: str, checkpoint: str = "checkpoint") -> tuple[int, list[dict[str, Any]]]:
        """Run the job until it has caught up; its exit status and its JSON lines."""
        arguments = ["--table", "t", "--masters", self.stack.masters, "--kafka", self.stack.kafka_bootstrap]
        arguments += ["--checkpoint", str(self.folder / checkpoint), "--available-now", "--json", "--lease-s", "5"]
        arguments += ["--owner-wait-s", "10", *more]
        command = submit_command("ingest", arguments)
        ended = subprocess.run(command, env=submit_environment(), capture_output=True, text=True, timeout=300)
        return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]

    def table(self) -> dict[int, str]:
        """All rows, by key; fails on a doubled one."""
        found: dict[int, str] = {}
        for part in self.client.scan(self.client.get_table("t"), ScanSpec()):
            for batch in part.batches:
                for row in batch.to_pylist():
                    assert row["k"] not in found
                    found[row["k"]] = row["v"]
        return found

    def dead_letters(self) -> list[dict[str, Any]]:
        """Every dead letter, doubled ones too."""
        consumer = KafkaConsumer(bootstrap_servers=self.stack.kafka_bootstrap, enable_auto_commit=False)
        try:
            where = TopicPartition(dead_letter_topic("t"), 0)
            consumer.assign([where])
            consumer.seek_to_beginning(where)
            end = consumer.end_offsets([where])[where]
            found: list[dict[str, Any]] = []
            while consumer.position(where) < end:
                for records in consumer.poll(timeout_ms=500).values():
                    found += [schemas.decode("dead_letter", each.value) for each in records]
            return found
        finally:
            consumer.close()


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    """Three servers, a master, a broker; table `t` with 3 tablets, topic with 2 partitions, its first events."""
    folder = tmp_path_factory.mktemp("road")
    with Supervisor(folder / "stack", StackOptions(servers=3)) as stack:
        client = Client(parse_masters(stack.masters))
        writer = row_schema_json(SCHEMA)
        fingerprint = schemas.fingerprint64(schemas.parse_json(writer)).hex()
        client.create_table(
            "t", SCHEMA, PartitionSpec(("k",), 3), source=SourceFormat("writes.t"),
            writer_schemas=[WriterSchemaInfo(fingerprint, 0, writer)],
        )  # fmt: skip
        topics = Topics(stack.kafka_bootstrap)
        topics.ensure("writes.t", 2)
        topics.close()
        with RowPublisher(stack.kafka_bootstrap, "writes.t", SCHEMA) as publisher:
            for k in range(ROWS):
                publisher.publish({"k": k, "v": f"first {k}"}, RowOp.INSERT)
            publisher.publish({"k": 5, "v": "again"}, RowOp.INSERT)
            publisher.publish({"k": 6, "v": "second"})
            publisher.delete({"k": 7})
            publisher.publish_raw(publisher.key_of({"k": 8}), b"no row at all")
            publisher.publish_raw(None, b"a value without a key")
        try:
            yield Road(stack, client, folder)
        finally:
            client.close()


def test_topic_becomes_table_exactly_once_through_replay_and_lost_checkpoint(road: Road) -> None:
    """Goal: rows and dead letters are the same after a run, a replayed micro-batch and a run without checkpoint.

    Method: run the job; remove the last commit, so that Spark replays; remove the checkpoint; compare each time.
    """
    expected = {k: f"first {k}" for k in range(ROWS)} | {6: "second"}
    del expected[7]
    status, lines = road.ingest()
    assert status == 0, lines
    assert road.table() == expected
    letters = {(each["kafka_partition"], each["kafka_offset"], each["code"]) for each in road.dead_letters()}
    codes = sorted(code for _, _, code in letters)
    assert codes == sorted([RowCode.ALREADY_PRESENT, RowCode.UNDECODABLE, RowCode.NULL_KEY])
    commits = sorted((road.folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    status, lines = road.ingest()
    assert status == 0, lines
    assert sum(line.get("replayed", 0) for line in lines) >= ROWS
    assert sum(line.get("applied", 0) for line in lines) == 0
    assert road.table() == expected
    shutil.rmtree(road.folder / "checkpoint")
    status, lines = road.ingest()
    assert status == 0, lines
    assert road.table() == expected
    again = {(each["kafka_partition"], each["kafka_offset"], each["code"]) for each in road.dead_letters()}
    assert again == letters
