"""Table schemas, batches, keys and routing: what clients and tablets must agree on, bit for bit."""

from .batch import BatchDecoder, decode_batch, encode_batch
from .buffers import decimal_words, fixed_width_values, lengths_at, offsets_of, value_bytes
from .checksum import CHECKSUM_DEFINITION, NO_ROWS, RowSum, sum_of_rows
from .condition_bounds import ConditionsSize, conditions_size
from .hashing import HASH_VERSION, key_hash, key_hash_one
from .listed import Listed
from .message import MalformedMessage
from .meta import RowError, SourceKey, WriteMeta, crc32c
from .partition import BUCKETS_MAX, PartitionSpec, bucket_of, route, slice_of
from .predicate import OPERATORS, Conditions, Predicate, never_stop, predicate_mask, value_scalar
from .scan_spec import ScanSpec
from .schema import OFFSET_COLUMN, OP_COLUMN, TableSchema
from .types import (
    INTEGER_LIKE,
    KEY_TYPES,
    VARIABLE_LENGTH,
    Column,
    ColumnType,
    RowOp,
    type_of_arrow,
    value_from_json,
    value_to_json,
)
from .value_list import read_values

__all__ = [
    "BUCKETS_MAX",
    "CHECKSUM_DEFINITION",
    "HASH_VERSION",
    "INTEGER_LIKE",
    "KEY_TYPES",
    "NO_ROWS",
    "OFFSET_COLUMN",
    "OPERATORS",
    "OP_COLUMN",
    "VARIABLE_LENGTH",
    "BatchDecoder",
    "Column",
    "ColumnType",
    "Conditions",
    "ConditionsSize",
    "Listed",
    "MalformedMessage",
    "PartitionSpec",
    "Predicate",
    "RowError",
    "RowOp",
    "RowSum",
    "ScanSpec",
    "SourceKey",
    "TableSchema",
    "WriteMeta",
    "bucket_of",
    "conditions_size",
    "crc32c",
    "decimal_words",
    "decode_batch",
    "encode_batch",
    "fixed_width_values",
    "key_hash",
    "key_hash_one",
    "lengths_at",
    "never_stop",
    "offsets_of",
    "predicate_mask",
    "read_values",
    "route",
    "slice_of",
    "sum_of_rows",
    "type_of_arrow",
    "value_bytes",
    "value_from_json",
    "value_scalar",
    "value_to_json",
]
