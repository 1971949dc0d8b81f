"""Spark's types for a table's columns."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from nyala.replica.rows import Column, ColumnType, TableSchema

_SPARK: dict[ColumnType, DataType] = {
    ColumnType.BOOL: BooleanType(),
    ColumnType.INT8: ByteType(),
    ColumnType.INT16: ShortType(),
    ColumnType.INT32: IntegerType(),
    ColumnType.INT64: LongType(),
    ColumnType.FLOAT: FloatType(),
    ColumnType.DOUBLE: DoubleType(),
    ColumnType.STRING: StringType(),
    ColumnType.BINARY: BinaryType(),
    ColumnType.DATE: DateType(),
    ColumnType.TIMESTAMP: TimestampType(),
}


def spark_type(column: Column) -> DataType:
    """Return the Spark type that holds a column's values."""
    return DecimalType(column.precision, column.scale) if column.type is ColumnType.DECIMAL else _SPARK[column.type]


def spark_schema(schema: TableSchema, columns: tuple[str, ...] | None = None) -> StructType:
    """Return the Spark schema of the named columns, in that order, or of all."""
    names = schema.names if columns is None else columns
    return StructType([StructField(n, spark_type(schema.column(n)), schema.column(n).nullable) for n in names])
