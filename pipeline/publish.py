"""Publishes row events as the ingest query expects them: keyed, murmur2-partitioned, idempotent, acks=all.

kafka-python does about 20,000 records a second; with `bulk=True` confluent-kafka, an optional extra, does ten times
that. librdkafka's default partitioner differs from Java's and kafka-python's, so it is always set here: two
partitioners on one topic would break the order of a key's events.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import fastavro

from nyala import schemas
from nyala.replica.rows import Misfit, RowOp, TableSchema
from nyala.replica.types import (
    PLAINTEXT,
    Code,
    KafkaSecurity,
    Refused,
    ReplicaError,
    as_given,
    check_flag,
    check_kind,
    check_names,
    check_topic,
    check_whole,
    kafka_addresses,
    limits,
    text_of,
)

from .framing import Framing, wrap
from .row_schema import OP_FIELD, OP_HEADER, key_schema_json, row_schema_json
from .row_values import RowValues
from .topics import Topics

_IN_FLIGHT_POLL_EVERY = 1000
_ROW_SHOWN_MAX = 200
_MESSAGE_BYTES_MAX = 32 << 20
"""The largest request of the producer, which is more than any topic of rows takes. So the broker decides, and its
reason reaches the caller of `flush`."""


class RowMisfit(Refused, ValueError):
    """A row event that its writer schema, or the schema of the key, cannot hold."""


class PublishFailed(ReplicaError):
    """Kafka did not acknowledge `count` records. Publish again from the last flush."""

    def __init__(self, count: int, first: str) -> None:
        super().__init__(f"{count} records were not acknowledged, the first because: {first}")
        self.count = count


class RowEncoder:
    """Encodes rows of one table as keys and values of Kafka records. RowMisfit, a ValueError, if a row does not fit."""

    def __init__(
        self, schema: TableSchema, framing: Framing, columns: list[str] | None, writer_json: str, registry_id: int
    ) -> None:
        self.writer_json = writer_json or row_schema_json(schema, columns)
        self._writer = _record(writer_json) if writer_json else schemas.parse_json(self.writer_json)
        self._key = schemas.parse_json(key_schema_json(schema))
        self._values = RowValues(schema, self._writer["fields"])
        self._key_names = schema.key
        self._key_values = RowValues(schema, self._key["fields"])
        self._prefix = wrap(framing, b"", fingerprint=schemas.fingerprint64(self._writer), registry_id=registry_id)
        self.has_op = any(f["name"] == OP_FIELD and not schema.has(OP_FIELD) for f in self._writer["fields"])
        """Whether the value has the row's operation; otherwise a header has it."""
        self._columns = {*schema.names, *(field["name"] for field in self._writer["fields"])}

    def value(self, row: Mapping[str, object], op: RowOp) -> bytes:
        """Return the Kafka value of a row event."""
        _check_row(row)
        if not row.keys() <= self._columns:
            unknown = sorted(map(text_of, row.keys() - self._columns))
            known = ", ".join(sorted(self._columns - {OP_FIELD}))
            raise RowMisfit(
                Code.INVALID_ARGUMENT,
                f"there is no column {unknown[0]!r}; leave it out",
                row=_shown(row),
                columns=known,
            )
        out = io.BytesIO(self._prefix)
        out.seek(0, io.SEEK_END)
        datum = _exact(self._values, row)
        _write(out, self._writer, {**datum, OP_FIELD: op.name} if self.has_op else datum, row)
        _check_size(out, datum, "the texts and bytes of a row have", limits.ROW_SIZE_BYTES_MAX)
        return out.getvalue()

    def key(self, row: Mapping[str, object]) -> bytes:
        """Return the Kafka key of a row."""
        _check_row(row)
        out = io.BytesIO()
        datum = _exact(self._key_values, {name: row[name] for name in self._key_names if name in row})
        _write(out, self._key, datum, row)
        _check_size(out, datum, "the texts and bytes of a key have", limits.KEY_SIZE_BYTES_MAX)
        return out.getvalue()


class RowPublisher:
    """Publishes rows of one table to one topic. No row counts as published before `flush` has returned.

    `columns` other than the key's make partial updates; `writer_json` overrides the derived writer schema, which the
    catalog must know (`client.add_writer_schema`); `security` holds how to log in to Kafka. Refused if there is no such
    topic, QueryInterrupted if no broker answers. Concurrency: one thread.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        schema: TableSchema,
        *,
        framing: Framing = Framing.SINGLE_OBJECT,
        columns: list[str] | None = None,
        writer_json: str = "",
        registry_id: int = 0,
        bulk: bool = False,
        security: KafkaSecurity = PLAINTEXT,
    ) -> None:
        kafka_addresses(bootstrap)
        check_topic(check_kind(topic, str, "topic="))
        check_kind(schema, TableSchema, "schema=")
        if columns is not None:
            columns = _known_columns(schema, columns)
        check_kind(writer_json, str, "writer_json=")
        check_whole(registry_id, "registry_id=", 0, (1 << 31) - 1)
        check_flag(bulk, "bulk=")
        check_kind(security, KafkaSecurity, "security=")
        self._rows = RowEncoder(schema, _framing(framing), columns, writer_json, registry_id)
        self.writer_json = self._rows.writer_json
        self._topic = topic
        _need_topic(bootstrap, topic, security)
        self._sink: _KafkaSink | _BulkSink = (_BulkSink if bulk else _KafkaSink)(bootstrap, security)

    def publish(self, row: Mapping[str, object], op: RowOp = RowOp.UPSERT) -> None:
        """Queue one row event; RowMisfit, a ValueError, if the row does not fit the writer schema."""
        check_kind(op, RowOp, "op=")
        value = self._rows.value(row, op)
        headers = [] if self._rows.has_op or op is RowOp.UPSERT else [(OP_HEADER, op.name.encode())]
        self._sink.send(self._topic, self.key_of(row), value, headers)

    def delete(self, row: Mapping[str, object]) -> None:
        """Queue a null value for the row's key, which deletes the row if it exists."""
        self._sink.send(self._topic, self.key_of(row), None, [])

    def publish_raw(self, key: bytes | None, value: bytes | None) -> None:
        """Queue given bytes, to publish dead letters again."""
        for name, part in (("key=", key), ("value=", value)):
            if part is not None:
                check_kind(part, bytes, name)
        self._sink.send(self._topic, key, value, [])

    def key_of(self, row: Mapping[str, object]) -> bytes:
        """Return the Kafka key of a row."""
        return self._rows.key(row)

    def flush(self) -> None:
        """Return when Kafka has acknowledged all queued records; PublishFailed if it does not."""
        self._sink.flush()

    def close(self) -> None:
        """Flush and disconnect."""
        self._sink.flush()
        self._sink.close()

    def __enter__(self) -> RowPublisher:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._sink.flush()
        self._sink.close()


def _framing(framing: object) -> Framing:
    """Return the framing, which may be given as its text in the catalog."""
    if not isinstance(framing, str) or framing not in set(Framing):
        known = " or ".join(repr(each.value) for each in Framing)
        raise Refused(Code.INVALID_ARGUMENT, f"there is no such framing=; it is {known}", got=as_given(framing))
    return Framing(framing)


def _known_columns(schema: TableSchema, columns: object) -> list[str]:
    names = check_names(columns, "columns=", limits.COLUMNS_MAX)
    if unknown := [name for name in names if not schema.has(name)]:
        what = "columns= names one that the table lacks; leave it out"
        raise Refused(Code.INVALID_ARGUMENT, what, unknown=as_given(unknown[0]), columns=", ".join(schema.names))
    return list(names)


def _record(writer_json: str) -> Any:
    """Return the parsed schema of a record; Refused if the text is none."""
    try:
        parsed: Any = schemas.parse_writer_schema(writer_json)[0]
        why = "it is no record"
    except ValueError as error:
        parsed, why = None, str(error)
    if not isinstance(parsed, dict) or "fields" not in parsed:
        what = "writer_json= is no Avro schema of rows; give the JSON of a record"
        raise Refused(Code.INVALID_ARGUMENT, what, got=as_given(writer_json), why=why)
    return parsed


def _check_row(row: object) -> None:
    if not isinstance(row, Mapping):
        what = 'a row is a dict of column names and values; give it as in {"id": 1}'
        raise RowMisfit(Code.INVALID_ARGUMENT, what, row=as_given(row))


def _exact(values: RowValues, row: Mapping[str, object]) -> dict[str, object]:
    try:
        return values.exact(row)
    except Misfit as error:
        what = f"the row does not fit its Avro schema: {error.reason}; change the value, or recreate the column"
        raise RowMisfit(Code.INVALID_ARGUMENT, what, row=_shown(row)) from error


def _write(out: io.BytesIO, schema: Any, datum: Mapping[str, object], row: Mapping[str, object]) -> None:
    """Encode a datum; `row` is shown in the error if it does not fit."""
    try:
        fastavro.schemaless_writer(out, schema, datum)
    except (TypeError, ValueError, ArithmeticError, AttributeError, KeyError) as error:
        what = f"the row does not fit its Avro schema: {error}"
        raise RowMisfit(Code.INVALID_ARGUMENT, what, row=_shown(row)) from error


def _check_size(encoded: io.BytesIO, datum: Mapping[str, object], what: str, most: int) -> None:
    """Raise RowMisfit if the datum's texts and bytes are longer than any table accepts. If the whole datum is shorter
    than that, they are not measured."""
    if encoded.tell() <= most:
        return
    values = (value.encode() if isinstance(value, str) else value for value in datum.values())
    size = sum(len(value) for value in values if isinstance(value, bytes | bytearray | memoryview))
    if size > most:
        problem = f"{what} at most {most} bytes; make them shorter"
        raise RowMisfit(Code.TOO_LARGE, problem, given=size, row=_shown(datum))


def _shown(row: Mapping[str, object]) -> str:
    return text_of(dict(row), repr)[:_ROW_SHOWN_MAX]


def _need_topic(bootstrap: str, topic: str, security: KafkaSecurity) -> None:
    """Raise Refused if there is no such topic, QueryInterrupted if no broker answers. Without this check a producer
    would wait for a minute, and then raise an error of its library."""
    topics = Topics(bootstrap, security=security)
    try:
        if not topics.is_there(topic):
            what = "there is no such topic: `nyala topic create TABLE` makes the one that feeds a table"
            raise Refused(Code.NOT_FOUND, what, topic=topic, kafka=bootstrap)
    finally:
        topics.close()


class _Failures:
    """Counts records without acknowledgement, and keeps the text of the first error."""

    count = 0
    first = ""

    def add(self, error: object) -> None:
        self.first = self.first or str(error)
        self.count += 1

    def raise_any(self) -> None:
        if self.count:
            failed = PublishFailed(self.count, self.first)
            self.count, self.first = 0, ""
            raise failed


class _KafkaSink:
    def __init__(self, bootstrap: str, security: KafkaSecurity) -> None:
        from kafka import KafkaProducer

        self._failures = _Failures()
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            batch_size=1 << 17,
            max_request_size=_MESSAGE_BYTES_MAX,
            **security.python(),
        )

    def send(self, topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        self._producer.send(topic, key=key, value=value, headers=headers).add_errback(self._failures.add)

    def flush(self) -> None:
        self._producer.flush()
        self._failures.raise_any()

    def close(self) -> None:
        self._producer.close()


class _BulkSink:
    def __init__(self, bootstrap: str, security: KafkaSecurity) -> None:
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            raise ImportError('bulk publishing needs confluent-kafka: pip install "nyala[demo]"') from error
        self._failures = _Failures()
        self._queued = 0
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 20,
                "batch.size": 1 << 18,
                "message.max.bytes": _MESSAGE_BYTES_MAX,
                "queue.buffering.max.messages": 200_000,
                "queue.buffering.max.kbytes": 128 << 10,
                "log_level": 2,
                **security.librdkafka(),
            }
        )

    def send(self, topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered, headers=headers or None)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._queued += 1
        if self._queued % _IN_FLIGHT_POLL_EVERY == 0:
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.add(error)

    def flush(self) -> None:
        self._producer.flush()
        self._failures.raise_any()

    def close(self) -> None:
        self._producer.flush()
