"""Connects to a cluster; lists, creates, drops and opens tables."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from nyala.replica.client import Client, ClientOptions, NotApplied, SourceFormat, load_credentials, parse_masters
from nyala.replica.types import (
    PLAINTEXT,
    Code,
    KafkaSecurity,
    Refused,
    as_given,
    check_flag,
    check_kind,
    check_token,
    check_whole,
    kafka_addresses,
    kafka_topics,
    limits,
    only_reads,
    parse_json,
)

from .argument_errors import invalid_argument, unknown_name, valid, valid_text
from .definitions import Columns, definition_of
from .table import Table, hybrid_time_of
from .topics import PARTITIONS, PARTITIONS_MAX, TopicMaker, TopicNotMade

if TYPE_CHECKING:
    from .sql import Parameters, Query


class Cluster:
    """A connection to a cluster; a context manager. `nyala.connect` makes it. Concurrency: any thread."""

    def __init__(
        self, client: Client, address: str, kafka: str = "", kafka_security: KafkaSecurity = PLAINTEXT
    ) -> None:
        self._client = client
        self._address = address
        self._kafka = kafka
        self._kafka_security = kafka_security

    @property
    def client(self) -> Client:
        """The client underneath, for operators' tools."""
        return self._client

    @property
    def kafka(self) -> str:
        """The addresses of the cluster's Kafka, "host:port[,host:port]": `connect`'s argument, otherwise those that the
        masters name. Empty if there are neither."""
        return self._kafka or self._client.kafka_of_masters()

    @only_reads()
    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return self._client.table_names()

    @only_reads()
    def table(self, name: str) -> Table:
        """Return the table of that name; NotApplied(NOT_FOUND) lists the tables that exist."""
        valid_text(check_token, name, "a table's name")
        try:
            return Table(self._client, self._client.get_table(name))
        except Refused as e:
            raise self._explained(e, name) from e

    def create_table(
        self,
        name: str,
        columns: Columns | None = None,
        *,
        schema: Any = None,
        key: str | Sequence[str] = (),
        hash_buckets: int = 1,
        hash_columns: Sequence[str] | None = None,
        range_column: str = "",
        range_splits: Sequence[object] = (),
        replication_factor: int = 3,
        history_retention_s: float = 0,
        topic: str = "",
        framing: str = "single-object",
        reader_schema: str = "",
        partitions: int = PARTITIONS,
        make_topic: bool | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table, and the Kafka topic that feeds it.

        `columns`: {"id": "int64", "price": "decimal(9,2)", "name": "string not null"}, pairs, or a pa.Schema, which may
        also be given as `schema`. `key`: one name or several, in order. The number of tablets is `hash_buckets` times
        the number of ranges between `range_splits`; `hash_columns`: default all key columns. `history_retention_s`: how
        far back `at=` may reach; 0 is the cluster's default. `topic`, `framing` and `reader_schema` describe the Kafka
        topic that feeds the table; default `writes.<name>`. `make_topic`: None makes the topic, with `partitions`, if a
        Kafka is known (see `kafka`); True refuses if none is known; False makes none. A topic that exists is left as it
        is. If Kafka does not answer, nothing is created; TopicNotMade means that the table was created and its topic
        was not.
        """
        partitions_of_topic(partitions)
        valid(check_flag, if_not_exists, "if_not_exists=")
        if make_topic is not None:
            valid(check_flag, make_topic, "make_topic=")
        if (columns is None) == (schema is None):
            what = "a table needs columns=, or an Arrow schema, and not both"
            raise invalid_argument(
                what, 'give them as in {"id": "int64"}', table=as_given(name), schema=as_given(schema)
            )
        _check_format(framing, reader_schema)
        defined = definition_of(
            name,
            columns if columns is not None else schema,
            key=key,
            hash_buckets=hash_buckets,
            hash_columns=hash_columns,
            range_column=range_column,
            range_splits=range_splits,
            replication_factor=replication_factor,
            history_retention_s=history_retention_s,
            topic=topic,
        )
        with ExitStack() as stack:
            maker = None if make_topic is False else self._topic_maker(stack, required=make_topic is True)
            try:
                made = self._client.create_table(
                    name,
                    defined.schema,
                    defined.partition,
                    replication_factor=defined.replication_factor,
                    history_retention_us=defined.history_retention_us,
                    source=SourceFormat(defined.topic, framing, reader_schema),
                )
            except Refused as e:
                if e.code is not Code.ALREADY_EXISTS or not if_not_exists:
                    raise
                made = self.table(name).handle
            table = Table(self._client, made)
            if maker is not None:
                try:
                    table.topic_partitions = maker.make(made.source.topic, partitions)
                except Refused as e:
                    raise TopicNotMade(name, made.source.topic, e.what) from e
        return table

    def create_topic(self, name: str, *, partitions: int = PARTITIONS) -> int:
        """Make the Kafka topic that feeds the table, unless it exists. Returns the number of its partitions."""
        partitions_of_topic(partitions)
        valid_text(check_token, name, "a table's name")
        topic = self.table(name).handle.source.topic
        with ExitStack() as stack:
            maker = self._topic_maker(stack, required=True)
            return maker.make(topic, partitions) if maker is not None else 0

    @only_reads()
    def sql(self, query: str, parameters: Parameters = None, *, at: dt.datetime | int | None = None) -> Query:
        """Return a query in SQL over tables of this cluster; DuckDB evaluates it. ModuleNotFoundError without DuckDB.

        `parameters`: a list of values for each `?`, or a dict of those for each `$name`. `at`: as in `Table.scan`, for
        all tables. Tablets evaluate comparisons of a column with values, IN, IS NULL and IS NOT NULL, and send only the
        columns that are used. NotApplied for text that is not one SELECT, for tables that do not exist, and for what
        DuckDB cannot evaluate. Nothing is read before the result is asked for.
        """
        from .sql import Query, checked_parameters

        return Query(self._client, self.table, query, checked_parameters(parameters), hybrid_time_of(at))

    def _topic_maker(self, stack: ExitStack, *, required: bool) -> TopicMaker | None:
        """Return a connection to Kafka that `stack` closes; None if no Kafka is known and none is `required`."""
        kafka = self.kafka
        if kafka:
            return stack.enter_context(TopicMaker(kafka, self._kafka_security))
        if required:
            raise invalid_argument(
                "no Kafka is known: the masters were started without one",
                'name it, as in connect(..., kafka="localhost:9092") or `--kafka localhost:9092`',
            )
        return None

    def drop_table(self, name: str, *, if_exists: bool = False) -> bool:
        """Drop a table and its rows. If there is no such table: False with `if_exists`, else NotApplied(NOT_FOUND)."""
        valid(check_flag, if_exists, "if_exists=")
        valid_text(check_token, name, "a table's name")
        try:
            self._client.drop_table(name)
        except Refused as e:
            if e.code is Code.NOT_FOUND and if_exists:
                return False
            raise self._explained(e, name) from e
        return True

    def _explained(self, error: Refused, name: str) -> Refused:
        """Return the error, with the names of the existing tables if it reports that there is no such table."""
        if error.code is not Code.NOT_FOUND:
            return error
        try:
            return unknown_name("table", name, self.tables(), code=Code.NOT_FOUND)
        except Refused:
            return error

    def close(self) -> None:
        """Close all connections. Tables and scans of this cluster cannot be used afterwards."""
        self._client.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<nyala.Cluster {self._address}>"


def partitions_of_topic(partitions: int) -> None:
    """Raise NotApplied unless a topic may have this number of partitions."""
    valid(check_whole, partitions, "partitions= of a topic", 1, PARTITIONS_MAX)


def _check_format(framing: object, reader_schema: object) -> None:
    """Raise NotApplied unless records can be framed so, and the reader schema is JSON or empty."""
    if not isinstance(framing, str) or framing not in kafka_topics.FRAMINGS:
        known = " or ".join(map(repr, kafka_topics.FRAMINGS))
        raise invalid_argument("there is no such framing=", f"it is {known}", got=as_given(framing))
    text = valid(check_kind, reader_schema, str, "reader_schema=")
    if text:
        valid(parse_json, text, "reader_schema", depth_max=limits.SCHEMA_DEPTH_MAX)


def connect(
    address: str | None = None,
    *,
    kafka: str = "",
    kafka_properties: Mapping[str, str] | None = None,
    options: ClientOptions | None = None,
    tls: str | os.PathLike[str] | None = None,
) -> Cluster:
    """Connect to the cluster of these masters: "host:port" or "host:port,host:port"; default: NYALA_MASTERS.

    `kafka`: where the topics of its tables are made, "host:port[,host:port]"; default: the Kafka that the masters name.
    `kafka_properties`: how to log in there: properties of Kafka's Java client, for example {"security.protocol":
    "SSL"}. `tls`: the directory of this client's certificate, which `nyala security issue` makes; default: NYALA_TLS,
    without it no TLS.

    Calls a master before it returns, so that a wrong address raises NotApplied(UNAVAILABLE) here.
    """
    if address is None and not (address := os.environ.get("NYALA_MASTERS")):
        raise invalid_argument(
            'no cluster is named: connect("host:port") takes the masters\' addresses',
            "without them the environment variable NYALA_MASTERS names them, which "
            '`eval "$(nyala env)"` sets for the local stack',
        )
    if not isinstance(address, str) or not address.strip():
        raise invalid_argument(
            "connect() takes the masters' addresses", 'give them as in "localhost:7051"', got=as_given(address)
        )
    if kafka != "":
        valid(kafka_addresses, kafka)
    if options is not None:
        valid(check_kind, options, ClientOptions, "options=")
    if tls is not None and not (isinstance(tls, str | os.PathLike) and os.fspath(tls)):
        raise invalid_argument("tls= takes a directory", 'give it as in tls="/etc/nyala/client"', got=as_given(tls))
    properties = {} if kafka_properties is None else valid(check_kind, kafka_properties, Mapping, "kafka_properties=")
    if any(not isinstance(text, str) for pair in properties.items() for text in pair):
        # The values are not shown: one of them is a password.
        raise invalid_argument("kafka_properties= has names and values that are text", "give each as a str")
    try:
        security = KafkaSecurity(tuple(sorted(properties.items())))
        client = Client(parse_masters(address), options, None if tls is None else load_credentials(tls))
    except Refused as e:
        raise NotApplied(e.code, e.what, e.values) from e
    try:
        client.check_masters()
    except BaseException:
        client.close()
        raise
    return Cluster(client, address, kafka, security)
