"""The errors of a publisher of row events for records that Kafka did not accept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.pipeline import Framing, PublishFailed, QueryInterrupted, RowMisfit, RowPublisher
from nyala.pipeline.decode import RowDecoder
from nyala.pipeline.publish import RowEncoder, _BulkSink, _Failures, _KafkaSink
from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema
from nyala.replica.types import PLAINTEXT, Code, ReplicaError, kafka_topics, limits

SCHEMA = TableSchema(
    schema_id=1,
    columns=(
        Column(id=1, name="id", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="value", type=ColumnType.DOUBLE),
    ),
    key=("id",),
)


def test_each_failed_flush_tells_its_own_first_reason() -> None:
    """Goal: each failed flush reports its own first error. Method: two flushes fail, for different reasons; one between
    them does not."""
    failures = _Failures()
    for reason in ("no leader", "too large"):
        failures.add(reason)
        failures.add("whatever came after")
        with pytest.raises(PublishFailed, match=rf"2 records were not acknowledged, the first because: {reason}"):
            failures.raise_any()
        failures.raise_any()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"id": "a"}, "column 'id' cannot hold 'a'"),
        ({"id": 50.9}, "column 'id' cannot hold 50.9: .* change the value"),
        ({"id": 1 << 70}, "does not fit its Avro schema"),
        ({"id": None}, "does not fit its Avro schema"),
        ({"value": 1.0}, "no value and no default for id"),
        ({"id": 1, "value": "x"}, "does not fit its Avro schema"),
        ({"id": 1, "value": [1]}, "does not fit its Avro schema"),
        ({"id": 1, "valu": 1.0}, "there is no column 'valu'"),
        ({"id": 1, 5: 1.0}, "there is no column '5'"),
    ],
)
def test_row_event_that_cannot_be_is_refused_with_the_row(row: dict[str, object], says: str) -> None:
    """IN-70. Goal: an invalid row event is refused with one line that shows the row. Method: rows with a wrong type,
    range, column, and without the key; a good one."""
    encoder = RowEncoder(SCHEMA, Framing.SINGLE_OBJECT, None, "", 0)
    with pytest.raises(RowMisfit, match=says) as raised:
        encoder.value(row, RowOp.UPSERT)
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, ReplicaError)
    assert f"row={row}" in str(raised.value) and str(raised.value).endswith("nothing was applied")
    assert encoder.value({"id": 1}, RowOp.UPSERT) and encoder.key({"id": 1, "value": 2.0}) == b"\x02"
    with pytest.raises(RowMisfit):
        encoder.key({"value": 1.0})


@pytest.mark.parametrize("bulk", [False, True])
def test_publisher_without_a_broker_says_so_at_once(bulk: bool) -> None:
    """IN-70. Goal: a publisher without a broker fails at once with a plain error. Method: an address where no process
    listens."""
    with pytest.raises(QueryInterrupted, match=r"Kafka at 127\.0\.0\.1:1 does not answer"):
        RowPublisher("127.0.0.1:1", "writes.t", SCHEMA, bulk=bulk)


def test_row_or_key_that_no_table_takes_is_refused_before_it_is_sent() -> None:
    """IN-82. Goal: the publisher takes what a table takes, and no more. Method: rows and keys of the most bytes that a
    table takes, which the job decodes, and of one byte more; in texts, the bytes of UTF-8 count."""
    columns = (
        Column(id=1, name="id", type=ColumnType.STRING, nullable=False),
        Column(id=2, name="value", type=ColumnType.BINARY),
    )
    schema = TableSchema(schema_id=1, columns=columns, key=("id",))
    encoder = RowEncoder(schema, Framing.SINGLE_OBJECT, None, "", 0)
    half = "é" * (limits.KEY_SIZE_BYTES_MAX // 2)
    rest = limits.ROW_SIZE_BYTES_MAX - limits.KEY_SIZE_BYTES_MAX
    whole: dict[str, object] = {"id": half, "value": b"x" * rest}
    assert int(kafka_topics.WRITES_SETTINGS["max.message.bytes"]) > (1 << 16) + len(
        encoder.key(whole) + encoder.value(whole, RowOp.UPSERT)
    )
    key, value = pa.array([encoder.key(whole)]), pa.array([encoder.value(whole, RowOp.UPSERT)])
    decoder = RowDecoder(schema, Framing.SINGLE_OBJECT, [])
    assert len(decoder.decode(key, value, np.zeros(1, np.int64)).faults) == 0
    for row, most in (({"id": half + "a"}, limits.KEY_SIZE_BYTES_MAX), (whole | {"id": half + "a"}, 1 << 20)):
        with pytest.raises(
            RowMisfit, match=rf"at most {most} bytes; .*given={most + 1}.*nothing was applied"
        ) as raised:
            encoder.key(row) if most < 1 << 20 else encoder.value(row, RowOp.UPSERT)
        assert raised.value.code is Code.TOO_LARGE


@pytest.mark.parametrize("sink", [_KafkaSink, _BulkSink])
def test_no_record_that_a_topic_of_rows_takes_is_refused_by_a_publishers_client(
    sink: type[_KafkaSink | _BulkSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-02. Goal: the brokers alone decide which record is too large. Method: the settings that Kafka's client gets,
    with those of a topic of rows; the other client is given a record of that size, without a broker."""
    largest = int(kafka_topics.WRITES_SETTINGS["max.message.bytes"])
    settings: dict[str, Any] = {}
    monkeypatch.setattr("kafka.KafkaProducer", lambda **given: settings.update(given))
    made = sink("127.0.0.1:1", PLAINTEXT)
    if isinstance(made, _KafkaSink):
        assert settings["max_request_size"] > largest
    else:
        made.send("t", b"k", bytes(largest), [])
