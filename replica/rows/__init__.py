"""Table schemas, batches, keys and routing: what clients and tablets must agree on, bit for bit."""

from .batch import BatchDecoder, decode_batch, encode_batch
from .hashing import HASH_VERSION, key_hash, key_hash_one
from .meta import RowError, SourceKey, WriteMeta, crc32c
from .partition import BUCKETS_MAX, PartitionSpec, bucket_of, route, slice_of
from .predicate import OPERATORS, Predicate, predicate_mask, value_scalar
from .schema import OFFSET_COLUMN, OP_COLUMN, TableSchema
from .types import (
    INTEGER_LIKE,
    KEY_TYPES,
    Column,
    ColumnType,
    RowOp,
    type_of_arrow,
    value_from_json,
    value_to_json,
)

__all__ = [
    "BUCKETS_MAX",
    "HASH_VERSION",
    "INTEGER_LIKE",
    "KEY_TYPES",
    "OFFSET_COLUMN",
    "OPERATORS",
    "OP_COLUMN",
    "BatchDecoder",
    "Column",
    "ColumnType",
    "PartitionSpec",
    "Predicate",
    "RowError",
    "RowOp",
    "SourceKey",
    "TableSchema",
    "WriteMeta",
    "bucket_of",
    "crc32c",
    "decode_batch",
    "encode_batch",
    "key_hash",
    "key_hash_one",
    "predicate_mask",
    "route",
    "slice_of",
    "type_of_arrow",
    "value_from_json",
    "value_scalar",
    "value_to_json",
]
