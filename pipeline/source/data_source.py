"""The Spark data source `nyala`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader
from pyspark.sql.types import StructType

from nyala.replica.client import TableHandle, shared_client
from nyala.replica.types import Code, Refused

from .reader import Reader, ReadOptions
from .types import spark_schema
from .writer import WriteOptions, Writer


class NyalaSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("nyala").option("masters", ...).option("table", ...)`; reads and batch-writes."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "nyala"

    def schema(self) -> StructType:
        """Return the table's columns, or those that the option `columns` names."""
        options = ReadOptions.of(self.options)
        return spark_schema(_table(options).schema, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the schema's columns: `.schema(...)` prunes like the option `columns`."""
        options = ReadOptions.of(self.options)
        handle = _table(options)
        wanted = spark_schema(handle.schema, tuple(schema.names))
        for asked, have in zip(schema.fields, wanted.fields, strict=True):
            if asked.dataType != have.dataType:
                told = f"column {have.name} is {have.dataType.simpleString()}, not {asked.dataType.simpleString()}"
                raise Refused(Code.INVALID_ARGUMENT, told)
        return Reader(options, handle, tuple(schema.names))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer of the schema's columns, which must include the key."""
        if overwrite:
            raise Refused(Code.INVALID_ARGUMENT, 'a table cannot be overwritten: use mode("append"), or drop it first')
        options = WriteOptions.of(self.options)
        handle = _table(options)
        handle.schema.column_ids(schema.names)
        if missing := [name for name in handle.schema.key if name not in schema.names]:
            raise Refused(Code.INVALID_ARGUMENT, f"the key's column {missing[0]!r} is missing from the DataFrame")
        return Writer(options, handle)


def _table(options: ReadOptions | WriteOptions) -> TableHandle:
    return shared_client(options.masters, options.tls).get_table(options.table)
