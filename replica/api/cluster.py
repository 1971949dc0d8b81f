"""The door: connect to a cluster, list, create, drop and open tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nyala.replica.base import Code, Refused
from nyala.replica.client import Client, ClientOptions, NotApplied, SourceFormat, parse_masters

from .definitions import Columns, partition_of, schema_of
from .mistakes import mistake, unknown
from .table import Table


class Cluster:
    """A connection to a cluster; a context manager. Made by `nyala.connect`; any thread."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self._address = address

    @property
    def client(self) -> Client:
        """The client underneath, for operators' tools."""
        return self._client

    def tables(self) -> list[str]:
        """Names of all tables, sorted."""
        return sorted(t.name for t in self._client.list_tables())

    def table(self, name: str) -> Table:
        """The table of that name; NotApplied(NOT_FOUND) says which tables there are."""
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
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table.

        `columns`: {"id": "int64", "price": "decimal(9,2)", "name": "string not null"}, pairs, or a pa.Schema, which
        may also be given as `schema`. `key`: one name or several, in order. `hash_buckets` times the ranges that
        `range_splits` make is the number of tablets; `hash_columns` are the key's unless named.
        `history_retention_s`: how far back `at=` may reach; 0 is the cluster's default. `topic`, `framing` and
        `reader_schema` describe the Kafka topic that feeds it, `writes.<name>` unless named.
        """
        given = columns if columns is not None else schema
        if given is None:
            raise mistake("a table needs columns, or an Arrow schema")
        table_schema = schema_of(given, key)
        spec = partition_of(
            table_schema,
            hash_buckets=hash_buckets,
            hash_columns=hash_columns,
            range_column=range_column,
            range_splits=range_splits,
        )
        try:
            made = self._client.create_table(
                name,
                table_schema,
                spec,
                replication_factor=replication_factor,
                history_retention_us=int(history_retention_s * 1e6),
                source=SourceFormat(topic or f"writes.{name}", framing, reader_schema),
            )
        except Refused as e:
            if e.code is Code.ALREADY_EXISTS and if_not_exists:
                return self.table(name)
            raise
        return Table(self._client, made)

    def drop_table(self, name: str, *, if_exists: bool = False) -> bool:
        """Drop a table and its rows; whether there was one. NotApplied(NOT_FOUND) unless `if_exists`."""
        try:
            self._client.drop_table(name)
        except Refused as e:
            if e.code is Code.NOT_FOUND and if_exists:
                return False
            raise self._explained(e, name) from e
        return True

    def _explained(self, error: Refused, name: str) -> Refused:
        """For a table that does not exist: the names that do."""
        if error.code is not Code.NOT_FOUND:
            return error
        try:
            return unknown("table", name, self.tables(), code=Code.NOT_FOUND)
        except Refused:
            return error

    def close(self) -> None:
        """Close all connections. Tables and scans of this cluster end with it."""
        self._client.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<nyala.Cluster {self._address}>"


def connect(address: str, *, options: ClientOptions | None = None) -> Cluster:
    """Connect to the cluster of these masters: "host:port" or "host:port,host:port".

    Asks a master before it returns, so that a wrong address is told here and soon: NotApplied(UNAVAILABLE).
    """
    if not isinstance(address, str) or not address.strip():
        raise mistake('connect() takes the masters\' addresses, as in "localhost:7051"', got=repr(address)[:80])
    try:
        client = Client(parse_masters(address), options)
    except Refused as e:
        raise NotApplied(e.code, e.what, **e.values) from e  # type: ignore[arg-type]
    try:
        client.list_tables()
    except BaseException:
        client.close()
        raise
    return Cluster(client, address)
